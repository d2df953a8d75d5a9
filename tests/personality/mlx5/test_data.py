# SPDX-License-Identifier: Apache-2.0
"""Two NICs on a switch with the real RoCEv2 engine, in virtual time: descriptors in, completions out."""

from __future__ import annotations

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.clock import MS, VirtualScheduler
from emu.events import EventBus, Kind
from emu.fabric.switch import Switch
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.codes import CommandStatus, CqeOpcode, CqeSyndrome, WqeOpcode
from emu.personality.mlx5.identity import UAR_SIZE
from tests.personality.mlx5.machine import ALL_RIGHTS, Cq, Machine, Qp, data, inline, remote

SECOND = 1000 * MS
MEMORY = 16 * 4096


class Side:
    """One NIC with a queue pair, and memory behind a key."""

    def __init__(self, switch: Switch, clock: VirtualScheduler, number: int, loss: float) -> None:
        self.mac = bytes((2, 0, 0, 0, 0, number))
        self.gid = bytes(10) + b"\xff\xff" + bytes((10, 77, 0, number))
        port = switch.port(f"nic{number}", loss=loss, seed=number)
        self.machine = Machine(clock=clock, port=port, mac=self.mac)
        self.machine.address(0, self.gid)
        self.uar = self.machine.uar()
        self.pd = self.machine.pd()
        self.eq, self.eq_ring = self.machine.eq(vector=1)
        self.cq: Cq = self.machine.cq(self.eq, self.uar)
        self.memory = self.machine.allocate(MEMORY)
        self.key = self.machine.mkey(self.pd, self.memory, MEMORY)
        self.qp: Qp = self.make()

    def make(self, service: int = 0, **context: int) -> Qp:
        """Another queue pair."""
        return self.machine.qp(self.pd, self.cq, self.uar, service=service, **context)

    def fill(self, payload: bytes, at: int = 0) -> None:
        """Put bytes into the memory."""
        self.machine.store(self.memory + at, payload)

    def held(self, length: int, at: int = 0) -> bytes:
        """Bytes of the memory."""
        return self.machine.load(self.memory + at, length)


class Pair:
    """Both sides, connected."""

    def __init__(self, loss: float = 0.0) -> None:
        self.clock = VirtualScheduler()
        switch = Switch(self.clock, EventBus())
        self.a, self.b = (Side(switch, self.clock, number, loss) for number in (1, 2))
        self.a.machine.connect(self.a.qp, self.b.qp.number, self.b.gid, self.b.mac)
        self.b.machine.connect(self.b.qp, self.a.qp.number, self.a.gid, self.a.mac)

    def run(self, duration: int = SECOND) -> None:
        """Let virtual time pass."""
        self.clock.run(until=self.clock.now() + duration)


@pytest.fixture
def pair() -> Pair:
    """Two connected NICs."""
    return Pair()


PAYLOAD = bytes(index * 37 & 0xFF for index in range(9000))


def test_a_write_lands_and_completes(pair: Pair) -> None:
    a, b = pair.a, pair.b
    a.fill(PAYLOAD)
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), data(a.memory, 9000, a.key))
    pair.run()
    assert b.held(9000) == PAYLOAD
    done = a.cq.poll()
    assert done is not None
    assert (done.opcode, done.wqe_opcode, done.qpn) == (
        CqeOpcode.REQUESTER,
        WqeOpcode.RDMA_WRITE,
        a.qp.number,
    )
    assert done.counter == 0
    assert b.cq.poll() is None


def test_a_read_fetches_and_tells_its_length(pair: Pair) -> None:
    a, b = pair.a, pair.b
    b.fill(PAYLOAD)
    half = data(a.memory, 4000, a.key), data(a.memory + 0x5000, 1000, a.key)
    a.qp.post(WqeOpcode.RDMA_READ, remote(b.memory, b.key), *half)
    pair.run()
    assert a.held(4000) + a.held(1000, 0x5000) == PAYLOAD[:5000]
    done = a.cq.poll()
    assert done is not None and done.length == 5000


def test_a_send_waits_for_a_receive_that_rings_no_doorbell(pair: Pair) -> None:
    a, b = pair.a, pair.b
    a.fill(PAYLOAD)
    a.qp.post(WqeOpcode.SEND_IMM, data(a.memory, 3000, a.key), immediate=0xCAFE0001)
    pair.run(5 * MS)
    assert a.cq.poll() is None
    assert b.machine.nic.counters.send_rnr_err
    b.qp.receive((2000, b.key, b.memory), (2000, b.key, b.memory + 0x4000))
    pair.run()
    assert b.held(2000) + b.held(1000, 0x4000) == PAYLOAD[:3000]
    received, sent = b.cq.poll(), a.cq.poll()
    assert received is not None and sent is not None
    assert (received.opcode, received.word) == (CqeOpcode.RESPONDER_SEND_IMM, 0xCAFE0001)
    assert (received.length, received.qpn, received.counter) == (3000, b.qp.number, 0)


@pytest.mark.parametrize("carry", [1, 40, 150])
def test_inline_data_in_front_of_data_in_memory(pair: Pair, carry: int) -> None:
    a, b = pair.a, pair.b
    a.fill(PAYLOAD)
    pieces = data(a.memory + carry, 2000, a.key) + data(a.memory + carry + 2000, 1000, a.key)
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(PAYLOAD[:carry]), pieces)
    pair.run()
    assert b.held(carry + 3001) == PAYLOAD[: carry + 3000] + b"\0"
    done = a.cq.poll()
    assert done is not None and done.opcode == 0


def test_inline_data_and_several_slots(pair: Pair) -> None:
    a, b = pair.a, pair.b
    b.qp.receive((4096, b.key, b.memory))
    b.qp.receive((4096, b.key, b.memory + 0x1000))
    a.qp.post(WqeOpcode.SEND, inline(PAYLOAD[:150]))
    a.qp.post(WqeOpcode.SEND, inline(b""))
    pair.run()
    assert b.held(150) == PAYLOAD[:150]
    first, second = a.cq.poll(), a.cq.poll()
    assert first is not None and second is not None
    # The first descriptor takes three slots.
    assert (first.counter, second.counter) == (0, 3)
    lengths = [done.length for done in (b.cq.poll(), b.cq.poll()) if done is not None]
    assert lengths == [150, 0]


def test_the_send_ring_wraps_inside_a_descriptor(pair: Pair) -> None:
    a, b = pair.a, pair.b
    for round_number in range(11):
        chunk = PAYLOAD[round_number * 100 :][:140]
        a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(chunk))
        pair.run(10 * MS)
        assert b.held(140) == chunk
        assert a.cq.poll() is not None
    assert a.qp.sent == 33


def test_atomics(pair: Pair) -> None:
    a, b = pair.a, pair.b
    b.fill((41).to_bytes(8, "little"))
    result = data(a.memory, 8, a.key)
    a.qp.post(WqeOpcode.ATOMIC_FA, remote(b.memory, b.key), struct.pack(">QQ", 1, 0), result)
    pair.run()
    assert (a.held(8), b.held(8)) == ((41).to_bytes(8, "little"), (42).to_bytes(8, "little"))
    a.qp.post(WqeOpcode.ATOMIC_CS, remote(b.memory, b.key), struct.pack(">QQ", 7, 42), result)
    pair.run()
    assert (a.held(8), b.held(8)) == ((42).to_bytes(8, "little"), (7).to_bytes(8, "little"))
    opcodes = [done.wqe_opcode for done in (a.cq.poll(), a.cq.poll()) if done is not None]
    assert opcodes == [WqeOpcode.ATOMIC_FA, WqeOpcode.ATOMIC_CS]


def test_a_send_that_invalidates_a_key(pair: Pair) -> None:
    a, b = pair.a, pair.b
    b.qp.receive((4096, b.key, b.memory))
    key = b.machine.mkey(b.pd, b.memory, 4096, en_rinval=1, lw=1, rw=1)
    a.qp.post(WqeOpcode.SEND_INVAL, inline(b"bye"), immediate=key)
    pair.run()
    received = b.cq.poll()
    assert received is not None
    assert (received.opcode, received.word) == (CqeOpcode.RESPONDER_SEND_INVAL, key)
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, key), inline(b"late"))
    pair.run()
    outcomes = [done for done in (a.cq.poll(), a.cq.poll()) if done is not None]
    assert outcomes[-1].syndrome == CqeSyndrome.REMOTE_ACCESS


def test_work_without_a_completion_flag_completes_silently(pair: Pair) -> None:
    a, b = pair.a, pair.b
    a.qp.write(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"1"), flags=0)
    a.qp.post(WqeOpcode.NOP)
    pair.run()
    done = a.cq.poll()
    assert done is not None and done.wqe_opcode == WqeOpcode.NOP
    assert a.cq.poll() is None
    assert b.held(1) == b"1"


# Errors


def test_a_foreign_key_ends_the_connection_with_its_syndrome(pair: Pair) -> None:
    a, b = pair.a, pair.b
    a.qp.write(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key ^ 0xFF), inline(b"x"))
    a.qp.write(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(PAYLOAD[:100]))
    a.qp.post(WqeOpcode.NOP)
    pair.run()
    outcomes = [a.cq.poll() for _ in range(3)]
    assert [done and (done.opcode, done.syndrome, done.counter) for done in outcomes] == [
        (CqeOpcode.REQUESTER_ERROR, CqeSyndrome.REMOTE_ACCESS, 0),
        (CqeOpcode.REQUESTER_ERROR, CqeSyndrome.FLUSHED, 1),
        (CqeOpcode.REQUESTER_ERROR, CqeSyndrome.FLUSHED, 4),
    ]
    assert a.machine.do(Op.QUERY_QP, qpn=a.qp.number)["qpc.state"] == 6


def test_entering_error_flushes_receives(pair: Pair) -> None:
    b = pair.b
    b.qp.receive((4096, b.key, b.memory))
    b.qp.receive((4096, b.key, b.memory))
    b.machine.do(Op.QP_2ERR, qpn=b.qp.number)
    pair.run(MS)
    outcomes = [b.cq.poll() for _ in range(2)]
    assert [done and (done.opcode, done.syndrome, done.counter) for done in outcomes] == [
        (CqeOpcode.RESPONDER_ERROR, CqeSyndrome.FLUSHED, 0),
        (CqeOpcode.RESPONDER_ERROR, CqeSyndrome.FLUSHED, 1),
    ]


def test_receives_posted_in_error_are_flushed_without_a_doorbell(pair: Pair) -> None:
    """A driver drains a queue pair so: error first, then one more receive, then wait for it."""
    b = pair.b
    b.machine.do(Op.QP_2ERR, qpn=b.qp.number)
    pair.run(MS)
    assert b.cq.poll() is None
    b.qp.receive((4096, b.key, b.memory))
    pair.run(20 * MS)
    done = b.cq.poll()
    assert done is not None and done.syndrome == CqeSyndrome.FLUSHED
    b.machine.do(Op.QP_2RST, qpn=b.qp.number)
    pair.run(SECOND)
    assert b.cq.poll() is None


def test_a_silent_peer_exhausts_the_retries(pair: Pair) -> None:
    a, b = pair.a, pair.b
    b.machine.do(Op.DESTROY_QP, qpn=b.qp.number)
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"x"))
    pair.run(10 * SECOND)
    done = a.cq.poll()
    assert done is not None and done.syndrome == CqeSyndrome.TRANSPORT_RETRIES


BAD = {
    "opcode": (b"", 0x3F),
    "no segments": (b"", WqeOpcode.RDMA_WRITE),
    "inline behind gathered": (data(0, 16, 0x100) + inline(b"x"), WqeOpcode.SEND),
    "inline beyond its end": (struct.pack(">I", 1 << 31 | 1000) + bytes(12), WqeOpcode.SEND),
    "inline result": (remote(0, 0) + inline(b"12345678"), WqeOpcode.RDMA_READ),
    "atomic of 4 bytes": (remote(0, 0) + bytes(16) + data(0, 4, 0x100), WqeOpcode.ATOMIC_FA),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_descriptor_completes_in_error_and_is_named(pair: Pair, name: str) -> None:
    segments, opcode = BAD[name]
    a = pair.a
    a.qp.post(opcode, segments)
    pair.run()
    done = a.cq.poll()
    assert done is not None
    assert (done.opcode, done.syndrome) == (CqeOpcode.REQUESTER_ERROR, CqeSyndrome.LOCAL_QP_OPERATION)
    assert f"QP {a.qp.number:#x}: index 0" in a.machine.events.texts(Kind.CHECK)[-1]


def test_a_stale_slot_is_noticed(pair: Pair) -> None:
    a, b = pair.a, pair.b
    a.qp.sent = 16
    a.qp.write(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"x"))
    a.qp.sent = 1
    a.qp.ring()
    pair.run()
    assert "C01" in a.machine.events.texts(Kind.CHECK)[-1]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(min_size=64, max_size=256), slots=st.integers(1, 4))
def test_any_descriptor_ends_in_a_completion_or_an_error(noise: bytes, slots: int) -> None:
    pair = Pair()
    a = pair.a
    a.machine.store(a.qp.sends, noise)
    a.qp.sent = slots
    a.qp.ring()
    pair.run()
    # The other queue pair of the function is not disturbed.
    other, peer = a.make(), pair.b.make()
    a.machine.connect(other, peer.number, pair.b.gid, pair.b.mac)
    pair.b.machine.connect(peer, other.number, a.gid, a.mac)
    while a.cq.poll() is not None:
        pass
    other.post(WqeOpcode.RDMA_WRITE, remote(pair.b.memory, pair.b.key), inline(b"fine"))
    pair.run()
    assert pair.b.held(4) == b"fine"


# Doorbells


def test_a_doorbell_through_a_foreign_page_is_refused(pair: Pair) -> None:
    a, b = pair.a, pair.b
    stranger = a.machine.uar()
    a.qp.write(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"x"))
    a.machine.store(a.qp.record + 4, (1).to_bytes(4, "big"))
    doorbell = struct.pack(">II", 0, a.qp.number << 8)
    a.machine.registers.write(stranger * UAR_SIZE + 0x800, doorbell)
    pair.run()
    assert a.cq.poll() is None
    assert "belongs to region" in a.machine.events.texts(Kind.CHECK)[-1]
    a.machine.registers.write(a.uar * UAR_SIZE + 0xA00, doorbell)
    pair.run()
    assert a.cq.poll() is not None


def test_an_armed_queue_raises_one_event(pair: Pair) -> None:
    a, b = pair.a, pair.b
    a.cq.arm(a.uar)
    for _ in range(3):
        a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"x"))
    pair.run()
    assert a.machine.interrupts.fired == [1]
    entry = a.machine.load(a.eq_ring, 64)
    assert (entry[1], int.from_bytes(entry[56:60], "big"), entry[63]) == (0, a.cq.number, 0)
    assert a.machine.load(a.eq_ring + 64, 64)[63] == 1


def test_arming_behind_completions_raises_the_event_at_once(pair: Pair) -> None:
    a, b = pair.a, pair.b
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"x"))
    pair.run()
    assert a.machine.interrupts.fired == []
    a.cq.arm(a.uar)
    assert a.machine.interrupts.fired == [1]


def test_a_completion_raises_no_second_event_when_its_reader_arms_before_reading(pair: Pair) -> None:
    a, b = pair.a, pair.b

    def events() -> int:
        return sum(a.machine.load(a.eq_ring + at * 64, 64)[63] == 0 for at in range(4))

    a.cq.arm(a.uar)
    for done in (1, 2, 3):
        a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"x"))
        pair.run()
        assert events() == done
        a.cq.arm(a.uar)
        assert events() == done
        assert a.cq.poll() is not None
    # One that came while nothing was armed does.
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"x"))
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"x"))
    pair.run()
    assert events() == 4
    a.machine.store(a.eq_ring, (bytes(63) + b"\1") * 4)
    a.cq.arm(a.uar)
    pair.run()
    assert a.machine.load(a.eq_ring + 4 * 64, 64)[63] == 0


def test_moderation_holds_events_back(pair: Pair) -> None:
    a, b = pair.a, pair.b
    a.machine.do(
        Op.MODIFY_CQ,
        cqn=a.cq.number,
        modify_field_select_resize_field_select=3,
        cq_context__cq_period=1000,
        cq_context__cq_max_count=3,
    )
    a.cq.arm(a.uar)
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"x"))
    pair.run(MS // 2)
    assert a.machine.interrupts.fired == []
    pair.run(MS)
    assert a.machine.interrupts.fired == [1]
    a.machine.registers.write(a.uar * UAR_SIZE + 0x40, (a.eq << 24 | 1).to_bytes(4, "big"))
    a.cq.consumer = 1
    a.cq.arm(a.uar)
    for _ in range(3):
        a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"x"))
    pair.run(MS // 10)
    assert a.machine.interrupts.fired == [1, 1]


def test_the_record_makes_room_in_a_full_queue(pair: Pair) -> None:
    a, b = pair.a, pair.b
    for _ in range(40):
        a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"x"))
        pair.run(MS)
        assert a.cq.poll() is not None


def test_a_queue_that_nobody_reads_overruns_with_an_event(pair: Pair) -> None:
    a, b = pair.a, pair.b
    _, ring = a.machine.eq(vector=0, mask=1 << 4)
    for _ in range(17):
        a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"x"))
        pair.run(MS)
    entry = a.machine.load(ring, 64)
    assert (entry[1], int.from_bytes(entry[32:36], "big"), entry[43]) == (4, a.cq.number, 1)


def test_entries_of_128_bytes_hold_the_completion_in_their_second_half(pair: Pair) -> None:
    a, b = pair.a, pair.b
    ring, record = a.machine.allocate(4096), a.machine.allocate(64)
    number = a.machine.do(
        Op.CREATE_CQ,
        tail=a.machine.pages(ring, 4096),
        cq_context__log_cq_size=4,
        cq_context__cqe_sz=1,
        cq_context__c_eqn_or_apu_element=a.eq,
        cq_context__uar_page=a.uar,
        cq_context__dbr_addr=record,
    )["cqn"]
    qp = a.machine.qp(a.pd, Cq(a.machine, number, ring, record), a.uar)
    peer = b.make()
    a.machine.connect(qp, peer.number, b.gid, b.mac)
    b.machine.connect(peer, qp.number, a.gid, a.mac)
    for _ in range(2):
        qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"x"))
    pair.run()
    second = a.machine.load(ring + 128, 128)
    assert int.from_bytes(second[64 + 60 : 64 + 62], "big") == 1
    assert second[127] >> 4 == CqeOpcode.REQUESTER


# Datagrams


def test_a_datagram_tells_where_it_came_from(pair: Pair) -> None:
    a, b = pair.a, pair.b
    left, right = a.make(service=2), b.make(service=2)
    for side, qp in ((a, left), (b, right)):
        side.machine.do(Op.RST2INIT_QP, qpn=qp.number, qpc__q_key=0x1234)
        side.machine.do(Op.INIT2RTR_QP, qpn=qp.number)
        side.machine.do(Op.RTR2RTS_QP, qpn=qp.number)
    right.receive((4096, b.key, b.memory))
    vector = struct.pack(">I4xI2xH4x6sBBI16s", 0x1234, right.number, 0, b.mac, 0, 64, 1 << 30, b.gid)
    left.post(WqeOpcode.SEND, vector, inline(b"hello"))
    pair.run()
    received = b.cq.poll()
    assert received is not None
    assert received.length == 45
    assert received.source & 0xFFFFFF == left.number
    assert received.source >> 24 & 3 == 2
    assert b.held(45)[40:] == b"hello"
    assert b.held(40)[32:40] == bytes((10, 77, 0, 1, 10, 77, 0, 2))


def test_the_management_queue_pair_is_number_one_to_its_peers(pair: Pair) -> None:
    a, b = pair.a, pair.b
    left, right = a.make(service=8), b.make(service=8)
    for side, qp in ((a, left), (b, right)):
        side.machine.do(Op.RST2INIT_QP, qpn=qp.number, qpc__q_key=0x80010000)
        side.machine.do(Op.INIT2RTR_QP, qpn=qp.number)
        side.machine.do(Op.RTR2RTS_QP, qpn=qp.number)
    right.receive((4096, b.key, b.memory))
    vector = struct.pack(">I4xI2xH4x6sBBI16s", 0x80010000, 1, 0, b.mac, 0, 64, 1 << 30, b.gid)
    left.post(WqeOpcode.SEND, vector, inline(bytes(256)))
    pair.run()
    received = b.cq.poll()
    assert received is not None
    assert (received.source & 0xFFFFFF, received.word, received.length) == (1, 0xFFFF, 296)


def test_a_datagram_from_an_empty_address_is_refused(pair: Pair) -> None:
    a, b = pair.a, pair.b
    qp = a.make(service=2)
    a.machine.do(Op.RST2INIT_QP, qpn=qp.number)
    a.machine.do(Op.INIT2RTR_QP, qpn=qp.number)
    a.machine.do(Op.RTR2RTS_QP, qpn=qp.number)
    vector = struct.pack(">I4xI2xH4x6sBBI16s", 0, 1, 0, b.mac, 0, 64, 5 << 20, b.gid)
    qp.post(WqeOpcode.SEND, vector, inline(b"x"))
    pair.run()
    assert "entry 5 of the RoCE address table" in a.machine.events.texts(Kind.CHECK)[-1]


# One function


def test_two_queue_pairs_of_one_function(pair: Pair) -> None:
    a = pair.a
    left, right = a.make(), a.make()
    a.machine.connect(left, right.number, a.gid, a.mac)
    a.machine.connect(right, left.number, a.gid, a.mac)
    a.fill(PAYLOAD[:4000])
    left.post(WqeOpcode.RDMA_WRITE, remote(a.memory + 0x4000, a.key), data(a.memory, 4000, a.key))
    pair.run()
    assert a.held(4000, 0x4000) == PAYLOAD[:4000]


def test_the_registration_queue_pair_completes_what_needs_no_wire(pair: Pair) -> None:
    a = pair.a
    qp = a.machine.qp(0, a.cq, a.uar, service=0xC, rq_type=3)
    qp.sends = qp.receives
    a.machine.do(Op.RST2INIT_QP, qpn=qp.number)
    a.machine.do(Op.INIT2RTR_QP, qpn=qp.number)
    a.machine.do(Op.RTR2RTS_QP, qpn=qp.number)
    qp.post(WqeOpcode.NOP)
    pair.run()
    done = a.cq.poll()
    assert done is not None and done.opcode == CqeOpcode.REQUESTER
    qp.post(WqeOpcode.SEND, inline(b"x"))
    pair.run()
    done = a.cq.poll()
    assert done is not None and done.syndrome == CqeSyndrome.LOCAL_QP_OPERATION


def test_a_lossy_link_loses_nothing() -> None:
    pair = Pair(loss=0.1)
    a, b = pair.a, pair.b
    a.fill(PAYLOAD)
    for at in range(8):
        segments = remote(b.memory + at * 1000, b.key), data(a.memory + at * 1000, 1000, a.key)
        a.qp.post(WqeOpcode.RDMA_WRITE, *segments)
    pair.run(20 * SECOND)
    assert b.held(8000) == PAYLOAD[:8000]
    assert a.machine.nic.counters.retransmitted_packets


def test_rights_of_a_key_are_kept(pair: Pair) -> None:
    a, b = pair.a, pair.b
    rights = {**ALL_RIGHTS, "rw": 0}
    key = b.machine.mkey(b.pd, b.memory, 4096, **rights)
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, key), inline(b"x"))
    pair.run()
    done = a.cq.poll()
    assert done is not None and done.syndrome == CqeSyndrome.REMOTE_ACCESS


def test_a_flushed_receive_names_its_queue_pair(pair: Pair) -> None:
    """Programs look the queue pair up by this number, and fail to read the queue where it is none."""
    b = pair.b
    b.qp.receive((64, b.key, b.memory))
    b.machine.do(Op.QP_2ERR, qpn=b.qp.number)
    pair.run(MS)
    done = b.cq.poll()
    assert done is not None
    assert (done.syndrome, done.qpn) == (CqeSyndrome.FLUSHED, b.qp.number)


# Shared receive queues


class Shared:
    """A pool of 8 slots of 64 bytes, linked in the order a driver might free them."""

    ORDER = (0, 3, 1, 2, 7, 6, 5, 4)

    def __init__(self, side: Side) -> None:
        machine = side.machine
        self.side, self.ring, self.record = side, machine.allocate(4096), machine.allocate(64)
        for slot, following in zip(self.ORDER, (*self.ORDER[1:], 0), strict=True):
            machine.store(self.ring + slot * 64, struct.pack(">HH12x", 0, following))
        self.number = machine.do(
            Op.CREATE_RMP,
            tail=machine.pages(self.ring, 4096),
            ctx__wq__pd=side.pd,
            ctx__wq__dbr_addr=self.record,
            ctx__wq__log_wq_stride=6,
            ctx__wq__log_wq_sz=3,
        )["rmpn"]
        self.posted = 0

    def post(self, length: int, address: int) -> None:
        """Post one receive in the next slot of the list."""
        machine = self.side.machine
        slot = self.ring + self.ORDER[self.posted] * 64
        machine.store(slot + 16, data(address, length, self.side.key) + data(0, 0, 0x100))
        self.posted += 1
        machine.store(self.record, self.posted.to_bytes(4, "big"))


def connected(pair: Pair, **context: int) -> tuple[Qp, Qp]:
    """Another connection, whose end at b has ``context``."""
    left, right = pair.a.make(), pair.b.make(**context)
    pair.a.machine.connect(left, right.number, pair.b.gid, pair.b.mac)
    pair.b.machine.connect(right, left.number, pair.a.gid, pair.a.mac)
    return left, right


def test_queue_pairs_share_receives_in_the_order_of_the_list(pair: Pair) -> None:
    b = pair.b
    pool = Shared(b)
    ends = [connected(pair, rq_type=1, srqn_rmpn_xrqn=pool.number) for _ in range(2)]
    for number in range(3):
        pool.post(64, b.memory + number * 64)
    for (left, _), text in zip((ends[0], ends[1], ends[0]), (b"one", b"two", b"three"), strict=True):
        left.post(WqeOpcode.SEND, inline(text))
        pair.run(10 * MS)
    assert [b.held(5, at).rstrip(b"\0") for at in (0, 64, 128)] == [b"one", b"two", b"three"]
    received = [b.cq.poll() for _ in range(3)]
    # A driver learns from the counter which slot is free again.
    assert [done and done.counter for done in received] == [0, 3, 1]
    assert [done and done.qpn for done in received] == [right.number for _, right in (*ends, ends[0])]
    entry = b.machine.load(b.cq.ring, 64)
    assert int.from_bytes(entry[32:36], "big") == pool.number


def test_a_pool_that_runs_low_says_so_once(pair: Pair) -> None:
    b = pair.b
    pool = Shared(b)
    _, ring = b.machine.eq(vector=0, mask=1 << 0x14)
    left, _ = connected(pair, rq_type=1, srqn_rmpn_xrqn=pool.number)
    for number in range(3):
        pool.post(64, b.memory + number * 64)
    b.machine.do(Op.MODIFY_RMP, rmpn=pool.number, bitmask=1, ctx__wq__lwm=2)
    left.post(WqeOpcode.SEND, inline(b"x"))
    pair.run(MS)
    assert b.machine.load(ring, 64)[63] == 1
    left.post(WqeOpcode.SEND, inline(b"x"))
    left.post(WqeOpcode.SEND, inline(b"x"))
    pair.run(MS)
    entry = b.machine.load(ring, 64)
    assert (entry[1], entry[52], int.from_bytes(entry[56:60], "big")) == (0x14, 5, pool.number)
    assert b.machine.load(ring + 64, 64)[63] == 1


def test_a_queue_pair_in_error_leaves_the_pool_to_the_others(pair: Pair) -> None:
    b = pair.b
    pool = Shared(b)
    _, ring = b.machine.eq(vector=0, mask=1 << 0x13)
    (_, dead), (left, _) = (connected(pair, rq_type=1, srqn_rmpn_xrqn=pool.number) for _ in range(2))
    pool.post(64, b.memory)
    b.machine.do(Op.QP_2ERR, qpn=dead.number)
    pair.run(MS)
    assert b.cq.poll() is None
    entry = b.machine.load(ring, 64)
    assert (entry[1], int.from_bytes(entry[56:60], "big")) == (0x13, dead.number)
    left.post(WqeOpcode.SEND, inline(b"x"))
    pair.run(MS)
    assert b.cq.poll() is not None


def test_a_pool_in_use_stays(pair: Pair) -> None:
    b = pair.b
    pool = Shared(b)
    qp = b.make(rq_type=1, srqn_rmpn_xrqn=pool.number)
    assert b.machine.command(Op.DESTROY_RMP, rmpn=pool.number).status is CommandStatus.RESOURCE_BUSY
    b.machine.do(Op.DESTROY_QP, qpn=qp.number)
    b.machine.do(Op.DESTROY_RMP, rmpn=pool.number)
