# SPDX-License-Identifier: Apache-2.0
"""The control channel: the real agent on a pseudo terminal, and the host's end against misbehaving agents."""

from __future__ import annotations

import os
import pty
import select
import shutil
import socket
import subprocess
import threading
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from emu.lab.agent import TIMED_OUT, Agent, Stream
from emu.lab.failure import LabFailure
from emu.setup.cache import CHECKOUT


@pytest.fixture(scope="module")
def agent_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on this host to build guest/init/agent.c")
    program = tmp_path_factory.mktemp("agent") / "agent"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, "-o", str(program), str(CHECKOUT / "guest/init/agent.c")], check=True)
    return program


class Bridge:
    """Joins a pseudo terminal, which stands for the virtio-serial port, with a socket as QEMU would."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        tty.setraw(slave)
        self.device = os.ttyname(slave)
        self._slave = slave
        self.host, self._guest = socket.socketpair()
        self._stop_reader, self._stop_writer = os.pipe()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.close(self._stop_writer)
        self._thread.join()
        self._guest.close()
        for fd in (self.master, self._slave, self._stop_reader):
            os.close(fd)

    def _carry(self) -> None:
        while True:
            guest = self._guest.fileno()
            readable, _, _ = select.select([self.master, guest, self._stop_reader], [], [])
            if self._stop_reader in readable:
                return
            if self.master in readable:
                self._guest.sendall(os.read(self.master, 4096))
            if guest in readable:
                data = self._guest.recv(2048)
                if not data:
                    return
                os.write(self.master, data)


def ended(pid: int) -> bool:
    """Whether the process ends within seconds; one that only waits to be reaped has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], 5)[0])
    finally:
        os.close(fd)


@pytest.fixture
def agent(agent_program: Path) -> Iterator[Agent]:
    bridge = Bridge()
    with subprocess.Popen([str(agent_program), bridge.device]) as process:
        agent = Agent(bridge.host)
        try:
            assert agent.wait_ready(10)
            yield agent
        finally:
            agent.close()
            bridge.close()
            process.kill()


def test_it_says_which_kernel_runs(agent: Agent) -> None:
    assert agent.release == os.uname().release


def test_a_command_gives_its_lines_and_status(agent: Agent) -> None:
    result = agent.run("echo one; echo two >&2; echo; exit 3")
    assert (result.status, result.out, result.err) == (3, ("one", ""), ("two",))


def test_output_without_a_final_line_break_is_kept(agent: Agent) -> None:
    assert agent.run("printf abc").out == ("abc",)


def test_much_output_arrives_whole_and_in_order(agent: Agent) -> None:
    assert agent.run("seq 1 5000", 30).out == tuple(str(number) for number in range(1, 5001))


def test_a_line_longer_than_the_agents_buffer_is_cut_not_lost(agent: Agent) -> None:
    result = agent.run("head -c 20000 /dev/zero | tr '\\0' x; echo")
    assert "".join(result.out) == "x" * 20000 and len(result.out) == 3


def test_input_reaches_the_command_line_by_line(agent: Agent) -> None:
    job = agent.start('while read line; do echo "got $line"; done; echo end', 10)
    job.send("a b")
    job.send("c")
    job.close_input()
    assert job.wait().out == ("got a b", "got c", "end")


def test_commands_run_side_by_side(agent: Agent) -> None:
    waiting = agent.start("read line; echo $line", 10)
    assert agent.run("echo first").out == ("first",)
    waiting.send("second")
    assert waiting.wait().out == ("second",)


def test_a_command_that_takes_too_long_is_ended_with_its_children(agent: Agent) -> None:
    result = agent.run("echo $$; sh -c 'echo $$; exec sleep 60'", 1)
    assert result.status == TIMED_OUT
    assert len(result.out) == 2
    assert all(ended(int(pid)) for pid in result.out)


def test_what_a_command_leaves_behind_is_ended(agent: Agent) -> None:
    result = agent.run("sleep 60 & echo $!", 20)
    assert result.status == 0
    assert ended(int(result.out[0]))


def test_a_signal_shows_in_the_status(agent: Agent) -> None:
    job = agent.start("echo ready; sleep 60", 30)
    assert job.events.get(timeout=10).text == "ready"
    job.kill(15)
    assert job.wait().status == 128 + 15


def test_more_commands_than_it_has_room_for_are_refused(agent: Agent) -> None:
    jobs = [agent.start("read line", 30) for _ in range(16)]
    refused = agent.run("true")
    assert (refused.status, refused.err) == (126, ("agent: 16 commands run already",))
    for job in jobs:
        job.send("go")
        assert job.wait().status == 0


@pytest.mark.parametrize(
    "request_line", ["NONSENSE", "RUN", "RUN 7", "RUN 7 x", "RUN 7 0 true", "FROB 7", "IN 99 x"]
)
def test_bad_requests_do_not_stop_it(agent: Agent, request_line: str) -> None:
    agent.request(request_line)
    assert agent.run("echo still here").out == ("still here",)


def test_check_raises_with_what_the_command_said(agent: Agent) -> None:
    with pytest.raises(LabFailure, match="ended with status 1") as caught:
        agent.run("echo why >&2; exit 1").check()
    assert "why" in caught.value.hint


def test_lines_that_would_break_the_protocol_are_refused(agent: Agent) -> None:
    with pytest.raises(LabFailure, match="line break"):
        agent.start("echo a\necho b", 5)
    with pytest.raises(LabFailure, match="limit"):
        agent.start("x" * 9000, 5)
    assert agent.run("echo fine").out == ("fine",)


def test_a_guest_that_dies_ends_its_commands() -> None:
    host, guest = socket.socketpair()
    agent = Agent(host)
    guest.sendall(b"READY 1 6.12\n")
    assert agent.wait_ready(10)
    job = agent.start("sleep 100", 100)
    guest.close()
    result = job.wait()
    assert (result.status, result.err) == (255, ("the guest is gone",))
    assert agent.gone
    agent.close()


def test_a_guest_that_restarts_ends_its_commands_and_takes_new_ones() -> None:
    host, guest = socket.socketpair()
    agent = Agent(host)
    guest.sendall(b"READY 1 6.12\n")
    assert agent.wait_ready(10)
    assert agent.starts == 1 and not agent.wait_restart(1, 0.01)
    job = agent.start("sleep 100", 100)
    guest.sendall(b"READY 1 7.0\n")
    assert job.wait().err == ("the guest restarted",)
    assert agent.wait_restart(1, 10) and agent.starts == 2 and agent.release == "7.0"
    again = agent.start("true", 5)
    guest.sendall(f"EXIT {again.number} 0\n".encode())
    assert again.wait().status == 0
    guest.close()
    agent.close()


def test_garbage_from_the_guest_is_ignored() -> None:
    host, guest = socket.socketpair()
    agent = Agent(host)
    guest.sendall(b"\xff\xfe\n\nOUT\nOUT x y\nEXIT 5\nEXIT 1 what\nREADY 1 6.12\n")
    assert agent.wait_ready(10)
    job = agent.start("true", 5)
    guest.sendall(f"OUT {job.number} \xff\nEXIT {job.number} oops\n".encode("latin-1"))
    result = job.wait()
    assert (result.status, result.out) == (255, ("\ufffd",))
    guest.close()
    agent.close()


def test_events_of_several_jobs_share_a_queue() -> None:
    host, guest = socket.socketpair()
    agent = Agent(host)
    first = agent.start("a", 5)
    second = agent.start("b", 5, first.events)
    guest.sendall(f"OUT {second.number} x\nERR {first.number} y\nEXIT {second.number} 0\n".encode())
    seen = [first.events.get(timeout=10) for _ in range(3)]
    assert [(event.job, event.stream, event.text) for event in seen] == [
        (second, Stream.OUT, "x"),
        (first, Stream.ERR, "y"),
        (second, Stream.EXIT, ""),
    ]
    guest.close()
    agent.close()
