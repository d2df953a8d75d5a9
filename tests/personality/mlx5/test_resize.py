# SPDX-License-Identifier: Apache-2.0
"""A completion queue that goes on in another ring, read as rdma-core reads it."""

from __future__ import annotations

import pytest

from emu.clock import MS
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.codes import CommandStatus, CqeOpcode, WqeOpcode
from tests.personality.mlx5.machine import Reply, inline, remote
from tests.personality.mlx5.test_data import Pair, Side

LOG_OLD = 4


def write(pair: Pair, count: int) -> None:
    """Have side a complete ``count`` elements."""
    a, b = pair.a, pair.b
    for _ in range(count):
        a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"x"))
        pair.run(MS)


def resize(side: Side, log_size: int, *, entry: int = 0) -> tuple[Reply, int]:
    """Ask for a ring of ``1 << log_size`` entries of 64 << ``entry`` bytes; where it is."""
    machine = side.machine
    size = 64 << entry << log_size
    ring = machine.allocate(max(size, 4096))
    for slot in range(1 << log_size):
        machine.store(ring + (slot + 1 << 6 + entry) - 1, b"\xf1")
    reply = machine.command(
        Op.MODIFY_CQ,
        1,
        machine.pages(ring, size),
        cqn=side.cq.number,
        modify_field_select_resize_field_select=7,
        cq_context__log_cq_size=log_size,
        cq_context__cqe_sz=entry,
    )
    return reply, ring


def entry(side: Side, ring: int, log_size: int, index: int) -> tuple[int, int]:
    """Opcode and WQE counter of an entry, which must belong to software."""
    slot = side.machine.load(ring + (index % (1 << log_size)) * 64, 64)
    assert slot[63] & 1 == index >> log_size & 1
    return slot[63] >> 4, int.from_bytes(slot[60:62], "big")


@pytest.mark.parametrize(("log_size", "done"), [(6, 5), (6, 20), (3, 5), (2, 18)])
def test_entries_go_on_in_the_new_ring_one_further(log_size: int, done: int) -> None:
    pair = Pair()
    a = pair.a
    for _ in range(done - 2):
        write(pair, 1)
        assert a.cq.poll() is not None
    # Two are left in the old ring, for software to carry over.
    write(pair, 2)
    reply, ring = resize(a, log_size)
    assert reply.status is CommandStatus.OK
    old = [entry(a, a.cq.ring, LOG_OLD, done - 2 + number) for number in range(3)]
    assert [opcode for opcode, _ in old] == [CqeOpcode.REQUESTER, CqeOpcode.REQUESTER, CqeOpcode.RESIZED]
    a.machine.store(a.cq.record, (done - 1).to_bytes(4, "big"))
    write(pair, 1)
    opcode, counter = entry(a, ring, log_size, done + 1)
    assert (opcode, counter) == (CqeOpcode.REQUESTER, done)
    # As many more as fit, and none too many.
    write(pair, (1 << log_size) - 3)
    assert not a.machine.nic.cqs.get(a.cq.number, "cqn").broken
    write(pair, 1)
    assert a.machine.nic.cqs.get(a.cq.number, "cqn").broken


def test_a_ring_too_small_for_what_is_not_read_is_refused() -> None:
    pair = Pair()
    write(pair, 5)
    reply, _ = resize(pair.a, 2)
    assert reply.status is CommandStatus.BAD_PARAM
    write(pair, 1)
    assert entry(pair.a, pair.a.cq.ring, LOG_OLD, 5) == (CqeOpcode.REQUESTER, 5)


def test_a_full_ring_must_be_read_first() -> None:
    pair = Pair()
    write(pair, 16)
    reply, _ = resize(pair.a, 6)
    assert reply.status is CommandStatus.RESOURCE_BUSY


def test_entries_may_become_longer() -> None:
    pair = Pair()
    reply, ring = resize(pair.a, 4, entry=1)
    assert reply.status is CommandStatus.OK
    write(pair, 1)
    slot = pair.a.machine.load(ring + 128, 128)
    assert slot[127] >> 4 == CqeOpcode.REQUESTER
    assert int.from_bytes(slot[64 + 60 : 64 + 62], "big") == 0


def test_a_collapsed_queue_has_no_ring_to_change() -> None:
    pair = Pair()
    machine = pair.a.machine
    pair.a.cq = machine.cq(pair.a.eq, pair.a.uar, cc=1)
    reply, _ = resize(pair.a, 4)
    assert reply.status is CommandStatus.BAD_PARAM
