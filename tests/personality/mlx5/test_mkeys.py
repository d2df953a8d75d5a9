# SPDX-License-Identifier: Apache-2.0
"""Keys that descriptors change: registration, memory windows, invalidation, keys over other keys."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.events import Kind
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.codes import CommandStatus, CqeOpcode, CqeSyndrome, WqeOpcode
from emu.personality.mlx5.layout.contexts import MKC
from tests.personality.mlx5.machine import Machine, Qp, data, inline, remote
from tests.personality.mlx5.test_data import PAYLOAD, Pair, Side

INLINE, FREE_ONLY, USED_ONLY, SAME_QPN, AT_OFFSET = 1 << 7, 1 << 5, 1 << 6, 1 << 3, 1 << 4
LEN, PAGE_SIZE, START, PD, RINVAL, KEY, QPN = (1 << bit for bit in (0, 1, 6, 7, 8, 13, 14))
LR, LW, RR, RW, ATOMIC, RELAXED, FREE = (1 << bit for bit in (17, 18, 19, 20, 21, 25, 29))
RIGHTS = LR | LW | RR | RW | ATOMIC
ENABLE = LEN | START | RIGHTS | KEY | FREE
REGISTER = ENABLE | PAGE_SIZE | RINVAL
ALL = {"lr": 1, "lw": 1, "rr": 1, "rw": 1, "a": 1}
PAGES, PIECES, BLOCKS = 1, 2, 3
PRESENT = 3


def pages(*addresses: int) -> bytes:
    """A list of pages, padded as drivers do."""
    found = b"".join(struct.pack(">Q", address | PRESENT) for address in addresses)
    return found.ljust((len(found) + 63) // 64 * 64, b"\0")


def pieces(*found: tuple[int, int, int]) -> bytes:
    """A list of (bytes, key, address)."""
    packed = b"".join(struct.pack(">IIQ", *piece) for piece in found)
    return packed.ljust((len(packed) + 63) // 64 * 64, b"\0")


def control(mask: int, octowords: int, flags: int = INLINE, offset: int = 0) -> bytes:
    """The segment that says what changes."""
    return struct.pack(">B3xHHQI28x", flags, octowords, offset & 0xFFFF, mask, offset >> 16)


def change(
    qp: Qp,
    key: int,
    mask: int,
    context: Mapping[str, int],
    words: bytes = b"",
    flags: int = 0,
    source: bytes | None = None,
    offset: int = 0,
) -> None:
    """Post a change of a key."""
    octowords = len(words) // 16
    how = flags if source is not None else flags | INLINE
    body = bytes(MKC.pack(context)) + (words if source is None else source)
    qp.post(WqeOpcode.UMR, control(mask, octowords, how, offset), body, immediate=key)


def free_key(side: Side, mode: int, *, room: int = 4, variant: int = 0x10, **more: int) -> int:
    """A key that waits for its translation."""
    values = {
        "free": 1,
        "umr_en": 1,
        "access_mode_1_0": mode,
        "pd": side.pd,
        "qpn": 0xFFFFFF,
        "lr": 1,
        "log_page_size": 12,
        "translations_octword_size": room,
        "mkey_7_0": variant,
        **more,
    }
    named = {f"memory_key_mkey_entry__{name}": value for name, value in values.items()}
    return side.machine.do(Op.CREATE_MKEY, 0, b"", **named)["mkey_index"] << 8 | variant


@pytest.fixture
def pair() -> Pair:
    """Two connected NICs; the one of side a is a driver's, with fast registration."""
    pair = Pair()
    a, b = pair.a, pair.b
    a.qp, b.qp = a.make(fre=1), b.make(fre=1)
    a.machine.connect(a.qp, b.qp.number, b.gid, b.mac)
    b.machine.connect(b.qp, a.qp.number, a.gid, a.mac)
    return pair


def outcome(side: Side) -> tuple[int, int]:
    """Opcode and syndrome of the next completion."""
    done = side.cq.poll()
    assert done is not None
    return done.opcode, done.syndrome


GOOD = (CqeOpcode.REQUESTER, 0)
REFUSED = (CqeOpcode.REQUESTER_ERROR, CqeSyndrome.MEMORY_WINDOW_BIND)


def test_a_registration_with_an_inline_list_serves_the_next_element(pair: Pair) -> None:
    a, b = pair.a, pair.b
    key = free_key(a, PAGES, log_page_size=0)
    new = key & ~0xFF | 0x77
    context = {**ALL, "start_addr": 0x10_0800, "len": 6000, "log_page_size": 12, "mkey_7_0": 0x77}
    a.fill(PAYLOAD[:4096], 4096)
    a.fill(PAYLOAD[4096:], 3 * 4096)
    b.fill(bytes(9000))
    # The two pages are neither neighbours nor in order.
    change(a.qp, key, REGISTER, context, pages(a.memory + 4096, a.memory + 3 * 4096), FREE_ONLY)
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), data(0x10_0800, 6000, new))
    pair.run()
    assert [outcome(a), outcome(a)] == [GOOD, GOOD]
    assert b.held(6000) == (PAYLOAD[:4096] + PAYLOAD[4096:])[2048 : 2048 + 6000]


def test_a_list_in_memory_and_one_behind_the_other(pair: Pair) -> None:
    a, b = pair.a, pair.b
    key = free_key(a, PAGES, room=8)
    lists = a.machine.allocate(4096)
    order = [5, 3, 7, 1, 9, 8, 2, 4, 6, 0]
    words = b"".join(pages(a.memory + number * 4096)[:8] for number in order).ljust(128, b"\0")
    a.machine.store(lists, words)
    list_key = a.machine.mkey(a.pd, lists, 4096)
    change(a.qp, key, 0, {}, bytes(64), FREE_ONLY, data(lists, 64, list_key))
    context = {**ALL, "start_addr": 0, "len": 10 * 4096, "log_page_size": 12, "mkey_7_0": 0x10}
    tail = data(lists + 64, 64, list_key)
    change(a.qp, key, REGISTER, context, bytes(64), FREE_ONLY | AT_OFFSET, tail, offset=4)
    for number, page in enumerate(order):
        a.fill(bytes([number]) * 4096, page * 4096)
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), data(0, 10 * 4096, key))
    pair.run()
    assert [outcome(a) for _ in range(3)] == [GOOD] * 3
    assert b.held(10 * 4096) == b"".join(bytes([number]) * 4096 for number in range(10))


def test_the_registration_queue_pair_gives_keys_to_other_domains(pair: Pair) -> None:
    """Drivers make keys in a domain of their own, enable them for a process, and take them back."""
    a = pair.a
    own = a.machine.pd()
    # The queue pair itself has no domain.
    rig = a.machine.qp(0, a.cq, a.uar, service=0xC, rq_type=3)
    lists = a.machine.allocate(4096)
    list_key = a.machine.mkey(own, lists, 4096)
    rig.sends = rig.receives
    for step in (Op.RST2INIT_QP, Op.INIT2RTR_QP, Op.RTR2RTS_QP):
        a.machine.do(step, qpn=rig.number)
    key = free_key(a, PAGES, pd=own)
    context = {**ALL, "pd": a.pd, "start_addr": 0x5000, "len": 4096, "log_page_size": 12, "mkey_7_0": 0x10}
    a.machine.store(lists, pages(a.memory))
    change(rig, key, REGISTER | PD, context, bytes(64), FREE_ONLY, data(lists, 64, list_key))
    pair.run()
    assert outcome(a) == GOOD
    keys = a.machine.nic.keys
    region = keys.get(key, "key")
    assert (region.pd.number, region.address, region.enabled) == (a.pd, 0x5000, True)
    change(rig, key, PD | FREE, {"pd": own, "free": 1, "mkey_7_0": 0x10})
    pair.run()
    assert outcome(a) == GOOD
    assert (region.pd.number, region.enabled) == (own, False)
    assert a.machine.do(Op.QUERY_MKEY, mkey_index=key >> 8)["memory_key_mkey_entry.free"] == 1
    change(rig, key, FREE, {"free": 1}, bytes(64), 0, data(lists, 64, 0xABCD00))
    pair.run()
    assert outcome(a) == REFUSED
    a.machine.do(Op.DESTROY_QP, qpn=rig.number)
    for each in (key, list_key):
        a.machine.do(Op.DESTROY_MKEY, mkey_index=each >> 8)
    a.machine.do(Op.DEALLOC_PD, pd=own)


def test_a_page_that_is_not_there_refuses_the_access(pair: Pair) -> None:
    a, b = pair.a, pair.b
    key = free_key(b, PAGES)
    words = pages(b.memory)[:8] + bytes(56)
    context = {**ALL, "start_addr": 0, "len": 8192, "log_page_size": 12, "mkey_7_0": 0x10}
    change(b.qp, key, REGISTER, context, words)
    pair.run()
    assert outcome(b) == GOOD
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(0, key), inline(b"there"))
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(4096, key), inline(b"not there"))
    pair.run()
    assert [outcome(a), outcome(a)] == [GOOD, (CqeOpcode.REQUESTER_ERROR, CqeSyndrome.REMOTE_ACCESS)]
    assert b.held(5) == b"there"


# Windows: what a process does with keys over its own keys


def window(side: Side, variant: int = 0) -> int:
    """A window as the kernel's driver makes it."""
    return free_key(side, PIECES, variant=variant, en_rinval=1)


def bind(side: Side, qp: Qp, key: int, address: int, length: int, variant: int, **more: int) -> None:
    """Bind a window of type 2."""
    context = {**ALL, "start_addr": address, "len": length, "qpn": qp.number, "mkey_7_0": variant, **more}
    words = pieces((length, side.key, address))
    change(qp, key, ENABLE | QPN, context, words, FREE_ONLY | AT_OFFSET)


@pytest.fixture
def plain() -> Pair:
    """Two connected NICs with queue pairs as processes have them."""
    return Pair()


def test_a_window_opens_a_part_of_memory_and_closes_again(plain: Pair) -> None:
    a, b = plain.a, plain.b
    key = window(b)
    opened = key | 0x31
    bind(b, b.qp, key, b.memory + 100, 50, 0x31)
    plain.run()
    assert outcome(b) == GOOD
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory + 100, opened), inline(bytes(range(50))))
    plain.run()
    assert outcome(a) == GOOD
    assert b.held(52, 99) == b"\0" + bytes(range(50)) + b"\0"
    # Local invalidation, as rdma-core writes it.
    change(b.qp, opened, FREE | KEY | QPN, {"free": 1, "qpn": 0xFFFFFF}, flags=SAME_QPN | AT_OFFSET)
    plain.run()
    assert outcome(b) == GOOD
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory + 100, opened), inline(b"late"))
    plain.run()
    assert outcome(a) == (CqeOpcode.REQUESTER_ERROR, CqeSyndrome.REMOTE_ACCESS)


@pytest.mark.parametrize(("address", "length"), [(99, 1), (100, 51), (150, 1)])
def test_a_window_opens_no_more_than_it_says(plain: Pair, address: int, length: int) -> None:
    a, b = plain.a, plain.b
    key = window(b)
    bind(b, b.qp, key, b.memory + 100, 50, 1)
    plain.run()
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory + address, key | 1), inline(bytes(length)))
    plain.run()
    assert outcome(a) == (CqeOpcode.REQUESTER_ERROR, CqeSyndrome.REMOTE_ACCESS)


def test_a_window_of_one_queue_pair_is_closed_to_others(plain: Pair) -> None:
    a, b = plain.a, plain.b
    key = window(b)
    bind(b, b.qp, key, b.memory, 64, 1)
    left, right = a.make(), b.make()
    a.machine.connect(left, right.number, b.gid, b.mac)
    b.machine.connect(right, left.number, a.gid, a.mac)
    plain.run()
    left.post(WqeOpcode.RDMA_WRITE, remote(b.memory, key | 1), inline(b"x"))
    plain.run()
    assert outcome(a) == (CqeOpcode.REQUESTER_ERROR, CqeSyndrome.REMOTE_ACCESS)
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, key | 1), inline(b"mine"))
    plain.run()
    assert outcome(a) == GOOD


def test_a_peer_invalidates_a_window(plain: Pair) -> None:
    a, b = plain.a, plain.b
    key = window(b)
    bind(b, b.qp, key, b.memory, 64, 1)
    b.qp.receive((64, b.key, b.memory))
    plain.run()
    a.qp.post(WqeOpcode.SEND_INVAL, inline(b"bye"), immediate=key | 1)
    plain.run()
    assert outcome(a) == outcome(b) == GOOD
    received = b.cq.poll()
    assert received is not None
    assert (received.opcode, received.word) == (CqeOpcode.RESPONDER_SEND_INVAL, key | 1)
    # It is free again, and can be bound anew.
    bind(b, b.qp, key, b.memory, 64, 2)
    plain.run()
    assert outcome(b) == GOOD


def test_memory_behind_a_window_that_is_deregistered_is_out_of_reach(plain: Pair) -> None:
    a, b = plain.a, plain.b
    key = window(b)
    bind(b, b.qp, key, b.memory, 64, 1)
    plain.run()
    b.machine.do(Op.DESTROY_MKEY, mkey_index=b.key >> 8)
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, key | 1), inline(b"x"))
    plain.run()
    assert outcome(a) == (CqeOpcode.REQUESTER_ERROR, CqeSyndrome.REMOTE_ACCESS)


def test_pieces_of_keys_make_one_range(plain: Pair) -> None:
    a, b = plain.a, plain.b
    key = free_key(b, PIECES, room=4, variant=0)
    words = pieces((10, b.key, b.memory + 4096), (5, b.key, b.memory), (100, b.key, b.memory + 8192))
    change(b.qp, key, ENABLE & ~START, {**ALL, "len": 115}, words)
    plain.run()
    assert outcome(b) == GOOD
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(3, key), inline(PAYLOAD[3:40]))
    plain.run()
    assert outcome(a) == GOOD
    assert b.held(7, 4096 + 3) + b.held(5) + b.held(25, 8192) == PAYLOAD[3:40]


def test_pieces_that_come_over_and_over(plain: Pair) -> None:
    a, b = plain.a, plain.b
    key = free_key(b, PIECES, room=4, variant=0)
    block = struct.pack(">IIIHH", 7, 0x400, 5, 0, 2)
    block += struct.pack(">HHIQ", 16, 4, b.key, b.memory) + struct.pack(">HHIQ", 8, 3, b.key, b.memory + 4096)
    change(b.qp, key, ENABLE & ~START, {**ALL, "len": 35}, block.ljust(64, b"\0"))
    plain.run()
    assert outcome(b) == GOOD
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(0, key), inline(PAYLOAD[:35]))
    plain.run()
    assert outcome(a) == GOOD
    rounds = b"".join(b.held(4, 16 * turn) + b.held(3, 4096 + 8 * turn) for turn in range(5))
    assert rounds == PAYLOAD[:35]


def test_blocks_of_one_size(plain: Pair) -> None:
    a, b = plain.a, plain.b
    key = free_key(b, BLOCKS, room=4, variant=0)
    words = pieces((0, b.key, b.memory + 8192), (0, b.key, b.memory))
    context = {**ALL, "len": 5000, "start_addr": 0x100, "log_page_size": 12}
    change(b.qp, key, ENABLE | PAGE_SIZE, context, words)
    plain.run()
    assert outcome(b) == GOOD
    a.fill(PAYLOAD)
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(0x100, key), data(a.memory, 5000, a.key))
    plain.run()
    assert outcome(a) == GOOD
    assert b.held(4096 - 0x100, 8192 + 0x100) + b.held(5000 - 4096 + 0x100) == PAYLOAD[:5000]


def test_atomics_reach_behind_a_window(plain: Pair) -> None:
    a, b = plain.a, plain.b
    key = window(b)
    bind(b, b.qp, key, b.memory, 64, 1)
    plain.run()
    result = data(a.memory, 8, a.key)
    a.qp.post(WqeOpcode.ATOMIC_FA, remote(b.memory + 8, key | 1), struct.pack(">QQ", 3, 0), result)
    plain.run()
    assert outcome(a) == GOOD
    assert b.held(16) == bytes(8) + (3).to_bytes(8, "little")


# What is refused

REFUSALS: dict[str, dict[str, object]] = {
    "a key that is not there": {"key": 0xABCDE00},
    "a key of another domain": {"pd": "other"},
    "a key over pages": {"mode": PAGES},
    "another domain for it": {"mask": PD},
    "a field that is not offered": {"mask": 1 << 12},
    "a key not made for it": {"umr_en": 0},
    "one that must be in use": {"flags": USED_ONLY},
    "one of another queue pair": {"flags": SAME_QPN, "qpn": 7},
    "more than there is room for": {"words": bytes(128)},
    "fewer pieces than its length": {"words": bytes(64)},
    "a piece over and over without a piece": {"words": struct.pack(">IIIHH", 0, 0x400, 9, 0, 0) + bytes(48)},
    "pieces of nothing over and over": {"words": struct.pack(">IIIHH", 0, 0x400, 9, 0, 1) + bytes(48)},
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_change_that_is_refused_names_why_and_ends_the_queue_pair(plain: Pair, name: str) -> None:
    b, case = plain.b, REFUSALS[name]
    pd = b.machine.pd() if case.get("pd") else b.pd
    mode, umr = case.get("mode", PIECES), case.get("umr_en", 1)
    assert isinstance(mode, int) and isinstance(umr, int)
    owner = case.get("qpn", 0xFFFFFF)
    assert isinstance(owner, int)
    key = free_key(b, mode, variant=0, pd=pd, umr_en=umr, qpn=owner)
    number, mask, flags = case.get("key", key), case.get("mask", 0), case.get("flags", 0)
    words = case.get("words", pieces((64, b.key, b.memory)))
    assert isinstance(number, int) and isinstance(mask, int) and isinstance(flags, int)
    assert isinstance(words, bytes)
    change(b.qp, number, ENABLE | mask, {**ALL, "len": 64, "pd": pd}, words, flags)
    plain.run()
    assert outcome(b) == REFUSED
    assert "key" in b.machine.events.texts(Kind.CHECK)[-1]
    assert b.machine.do(Op.QUERY_QP, qpn=b.qp.number)["qpc.state"] == 6
    assert b.machine.do(Op.QUERY_MKEY, mkey_index=key >> 8)["memory_key_mkey_entry.free"] == 1


def test_a_key_in_use_is_not_bound_again(plain: Pair) -> None:
    b = plain.b
    key = window(b)
    bind(b, b.qp, key, b.memory, 64, 1)
    bind(b, b.qp, key, b.memory, 64, 2)
    plain.run()
    assert [outcome(b), outcome(b)] == [GOOD, REFUSED]
    assert "in use" in b.machine.events.texts(Kind.CHECK)[-1]


def test_a_list_that_cannot_be_read_is_refused(pair: Pair) -> None:
    a = pair.a
    key = free_key(a, PAGES)
    context = {**ALL, "len": 4096, "log_page_size": 12}
    change(a.qp, key, REGISTER, context, bytes(64), 0, data(a.memory, 64, 0xDEAD00))
    pair.run()
    assert outcome(a) == REFUSED


def test_a_descriptor_that_is_cut_off_is_no_change(pair: Pair) -> None:
    a = pair.a
    a.qp.post(WqeOpcode.UMR, control(FREE, 0), immediate=0x100)
    pair.run()
    assert outcome(a) == (CqeOpcode.REQUESTER_ERROR, CqeSyndrome.LOCAL_QP_OPERATION)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    mask=st.integers(0, (1 << 64) - 1) | st.sampled_from([ENABLE, REGISTER, FREE]),
    flags=st.integers(0, 255),
    octowords=st.integers(0, 0xFFFF) | st.integers(0, 8),
    offset=st.integers(0, (1 << 48) - 1) | st.integers(0, 8),
    noise=st.binary(min_size=64, max_size=200),
    mode=st.sampled_from([PAGES, PIECES, BLOCKS]),
    trusted=st.booleans(),
)
def test_any_change_ends_in_a_completion_and_disturbs_nobody(
    mask: int, flags: int, octowords: int, offset: int, noise: bytes, mode: int, trusted: bool
) -> None:
    pair = Pair()
    b = pair.b
    key = free_key(b, mode)
    qp = b.make(fre=1) if trusted else b.qp
    if trusted:
        b.machine.connect(qp, 0x999, pair.a.gid, pair.a.mac)
    qp.post(WqeOpcode.UMR, control(mask, octowords, flags, offset), noise, immediate=key)
    pair.run()
    assert b.cq.poll() is not None
    # Whatever became of the key, another one still works.
    other, peer = b.make(), pair.a.make()
    b.machine.connect(other, peer.number, pair.a.gid, pair.a.mac)
    pair.a.machine.connect(peer, other.number, b.gid, b.mac)
    other.post(WqeOpcode.RDMA_WRITE, remote(pair.a.memory, pair.a.key), inline(b"fine"))
    pair.run()
    assert pair.a.held(4) == b"fine"
    b.machine.do(Op.DESTROY_MKEY, mkey_index=key >> 8)
    assert len(b.machine.nic.keys) == 1


# Commands of processes


def as_process(machine: Machine, opcode: Op, tail: bytes = b"", **values: int) -> CommandStatus:
    """Run a command under a user context."""
    named = {name.replace("__", "."): value for name, value in values.items()}
    command = bytearray(machine.input(opcode, named, 0, tail))
    command[2:4] = (1).to_bytes(2, "big")
    machine.submit(bytes(command))
    return machine.result(opcode).status


@pytest.mark.parametrize("mode", [0, 1])
def test_a_process_makes_no_key_over_bus_addresses(plain: Pair, mode: int) -> None:
    b = plain.b
    status = as_process(
        b.machine,
        Op.CREATE_MKEY,
        b.machine.pages(b.memory, 4096),
        memory_key_mkey_entry__access_mode_1_0=mode,
        memory_key_mkey_entry__pd=b.pd,
        memory_key_mkey_entry__lw=1,
        memory_key_mkey_entry__len=4096,
        memory_key_mkey_entry__log_page_size=12,
        memory_key_mkey_entry__translations_octword_size=1,
    )
    assert status is CommandStatus.BAD_PARAM


@pytest.mark.parametrize("field", ["fre", "rlky", "st"])
def test_a_process_makes_no_queue_pair_for_registration(plain: Pair, field: str) -> None:
    b = plain.b
    values = {
        "qpc__pd": b.pd,
        "qpc__uar_page": b.uar,
        "qpc__cqn_snd": b.cq.number,
        "qpc__cqn_rcv": b.cq.number,
        "qpc__log_sq_size": 4,
        "qpc__rq_type": 3,
        f"qpc__{field}": 0xC if field == "st" else 1,
    }
    pages_of_it = b.machine.pages(b.machine.allocate(4096), 4096)
    assert as_process(b.machine, Op.CREATE_QP, pages_of_it, **values) is CommandStatus.BAD_PARAM


def test_a_key_over_user_memory(plain: Pair) -> None:
    a, b = plain.a, plain.b
    machine = b.machine
    umem = machine.do(Op.CREATE_UMEM, 0, machine.pages(b.memory, 8192), umem__num_of_mtt=2)["umem_id"]
    reply = machine.do(
        Op.CREATE_MKEY,
        mkey_umem_valid=1,
        mkey_umem_id=umem,
        mkey_umem_offset=100,
        memory_key_mkey_entry__access_mode_1_0=1,
        memory_key_mkey_entry__pd=b.pd,
        memory_key_mkey_entry__start_addr=0x7000,
        memory_key_mkey_entry__len=5000,
        memory_key_mkey_entry__lw=1,
        memory_key_mkey_entry__rw=1,
    )
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(0x7000 + 4090, reply["mkey_index"] << 8), inline(b"crossing"))
    plain.run()
    assert outcome(a) == GOOD
    assert b.held(8, 100 + 4090) == b"crossing"
