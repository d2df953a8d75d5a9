# SPDX-License-Identifier: Apache-2.0
"""A WRITE that is a flag for the data before it: on which transport it needs the fence, and that it helps."""

from __future__ import annotations

import pytest

from emu.clock import MS, US
from emu.nic.work import Opcode, Sge, Status, Transport
from emu.uet.headers import parse_request
from emu.wire.uet_names import PdsType
from tests.roce.bench import BASE, LKEY, RKEY
from tests.uet.bench import LATENCY, Nic, decode, pair

DATA, FLAG = 4000, 0x8000
RULES = [
    (Transport.UET_ROD, False, True),
    (Transport.UET_ROD, True, True),
    (Transport.UET_RUD, False, False),
    (Transport.UET_RUD, True, True),
    (Transport.UET_RUDI, False, False),
    (Transport.UET_RUDI, True, True),
]


@pytest.mark.parametrize(("transport", "fence", "ordered"), RULES)
@pytest.mark.parametrize("lost", [False, True])
def test_a_flag_is_behind_its_data_where_the_rules_say_so(
    transport: Transport, fence: bool, ordered: bool, lost: bool
) -> None:
    """One data packet takes a detour, or is lost at first; the flag goes straight."""
    late: list[bytes] = []

    def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        packet = decode(frame)
        header = None
        if sender.name == "a" and (packet.is_request or packet.kind == PdsType.RUDI_REQ):
            header = parse_request(frame, packet.ses, packet.end, packet.following)
        if header is not None and header.message_offset == 1024 and not late:
            late.append(frame)
            if lost:
                return []
            # A path of ordered delivery keeps order, so the packets behind it are late too.
            return [(20 * US, frame)]
        if transport is Transport.UET_ROD and late and not lost and sender.name == "a":
            return [(20 * US, frame)]
        return [(LATENCY, frame)]

    net, a, b = pair(transport, impair)
    a.host.regions[LKEY].data[:DATA] = b"\xaa" * DATA
    a.host.regions[LKEY].data[FLAG : FLAG + 8] = b"\x01" * 8
    memory = b.host.regions[RKEY].data
    a.post(Opcode.WRITE, DATA)
    a.post(
        Opcode.WRITE,
        8,
        sges=[Sge(BASE + FLAG, 8, LKEY)],
        remote_address=BASE + FLAG,
        fence=fence,
    )
    seen_early = False
    while len(a.host.completions) < 2:
        net.scheduler.run(until=net.scheduler.now() + US // 2)
        if any(memory[FLAG : FLAG + 8]):
            seen_early |= memory[:DATA] != b"\xaa" * DATA
        assert net.scheduler.now() < 5_000 * MS
    assert a.host.statuses == [(0, Status.SUCCESS), (1, Status.SUCCESS)]
    assert late and memory[:DATA] == b"\xaa" * DATA and memory[FLAG : FLAG + 8] == b"\x01" * 8
    assert seen_early != ordered
