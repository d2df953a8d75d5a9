# SPDX-License-Identifier: Apache-2.0
"""The worked trace of the wire reference (section 4.12), whole and with losses, packet by packet.

PMTU 1024, first PSN 100: SEND of 2500 bytes, READ of 3000, FETCH ADD, WRITE of nothing.
"""

from __future__ import annotations

import pytest

from emu.nic.work import CompletionOpcode, Opcode, Sge, Status
from emu.roce.syndrome import Nak
from emu.wire.headers import AETH, RETH
from tests.roce.bench import BASE, LKEY, RKEY, Impairment, Pair, losing, pattern, perfect

REQUESTS = [
    ("SEND FIRST", 100),
    ("SEND MIDDLE", 101),
    ("SEND LAST", 102),
    ("READ REQUEST", 103),
    ("FETCH ADD", 106),
    ("WRITE ONLY", 107),
]
ANSWERS = [
    ("ACKNOWLEDGE", 102),
    ("READ RESPONSE FIRST", 103),
    ("READ RESPONSE MIDDLE", 104),
    ("READ RESPONSE LAST", 105),
    ("ATOMIC ACKNOWLEDGE", 106),
    ("ACKNOWLEDGE", 107),
]
ATOMIC_AT = 0x8000
RESULT_AT = 0x9000


def _syndromes(pair: Pair) -> list[tuple[int, int, int]]:
    """(PSN, syndrome, MSN) of every response with an AETH."""
    return [
        (packet.psn, *divmod(AETH.unpack_from(packet.frame, packet.extension)[0], 1 << 24))
        for packet in pair.b.packets()
        if packet.info is not None and packet.info.extension_size
    ]


def _run(impair: Impairment, *, receive: bool = True) -> Pair:
    pair = Pair(impair)
    pair.local(pair.a)[:2500] = pattern(2500)
    pair.remote(pair.b)[:3000] = pattern(3000, seed=9)
    pair.remote(pair.b)[ATOMIC_AT : ATOMIC_AT + 8] = (40).to_bytes(8, "little")
    if receive:
        pair.b.post_receive(0, 4096)
    # All four are posted before the first packet leaves, as one doorbell would.
    service, pair.a.service = pair.a.service, lambda: None  # type: ignore[method-assign]
    pair.a.post(Opcode.SEND, 2500)
    pair.a.post(Opcode.READ, 3000, sges=[Sge(BASE + 0x4000, 3000, LKEY)])
    pair.a.post(
        Opcode.ATOMIC_ADD,
        8,
        swap_add=2,
        remote_address=BASE + ATOMIC_AT,
        sges=[Sge(BASE + RESULT_AT, 8, LKEY)],
    )
    pair.a.post(Opcode.WRITE, 0)
    pair.a.service = service  # type: ignore[method-assign]
    pair.a.service()
    return pair


def _check_outcome(pair: Pair) -> None:
    assert pair.a.host.statuses == [(index, Status.SUCCESS) for index in range(4)]
    assert [completion.opcode for completion in pair.a.host.completions] == [
        CompletionOpcode.SEND,
        CompletionOpcode.READ,
        CompletionOpcode.ATOMIC_ADD,
        CompletionOpcode.WRITE,
    ]
    assert pair.b.host.statuses == [(0, Status.SUCCESS)]
    assert pair.b.host.completions[0].length == 2500
    assert pair.local(pair.b)[:2500] == pattern(2500)
    assert pair.local(pair.a)[0x4000 : 0x4000 + 3000] == pattern(3000, seed=9)
    assert int.from_bytes(pair.remote(pair.b)[ATOMIC_AT : ATOMIC_AT + 8], "little") == 42
    assert int.from_bytes(pair.local(pair.a)[RESULT_AT : RESULT_AT + 8], "little") == 40
    assert pair.b.host.atomics == 1
    assert pair.a.host.retired == 4
    assert pair.a.engine.next_psn == pair.b.engine.expected_psn == 108
    assert pair.a.engine.idle() and pair.b.engine.idle()


def test_perfect_link() -> None:
    pair = _run(perfect)
    pair.run()
    assert pair.a.trace() == REQUESTS
    assert pair.b.trace() == ANSWERS
    assert [packet.payload_length for packet in pair.a.packets()] == [1024, 1024, 452, 0, 0, 0]
    assert [packet.ack_request for packet in pair.a.packets()] == [False, False, True, True, True, True]
    assert [packet.payload_length for packet in pair.b.packets()] == [0, 1024, 1024, 952, 0, 0]
    assert not any(packet.ack_request for packet in pair.b.packets())
    assert [(psn, syndrome, msn) for psn, syndrome, msn in _syndromes(pair)] == [
        (102, 0x1F, 1),
        (103, 0x1F, 2),
        (105, 0x1F, 2),
        (106, 0x1F, 3),
        (107, 0x1F, 4),
    ]
    assert pair.a.host.retransmitted == []
    _check_outcome(pair)


def test_lost_request_101() -> None:
    pair = _run(losing(("a", 1)))
    pair.run()
    assert pair.a.trace() == [*REQUESTS, ("SEND MIDDLE", 101), *REQUESTS[2:]]
    assert pair.b.trace() == [("ACKNOWLEDGE", 101), *ANSWERS]
    assert _syndromes(pair)[0] == (101, Nak.SEQUENCE, 0)
    assert pair.a.host.counts["packet_seq_err"] == 1
    assert [counter for counter, _ in pair.b.host.drops] == ["out_of_sequence"] * 4
    assert pair.a.host.retransmitted == [(101, 5)]
    assert pair.a.host.timers == []
    _check_outcome(pair)


def test_lost_read_response_104() -> None:
    pair = _run(losing(("b", 2)))
    pair.run()
    again = [("READ REQUEST", 104), ("FETCH ADD", 106), ("WRITE ONLY", 107)]
    assert pair.a.trace() == REQUESTS + again
    restart = pair.a.packets()[6]
    assert RETH.unpack_from(restart.frame, restart.extension) == (BASE + 1024, RKEY, 1976)
    assert pair.b.trace() == [
        *ANSWERS,
        ("READ RESPONSE FIRST", 104),
        ("READ RESPONSE LAST", 105),
        ("ATOMIC ACKNOWLEDGE", 106),
        ("ACKNOWLEDGE", 107),
    ]
    assert pair.b.host.counts["duplicate_request"] == 3
    assert pair.a.host.timers == []
    _check_outcome(pair)


def test_lost_ack_102_is_made_up_by_the_read_response() -> None:
    pair = _run(losing(("b", 0)))
    pair.run()
    assert pair.a.trace() == REQUESTS
    assert pair.b.trace() == ANSWERS
    _check_outcome(pair)


def test_lost_atomic_acknowledge_106() -> None:
    pair = _run(losing(("b", 4)))
    pair.run()
    assert pair.a.trace() == [*REQUESTS, ("FETCH ADD", 106), ("WRITE ONLY", 107)]
    assert pair.b.trace()[6:] == [("ATOMIC ACKNOWLEDGE", 106), ("ACKNOWLEDGE", 107)]
    _check_outcome(pair)


def test_lost_last_ack_107_costs_a_timeout() -> None:
    pair = _run(losing(("b", 5)))
    pair.run()
    assert pair.a.trace() == [*REQUESTS, ("WRITE ONLY", 107)]
    assert pair.a.host.counts["local_ack_timeout_err"] == 1
    assert len(pair.a.host.timers) == 1
    _check_outcome(pair)


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("sender", ["a", "b"])
def test_any_one_loss_is_repaired(sender: str, number: int) -> None:
    pair = _run(losing((sender, number)))
    pair.run()
    _check_outcome(pair)


def test_no_receive_element_at_100() -> None:
    pair = _run(perfect, receive=False)
    pair.scheduler.run(until=500_000)
    assert pair.b.trace() == [("ACKNOWLEDGE", 100)]
    assert _syndromes(pair) == [(100, 0x20 | 12, 0)]
    assert pair.a.trace() == REQUESTS
    pair.b.post_receive(0, 4096)
    pair.run()
    assert pair.a.trace() == REQUESTS + REQUESTS
    assert pair.b.trace()[1:] == ANSWERS
    assert pair.a.host.counts == {"rnr_nak_retry_err": 1}
    assert pair.b.host.counts["send_rnr_err"] == 1
    _check_outcome(pair)
