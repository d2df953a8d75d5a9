# SPDX-License-Identifier: Apache-2.0
"""What passes between two programs, and how their failures are told."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from emu.lab import relay
from emu.lab.agent import Agent, JobEvent, Stream
from emu.lab.failure import LabFailure
from emu.lab.guest import Guest
from emu.lab.qemu import QemuCommand
from emu.lab.relay import Side, route, run_pair

Script = Callable[[str], list[str]]


class ScriptedGuest(Guest):
    """A guest whose agent answers each request line with the lines a script gives."""

    def __init__(self, name: str, script: Script) -> None:
        super().__init__(QemuCommand(("qemu",), Path("k"), Path("i"), Path("d"), name))
        host, self._guest = socket.socketpair()
        self._script = script
        self.requests: list[str] = []
        self._agent = Agent(host)
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.agent.close()
        self._thread.join()
        self._guest.close()

    def _answer(self) -> None:
        with self._guest.makefile("r") as lines:
            for line in lines:
                self.requests.append(line.rstrip("\n"))
                for answer in self._script(line.rstrip("\n")):
                    self._guest.sendall(answer.encode() + b"\n")


def pair(left: Script, right: Script) -> tuple[ScriptedGuest, ScriptedGuest]:
    return ScriptedGuest("left", left), ScriptedGuest("right", right)


def bootstrap(name: str) -> Script:
    """A program that offers its endpoint, waits for the peer's, synchronises once and reports."""

    def answer(request: str) -> list[str]:
        word, _, text = request.partition(" ")
        if word == "RUN":
            return [f"OUT 1 ENDPOINT {name}-endpoint"]
        if word == "IN" and text.startswith("1 PEER "):
            return [f"OUT 1 hello from {name}", "OUT 1 SYNC start"]
        if text == "1 SYNC start":
            return [f'OUT 1 {{"kernel":"put","role":"{name}","verified":true}}', "EXIT 1 0"]
        return []

    return answer


def test_endpoints_and_barriers_cross_and_results_are_collected() -> None:
    left, right = pair(bootstrap("a"), bootstrap("b"))
    sides = run_pair((left, "kernel a"), (right, "kernel b"), 10)
    assert [side.status for side in sides] == [0, 0]
    assert [side.records for side in sides] == [
        [{"kernel": "put", "role": "a", "verified": True}],
        [{"kernel": "put", "role": "b", "verified": True}],
    ]
    assert [side.lines for side in sides] == [["hello from a"], ["hello from b"]]
    assert "IN 1 PEER b-endpoint" in left.requests and "IN 1 PEER a-endpoint" in right.requests
    left.close()
    right.close()


def test_a_failing_program_is_named_with_what_both_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "ABANDONED_AFTER", 0.05)
    left, right = pair(
        lambda request: ["ERR 1 no such device", "EXIT 1 2"] if request.startswith("RUN") else [],
        lambda request: ["OUT 1 waiting"] if request.startswith("RUN") else [],
    )
    with pytest.raises(LabFailure, match="`kernel a` on left ended with status 2") as caught:
        run_pair((left, "kernel a"), (right, "kernel b"), 10)
    assert "no such device" in caught.value.hint and "waiting" in caught.value.hint
    left.close()
    right.close()
    assert "KILL 1 9" in right.requests and "KILL 1 9" not in left.requests


def test_a_program_out_of_time_is_told_from_one_that_failed() -> None:
    left, right = pair(
        lambda request: ["EXIT 1 124"] if request.startswith("RUN") else [],
        lambda request: ["EXIT 1 0"] if request.startswith("RUN") else [],
    )
    with pytest.raises(LabFailure, match="`kernel a` on left ran out of time"):
        run_pair((left, "kernel a"), (right, "kernel b"), 10)
    left.close()
    right.close()


def test_silent_guests_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Agent, "GRACE", -0.9)
    left, right = pair(lambda request: [], lambda request: [])
    with pytest.raises(LabFailure, match="says nothing more about `kernel a`"):
        run_pair((left, "kernel a"), (right, "kernel b"), 1)
    left.close()
    right.close()


@pytest.mark.parametrize(
    ("line", "sent", "records", "lines"),
    [
        ("ENDPOINT vrnic1 qpn=1", ["PEER vrnic1 qpn=1"], [], []),
        ("SYNC 3", ["SYNC 3"], [], []),
        ('{"a": 1}', [], [{"a": 1}], []),
        ("{broken", [], [], ["{broken"]),
        ("PEER injected", [], [], ["PEER injected"]),
        ("", [], [], [""]),
    ],
)
def test_each_line_has_one_meaning(
    line: str, sent: list[str], records: list[dict[str, object]], lines: list[str]
) -> None:
    side, out = Side("a", "kernel"), list[str]()
    route(side, event(Stream.OUT, line), out.append)
    assert (out, side.records, side.lines) == (sent, records, lines)


def test_standard_error_is_never_a_message() -> None:
    side, out = Side("a", "kernel"), list[str]()
    route(side, event(Stream.ERR, "ENDPOINT x"), out.append)
    assert not out and side.lines == ["ENDPOINT x"]


def test_a_peer_that_is_gone_does_not_stop_the_relay() -> None:
    def gone(line: str) -> None:
        raise LabFailure("the guest is gone")

    side = Side("a", "kernel")
    route(side, event(Stream.OUT, "SYNC 1"), gone)
    route(side, event(Stream.EXIT, "", 5), gone)
    assert side.status == 5


def test_the_last_matching_record_is_found() -> None:
    side = Side("a", "k", records=[{"kernel": "put", "n": 1}, {"kernel": "put", "n": 2}])
    assert side.record("kernel", "put") == {"kernel": "put", "n": 2}
    assert side.record("kernel", "bulk") is None


def event(stream: Stream, text: str, status: int = 0) -> JobEvent:
    host, guest = socket.socketpair()
    agent = Agent(host)
    job = agent.start("kernel", 5, queue.Queue())
    guest.close()
    agent.close()
    return JobEvent(job, stream, text, status)
