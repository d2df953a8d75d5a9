# SPDX-License-Identifier: Apache-2.0
"""The requester against a scripted responder: the negative table of the wire reference (8.6)."""

from __future__ import annotations

from typing import Any

import pytest

from emu.clock import MS
from emu.nic.engine import AsyncEvent
from emu.nic.work import Access, Cause, CompletionOpcode, Opcode, QpState, Sge, Status
from emu.roce.element import WINDOW
from emu.roce.requester import ACK_INTERVAL
from emu.roce.syndrome import Nak
from emu.roce.timers import RNR_DELAYS
from emu.wire.headers import ATOMIC_ETH, IMM_DT, RETH, pack_aeth, pack_atomic_ack
from emu.wire.opcodes import RcOpcode as Op
from tests.roce.bench import BASE, LKEY, RKEY, Pair, pattern, silence

PSN = 100
MTU = 1024
TIMEOUT = 4096 << 14


class Script:
    """A requester ``a`` whose peer is played by the test."""

    def __init__(self, **changes: Any) -> None:
        self.pair = Pair(silence, psn=PSN, **changes)
        self.a = self.pair.a
        self.host = self.a.host
        self._seen = 0

    def sent(self) -> list[tuple[str, int]]:
        """What left since the last look."""
        new = self.a.trace()[self._seen :]
        self._seen += len(new)
        return new

    def answer(self, psn: int, syndrome: int = 0x1F, msn: int = 0) -> None:
        """An acknowledgement of any kind arrives."""
        self.reply(Op.ACKNOWLEDGE, psn, pack_aeth(syndrome, msn))

    def reply(self, opcode: int, psn: int, extension: bytes = b"", payload: bytes = b"") -> None:
        """A response arrives."""
        self.a.deliver(self.pair.b.frame(opcode, psn, extension, payload))

    def sends(self, count: int, length: int = 4) -> None:
        """Post ``count`` SENDs."""
        for _ in range(count):
            self.a.post(Opcode.SEND, length)

    def wait(self, duration: int) -> None:
        """Let virtual time pass."""
        self.pair.scheduler.run(until=self.pair.scheduler.now() + duration)

    def read(self, length: int, **fields: Any) -> None:
        """Post a READ."""
        self.a.post(Opcode.READ, length, **fields)

    @property
    def statuses(self) -> list[tuple[int, Status]]:
        """(index, status) of every completion."""
        return self.host.statuses

    @property
    def failed(self) -> bool:
        """True when the queue pair went to ERR by itself."""
        return [state for state, _ in self.host.moves] == [QpState.ERR]


@pytest.fixture
def script() -> Script:
    return Script()


def _first(aeth: int = 0x1F) -> bytes:
    return pack_aeth(aeth, 1)


# What is sent


def test_segmentation_headers_and_acknowledge_requests(script: Script) -> None:
    length = 40 * MTU + 7
    script.pair.local(script.a)[:length] = pattern(length)
    script.a.post(
        Opcode.WRITE_IMM, length, immediate=0xAABBCCDD, remote_address=0x7000, rkey=0x55, solicited=True
    )
    packets = script.a.packets()
    assert [packet.opcode for packet in packets] == [
        Op.WRITE_FIRST,
        *[Op.WRITE_MIDDLE] * 39,
        Op.WRITE_LAST_IMM,
    ]
    assert [packet.psn for packet in packets] == list(range(PSN, PSN + 41))
    assert b"".join(packet.payload for packet in packets) == pattern(length)
    asked = [number for number, packet in enumerate(packets) if packet.ack_request]
    assert asked == [ACK_INTERVAL - 1, 2 * ACK_INTERVAL - 1, 40]
    assert RETH.unpack_from(packets[0].frame, packets[0].extension) == (0x7000, 0x55, length)
    assert IMM_DT.unpack_from(packets[40].frame, packets[40].extension) == (0xAABBCCDD,)
    assert [packet.solicited for packet in packets] == [*[False] * 40, True]


def test_an_exact_multiple_of_the_mtu_has_no_empty_last(script: Script) -> None:
    script.a.post(Opcode.SEND, 2 * MTU)
    assert [packet.payload_length for packet in script.a.packets()] == [MTU, MTU]
    assert script.sent() == [("SEND FIRST", PSN), ("SEND LAST", PSN + 1)]


@pytest.mark.parametrize(
    ("opcode", "name", "solicited"),
    [
        (Opcode.SEND, "SEND ONLY", True),
        (Opcode.SEND_IMM, "SEND ONLY IMM", True),
        (Opcode.WRITE, "WRITE ONLY", False),
        (Opcode.WRITE_IMM, "WRITE ONLY IMM", True),
    ],
)
def test_empty_messages_are_one_packet(script: Script, opcode: Opcode, name: str, solicited: bool) -> None:
    script.a.post(opcode, 0, solicited=True)
    packet = script.a.packets()[0]
    assert script.sent() == [(name, PSN)]
    assert (packet.payload_length, packet.solicited) == (0, solicited)


def test_inline_payload_needs_no_memory(script: Script) -> None:
    script.a.post(Opcode.WRITE, 5, inline=b"hello", sges=[Sge(0, 5, 0x999)])
    assert bytes(script.a.packets()[0].payload) == b"hello"


def test_atomics_are_big_endian_and_add_sends_no_compare(script: Script) -> None:
    script.a.post(Opcode.ATOMIC_CAS, 8, swap_add=1, compare=2)
    script.a.post(Opcode.ATOMIC_ADD, 8, swap_add=3, compare=4)
    swap, add = script.a.packets()
    assert ATOMIC_ETH.unpack_from(swap.frame, swap.extension) == (BASE, RKEY, 1, 2)
    assert ATOMIC_ETH.unpack_from(add.frame, add.extension) == (BASE, RKEY, 3, 0)
    script.reply(Op.ATOMIC_ACKNOWLEDGE, PSN, pack_atomic_ack(0x1F, 1, 0x0102030405060708))
    assert script.pair.local(script.a)[:8] == bytes.fromhex("0807060504030201")


def test_the_window_limits_what_is_unacknowledged(script: Script) -> None:
    script.a.post(Opcode.WRITE, 60 * MTU)
    for _ in range(4):
        script.a.post(Opcode.WRITE, 60 * MTU)
    assert len(script.sent()) == WINDOW
    script.answer(PSN + 15)
    assert [psn for _, psn in script.sent()] == list(range(PSN + WINDOW, PSN + WINDOW + 16))


def test_a_long_read_may_exceed_the_window_alone(script: Script) -> None:
    script.read(60 * MTU)
    script.read(63 * MTU)
    script.read(63 * MTU)
    script.read(4)
    assert script.sent() == [("READ REQUEST", PSN), ("READ REQUEST", PSN + 60), ("READ REQUEST", PSN + 123)]
    assert script.a.engine.next_psn == PSN + 186


def test_reads_wait_for_max_rd_atomic_and_hold_up_what_follows() -> None:
    script = Script(max_rd_atomic=1)
    script.read(4)
    script.read(4)
    script.sends(1)
    assert script.sent() == [("READ REQUEST", PSN)]
    script.reply(Op.READ_RESPONSE_ONLY, PSN, _first(), b"abcd")
    assert script.sent() == [("READ REQUEST", PSN + 1), ("SEND ONLY", PSN + 2)]


def test_a_fence_waits_for_earlier_reads(script: Script) -> None:
    script.read(4)
    script.sends(1)
    script.a.post(Opcode.SEND, 4, fence=True)
    assert script.sent() == [("READ REQUEST", PSN), ("SEND ONLY", PSN + 1)]
    script.reply(Op.READ_RESPONSE_ONLY, PSN, _first(), b"abcd")
    assert script.sent() == [("SEND ONLY", PSN + 2)]


def test_a_fence_does_not_wait_for_sends(script: Script) -> None:
    script.sends(1)
    script.a.post(Opcode.SEND, 4, fence=True)
    assert script.sent() == [("SEND ONLY", PSN), ("SEND ONLY", PSN + 1)]


def test_nops_complete_in_their_turn_and_send_nothing(script: Script) -> None:
    script.a.post(Opcode.NOP)
    assert script.statuses == [(0, Status.SUCCESS)]
    assert script.host.completions[0].opcode is CompletionOpcode.NOP
    script.sends(1)
    script.a.post(Opcode.NOP)
    assert script.statuses == [(0, Status.SUCCESS)]
    script.answer(PSN)
    assert script.statuses == [(0, Status.SUCCESS), (1, Status.SUCCESS), (2, Status.SUCCESS)]
    assert script.host.retired == 3


# Acknowledgements


def test_one_ack_completes_all_before_it(script: Script) -> None:
    script.sends(3)
    script.answer(PSN + 2)
    assert script.statuses == [(0, Status.SUCCESS), (1, Status.SUCCESS), (2, Status.SUCCESS)]
    assert script.host.completions[0].length == 4


def test_an_ack_inside_a_message_moves_the_resend_point(script: Script) -> None:
    script.a.post(Opcode.SEND, 4 * MTU)
    script.answer(PSN + 1)
    assert script.statuses == []
    script.sent()
    script.wait(TIMEOUT)
    assert script.sent() == [("SEND MIDDLE", PSN + 2), ("SEND LAST", PSN + 3)]


@pytest.mark.parametrize("psn", [PSN + 1, PSN + 50, PSN - 1, PSN - 50])
def test_acks_out_of_the_window_are_ignored(script: Script, psn: int) -> None:
    script.sends(1)
    script.answer(psn)
    assert script.statuses == []
    assert len(script.host.drops) == 1
    script.answer(PSN)
    assert script.statuses == [(0, Status.SUCCESS)]


def test_credits_are_ignored(script: Script) -> None:
    script.sends(2)
    script.answer(PSN, syndrome=0x00)
    script.answer(PSN + 1, syndrome=0x00)
    script.sends(1)
    assert script.sent()[-1] == ("SEND ONLY", PSN + 2)
    assert len(script.statuses) == 2


@pytest.mark.parametrize("syndrome", [0x40, 0x45, 0x5F, 0x64, 0x70, 0x7F, 0x80, 0xFF])
def test_reserved_syndromes_are_ignored(script: Script, syndrome: int) -> None:
    script.sends(1)
    script.answer(PSN, syndrome)
    assert script.statuses == []
    assert not script.failed
    assert len(script.host.drops) == 1


def test_only_signaled_elements_complete(script: Script) -> None:
    script.a.post(Opcode.SEND, 4, signaled=False)
    script.a.post(Opcode.SEND, 4, signaled=False)
    script.sends(1)
    script.answer(PSN + 1)
    assert script.statuses == []
    assert script.host.retired == 2
    script.answer(PSN + 2)
    assert script.statuses == [(2, Status.SUCCESS)]


def test_completions_hand_back_cookies_and_slots(script: Script) -> None:
    script.a.post(Opcode.SEND, 4, slots=3, cookie="mine")
    script.answer(PSN)
    assert script.host.completions[0].cookie == "mine"
    assert script.host.retired == 3


# NAKs and losses


def test_a_sequence_nak_acknowledges_what_is_before_it_and_rewinds(script: Script) -> None:
    script.sends(4)
    script.sent()
    script.answer(PSN + 2, Nak.SEQUENCE)
    assert script.statuses == [(0, Status.SUCCESS), (1, Status.SUCCESS)]
    assert script.sent() == [("SEND ONLY", PSN + 2), ("SEND ONLY", PSN + 3)]
    assert script.host.retransmitted == [(PSN + 2, 2)]
    assert script.host.counts == {"packet_seq_err": 1}


def test_the_same_sequence_nak_twice_rewinds_once() -> None:
    script = Script(retry_cnt=1)
    script.sends(2)
    script.sent()
    for _ in range(3):
        script.answer(PSN, Nak.SEQUENCE)
    assert script.sent() == [("SEND ONLY", PSN), ("SEND ONLY", PSN + 1)]
    assert not script.failed


def test_resent_packets_are_the_same_bytes(script: Script) -> None:
    script.a.post(Opcode.WRITE, 3 * MTU)
    script.answer(PSN, Nak.SEQUENCE)
    frames = script.host.sent
    assert frames[3:] == frames[:3]


def test_a_resend_reads_memory_again(script: Script) -> None:
    script.a.post(Opcode.SEND, 4)
    script.pair.local(script.a)[:4] = b"late"
    script.answer(PSN, Nak.SEQUENCE)
    assert bytes(script.a.packets()[-1].payload) == b"late"


@pytest.mark.parametrize(
    ("nak", "status"),
    [
        (Nak.INVALID_REQUEST, Status.REM_INV_REQ_ERR),
        (Nak.REMOTE_ACCESS, Status.REM_ACCESS_ERR),
        (Nak.REMOTE_OPERATION, Status.REM_OP_ERR),
    ],
)
def test_fatal_naks_fail_their_element_and_flush_the_rest(script: Script, nak: Nak, status: Status) -> None:
    script.sends(1)
    script.a.post(Opcode.SEND, 4, signaled=False)
    script.a.post(Opcode.SEND, 4, signaled=False)
    script.a.post_receive(8, 4)
    script.answer(PSN + 1, nak)
    assert script.statuses == [
        (0, Status.SUCCESS),
        (1, status),
        (2, Status.WR_FLUSH_ERR),
        (8, Status.WR_FLUSH_ERR),
    ]
    assert [completion.cause for completion in script.host.completions] == [
        Cause.NONE,
        Cause.REMOTE_NAK,
        Cause.FLUSHED,
        Cause.FLUSHED,
    ]
    assert script.failed
    assert script.a.engine.deadline() is None
    script.sends(1)
    assert script.statuses[-1] == (3, Status.WR_FLUSH_ERR)
    assert script.host.retired == 4


def test_a_fatal_nak_behind_an_unanswered_read_retries_the_read_first(script: Script) -> None:
    script.read(4)
    script.sends(1)
    script.sent()
    script.answer(PSN + 1, Nak.REMOTE_ACCESS)
    assert not script.failed
    assert script.sent() == [("READ REQUEST", PSN), ("SEND ONLY", PSN + 1)]


def test_an_ack_past_an_unanswered_read_retries_it(script: Script) -> None:
    script.sends(1)
    script.read(2 * MTU)
    script.sends(1)
    script.sent()
    script.answer(PSN + 3)
    assert script.statuses == [(0, Status.SUCCESS)]
    assert script.sent() == [("READ REQUEST", PSN + 1), ("SEND ONLY", PSN + 3)]
    assert script.host.counts["implied_nak_seq_err"] == 1


@pytest.mark.parametrize("opcode", [Opcode.READ, Opcode.ATOMIC_ADD])
def test_a_plain_ack_does_not_complete_a_read_or_atomic(script: Script, opcode: Opcode) -> None:
    script.a.post(opcode, 8)
    script.sent()
    script.answer(PSN)
    assert script.statuses == []
    assert len(script.sent()) == 1


@pytest.mark.parametrize("retries", [0, 2, 7])
def test_silence_uses_up_the_retries(retries: int) -> None:
    script = Script(retry_cnt=retries)
    script.sends(2)
    script.pair.run()
    assert script.sent() == [("SEND ONLY", PSN), ("SEND ONLY", PSN + 1)] * (retries + 1)
    assert script.statuses == [(0, Status.RETRY_EXC_ERR), (1, Status.WR_FLUSH_ERR)]
    assert script.host.completions[0].cause == Cause.ACK_TIMEOUT
    assert script.pair.scheduler.now() == (retries + 1) * TIMEOUT
    assert script.host.counts["local_ack_timeout_err"] == retries + 1
    assert script.failed


def test_sequence_naks_use_up_the_retries_when_nothing_progresses() -> None:
    script = Script(retry_cnt=1)
    script.sends(1)
    script.answer(PSN, Nak.SEQUENCE)
    script.wait(TIMEOUT)
    assert script.statuses == [(0, Status.RETRY_EXC_ERR)]


def test_progress_reloads_the_retries() -> None:
    script = Script(retry_cnt=1)
    script.sends(3)
    for acknowledged in range(3):
        script.wait(TIMEOUT)
        script.answer(PSN + acknowledged)
    assert [status for _, status in script.statuses] == [Status.SUCCESS] * 3


def test_timeout_zero_waits_for_ever() -> None:
    script = Script(timeout=0)
    script.sends(1)
    assert script.a.engine.deadline() is None
    script.wait(1000 * TIMEOUT)
    assert script.sent() == [("SEND ONLY", PSN)]
    assert script.statuses == []


def test_an_answer_restarts_the_timer(script: Script) -> None:
    script.sends(2)
    script.wait(TIMEOUT // 2)
    script.answer(PSN)
    assert script.a.engine.deadline() == TIMEOUT // 2 + TIMEOUT
    script.answer(PSN + 1)
    assert script.a.engine.deadline() is None


def test_a_rewind_restarts_the_timer(script: Script) -> None:
    script.sends(1)
    script.wait(TIMEOUT // 2)
    script.answer(PSN, Nak.SEQUENCE)
    assert script.a.engine.deadline() == TIMEOUT // 2 + TIMEOUT


def test_an_early_expire_does_nothing(script: Script) -> None:
    script.sends(1)
    script.a.engine.expire(TIMEOUT - 1)
    assert script.sent() == [("SEND ONLY", PSN)]
    assert script.host.timers == []


# RNR


def test_an_rnr_nak_waits_its_time_and_resends_from_there(script: Script) -> None:
    script.sends(3)
    script.sent()
    script.answer(PSN + 1, 0x20 | 14)
    assert script.statuses == [(0, Status.SUCCESS)]
    assert script.a.engine.deadline() == RNR_DELAYS[14]
    script.answer(PSN + 1, Nak.SEQUENCE)
    script.answer(PSN + 1, 0x20 | 20)
    script.wait(RNR_DELAYS[14] - 1)
    assert script.sent() == []
    script.wait(1)
    assert script.sent() == [("SEND ONLY", PSN + 1), ("SEND ONLY", PSN + 2)]
    script.answer(PSN + 2)
    assert len(script.statuses) == 3


def test_after_an_rnr_wait_the_ack_timer_starts_afresh(script: Script) -> None:
    script.sends(1)
    script.wait(TIMEOUT // 2)
    script.answer(PSN, 0x20 | 14)
    script.wait(RNR_DELAYS[14])
    assert script.a.engine.deadline() == TIMEOUT // 2 + RNR_DELAYS[14] + TIMEOUT


def test_what_is_acknowledged_during_an_rnr_wait_is_not_resent(script: Script) -> None:
    script.a.post(Opcode.SEND, 4 * MTU)
    script.sent()
    script.answer(PSN, 0x20 | 14)
    script.answer(PSN + 1)
    script.wait(RNR_DELAYS[14])
    assert script.sent() == [("SEND MIDDLE", PSN + 2), ("SEND LAST", PSN + 3)]


@pytest.mark.parametrize("retries", [0, 2])
def test_rnr_retries_run_out(retries: int) -> None:
    script = Script(rnr_retry=retries)
    script.sends(2)
    for _ in range(retries + 1):
        assert script.statuses == []
        script.answer(PSN, 0x20 | 1)
        script.wait(RNR_DELAYS[1])
    assert script.statuses == [(0, Status.RNR_RETRY_EXC_ERR), (1, Status.WR_FLUSH_ERR)]
    assert script.host.completions[0].cause == Cause.RNR_RETRIES
    assert script.host.counts["rnr_nak_retry_err"] == retries + 1


def test_rnr_retry_seven_never_gives_up() -> None:
    script = Script(rnr_retry=7)
    script.sends(1)
    for _ in range(100):
        script.answer(PSN, 0x20 | 1)
        script.wait(RNR_DELAYS[1])
    assert script.statuses == []
    script.answer(PSN)
    assert script.statuses == [(0, Status.SUCCESS)]


# READ responses


def _responses(script: Script, data: bytes, *opcodes: int, first: int = 0) -> None:
    for number, opcode in enumerate(opcodes):
        index = first + number
        extension = b"" if opcode == Op.READ_RESPONSE_MIDDLE else _first()
        script.reply(opcode, PSN + index, extension, data[index * MTU : (index + 1) * MTU])


def test_read_data_lands_and_completes(script: Script) -> None:
    data = pattern(2500)
    script.read(2500, sges=[Sge(BASE, 100, LKEY), Sge(BASE + 0x1000, 2400, LKEY)])
    _responses(script, data, Op.READ_RESPONSE_FIRST, Op.READ_RESPONSE_MIDDLE)
    assert script.statuses == []
    _responses(script, data, Op.READ_RESPONSE_LAST, first=2)
    assert script.statuses == [(0, Status.SUCCESS)]
    assert script.host.completions[0].length == 2500
    memory = script.pair.local(script.a)
    assert memory[:100] + memory[0x1000 : 0x1000 + 2400] == data


def test_a_missing_middle_restarts_the_read_there(script: Script) -> None:
    data = pattern(3 * MTU)
    script.read(3 * MTU)
    script.sent()
    _responses(script, data, Op.READ_RESPONSE_FIRST)
    _responses(script, data, Op.READ_RESPONSE_LAST, first=2)
    restart = script.a.packets()[-1]
    assert script.sent() == [("READ REQUEST", PSN + 1)]
    assert RETH.unpack_from(restart.frame, restart.extension) == (BASE + MTU, RKEY, 2 * MTU)
    assert script.host.retransmitted == [(PSN + 1, 1)]
    _responses(script, data, Op.READ_RESPONSE_FIRST, Op.READ_RESPONSE_LAST, first=1)
    assert script.statuses == [(0, Status.SUCCESS)]
    assert script.pair.local(script.a)[: 3 * MTU] == data


def test_a_restart_answered_with_middle_and_last_is_accepted(script: Script) -> None:
    data = pattern(3 * MTU)
    script.read(3 * MTU)
    _responses(script, data, Op.READ_RESPONSE_FIRST)
    script.wait(TIMEOUT)
    _responses(script, data, Op.READ_RESPONSE_MIDDLE, Op.READ_RESPONSE_LAST, first=1)
    assert script.statuses == [(0, Status.SUCCESS)]


def test_late_responses_of_the_first_try_do_no_harm(script: Script) -> None:
    data = pattern(2 * MTU)
    script.read(2 * MTU)
    script.wait(TIMEOUT)
    _responses(script, data, Op.READ_RESPONSE_FIRST, Op.READ_RESPONSE_LAST)
    _responses(script, data, Op.READ_RESPONSE_FIRST, Op.READ_RESPONSE_LAST)
    assert script.statuses == [(0, Status.SUCCESS)]
    assert len(script.host.drops) == 2


@pytest.mark.parametrize(
    ("length", "opcode", "status"),
    [
        (3 * MTU, Op.READ_RESPONSE_MIDDLE, Status.BAD_RESP_ERR),
        (3 * MTU, Op.READ_RESPONSE_ONLY, Status.BAD_RESP_ERR),
        (3 * MTU, Op.READ_RESPONSE_LAST, Status.BAD_RESP_ERR),
        (MTU, Op.READ_RESPONSE_FIRST, Status.BAD_RESP_ERR),
        (MTU, Op.READ_RESPONSE_LAST, Status.BAD_RESP_ERR),
        (MTU - 4, Op.READ_RESPONSE_ONLY, Status.LOC_LEN_ERR),
        (0, Op.READ_RESPONSE_ONLY, Status.LOC_LEN_ERR),
    ],
)
def test_responses_that_do_not_fit_the_read(script: Script, length: int, opcode: int, status: Status) -> None:
    script.read(length)
    _responses(script, bytes(MTU), opcode)
    assert script.statuses == [(0, status)]
    assert script.failed


def test_a_first_response_of_the_wrong_length(script: Script) -> None:
    script.read(2 * MTU)
    script.reply(Op.READ_RESPONSE_FIRST, PSN, _first(), bytes(MTU - 4))
    assert script.statuses == [(0, Status.LOC_LEN_ERR)]


@pytest.mark.parametrize(
    ("opcode", "reply"),
    [
        (Opcode.SEND, Op.ATOMIC_ACKNOWLEDGE),
        (Opcode.SEND, Op.READ_RESPONSE_ONLY),
        (Opcode.READ, Op.ATOMIC_ACKNOWLEDGE),
        (Opcode.ATOMIC_ADD, Op.READ_RESPONSE_ONLY),
    ],
)
def test_answers_of_another_kind_are_bad_responses(script: Script, opcode: Opcode, reply: int) -> None:
    script.sends(1)
    script.a.post(opcode, 8)
    extension = pack_atomic_ack(0x1F, 1, 0) if reply == Op.ATOMIC_ACKNOWLEDGE else _first()
    script.reply(reply, PSN + 1, extension, b"" if reply == Op.ATOMIC_ACKNOWLEDGE else bytes(8))
    assert script.statuses == [(0, Status.SUCCESS), (1, Status.BAD_RESP_ERR)]


@pytest.mark.parametrize("opcode", [Opcode.READ, Opcode.ATOMIC_ADD])
def test_data_with_a_negative_syndrome_is_a_bad_response(script: Script, opcode: Opcode) -> None:
    script.a.post(opcode, 8)
    if opcode is Opcode.READ:
        script.reply(Op.READ_RESPONSE_ONLY, PSN, _first(0x62), bytes(8))
    else:
        script.reply(Op.ATOMIC_ACKNOWLEDGE, PSN, pack_atomic_ack(0x62, 1, 0))
    assert script.statuses == [(0, Status.BAD_RESP_ERR)]


def test_an_acknowledgement_with_payload_is_dropped(script: Script) -> None:
    script.sends(1)
    script.reply(Op.ACKNOWLEDGE, PSN, _first(), bytes(4))
    assert script.statuses == []
    assert len(script.host.drops) == 1


# Local faults


@pytest.mark.parametrize("opcode", [Opcode.SEND, Opcode.WRITE])
def test_a_payload_that_cannot_be_read(script: Script, opcode: Opcode) -> None:
    script.sends(1)
    script.a.post(opcode, 4, sges=[Sge(BASE, 4, 0x999)])
    script.sends(1)
    assert script.sent() == [("SEND ONLY", PSN)]
    assert script.statuses == []
    script.answer(PSN)
    assert script.statuses == [(0, Status.SUCCESS), (1, Status.LOC_PROT_ERR), (2, Status.WR_FLUSH_ERR)]
    assert script.host.completions[1].cause == 20


def test_memory_that_goes_away_before_a_resend(script: Script) -> None:
    script.a.post(Opcode.SEND, 2 * MTU)
    del script.host.regions[LKEY]
    script.answer(PSN + 1, Nak.SEQUENCE)
    assert script.statuses == [(0, Status.LOC_PROT_ERR)]


@pytest.mark.parametrize("opcode", [Opcode.READ, Opcode.ATOMIC_CAS])
def test_a_result_that_cannot_be_written(script: Script, opcode: Opcode) -> None:
    script.host.memory(LKEY, access=Access.NONE)
    script.a.post(opcode, 8)
    if opcode is Opcode.READ:
        script.reply(Op.READ_RESPONSE_ONLY, PSN, _first(), bytes(8))
    else:
        script.reply(Op.ATOMIC_ACKNOWLEDGE, PSN, pack_atomic_ack(0x1F, 1, 0))
    assert script.statuses == [(0, Status.LOC_PROT_ERR)]
    assert script.host.completions[0].cause == 22


@pytest.mark.parametrize(
    ("opcode", "length", "status", "cause"),
    [
        (Opcode.ATOMIC_ADD, 5, Status.LOC_QP_OP_ERR, Cause.BAD_LENGTH),
        (Opcode.WRITE, (1 << 31) + 1, Status.LOC_LEN_ERR, Cause.BAD_LENGTH),
        (Opcode.READ, (1 << 31) + 1, Status.LOC_LEN_ERR, Cause.BAD_LENGTH),
        (99, 4, Status.LOC_QP_OP_ERR, Cause.BAD_OPCODE),
    ],
)
def test_elements_that_cannot_be_carried_out(
    script: Script, opcode: Opcode, length: int, status: Status, cause: Cause
) -> None:
    script.a.post(opcode, length)
    assert script.sent() == []
    assert script.statuses == [(0, status)]
    assert script.host.completions[0].cause == cause
    assert script.failed


def test_more_psns_than_half_the_circle_are_refused() -> None:
    script = Script(path_mtu=256)
    script.read(1 << 31)
    assert script.statuses == [(0, Status.LOC_LEN_ERR)]


def test_reads_with_max_rd_atomic_zero_can_never_run() -> None:
    script = Script(max_rd_atomic=0)
    script.sends(1)
    script.read(4)
    assert script.statuses == []
    script.answer(PSN)
    assert script.statuses == [(0, Status.SUCCESS), (1, Status.LOC_QP_OP_ERR)]


# States


def test_sqd_finishes_what_has_begun_and_holds_the_rest() -> None:
    script = Script(max_rd_atomic=1)
    script.sends(1)
    script.read(4)
    script.read(4)
    script.sends(1)
    script.sent()
    script.a.modify(QpState.SQD)
    assert script.host.events == []
    script.answer(PSN)
    script.reply(Op.READ_RESPONSE_ONLY, PSN + 1, _first(), b"abcd")
    assert script.statuses == [(0, Status.SUCCESS), (1, Status.SUCCESS)]
    assert script.host.events == [AsyncEvent.SQ_DRAINED]
    assert [state for state, _ in script.host.moves] == [QpState.SQD]
    assert script.sent() == []
    script.a.modify(QpState.RTS)
    assert script.sent() == [("READ REQUEST", PSN + 2), ("SEND ONLY", PSN + 3)]


def test_sqd_with_nothing_in_flight_is_drained_at_once_and_each_time(script: Script) -> None:
    script.a.modify(QpState.SQD)
    assert script.host.events == [AsyncEvent.SQ_DRAINED]
    script.a.modify(QpState.SQD)
    assert script.host.events == [AsyncEvent.SQ_DRAINED]
    script.a.modify(QpState.RTS)
    script.a.modify(QpState.SQD)
    assert script.host.events == [AsyncEvent.SQ_DRAINED] * 2


def test_reset_drops_work_without_completions(script: Script) -> None:
    script.sends(3)
    script.a.modify(QpState.RESET)
    assert script.statuses == []
    assert script.a.engine.idle()
    assert script.a.engine.deadline() is None


def test_a_queue_pair_works_again_after_reset(script: Script) -> None:
    script.sends(3)
    script.a.modify(QpState.RESET)
    script.a.attributes.sq_psn = 500
    script.a.connect()
    script.a.next_index = 0
    script.sends(1)
    assert script.sent()[-1] == ("SEND ONLY", 500)
    script.answer(500)
    assert script.statuses == [(0, Status.SUCCESS)]


def test_modify_to_error_flushes_in_order(script: Script) -> None:
    script.sends(2)
    script.a.post(Opcode.READ, 4, signaled=False)
    script.a.post_receive(7, 4)
    script.a.modify(QpState.ERR)
    assert script.statuses == [
        (0, Status.WR_FLUSH_ERR),
        (1, Status.WR_FLUSH_ERR),
        (2, Status.WR_FLUSH_ERR),
        (7, Status.WR_FLUSH_ERR),
    ]
    assert script.host.moves == []
    script.a.modify(QpState.ERR)
    assert len(script.statuses) == 4


@pytest.mark.parametrize("state", [QpState.RTR, QpState.ERR])
def test_responses_outside_of_rts_are_dropped(script: Script, state: QpState) -> None:
    script.sends(1)
    if state is QpState.ERR:
        script.a.modify(QpState.ERR)
    else:
        script.a.modify(QpState.RESET)
        script.a.modify(QpState.INIT)
        script.a.modify(QpState.RTR)
    before = len(script.statuses)
    script.answer(PSN)
    assert len(script.statuses) == before
    assert state.name in script.host.drops[-1][1]


def test_changing_attributes_in_rts_keeps_the_sequence(script: Script) -> None:
    script.sends(1)
    script.a.modify(QpState.RTS, min_rnr_timer=3)
    script.sends(1)
    assert script.sent() == [("SEND ONLY", PSN), ("SEND ONLY", PSN + 1)]


def test_times_are_virtual(script: Script) -> None:
    script.wait(5 * MS)
    script.sends(1)
    assert script.a.engine.deadline() == 5 * MS + TIMEOUT
