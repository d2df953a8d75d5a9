# SPDX-License-Identifier: Apache-2.0
"""Atomics of 4 and of 8 bytes, with masks and without, from one engine to the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.nic.atomics import AtomicMasks, AtomicOperation
from emu.nic.engine import AsyncEvent
from emu.nic.work import Access, Opcode, QpState, Status
from emu.wire.headers import MASKED_ATOMIC_ETH, pack_masked_atomic_eth
from emu.wire.opcodes import ExtendedOpcode, RcOpcode
from tests.roce.bench import BASE, RKEY, Pair, losing

WORDS = st.integers(0, (1 << 64) - 1)
MASKS = st.none() | st.builds(AtomicMasks, WORDS, WORDS, WORDS)


@given(st.sampled_from([Opcode.ATOMIC_ADD, Opcode.ATOMIC_CAS]), st.sampled_from([4, 8]), WORDS, WORDS, MASKS)
def test_the_word_changes_as_asked_and_the_old_one_comes_back(
    opcode: Opcode, size: int, operand: int, compare: int, masks: AtomicMasks | None
) -> None:
    pair = Pair()
    before = bytes(range(0x81, 0x91))
    pair.remote(pair.b)[0:16] = before
    pair.local(pair.a)[0:16] = bytes(16)
    old = int.from_bytes(before[4 if size == 4 else 8 :][:size], "little")
    at = 4 if size == 4 else 8
    pair.a.post(opcode, size, remote_address=BASE + at, swap_add=operand, compare=compare, masks=masks)
    pair.run()
    assert pair.a.host.statuses == [(0, Status.SUCCESS)]
    assert pair.local(pair.a)[0:16] == old.to_bytes(size, "little").ljust(16, b"\0")
    operation = AtomicOperation(opcode is Opcode.ATOMIC_ADD, operand, compare, size, masks)
    new = operation.apply(old)
    expected = bytearray(before)
    expected[at : at + size] = (old if new is None else new).to_bytes(size, "little")
    assert pair.remote(pair.b)[0:16] == expected


@pytest.mark.parametrize("opcode", [Opcode.ATOMIC_ADD, Opcode.ATOMIC_CAS])
def test_the_standard_requests_serve_where_they_can(opcode: Opcode) -> None:
    pair = Pair()
    pair.a.post(opcode, 8)
    pair.a.post(opcode, 4)
    pair.a.post(opcode, 8, masks=AtomicMasks())
    pair.run()
    add = opcode is Opcode.ATOMIC_ADD
    plain = RcOpcode.FETCH_ADD if add else RcOpcode.COMPARE_SWAP
    extended = ExtendedOpcode.FETCH_ADD if add else ExtendedOpcode.COMPARE_SWAP
    assert [packet.opcode for packet in pair.a.packets()] == [plain, extended, extended]
    ones = 0 if add else 0xFFFFFFFFFFFFFFFF
    small = pair.a.packets()[1]
    assert MASKED_ATOMIC_ETH.unpack_from(small.frame, small.extension) == (BASE, RKEY, 4, 0, 0, ones, ones)


def test_a_lost_answer_is_repeated_without_adding_again() -> None:
    pair = Pair(losing(("b", 0)))
    pair.a.post(Opcode.ATOMIC_ADD, 4, swap_add=5)
    pair.run()
    assert pair.a.host.statuses == [(0, Status.SUCCESS)]
    assert pair.remote(pair.b)[0:8] == (5).to_bytes(8, "little")
    assert pair.b.host.atomics == 1
    assert pair.a.host.retransmitted == [(100, 1)]


@pytest.mark.parametrize(
    ("size", "address", "status"),
    [
        (4, BASE + 2, Status.REM_INV_REQ_ERR),
        (8, BASE + 4, Status.REM_INV_REQ_ERR),
        (5, BASE, Status.REM_INV_REQ_ERR),
        (0, BASE, Status.REM_INV_REQ_ERR),
        (1 << 31, BASE, Status.REM_INV_REQ_ERR),
        (4, BASE - 4, Status.REM_ACCESS_ERR),
    ],
)
def test_what_no_atomic_can_work_on_is_refused(size: int, address: int, status: Status) -> None:
    pair = Pair()
    # A request that this requester would not send itself, in the place of one that waits for its answer.
    pair.impair = lambda sender, number, frame: []
    pair.a.post(Opcode.ATOMIC_ADD, 8)
    pair.impair = lambda sender, number, frame: [(0, frame)]
    extension = pack_masked_atomic_eth(address, RKEY, size, 1, 0, 0, 0)
    pair.b.deliver(pair.a.frame(ExtendedOpcode.FETCH_ADD, 100, extension, ack_request=True))
    pair.run()
    assert pair.b.attributes.state is QpState.RTS
    assert [state for state, _ in pair.b.host.moves] == [QpState.ERR]
    refused = AsyncEvent.QP_REQ_ERR if status is Status.REM_INV_REQ_ERR else AsyncEvent.QP_ACCESS_ERR
    assert refused in pair.b.host.events
    assert pair.a.host.statuses == [(0, status)]
    assert pair.b.host.atomics == 0


def test_the_right_to_atomics_is_asked_for() -> None:
    pair = Pair(access=Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ)
    pair.a.post(Opcode.ATOMIC_ADD, 4)
    pair.run()
    assert pair.a.host.statuses == [(0, Status.REM_INV_REQ_ERR)]
    assert pair.b.host.atomics == 0
