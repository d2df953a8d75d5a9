# SPDX-License-Identifier: Apache-2.0
"""The responder against a scripted requester: the negative tables of the wire reference (8.1 to 8.5)."""

from __future__ import annotations

from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from emu.clock import US
from emu.nic.engine import AsyncEvent
from emu.nic.work import Access, CompletionOpcode, Opcode, QpState, ReceiveRequest, Sge, Status
from emu.roce.syndrome import Nak
from emu.wire import roce
from emu.wire.headers import AETH, ATOMIC_ACK, pack_atomic_eth, pack_immediate, pack_reth
from emu.wire.icrc import icrc
from emu.wire.opcodes import RcOpcode as Op
from tests.nic.fakes import FakePacket
from tests.roce.bench import ALL_ACCESS, BASE, LKEY, RKEY, Pair, pattern, silence

PSN = 100
MTU = 1024


class Script:
    """Requests by hand to ``b``; its answers are read back as (name, PSN, syndrome, MSN)."""

    def __init__(self, **changes: Any) -> None:
        self.pair = Pair(silence, psn=PSN, **changes)
        self.b = self.pair.b
        self.host = self.b.host
        self._seen = 0

    def send(
        self,
        opcode: int,
        psn: int,
        extension: bytes = b"",
        payload: bytes = b"",
        *,
        ack: bool = True,
        solicited: bool = False,
        **lies: Any,
    ) -> list[tuple[str, int, int, int]]:
        """Deliver one request, return the answers it drew."""
        frame = self.pair.a.frame(
            opcode, psn, extension, payload, ack_request=ack, solicited=solicited, **lies
        )
        self.b.deliver(frame)
        return self.answers()

    def answers(self) -> list[tuple[str, int, int, int]]:
        """What ``b`` sent since the last look."""
        new = self.b.packets()[self._seen :]
        self._seen += len(new)
        found = []
        for packet in new:
            assert packet.info is not None
            syndrome, msn = (0x1F, -1)
            if packet.info.extension_size:
                syndrome, msn = divmod(AETH.unpack_from(packet.frame, packet.extension)[0], 1 << 24)
            found.append((packet.info.name.removeprefix("RC "), packet.psn, syndrome, msn))
        return found

    def write(self, psn: int, payload: bytes, *, offset: int = 0) -> list[tuple[str, int, int, int]]:
        """A WRITE ONLY."""
        return self.send(Op.WRITE_ONLY, psn, pack_reth(BASE + offset, RKEY, len(payload)), payload)

    def check_failed(
        self, nak: Nak, psn: int, answers: list[tuple[str, int, int, int]], msn: int = 0
    ) -> None:
        """The last answer is ``nak``, and the queue pair is in ERR for good."""
        assert answers[-1] == ("ACKNOWLEDGE", psn, nak, msn)
        assert [state for state, _ in self.host.moves] == [QpState.ERR]
        assert self.send(Op.SEND_ONLY, psn) == []


@pytest.fixture
def script() -> Script:
    return Script()


# Acceptance (8.1)


@pytest.mark.parametrize(
    "lies",
    [
        {"pkey": 0x1234},
        {"source_gid": bytes(10) + b"\xff\xff" + bytes([10, 77, 0, 9])},
        {"dest_gid": bytes(10) + b"\xff\xff" + bytes([10, 77, 0, 9])},
        {"source_gid": bytes(15) + b"\1", "dest_gid": bytes(15) + b"\2"},
    ],
)
def test_packets_of_another_connection_are_dropped(script: Script, lies: dict[str, Any]) -> None:
    assert script.send(Op.WRITE_ONLY, PSN, pack_reth(BASE, RKEY, 0), **lies) == []
    assert len(script.host.drops) == 1
    assert script.write(PSN, b"x") == [("ACKNOWLEDGE", PSN, 0x1F, 1)]


def test_two_limited_members_of_a_partition_do_not_talk() -> None:
    script = Script(pkey=0x7FFF)
    assert script.write(PSN, b"x") == []
    assert "P_Key" in script.host.drops[0][1]


@pytest.mark.parametrize("pkey", [0x0000, 0x8000])
def test_the_invalid_partition_does_not_talk(pkey: int) -> None:
    assert Script(pkey=pkey).write(PSN, b"x") == []


def test_a_full_and_a_limited_member_talk(script: Script) -> None:
    assert script.send(Op.WRITE_ONLY, PSN, pack_reth(BASE, RKEY, 0), pkey=0x7FFF) == [
        ("ACKNOWLEDGE", PSN, 0x1F, 1)
    ]


@pytest.mark.parametrize("opcode", [0x24, 0x64, 0x44, 0xA4])
def test_other_transports_are_dropped(script: Script, opcode: int) -> None:
    if opcode == 0x44:
        # No template for this one: change the opcode of a finished frame and make its ICRC right again.
        frame = bytearray(script.pair.a.frame(Op.SEND_ONLY, PSN))
        frame[42] = opcode
        script.b.deliver(bytes(frame[:-4]) + icrc(bytes(frame[14:-4])))
    else:
        extension = {0x64: bytes(8), 0xA4: bytes(4)}.get(opcode, b"")
        script.send(opcode, PSN, extension)
    assert script.answers() == []
    assert len(script.host.drops) == 1
    assert script.b.engine.expected_psn == PSN


@pytest.mark.parametrize("state", [QpState.RESET, QpState.ERR])
def test_requests_in_states_without_a_receiver_are_dropped(script: Script, state: QpState) -> None:
    script.b.modify(state)
    assert script.write(PSN, b"x") == []
    assert state.name in script.host.drops[0][1]


def test_requests_in_rtr_are_served_and_reported() -> None:
    script = Script()
    script.b.modify(QpState.RESET)
    script.b.modify(QpState.INIT)
    script.b.modify(QpState.RTR)
    assert script.write(PSN, b"x") == [("ACKNOWLEDGE", PSN, 0x1F, 1)]
    assert script.write(PSN + 1, b"y") == [("ACKNOWLEDGE", PSN + 1, 0x1F, 2)]
    assert script.host.events == [AsyncEvent.COMM_EST]


def test_non_zero_pad_bytes_do_not_reach_memory(script: Script) -> None:
    frame = bytearray(script.pair.a.frame(Op.WRITE_ONLY, PSN, pack_reth(BASE, RKEY, 5), b"hello"))
    frame[-7:-4] = b"\xee\xee\xee"
    script.b.deliver(bytes(frame[:-4]) + icrc(bytes(frame[14:-4])))
    assert script.pair.remote(script.b)[:8] == b"hello\0\0\0"


def test_migrated_bit_does_not_matter(script: Script) -> None:
    frame = bytearray(script.pair.a.frame(Op.WRITE_ONLY, PSN, pack_reth(BASE, RKEY, 0), ack_request=True))
    frame[43] ^= 0x40
    script.b.deliver(bytes(frame[:-4]) + icrc(bytes(frame[14:-4])))
    assert script.answers() == [("ACKNOWLEDGE", PSN, 0x1F, 1)]


# Sequence and duplicates (8.2)


def test_one_gap_draws_one_nak(script: Script) -> None:
    nak = ("ACKNOWLEDGE", PSN, Nak.SEQUENCE, 0)
    assert script.write(PSN + 1, b"b") == [nak]
    assert script.write(PSN + 2, b"c") == []
    assert script.write(PSN, b"a") == [("ACKNOWLEDGE", PSN, 0x1F, 1)]
    assert script.write(PSN + 2, b"c") == [("ACKNOWLEDGE", PSN + 1, Nak.SEQUENCE, 1)]


@pytest.mark.parametrize(("distance", "ahead"), [(0x7FFFFF, True), (0x800000, False)])
def test_half_the_circle_ahead_is_a_gap_and_beyond_a_duplicate(
    script: Script, distance: int, ahead: bool
) -> None:
    answers = script.write((PSN + distance) & 0xFFFFFF, b"x")
    assert answers == (
        [("ACKNOWLEDGE", PSN, Nak.SEQUENCE, 0)] if ahead else [("ACKNOWLEDGE", PSN - 1, 0x1F, 0)]
    )


def test_a_duplicate_send_is_acknowledged_and_not_received_again(script: Script) -> None:
    for index in range(3):
        script.b.post_receive(index, 64)
    script.send(Op.SEND_ONLY, PSN, b"", b"one")
    script.send(Op.SEND_ONLY, PSN + 1, b"", b"two")
    assert script.send(Op.SEND_ONLY, PSN, b"", b"one") == [("ACKNOWLEDGE", PSN + 1, 0x1F, 2)]
    assert script.send(Op.SEND_ONLY, PSN, b"", b"one", ack=False) == []
    assert script.host.statuses == [(0, Status.SUCCESS), (1, Status.SUCCESS)]
    assert script.host.counts["duplicate_request"] == 2


def _read(
    script: Script, psn: int, length: int, offset: int = 0, rkey: int = RKEY
) -> list[tuple[str, int, int, int]]:
    return script.send(Op.READ_REQUEST, psn, pack_reth(BASE + offset, rkey, length))


def test_a_duplicate_read_is_served_again_from_memory_as_it_is_now(script: Script) -> None:
    first = _read(script, PSN, 2500)
    script.pair.remote(script.b)[0] = 0x77
    assert _read(script, PSN, 2500) == first
    assert script.b.packets()[-3].payload[0] == 0x77
    assert [name for name, *_ in first] == [
        "READ RESPONSE FIRST",
        "READ RESPONSE MIDDLE",
        "READ RESPONSE LAST",
    ]
    assert (script.b.engine.expected_psn, first[0][3]) == (PSN + 3, 1)


def test_a_read_restarts_in_its_middle(script: Script) -> None:
    _read(script, PSN, 2500)
    assert [answer[:2] for answer in _read(script, PSN + 1, 2500 - MTU, MTU)] == [
        ("READ RESPONSE FIRST", PSN + 1),
        ("READ RESPONSE LAST", PSN + 2),
    ]
    assert [answer[:2] for answer in _read(script, PSN + 2, 2500 - 2 * MTU, 2 * MTU)] == [
        ("READ RESPONSE ONLY", PSN + 2)
    ]


@pytest.mark.parametrize(
    ("psn", "length", "offset", "rkey"),
    [
        (PSN, 2500, 0, RKEY + 1),
        (PSN, 2501, 0, RKEY),
        (PSN, 2400, 0, RKEY),
        (PSN, 2500, 8, RKEY),
        (PSN + 1, 2500, 0, RKEY),
        (PSN - 1, 4, 0, RKEY),
    ],
)
def test_a_duplicate_read_that_asks_for_something_else_is_dropped(
    script: Script, psn: int, length: int, offset: int, rkey: int
) -> None:
    script.host.memory(RKEY + 1)
    _read(script, PSN, 2500)
    assert _read(script, psn, length, offset, rkey) == []
    assert len(script.host.drops) == 1
    assert script.host.moves == []


def test_a_duplicate_read_of_memory_that_is_gone_is_dropped(script: Script) -> None:
    _read(script, PSN, 100)
    del script.host.regions[RKEY]
    assert _read(script, PSN, 100) == []
    assert script.host.moves == []
    assert len(script.host.drops) == 1


def test_a_read_older_than_the_ring_is_dropped() -> None:
    script = Script(max_dest_rd_atomic=2)
    for index in range(3):
        assert len(_read(script, PSN + index, 16)) == 1
    assert _read(script, PSN, 16) == []
    assert len(_read(script, PSN + 1, 16)) == 1


def _atomic(script: Script, opcode: int, psn: int, operand: int, compare: int = 0, at: int = 0) -> list[int]:
    before = len(script.b.host.sent)
    script.send(opcode, psn, pack_atomic_eth(BASE + at, RKEY, operand, compare))
    return [
        ATOMIC_ACK.unpack_from(packet.frame, packet.extension + AETH.size)[0]
        for packet in script.b.packets()[before:]
        if packet.opcode == Op.ATOMIC_ACKNOWLEDGE
    ]


def test_a_duplicate_atomic_gets_the_saved_value_and_does_nothing(script: Script) -> None:
    assert _atomic(script, Op.FETCH_ADD, PSN, 5) == [0]
    assert _atomic(script, Op.FETCH_ADD, PSN + 1, 5) == [5]
    assert _atomic(script, Op.FETCH_ADD, PSN, 5) == [0]
    assert _atomic(script, Op.COMPARE_SWAP, PSN, 5) == []
    assert int.from_bytes(script.pair.remote(script.b)[:8], "little") == 10
    assert script.host.atomics == 2


def test_an_atomic_older_than_the_ring_is_dropped() -> None:
    script = Script(max_dest_rd_atomic=1)
    _atomic(script, Op.COMPARE_SWAP, PSN, 1)
    _atomic(script, Op.COMPARE_SWAP, PSN + 1, 2, 1)
    assert _atomic(script, Op.COMPARE_SWAP, PSN, 1) == []
    assert len(script.host.drops) == 1


def test_compare_swap_swaps_only_on_equality(script: Script) -> None:
    big = 0x8877665544332211
    assert _atomic(script, Op.COMPARE_SWAP, PSN, big, 0) == [0]
    assert _atomic(script, Op.COMPARE_SWAP, PSN + 1, 1, 7) == [big]
    assert script.pair.remote(script.b)[:8] == big.to_bytes(8, "little")


def test_fetch_add_wraps_and_ignores_compare(script: Script) -> None:
    assert _atomic(script, Op.FETCH_ADD, PSN, (1 << 64) - 1, compare=99) == [0]
    assert _atomic(script, Op.FETCH_ADD, PSN + 1, 2) == [(1 << 64) - 1]
    assert int.from_bytes(script.pair.remote(script.b)[:8], "little") == 1


def test_an_ack_for_a_duplicate_stops_before_a_later_read(script: Script) -> None:
    script.write(PSN, b"a")
    script.write(PSN + 1, b"b")
    _read(script, PSN + 2, 2500)
    script.write(PSN + 5, b"c")
    assert script.write(PSN, b"a") == [("ACKNOWLEDGE", PSN + 1, 0x1F, 4)]
    assert script.write(PSN + 5, b"c") == [("ACKNOWLEDGE", PSN + 5, 0x1F, 4)]


def test_a_duplicate_does_not_take_back_an_ack_that_waits(script: Script) -> None:
    service, script.b.service = script.b.service, lambda: None  # type: ignore[method-assign]
    a = script.pair.a
    write = a.frame(Op.WRITE_ONLY, PSN, pack_reth(BASE, RKEY, 1), b"x", ack_request=True)
    script.b.deliver(write)
    script.b.deliver(a.frame(Op.READ_REQUEST, PSN + 1, pack_reth(BASE, RKEY, 8), ack_request=True))
    script.b.deliver(a.frame(Op.WRITE_ONLY, PSN + 2, pack_reth(BASE, RKEY, 1), b"y", ack_request=True))
    script.b.deliver(write)
    script.b.service = service  # type: ignore[method-assign]
    script.b.service()
    assert script.answers() == [
        ("ACKNOWLEDGE", PSN, 0x1F, 1),
        ("READ RESPONSE ONLY", PSN + 1, 0x1F, 3),
        ("ACKNOWLEDGE", PSN + 2, 0x1F, 3),
    ]


def test_psn_wraps_inside_a_message() -> None:
    script = Script()
    script.b.modify(QpState.RESET)
    script.b.modify(QpState.INIT)
    script.b.modify(QpState.RTR, rq_psn=0xFFFFFE)
    data = pattern(3 * MTU)
    script.send(Op.WRITE_FIRST, 0xFFFFFE, pack_reth(BASE, RKEY, len(data)), data[:MTU], ack=False)
    script.send(Op.WRITE_MIDDLE, 0xFFFFFF, b"", data[MTU : 2 * MTU], ack=False)
    assert script.send(Op.WRITE_LAST, 0, b"", data[2 * MTU :]) == [("ACKNOWLEDGE", 0, 0x1F, 1)]
    assert script.pair.remote(script.b)[: len(data)] == data


# Opcode and length (8.3)


@pytest.mark.parametrize(
    "opcode",
    [Op.SEND_MIDDLE, Op.SEND_LAST, Op.SEND_LAST_IMM, Op.WRITE_MIDDLE, Op.WRITE_LAST, Op.WRITE_LAST_IMM],
)
def test_a_message_without_a_start_is_an_invalid_request(script: Script, opcode: int) -> None:
    extension = bytes(4) if opcode in (Op.SEND_LAST_IMM, Op.WRITE_LAST_IMM) else b""
    answers = script.send(opcode, PSN, extension, bytes(MTU))
    script.check_failed(Nak.INVALID_REQUEST, PSN, answers)
    assert script.host.events == [AsyncEvent.QP_REQ_ERR]


@pytest.mark.parametrize(
    ("opcode", "extension", "size"),
    [
        (Op.WRITE_MIDDLE, b"", MTU),
        (Op.SEND_ONLY, b"", 8),
        (Op.SEND_FIRST, b"", MTU),
        (Op.READ_REQUEST, pack_reth(BASE, RKEY, 8), 0),
        (Op.FETCH_ADD, pack_atomic_eth(BASE, RKEY, 1, 0), 0),
    ],
)
def test_another_message_inside_a_send_is_an_invalid_request(
    script: Script, opcode: int, extension: bytes, size: int
) -> None:
    script.b.post_receive(5, 4096)
    script.b.post_receive(6, 4096)
    script.send(Op.SEND_FIRST, PSN, b"", bytes(MTU), ack=False)
    answers = script.send(opcode, PSN + 1, extension, bytes(size))
    script.check_failed(Nak.INVALID_REQUEST, PSN + 1, answers)
    assert script.host.statuses == [(5, Status.REM_INV_REQ_ERR), (6, Status.WR_FLUSH_ERR)]
    assert script.host.events == []


@pytest.mark.parametrize("opcode", [0x15, 0x18, 0x1B, 0x1F])
def test_reserved_opcodes_are_invalid_requests(script: Script, opcode: int) -> None:
    frame = bytearray(script.pair.a.frame(Op.SEND_ONLY, PSN))
    frame[42] = opcode
    script.b.deliver(bytes(frame[:-4]) + icrc(bytes(frame[14:-4])))
    script.check_failed(Nak.INVALID_REQUEST, PSN, script.answers())


@pytest.mark.parametrize(
    ("opcode", "extension", "size"),
    [
        (Op.FLUSH, bytes(20), 0),
        (Op.ATOMIC_WRITE, bytes(16), 8),
    ],
)
def test_operations_not_offered_are_invalid_requests(
    script: Script, opcode: int, extension: bytes, size: int
) -> None:
    answers = script.send(opcode, PSN, extension, bytes(size))
    script.check_failed(Nak.INVALID_REQUEST, PSN, answers)


@pytest.mark.parametrize(
    ("opcode", "extension", "size"),
    [
        (Op.SEND_FIRST, b"", MTU - 4),
        (Op.SEND_FIRST, b"", MTU + 4),
        (Op.SEND_ONLY, b"", MTU + 4),
        (Op.WRITE_FIRST, pack_reth(BASE, RKEY, 4000), MTU - 4),
        (Op.WRITE_FIRST, pack_reth(BASE, RKEY, MTU), MTU),
        (Op.WRITE_FIRST, pack_reth(BASE, RKEY, 8), MTU),
        (Op.WRITE_ONLY, pack_reth(BASE, RKEY, 2 * MTU), MTU + 4),
        (Op.WRITE_ONLY, pack_reth(BASE, RKEY, 9), 8),
        (Op.WRITE_ONLY, pack_reth(BASE, RKEY, 7), 8),
        (Op.WRITE_ONLY, pack_reth(BASE, RKEY, 0), 8),
        (Op.WRITE_ONLY, pack_reth(BASE, RKEY, 0x80000001), 8),
        (Op.READ_REQUEST, pack_reth(BASE, RKEY, 0x80000001), 0),
        (Op.READ_REQUEST, pack_reth(BASE, RKEY, 8), 8),
        (Op.FETCH_ADD, pack_atomic_eth(BASE, RKEY, 1, 0), 8),
        (Op.FETCH_ADD, pack_atomic_eth(BASE + 4, RKEY, 1, 0), 0),
    ],
)
def test_wrong_lengths_are_invalid_requests(script: Script, opcode: int, extension: bytes, size: int) -> None:
    script.b.post_receive(0, 8192)
    script.host.completions.clear()
    answers = script.send(opcode, PSN, extension, b"\x55" * size)
    script.check_failed(Nak.INVALID_REQUEST, PSN, answers)
    assert 0x55 not in script.pair.remote(script.b)


@pytest.mark.parametrize(
    ("opcode", "size"), [(Op.SEND_MIDDLE, MTU - 4), (Op.SEND_LAST, 0), (Op.SEND_LAST, MTU + 4)]
)
def test_wrong_lengths_later_in_a_send(script: Script, opcode: int, size: int) -> None:
    script.b.post_receive(0, 8192)
    script.send(Op.SEND_FIRST, PSN, b"", bytes(MTU), ack=False)
    answers = script.send(opcode, PSN + 1, b"", bytes(size))
    script.check_failed(Nak.INVALID_REQUEST, PSN + 1, answers)
    assert script.host.statuses == [(0, Status.REM_INV_REQ_ERR)]


@pytest.mark.parametrize(
    ("opcode", "size"),
    [(Op.WRITE_LAST, 0), (Op.WRITE_LAST, 99), (Op.WRITE_LAST, 101), (Op.WRITE_MIDDLE, MTU)],
)
def test_a_write_that_does_not_add_up(script: Script, opcode: int, size: int) -> None:
    script.send(Op.WRITE_FIRST, PSN, pack_reth(BASE, RKEY, MTU + 100), bytes(MTU), ack=False)
    answers = script.send(opcode, PSN + 1, b"", bytes(size))
    script.check_failed(Nak.INVALID_REQUEST, PSN + 1, answers)
    assert script.host.events == [AsyncEvent.QP_REQ_ERR]


def test_a_write_with_a_wrong_pad_count(script: Script) -> None:
    packet = Ether(script.pair.a.frame(Op.WRITE_ONLY, PSN, pack_reth(BASE, RKEY, 5), b"hello"))
    packet[roce.BTH].padcount, packet[roce.BTH].pad = 2, b"\0\0"
    del packet[roce.BTH].icrc
    del packet[IP].len, packet[IP].chksum, packet[UDP].len
    script.b.deliver(bytes(packet))
    script.check_failed(Nak.INVALID_REQUEST, PSN, script.answers())


def test_a_send_longer_than_the_receive_element(script: Script) -> None:
    script.b.post_receive(3, 1500)
    script.b.post_receive(4, 1500)
    script.send(Op.SEND_FIRST, PSN, b"", bytes(MTU), ack=False)
    answers = script.send(Op.SEND_LAST, PSN + 1, b"", bytes(477))
    script.check_failed(Nak.INVALID_REQUEST, PSN + 1, answers)
    assert script.host.statuses == [(3, Status.LOC_LEN_ERR), (4, Status.WR_FLUSH_ERR)]


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_send_that_just_fits(script: Script, size: int) -> None:
    script.b.post_receive(3, size)
    assert script.send(Op.SEND_ONLY, PSN, b"", pattern(size), solicited=True) == [
        ("ACKNOWLEDGE", PSN, 0x1F, 1)
    ]
    completion = script.host.completions[0]
    assert (completion.index, completion.status, completion.length) == (3, Status.SUCCESS, size)
    assert (completion.opcode, completion.solicited) == (CompletionOpcode.RECV, True)
    assert script.pair.local(script.b)[:size] == pattern(size)


def test_receive_elements_scatter(script: Script) -> None:
    script.host.receives.append(
        ReceiveRequest(0, [Sge(BASE, 10, LKEY), Sge(BASE + 0x100, 2000, LKEY)], cookie="mine")
    )
    data = pattern(1500)
    script.send(Op.SEND_FIRST, PSN, b"", data[:MTU], ack=False)
    script.send(Op.SEND_LAST_IMM, PSN + 1, pack_immediate(0xDEADBEEF), data[MTU:])
    memory = script.pair.local(script.b)
    assert memory[:10] == data[:10]
    assert memory[0x100 : 0x100 + 1490] == data[10:]
    completion = script.host.completions[0]
    assert (completion.immediate, completion.length, completion.cookie) == (0xDEADBEEF, 1500, "mine")


# Access (8.4)


@pytest.mark.parametrize(
    ("address", "rkey", "length"),
    [
        (BASE, 0x999, 8),
        (BASE + (1 << 16) - 7, RKEY, 8),
        (BASE - 1, RKEY, 8),
        ((1 << 64) - 4, RKEY, 8),
    ],
)
@pytest.mark.parametrize("opcode", [Op.WRITE_ONLY, Op.READ_REQUEST])
def test_bad_keys_and_bounds_are_access_errors(
    script: Script, opcode: int, address: int, rkey: int, length: int
) -> None:
    payload = b"\x55" * length if opcode == Op.WRITE_ONLY else b""
    answers = script.send(opcode, PSN, pack_reth(address, rkey, length), payload)
    script.check_failed(Nak.REMOTE_ACCESS, PSN, answers)
    assert script.host.events == [AsyncEvent.QP_ACCESS_ERR]
    assert 0x55 not in script.pair.remote(script.b)


def test_the_whole_range_is_checked_before_the_first_byte(script: Script) -> None:
    answers = script.send(Op.WRITE_FIRST, PSN, pack_reth(BASE, RKEY, (1 << 16) + 1), b"\x55" * MTU)
    script.check_failed(Nak.REMOTE_ACCESS, PSN, answers)
    assert 0x55 not in script.pair.remote(script.b)


_REQUEST_OF = {
    Access.REMOTE_WRITE: (Op.WRITE_ONLY, pack_reth(BASE, RKEY, 4), b"abcd"),
    Access.REMOTE_READ: (Op.READ_REQUEST, pack_reth(BASE, RKEY, 4), b""),
    Access.REMOTE_ATOMIC: (Op.FETCH_ADD, pack_atomic_eth(BASE, RKEY, 1, 0), b""),
}


@pytest.mark.parametrize("right", _REQUEST_OF)
def test_a_region_without_the_right_is_an_access_error(script: Script, right: Access) -> None:
    script.host.memory(RKEY, access=ALL_ACCESS & ~right)
    opcode, extension, payload = _REQUEST_OF[right]
    script.check_failed(Nak.REMOTE_ACCESS, PSN, script.send(opcode, PSN, extension, payload))
    assert script.host.events == [AsyncEvent.QP_ACCESS_ERR]


@pytest.mark.parametrize("right", _REQUEST_OF)
def test_a_queue_pair_without_the_right_is_an_invalid_request(right: Access) -> None:
    script = Script(access=ALL_ACCESS & ~right)
    opcode, extension, payload = _REQUEST_OF[right]
    script.check_failed(Nak.INVALID_REQUEST, PSN, script.send(opcode, PSN, extension, payload))
    assert script.host.events == [AsyncEvent.QP_REQ_ERR]


def test_zero_length_accesses_need_no_key(script: Script) -> None:
    nowhere = pack_reth((1 << 64) - 1, 0x999, 0)
    assert script.send(Op.WRITE_ONLY, PSN, nowhere) == [("ACKNOWLEDGE", PSN, 0x1F, 1)]
    assert script.send(Op.READ_REQUEST, PSN + 1, nowhere) == [("READ RESPONSE ONLY", PSN + 1, 0x1F, 2)]
    assert script.host.events == []


def test_write_with_immediate_and_a_bad_key_fails_its_receive_element(script: Script) -> None:
    script.b.post_receive(2, 0)
    extension = pack_reth(BASE, 0x999, 4) + pack_immediate(1)
    script.check_failed(Nak.REMOTE_ACCESS, PSN, script.send(Op.WRITE_ONLY_IMM, PSN, extension, b"abcd"))
    assert script.host.statuses == [(2, Status.REM_ACCESS_ERR)]
    assert script.host.events == []


def test_memory_that_goes_away_in_the_middle_of_a_read(script: Script) -> None:
    read, calls = script.host.read_remote, []

    def vanish(rkey: int, address: int, length: int) -> bytes:
        calls.append(address)
        if len(calls) == 3:
            del script.host.regions[RKEY]
        return read(rkey, address, length)

    script.host.read_remote = vanish  # type: ignore[method-assign]
    answers = _read(script, PSN, 5000)
    assert [answer[:2] for answer in answers] == [
        ("READ RESPONSE FIRST", PSN),
        ("READ RESPONSE MIDDLE", PSN + 1),
        ("ACKNOWLEDGE", PSN + 2),
    ]
    script.check_failed(Nak.REMOTE_ACCESS, PSN + 2, answers, msn=1)
    assert script.host.events == [AsyncEvent.QP_ACCESS_ERR]


def test_a_lost_read_does_not_blame_the_receive_element_of_a_later_message(script: Script) -> None:
    script.b.post_receive(7, 4 * MTU)
    service, script.b.service = script.b.service, lambda: None  # type: ignore[method-assign]
    a = script.pair.a
    script.b.deliver(a.frame(Op.READ_REQUEST, PSN, pack_reth(BASE, RKEY, 8), ack_request=True))
    script.b.deliver(a.frame(Op.SEND_FIRST, PSN + 1, b"", pattern(MTU)))
    del script.host.regions[RKEY]
    script.b.service = service  # type: ignore[method-assign]
    script.b.service()
    script.check_failed(Nak.REMOTE_ACCESS, PSN, script.answers(), msn=1)
    assert script.host.events == [AsyncEvent.QP_ACCESS_ERR]
    assert script.host.statuses == [(7, Status.WR_FLUSH_ERR)]


def test_memory_that_goes_away_in_the_middle_of_a_repeated_read(script: Script) -> None:
    _read(script, PSN, 5000)
    read, calls = script.host.read_remote, []

    def vanish(rkey: int, address: int, length: int) -> bytes:
        calls.append(address)
        if len(calls) == 3:
            del script.host.regions[RKEY]
        return read(rkey, address, length)

    script.host.read_remote = vanish  # type: ignore[method-assign]
    assert [answer[1] for answer in _read(script, PSN, 5000)] == [PSN, PSN + 1]
    assert script.host.moves == []


@pytest.mark.parametrize("opcode", [Op.READ_REQUEST, Op.FETCH_ADD])
def test_no_resources_means_no_reads_and_atomics(opcode: int) -> None:
    script = Script(max_dest_rd_atomic=0)
    extension = pack_reth(BASE, RKEY, 8) if opcode == Op.READ_REQUEST else pack_atomic_eth(BASE, RKEY, 1, 0)
    script.check_failed(Nak.INVALID_REQUEST, PSN, script.send(opcode, PSN, extension))


def test_more_reads_than_resources_before_any_is_answered() -> None:
    script = Script(max_dest_rd_atomic=2)
    # The responder gets no chance to transmit between these three.
    service, script.b.service = script.b.service, lambda: None  # type: ignore[method-assign]
    for index in range(3):
        script.b.deliver(script.pair.a.frame(Op.READ_REQUEST, PSN + index, pack_reth(BASE, RKEY, 8)))
    script.b.service = service  # type: ignore[method-assign]
    script.b.service()
    answers = script.answers()
    assert [name for name, *_ in answers] == ["READ RESPONSE ONLY", "READ RESPONSE ONLY", "ACKNOWLEDGE"]
    script.check_failed(Nak.INVALID_REQUEST, PSN + 2, answers, msn=2)


def test_a_new_max_dest_rd_atomic_in_sqd_counts() -> None:
    script = Script(max_dest_rd_atomic=1)
    script.b.modify(QpState.SQD)
    script.b.modify(QpState.SQD, max_dest_rd_atomic=2)
    service, script.b.service = script.b.service, lambda: None  # type: ignore[method-assign]
    for index in range(2):
        script.b.deliver(script.pair.a.frame(Op.READ_REQUEST, PSN + index, pack_reth(BASE, RKEY, 8)))
    script.b.service = service  # type: ignore[method-assign]
    script.b.service()
    assert [name for name, *_ in script.answers()] == ["READ RESPONSE ONLY"] * 2


def test_a_long_answer_leaves_room_for_requests_of_the_other_direction(script: Script) -> None:
    service, script.b.service = script.b.service, lambda: None  # type: ignore[method-assign]
    script.b.deliver(script.pair.a.frame(Op.READ_REQUEST, PSN, pack_reth(BASE, RKEY, 40 * MTU)))
    script.b.post(Opcode.WRITE, 2 * MTU)
    assert script.b.engine.transmit(0, 8)
    names = [name for name, *_ in script.answers()]
    assert names.count("WRITE FIRST") == names.count("WRITE LAST") == 1
    assert names[0] == "READ RESPONSE FIRST"
    script.b.service = service  # type: ignore[method-assign]
    script.b.service()
    assert len(script.answers()) == 40 + 2 - len(names)


def test_responses_leave_in_the_order_of_their_requests(script: Script) -> None:
    service, script.b.service = script.b.service, lambda: None  # type: ignore[method-assign]
    a = script.pair.a
    script.b.deliver(a.frame(Op.READ_REQUEST, PSN, pack_reth(BASE, RKEY, 1500), ack_request=True))
    script.b.deliver(a.frame(Op.WRITE_ONLY, PSN + 2, pack_reth(BASE, RKEY, 1), b"x", ack_request=True))
    script.b.deliver(a.frame(Op.WRITE_ONLY, PSN + 3, pack_reth(BASE, RKEY, 1), b"y", ack_request=True))
    script.b.deliver(a.frame(Op.FETCH_ADD, PSN + 4, pack_atomic_eth(BASE, RKEY, 1, 0), ack_request=True))
    script.b.service = service  # type: ignore[method-assign]
    script.b.service()
    # The two ACKs merge; neither could pass the READ in front of them.
    assert [answer[:2] for answer in script.answers()] == [
        ("READ RESPONSE FIRST", PSN),
        ("READ RESPONSE LAST", PSN + 1),
        ("ACKNOWLEDGE", PSN + 3),
        ("ATOMIC ACKNOWLEDGE", PSN + 4),
    ]


def test_repeating_a_read_whose_answer_still_waits_adds_nothing(script: Script) -> None:
    service, script.b.service = script.b.service, lambda: None  # type: ignore[method-assign]
    for _ in range(5):
        script.b.deliver(script.pair.a.frame(Op.READ_REQUEST, PSN, pack_reth(BASE, RKEY, 8)))
    script.b.service = service  # type: ignore[method-assign]
    script.b.service()
    assert [answer[:2] for answer in script.answers()] == [("READ RESPONSE ONLY", PSN)]


def test_repeating_a_read_whose_answer_is_past_that_point_starts_again(script: Script) -> None:
    service, script.b.service = script.b.service, lambda: None  # type: ignore[method-assign]
    request = script.pair.a.frame(Op.READ_REQUEST, PSN, pack_reth(BASE, RKEY, 4 * MTU))
    script.b.deliver(request)
    assert script.b.engine.transmit(0, 2)
    script.b.deliver(request)
    script.b.service = service  # type: ignore[method-assign]
    script.b.service()
    assert [answer[:2] for answer in script.answers()] == [
        ("READ RESPONSE FIRST", PSN),
        ("READ RESPONSE MIDDLE", PSN + 1),
        ("READ RESPONSE MIDDLE", PSN + 2),
        ("READ RESPONSE LAST", PSN + 3),
        ("READ RESPONSE FIRST", PSN),
        ("READ RESPONSE MIDDLE", PSN + 1),
        ("READ RESPONSE MIDDLE", PSN + 2),
        ("READ RESPONSE LAST", PSN + 3),
    ]


# Receive resources (8.5)


def test_a_send_without_receive_element_is_put_off(script: Script) -> None:
    rnr = ("ACKNOWLEDGE", PSN, 0x20 | 12, 0)
    assert script.send(Op.SEND_ONLY, PSN, b"", b"x") == [rnr]
    assert script.send(Op.SEND_ONLY, PSN + 1, b"", b"y") == []
    assert script.send(Op.SEND_ONLY, PSN, b"", b"x") == [rnr]
    assert script.host.moves == []
    script.b.post_receive(0, 16)
    assert script.send(Op.SEND_ONLY, PSN, b"", b"x") == [("ACKNOWLEDGE", PSN, 0x1F, 1)]
    assert script.host.counts["send_rnr_err"] == 2


def test_only_the_last_packet_of_a_write_with_immediate_is_put_off(script: Script) -> None:
    data = pattern(2 * MTU + 5)
    script.send(Op.WRITE_FIRST, PSN, pack_reth(BASE, RKEY, len(data)), data[:MTU], ack=False)
    script.send(Op.WRITE_MIDDLE, PSN + 1, b"", data[MTU : 2 * MTU], ack=False)
    last = (Op.WRITE_LAST_IMM, PSN + 2, pack_immediate(7), data[2 * MTU :])
    assert script.send(*last) == [("ACKNOWLEDGE", PSN + 2, 0x20 | 12, 0)]
    assert script.pair.remote(script.b)[: 2 * MTU] == data[: 2 * MTU]
    assert script.pair.remote(script.b)[2 * MTU] == 0
    script.b.post_receive(9, 0)
    assert script.send(*last) == [("ACKNOWLEDGE", PSN + 2, 0x1F, 1)]
    assert script.pair.remote(script.b)[: len(data)] == data
    completion = script.host.completions[0]
    assert (completion.index, completion.opcode) == (9, CompletionOpcode.RECV_WRITE_IMM)
    assert (completion.length, completion.immediate) == (len(data), 7)


@pytest.mark.parametrize("fault", ["key", "right"])
def test_a_receive_element_that_cannot_be_written(script: Script, fault: str) -> None:
    if fault == "right":
        script.host.memory(LKEY, access=Access.NONE)
    script.b.post_receive(0, 64, lkey=0x999 if fault == "key" else LKEY)
    script.b.post_receive(1, 64)
    answers = script.send(Op.SEND_ONLY, PSN, b"", b"x")
    script.check_failed(Nak.REMOTE_OPERATION, PSN, answers)
    assert script.host.statuses == [(0, Status.LOC_PROT_ERR), (1, Status.WR_FLUSH_ERR)]
    assert script.host.completions[0].cause == (20 if fault == "key" else 22)


def test_a_receive_ring_that_cannot_be_read(script: Script) -> None:
    script.host.broken_ring = True
    script.check_failed(Nak.REMOTE_OPERATION, PSN, script.send(Op.SEND_ONLY, PSN, b"", b"x"))
    assert script.host.events == [AsyncEvent.QP_FATAL]


def test_the_answers_before_a_fatal_one_still_leave(script: Script) -> None:
    service, script.b.service = script.b.service, lambda: None  # type: ignore[method-assign]
    script.b.deliver(script.pair.a.frame(Op.READ_REQUEST, PSN, pack_reth(BASE, RKEY, 20 * MTU)))
    script.b.deliver(script.pair.a.frame(Op.WRITE_ONLY, PSN + 20, pack_reth(BASE, 0x999, 4), b"abcd"))
    script.b.service = service  # type: ignore[method-assign]
    assert script.host.moves[0][0] is QpState.ERR
    script.b.service()
    answers = script.answers()
    assert len(answers) == 21
    assert answers[-1] == ("ACKNOWLEDGE", PSN + 20, Nak.REMOTE_ACCESS, 1)


def test_answers_do_not_leave_after_a_modify_to_error(script: Script) -> None:
    service, script.b.service = script.b.service, lambda: None  # type: ignore[method-assign]
    script.b.deliver(script.pair.a.frame(Op.READ_REQUEST, PSN, pack_reth(BASE, RKEY, 8)))
    script.b.service = service  # type: ignore[method-assign]
    script.b.modify(QpState.ERR)
    assert script.answers() == []


def test_receive_elements_posted_in_error_flush(script: Script) -> None:
    script.b.modify(QpState.ERR)
    script.b.post_receive(0, 64)
    script.b.post_receive(1, 64)
    assert script.host.statuses == [(0, Status.WR_FLUSH_ERR), (1, Status.WR_FLUSH_ERR)]


def test_reset_forgets_an_open_message_without_completion(script: Script) -> None:
    script.b.post_receive(0, 4096)
    script.send(Op.SEND_FIRST, PSN, b"", bytes(MTU))
    assert not script.b.engine.idle()
    script.b.modify(QpState.RESET)
    assert script.host.completions == []
    assert script.b.engine.idle()


def test_answers_take_no_time_of_their_own(script: Script) -> None:
    script.write(PSN, b"x")
    assert script.pair.scheduler.now() < US
    assert script.b.engine.deadline() is None


def test_a_packet_of_another_protocol_is_dropped(script: Script) -> None:
    foreign = FakePacket(0x12, b"")
    script.b.engine.receive(foreign, 0)
    assert len(script.host.drops) == 1
