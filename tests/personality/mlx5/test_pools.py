# SPDX-License-Identifier: Apache-2.0
"""Receive memory pools in user memory, as UCX makes them: linked, and used in order."""

from __future__ import annotations

import struct

import pytest

from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.codes import CommandStatus, WqeOpcode
from tests.personality.mlx5.machine import data, inline
from tests.personality.mlx5.test_data import Pair, connected

PAGE = 4096
MS = 1_000_000
LINKED, CYCLIC = 0, 1
RECORD, RING = 64, PAGE
SLOT, SLOTS = 64, 8


def umem(pair: Pair) -> tuple[int, int]:
    """Two pages of b's memory, and the number they are registered by."""
    machine = pair.b.machine
    memory = machine.allocate(2 * PAGE)
    number = machine.do(Op.CREATE_UMEM, tail=machine.pages(memory, 2 * PAGE), umem__num_of_mtt=2)["umem_id"]
    return memory, number


def pool_fields(pair: Pair, number: int, kind: int, **changed: int) -> dict[str, int]:
    return {
        "ctx__wq__wq_type": kind,
        "ctx__wq__pd": pair.b.pd,
        "ctx__wq__log_wq_stride": 6,
        "ctx__wq__log_wq_sz": 3,
        "ctx__wq__dbr_umem_valid": 1,
        "ctx__wq__dbr_umem_id": number,
        "ctx__wq__dbr_addr": RECORD,
        "ctx__wq__wq_umem_valid": 1,
        "ctx__wq__wq_umem_id": number,
        "ctx__wq__wq_umem_offset": RING,
        **changed,
    }


@pytest.mark.parametrize(("kind", "order"), [(LINKED, (0, 2, 1)), (CYCLIC, (0, 1, 2))])
def test_slots_are_taken_as_the_kind_says(kind: int, order: tuple[int, ...]) -> None:
    pair = Pair()
    b = pair.b
    memory, number = umem(pair)
    pool = b.machine.do(Op.CREATE_RMP, 0, b"", **pool_fields(pair, number, kind))["rmpn"]
    for slot, following in ((0, 2), (2, 1), (1, 0)):
        where = memory + RING + slot * SLOT
        segments = data(b.memory + slot * SLOT, SLOT, b.key) + data(0, 0, 0x100)
        b.machine.store(where, struct.pack(">HH12x", 0, following) + segments)
    b.machine.store(memory + RECORD, (3).to_bytes(4, "big"))
    left, _ = connected(pair, rq_type=1, srqn_rmpn_xrqn=pool)
    for text in (b"one", b"two", b"three"):
        left.post(WqeOpcode.SEND, inline(text))
        pair.run(10 * MS)
    taken = [done and done.counter for done in (b.cq.poll() for _ in range(3))]
    assert taken == list(order)
    held = [b.held(5, slot * SLOT).rstrip(b"\0") for slot in order]
    assert held == [b"one", b"two", b"three"]


@pytest.mark.parametrize(
    "changed",
    [
        {"ctx__wq__wq_umem_offset": 2 * PAGE - SLOT},
        {"ctx__wq__wq_umem_id": 77},
        {"ctx__wq__dbr_umem_id": 77},
        {"ctx__wq__dbr_addr": 2 * PAGE},
        {"ctx__wq__wq_type": 2},
    ],
)
def test_a_pool_must_lie_in_its_memory_and_be_of_a_kind_there_is(changed: dict[str, int]) -> None:
    pair = Pair()
    _, number = umem(pair)
    reply = pair.b.machine.command(Op.CREATE_RMP, 0, b"", **pool_fields(pair, number, CYCLIC, **changed))
    assert reply.status in (CommandStatus.BAD_PARAM, CommandStatus.BAD_RESOURCE)
    pool = pair.b.machine.do(Op.CREATE_RMP, 0, b"", **pool_fields(pair, number, CYCLIC))["rmpn"]
    pair.b.machine.do(Op.DESTROY_RMP, rmpn=pool)
