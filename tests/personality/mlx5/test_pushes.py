# SPDX-License-Identifier: Apache-2.0
"""Descriptors pushed through the doorbell page by libraries that copy whole slots, padding and all."""

from __future__ import annotations

import pytest

from emu.events import Kind
from emu.personality.mlx5.codes import WqeOpcode
from emu.personality.mlx5.identity import UAR_SIZE
from tests.personality.mlx5.machine import inline, remote
from tests.personality.mlx5.test_data import Pair

SLOT, REGISTER = 64, 0x800
MS = 1_000_000


def push(pair: Pair, text: bytes, size: int) -> None:
    """Post a WRITE of ``text`` and copy the first ``size`` bytes of its slot into the doorbell register."""
    a, b = pair.a, pair.b
    slot = a.qp.sends + a.qp.sent % 16 * SLOT
    a.machine.store(slot, bytes(SLOT))
    a.qp.write(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(text))
    a.machine.store(a.qp.record + 4, a.qp.sent.to_bytes(4, "big"))
    data = a.machine.load(slot, SLOT)
    for at in range(0, size, 8):
        a.machine.registers.write(a.uar * UAR_SIZE + REGISTER + at, data[at : at + 8])


@pytest.mark.parametrize("sizes", [(64, 64, 64), (64, 8, 64), (8, 64, 8, 64), (48, 64, 48), (8, 8, 48)])
def test_padding_of_one_descriptor_is_not_taken_for_the_next(sizes: tuple[int, ...]) -> None:
    pair = Pair()
    a, b = pair.a, pair.b
    for number, size in enumerate(sizes):
        text = b"%d" % number * (8 if number % 2 else 4)
        push(pair, text, size)
        pair.run(10 * MS)
        done = a.cq.poll()
        assert done is not None and done.opcode == 0
        assert b.held(len(text)) == text
    assert a.machine.events.texts(Kind.CHECK) == []
    assert a.machine.nic.counters.pushed_wqes == sum(size > 8 for size in sizes)


def test_a_doorbell_whose_slot_is_copied_whole_leaves_nothing_behind() -> None:
    pair = Pair()
    a, b = pair.a, pair.b
    for number in range(3):
        a.qp.write(WqeOpcode.NOP)
        a.machine.store(a.qp.record + 4, a.qp.sent.to_bytes(4, "big"))
        slot = a.machine.load(a.qp.sends + (a.qp.sent - 1) % 16 * SLOT, 16) + b"\xee" * 48
        for at in range(0, SLOT, 8):
            a.machine.registers.write(a.uar * UAR_SIZE + REGISTER + at, slot[at : at + 8])
        pair.run(10 * MS)
        assert a.cq.poll() is not None
        push(pair, b"%d" % number, SLOT)
        pair.run(10 * MS)
        assert a.cq.poll() is not None
        assert b.held(1) == b"%d" % number
    assert a.machine.events.texts(Kind.CHECK) == []
    assert a.machine.nic.counters.pushed_wqes == 3
