# SPDX-License-Identifier: Apache-2.0
"""Plays every row of the negative table in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emu.nic.work import Access, QpState, Sge
from emu.roce import RocePacket
from emu.wire.headers import AETH
from emu.wire.icrc import icrc
from emu.wire.opcodes import RcOpcode as Op
from tests.roce.bench import BASE, LKEY, RKEY, Host, Pair, Region, Side, silence
from tests.roce.negative_rows import (
    Arrive,
    Change,
    Forget,
    P,
    Post,
    Receive,
    RequesterRow,
    ResponderRow,
    Step,
    Wait,
)
from tests.roce.negative_table import ELSEWHERE, REQUESTER, RESPONDER, ROWS

_IP = 14
_PARTS = {
    Op.READ_RESPONSE_FIRST: "FIRST",
    Op.READ_RESPONSE_MIDDLE: "MIDDLE",
    Op.READ_RESPONSE_LAST: "LAST",
    Op.READ_RESPONSE_ONLY: "ONLY",
    Op.ATOMIC_ACKNOWLEDGE: "ATOMIC",
}


def answer(packet: RocePacket) -> str:
    """A response as rows write it."""
    if packet.opcode != Op.ACKNOWLEDGE:
        return f"{_PARTS[Op(packet.opcode)]} {packet.psn}"
    code = AETH.unpack_from(packet.frame, packet.extension)[0] >> 24
    name = "ACK" if code < 0x20 else "RNR" if code < 0x40 else f"NAK{code:x}"
    return f"{name} {packet.psn}"


def frame_of(step: Arrive, sender: Side) -> bytes:
    """The frame that arrives."""
    frame = bytearray(
        sender.frame(step.opcode, step.psn & 0xFFFFFF, step.extension, step.payload, ack_request=step.ask,
                     **step.lies)
    )  # fmt: skip
    for at, value in step.edits:
        if value == b"sum":
            value = _header_checksum(bytes(frame[_IP:34]))
        elif value == b"udp":
            value = _udp_checksum(bytes(frame[_IP:]))
        at %= len(frame)
        frame[at : at + len(value)] = value
    if step.edits and not step.sealed:
        frame[-4:] = icrc(bytes(frame[_IP:-4]))
    if step.swap_icrc:
        frame[-4:] = frame[-4:][::-1]
    if step.flip is not None:
        frame[step.flip] ^= 1
    return bytes(frame) + step.tail


def _ones(octets: bytes) -> int:
    total = sum(int.from_bytes(octets[at : at + 2].ljust(2, b"\0"), "big") for at in range(0, len(octets), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _header_checksum(header: bytes) -> bytes:
    return _ones(header[:10] + bytes(2) + header[12:]).to_bytes(2, "big")


def _udp_checksum(packet: bytes) -> bytes:
    datagram = packet[20:26] + bytes(2) + packet[28:]
    pseudo = packet[12:20] + b"\0\x11" + len(datagram).to_bytes(2, "big")
    return _ones(pseudo + datagram).to_bytes(2, "big")


def play(steps: tuple[Step, ...], pair: Pair, own: Side, peer: Side) -> None:
    """Do to ``own`` what the row says."""
    for step in steps:
        match step:
            case Arrive():
                own.deliver(frame_of(step, peer))
            case Receive(index, length, lkey):
                own.post_receive(index, length, BASE, LKEY if lkey is None else lkey)
            case Post(opcode, length, fields):
                more: dict[str, Any] = dict(fields)
                if "lkey" in more:
                    more["sges"] = [Sge(BASE, length, more.pop("lkey"))]
                own.post(opcode, length, **more)
            case Change(state):
                own.modify(state)
            case Forget(key):
                del own.host.regions[key]
            case Wait(duration):
                pair.scheduler.run(until=pair.scheduler.now() + duration)


def completions(host: Host) -> str:
    """All of them, as rows write it."""
    return ", ".join(f"{index} {status.name}" for index, status in host.statuses)


def state_of(side: Side) -> QpState:
    """The engine's own moves count after what modify said."""
    return side.host.moves[-1][0] if side.host.moves else side.attributes.state


def dropped(side: Side) -> int:
    """Packets that came to nothing, by parser and engine."""
    return len(side.dropped) + len(side.host.drops)


@pytest.mark.parametrize("row", RESPONDER, ids=lambda row: row.id)
def test_responder(row: ResponderRow) -> None:
    pair = Pair(silence, **{"psn": P, **row.setup})
    host = pair.b.host
    if row.rights is not None:
        host.regions[RKEY].access = row.rights
    play(row.steps, pair, pair.b, pair.a)
    assert ", ".join(answer(packet) for packet in pair.b.packets()) == row.wire
    assert completions(host) == row.done
    assert ", ".join(event.name for event in host.events) == row.events
    assert state_of(pair.b) is row.state
    if row.memory is not None:
        assert row.memory(bytes(host.regions[RKEY].data))
    if row.drops is not None:
        assert dropped(pair.b) == row.drops
    if row.atomics is not None:
        assert host.atomics == row.atomics


@pytest.mark.parametrize("row", REQUESTER, ids=lambda row: row.id)
def test_requester(row: RequesterRow) -> None:
    pair = Pair(silence, **{"psn": P, **row.setup})
    host = pair.a.host
    host.regions[0x33] = Region(BASE, bytearray(64), Access.REMOTE_READ)
    play(row.steps, pair, pair.a, pair.b)
    assert ", ".join(f"{name} {psn}" for name, psn in pair.a.trace()) == row.sent
    assert completions(host) == row.done
    assert ", ".join(event.name for event in host.events) == row.events
    if row.state is not QpState.RTS or QpState.SQD not in [state for state, _ in host.moves]:
        assert state_of(pair.a) is row.state
    if row.memory is not None:
        assert bytes(host.regions[LKEY].data[: len(row.memory)]) == row.memory
    if row.drops is not None:
        assert dropped(pair.a) == row.drops


def test_no_row_of_the_reference_is_missing() -> None:
    names = [row.id for row in RESPONDER] + [row.id for row in REQUESTER]
    played = {name.partition("-")[0] for name in names} | set(ELSEWHERE)
    assert played == {f"{part}{number}" for part, count in ROWS.items() for number in range(1, count + 1)}


@pytest.mark.parametrize("row", sorted(ELSEWHERE))
def test_rows_that_are_played_elsewhere_are(row: str) -> None:
    file, _, name = ELSEWHERE[row].partition("::")
    assert f"def {name}(" in (Path(__file__).parents[2] / file).read_text()
