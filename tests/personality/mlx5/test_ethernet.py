# SPDX-License-Identifier: Apache-2.0
"""Ethernet queues and steering: frames out of descriptors, frames into buffers, rules in between."""

from __future__ import annotations

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw

from emu.nic.rss import HashField, HashFunction, RssHash
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.codes import CommandStatus, CqeOpcode, CqeSyndrome, WqeOpcode
from emu.personality.mlx5.identity import UAR_SIZE
from emu.personality.mlx5.layout.steering import FTE_MATCH_SET_LYR_2_4
from tests.personality.mlx5.machine import Cq, Machine, data

READY = 1
MAC = "02:00:00:00:00:01"
PEER = "02:00:00:00:00:02"
IN = Ether(src=PEER, dst=MAC)
OUT = Ether(src=MAC, dst=PEER)
TCP_V4 = IP(src="10.0.0.2", dst="10.0.0.1") / TCP(sport=5, dport=6) / Raw(b"tcp" * 30)
UDP_V6 = IPv6(src="fe80::2", dst="fe80::1") / UDP(sport=5, dport=6) / Raw(b"udp" * 30)


class Netdev:
    """A send and a receive queue, and the rule that every frame goes to it."""

    def __init__(self) -> None:
        self.machine = machine = Machine()
        self.uar, self.pd = machine.uar(), machine.pd()
        eq, _ = machine.eq(vector=1)
        self.send_cq: Cq = machine.cq(eq, self.uar)
        self.receive_cq: Cq = machine.cq(eq, self.uar)
        self.memory = machine.allocate(65536)
        self.key = machine.mkey(self.pd, self.memory, 65536)
        self.send_ring, self.send_record = machine.allocate(4096), machine.allocate(64)
        self.receive_ring, self.receive_record = machine.allocate(4096), machine.allocate(64)
        self.sq = self._create(Op.CREATE_SQ, self.send_cq, self.send_ring, self.send_record, 6)
        self.rq = self._create(Op.CREATE_RQ, self.receive_cq, self.receive_ring, self.receive_record, 5)
        machine.do(Op.MODIFY_SQ, sqn=self.sq, ctx__state=READY)
        machine.do(Op.MODIFY_RQ, rqn=self.rq, ctx__state=READY)
        self.tir = machine.do(Op.CREATE_TIR, ctx__inline_rqn=self.rq)["tirn"]
        self.table = machine.do(Op.CREATE_FLOW_TABLE)["table_id"]
        machine.do(Op.SET_FLOW_TABLE_ROOT, table_id=self.table)
        self.sent = self.posted = 0

    def _create(self, opcode: Op, cq: Cq, ring: int, record: int, log_stride: int) -> int:
        reply = self.machine.do(
            opcode,
            tail=self.machine.pages(ring, 4096),
            ctx__cqn=cq.number,
            ctx__wq__wq_type=1,
            ctx__wq__pd=self.pd,
            ctx__wq__uar_page=self.uar,
            ctx__wq__dbr_addr=record,
            ctx__wq__log_wq_stride=log_stride,
            ctx__wq__log_wq_sz=4,
        )
        return reply["sqn" if opcode is Op.CREATE_SQ else "rqn"]

    def rule(self, index: int, table: int, destination: bytes, **match: int) -> None:
        """Frames with these header fields go to ``destination``."""
        mask = {name: (1 << FTE_MATCH_SET_LYR_2_4.fields[name].width) - 1 for name in match}
        shift = 448 * 8
        criteria = int.from_bytes(FTE_MATCH_SET_LYR_2_4.pack(mask), "big") << shift
        value = int.from_bytes(FTE_MATCH_SET_LYR_2_4.pack(match), "big") << shift
        group = self.machine.do(
            Op.CREATE_FLOW_GROUP,
            table_id=table,
            match_criteria_enable=int(bool(match)),
            match_criteria=criteria,
        )["group_id"]
        self.machine.do(
            Op.SET_FLOW_TABLE_ENTRY,
            tail=destination,
            table_id=table,
            flow_index=index,
            flow_context__group_id=group,
            flow_context__action=4 if destination else 2,
            flow_context__destination_list_size=len(destination) // 8,
            flow_context__match_value=value,
        )

    def to_tir(self) -> bytes:
        """The queue as a destination."""
        return struct.pack(">I4x", 2 << 24 | self.tir)

    def send(
        self, opcode: int, segments: bytes, *, offload: int = 0, size: int = 0, header: bytes = b""
    ) -> None:
        """Write one send descriptor and ring."""
        ethernet = struct.pack(">4xBxH4xH", offload, size, len(header)) + header[:2].ljust(2, b"\0")
        rest = header[2:]
        body = ethernet + rest.ljust((len(rest) + 15) // 16 * 16, b"\0") + segments
        units = 1 + len(body) // 16
        wqe = struct.pack(">IIxxxBI", self.sent << 8 | opcode, self.sq << 8 | units, 2 << 2, 0) + body
        wqe = wqe.ljust((units + 3) // 4 * 64, b"\0")
        for at in range(0, len(wqe), 64):
            self.machine.store(self.send_ring + self.sent % 16 * 64, wqe[at : at + 64])
            self.sent += 1
        self.ring()

    def ring(self) -> None:
        """Store the record, then the doorbell."""
        self.machine.store(self.send_record + 4, self.sent.to_bytes(4, "big"))
        self.machine.registers.write(self.uar * UAR_SIZE + 0x800, struct.pack(">II", 0, self.sq << 8))
        self.machine.settle()

    def post(self, address: int, length: int = 2048) -> None:
        """Post one receive buffer in two halves."""
        half = length // 2
        slot = data(address, half, self.key) + data(address + 0x1000, length - half, self.key)
        self.machine.store(self.receive_ring + self.posted % 16 * 32, slot)
        self.posted += 1
        self.machine.store(self.receive_record, self.posted.to_bytes(4, "big"))

    def deliver(self, packet: Packet) -> bytes:
        """A frame arrives; its bytes."""
        frame = bytes(packet)
        self.machine.own_port.deliver(frame)
        return frame

    def buffer(self, address: int, length: int, size: int = 2048) -> bytes:
        """What a posted buffer holds."""
        half = size // 2
        first = self.machine.load(address, min(length, half))
        return first + self.machine.load(address + 0x1000, max(0, length - half))


@pytest.fixture
def netdev() -> Netdev:
    """Both queues ready, and no rule yet."""
    return Netdev()


def test_a_frame_is_gathered_and_sent(netdev: Netdev) -> None:
    frame = bytes(OUT / TCP_V4)
    netdev.machine.store(netdev.memory, frame[:50])
    netdev.machine.store(netdev.memory + 0x2000, frame[50:])
    pieces = data(netdev.memory, 50, netdev.key) + data(netdev.memory + 0x2000, len(frame) - 50, netdev.key)
    netdev.send(WqeOpcode.SEND, pieces)
    assert netdev.machine.own_port.sent == [frame]
    done = netdev.send_cq.poll()
    assert done is not None and (done.opcode, done.counter) == (CqeOpcode.REQUESTER, 0)


@pytest.mark.parametrize("inline", [0, 1, 2, 18, 40])
def test_headers_may_be_in_the_descriptor(netdev: Netdev, inline: int) -> None:
    frame = bytes(OUT / TCP_V4)
    netdev.machine.store(netdev.memory, frame)
    rest = data(netdev.memory + inline, len(frame) - inline, netdev.key)
    netdev.send(WqeOpcode.SEND, rest, header=frame[:inline])
    assert netdev.machine.own_port.sent == [frame]


@pytest.mark.parametrize("packet", [TCP_V4, UDP_V6], ids=["IPv4", "IPv6"])
def test_checksums_are_filled_in_on_request(netdev: Netdev, packet: Packet) -> None:
    right = bytes(OUT / packet)
    wrong = Ether(right)
    layer = wrong[TCP] if TCP in wrong else wrong[UDP]
    layer.chksum = 0x1234
    netdev.machine.store(netdev.memory, bytes(wrong))
    netdev.send(WqeOpcode.SEND, data(netdev.memory, len(right), netdev.key), offload=1 << 7 | 1 << 6)
    assert netdev.machine.own_port.sent == [right]


def test_a_large_send_becomes_many_frames(netdev: Netdev) -> None:
    header = bytes(OUT / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1, dport=2, seq=100))
    payload = bytes(index & 0xFF for index in range(5000))
    netdev.machine.store(netdev.memory, payload)
    segments = data(netdev.memory, 5000, netdev.key)
    netdev.send(WqeOpcode.LSO, segments, size=1448, header=header)
    frames = [Ether(frame) for frame in netdev.machine.own_port.sent]
    assert b"".join(bytes(frame[TCP].payload) for frame in frames) == payload
    assert [frame[TCP].seq for frame in frames] == [100, 1548, 2996, 4444]
    assert netdev.send_cq.poll() is not None


def test_a_nop_completes(netdev: Netdev) -> None:
    netdev.send(WqeOpcode.NOP, b"")
    assert netdev.send_cq.poll() is not None
    assert netdev.machine.own_port.sent == []


@pytest.mark.parametrize(
    ("opcode", "segments", "syndrome"),
    [
        (WqeOpcode.RDMA_WRITE, b"", CqeSyndrome.LOCAL_QP_OPERATION),
        (WqeOpcode.SEND, data(0, 64, 0x77700), CqeSyndrome.LOCAL_PROTECTION),
        (WqeOpcode.SEND, b"", CqeSyndrome.LOCAL_QP_OPERATION),
    ],
    ids=["opcode", "key", "empty frame"],
)
def test_a_bad_descriptor_stops_the_queue_with_an_error(
    netdev: Netdev, opcode: int, segments: bytes, syndrome: CqeSyndrome
) -> None:
    netdev.send(opcode, segments)
    done = netdev.send_cq.poll()
    assert done is not None and (done.opcode, done.syndrome) == (CqeOpcode.REQUESTER_ERROR, syndrome)
    netdev.send(WqeOpcode.NOP, b"")
    assert netdev.send_cq.poll() is None
    assert netdev.machine.do(Op.QUERY_SQ, sqn=netdev.sq)["sq_context.state"] == 3


def test_a_frame_lands_in_the_next_buffer(netdev: Netdev) -> None:
    netdev.rule(0, netdev.table, netdev.to_tir())
    netdev.post(netdev.memory)
    frame = netdev.deliver(IN / TCP_V4)
    assert netdev.buffer(netdev.memory, len(frame)) == frame
    done = netdev.receive_cq.poll()
    assert done is not None
    assert (done.opcode, done.length, done.counter) == (CqeOpcode.RESPONDER_SEND, len(frame), 0)
    entry = netdev.machine.load(netdev.receive_cq.ring, 64)
    # All checksums hold; TCP over IPv4.
    assert (entry[28], entry[29]) == (7, 4 << 4 | 2 << 2)


def test_a_frame_without_a_buffer_is_counted(netdev: Netdev) -> None:
    netdev.rule(0, netdev.table, netdev.to_tir())
    netdev.deliver(IN / TCP_V4)
    assert netdev.machine.device.ethernet.no_buffer == 1
    assert netdev.receive_cq.poll() is None


def test_a_frame_longer_than_its_buffer_stops_the_queue(netdev: Netdev) -> None:
    netdev.rule(0, netdev.table, netdev.to_tir())
    netdev.post(netdev.memory, 64)
    netdev.deliver(IN / TCP_V4)
    done = netdev.receive_cq.poll()
    assert done is not None and done.syndrome == CqeSyndrome.LOCAL_LENGTH


def test_without_a_rule_nothing_is_received(netdev: Netdev) -> None:
    netdev.post(netdev.memory)
    netdev.deliver(IN / TCP_V4)
    assert netdev.receive_cq.poll() is None


def test_the_first_rule_that_matches_decides(netdev: Netdev) -> None:
    for at in range(4):
        netdev.post(netdev.memory + at * 0x2000)
    netdev.rule(5, netdev.table, netdev.to_tir())
    netdev.rule(1, netdev.table, b"", ethertype=0x0806)
    netdev.rule(2, netdev.table, b"", ip_version=6, ip_protocol=17, udp_dport=6)
    netdev.deliver(IN / ARP())
    netdev.deliver(IN / UDP_V6)
    assert netdev.receive_cq.poll() is None
    netdev.deliver(IN / TCP_V4)
    assert netdev.receive_cq.poll() is not None


def test_rules_lead_from_table_to_table(netdev: Netdev) -> None:
    second = netdev.machine.do(Op.CREATE_FLOW_TABLE)["table_id"]
    mac = int.from_bytes(bytes.fromhex(MAC.replace(":", "")), "big")
    to_second = struct.pack(">I4x", 1 << 24 | second)
    netdev.rule(0, netdev.table, to_second, dmac_47_16=mac >> 16, dmac_15_0=mac & 0xFFFF)
    netdev.rule(0, second, netdev.to_tir(), ip_protocol=6)
    for at in range(2):
        netdev.post(netdev.memory + at * 0x2000)
    netdev.deliver(IN / TCP_V4)
    netdev.deliver(IN / UDP_V6)
    assert netdev.receive_cq.poll() is not None
    assert netdev.receive_cq.poll() is None


def test_a_table_may_name_one_for_what_it_misses(netdev: Netdev) -> None:
    last = netdev.machine.do(Op.CREATE_FLOW_TABLE)["table_id"]
    netdev.rule(0, last, netdev.to_tir())
    netdev.machine.do(
        Op.MODIFY_FLOW_TABLE,
        table_id=netdev.table,
        modify_field_select=1,
        flow_table_context__table_miss_action=1,
        flow_table_context__table_miss_id=last,
    )
    netdev.post(netdev.memory)
    netdev.deliver(IN / TCP_V4)
    assert netdev.receive_cq.poll() is not None


def test_tables_that_lead_in_a_circle_end(netdev: Netdev) -> None:
    netdev.rule(0, netdev.table, struct.pack(">I4x", 1 << 24 | netdev.table))
    netdev.deliver(IN / TCP_V4)
    assert netdev.receive_cq.poll() is None


def test_a_rule_can_be_taken_out(netdev: Netdev) -> None:
    netdev.rule(0, netdev.table, netdev.to_tir())
    netdev.machine.do(Op.DELETE_FLOW_TABLE_ENTRY, table_id=netdev.table, flow_index=0)
    netdev.post(netdev.memory)
    netdev.deliver(IN / TCP_V4)
    assert netdev.receive_cq.poll() is None


def test_a_flow_stays_with_one_queue_of_a_table(netdev: Netdev) -> None:
    netdev.machine.do(Op.DESTROY_TIR, tirn=netdev.tir)
    queues = b"".join(number.to_bytes(4, "big") for number in (netdev.rq, netdev.rq, netdev.rq))
    rqt = netdev.machine.do(Op.CREATE_RQT, tail=queues, rqt_context__rqt_actual_size=3)["rqtn"]
    netdev.tir = netdev.machine.do(Op.CREATE_TIR, ctx__disp_type=1, ctx__indirect_table=rqt)["tirn"]
    netdev.rule(0, netdev.table, netdev.to_tir())
    netdev.post(netdev.memory)
    netdev.deliver(IN / TCP_V4)
    assert netdev.receive_cq.poll() is not None


def test_the_hash_of_a_flow_chooses_its_queue(netdev: Netdev) -> None:
    """Key and fields are the driver's; its stack finds the hash in the completion."""
    do = netdev.machine.do
    key = bytes(range(1, 41))
    other = netdev._create(
        Op.CREATE_RQ, netdev.send_cq, netdev.machine.allocate(4096), netdev.machine.allocate(64), 5
    )
    queues = b"".join(number.to_bytes(4, "big") for number in (netdev.rq, other))
    rqt = do(Op.CREATE_RQT, tail=queues, rqt_context__rqt_actual_size=2)["rqtn"]
    context = {
        "ctx__disp_type": 1,
        "ctx__indirect_table": rqt,
        "ctx__rx_hash_fn": HashFunction.TOEPLITZ,
        "ctx__rx_hash_toeplitz_key": int.from_bytes(key, "big"),
        "ctx__rx_hash_field_selector_outer": 0xF,
    }
    for wrong in ({"ctx__rx_hash_fn": 3}, {"ctx__rx_hash_field_selector_outer": 0x20}):
        assert (
            netdev.machine.command(Op.CREATE_TIR, 0, b"", **(context | wrong)).status
            is CommandStatus.BAD_PARAM
        )
    netdev.tir = do(Op.CREATE_TIR, 0, b"", **context)["tirn"]
    netdev.rule(0, netdev.table, netdev.to_tir())
    expected = RssHash(HashFunction.TOEPLITZ, key, HashField(0xF))
    seen = set()
    for at in range(8):
        netdev.post(netdev.memory + at * 0x800)
    for port in range(8):
        frame = netdev.deliver(IN / IP(src="10.0.0.2", dst="10.0.0.1") / TCP(sport=port))
        value = expected.of(frame).value
        at = netdev.receive_cq.consumer
        done = netdev.receive_cq.poll()
        assert (done is None) == bool(value % 2)
        if done is not None:
            entry = netdev.machine.load(netdev.receive_cq.ring + at * 64, 64)
            assert (int.from_bytes(entry[12:16], "big"), entry[16]) == (value, 1 << 6 | 1 << 2)
        seen.add(value % 2)
    assert seen == {0, 1}
    do(Op.MODIFY_TIR, tirn=netdev.tir, ctx__rx_hash_fn=HashFunction.NONE)
    assert netdev.machine.device.tirs.items[netdev.tir].hash == expected
    do(Op.MODIFY_TIR, tirn=netdev.tir, bitmask=1 << 1, ctx__rx_hash_fn=HashFunction.NONE)
    assert netdev.machine.device.tirs.items[netdev.tir].hash == RssHash()


def test_a_state_the_driver_is_wrong_about_is_refused(netdev: Netdev) -> None:
    reply = netdev.machine.command(Op.MODIFY_RQ, rqn=netdev.rq, rq_state=0, ctx__state=1)
    assert reply.status is CommandStatus.BAD_QP_STATE
    reply = netdev.machine.command(Op.MODIFY_RQ, rqn=netdev.rq, rq_state=1, ctx__state=9)
    assert reply.status is CommandStatus.BAD_QP_STATE


def test_frames_for_others_and_reset_leave_nothing(netdev: Netdev) -> None:
    netdev.rule(0, netdev.table, netdev.to_tir())
    netdev.post(netdev.memory)
    netdev.deliver(Ether(src=PEER, dst="02:00:00:00:00:77") / TCP_V4)
    assert netdev.receive_cq.poll() is None
    netdev.machine.device.reset("test")
    netdev.deliver(IN / TCP_V4)
    assert netdev.machine.load(netdev.memory, 64) == bytes(64)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(min_size=64, max_size=256), frame=st.binary(max_size=200))
def test_any_descriptor_and_any_frame_are_survived(noise: bytes, frame: bytes) -> None:
    netdev = Netdev()
    netdev.rule(0, netdev.table, netdev.to_tir())
    netdev.machine.store(netdev.send_ring, noise)
    netdev.sent = 4
    netdev.ring()
    netdev.post(netdev.memory)
    netdev.machine.own_port.deliver(frame)
    netdev.machine.do(Op.QUERY_ISSI)
