# SPDX-License-Identifier: Apache-2.0
"""Counters under the names that drivers show: they are live, and right."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pytest

from emu.clock import MS
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.codes import CommandStatus, Register, WqeOpcode
from emu.personality.mlx5.layout import counters as groups
from emu.personality.mlx5.layout.structure import Structure
from tests.personality.mlx5.machine import Machine, data, inline, remote
from tests.personality.mlx5.test_data import SECOND, Pair

BROADCAST, GROUP, STATION = b"\xff" * 6, bytes.fromhex("333300000001"), bytes.fromhex("020000000009")


@pytest.fixture
def pair() -> Pair:
    """Two connected NICs."""
    return Pair()


def group(machine: Machine, number: int, structure: Structure, priority: int = 0) -> Mapping[str, int]:
    """A group of the port's counters."""
    head = bytes((0, 1, 0, number, 0, 0, 0, priority))
    reply = machine.do(Op.ACCESS_REG, op_mod=1, tail=head + bytes(248), register_id=Register.PPCNT)
    return structure.unpack(reply.data[16 + 8 :])


def queue(machine: Machine, counter_set: int, *, clear: bool = False) -> Mapping[str, int]:
    """A counter set."""
    return machine.do(Op.QUERY_Q_COUNTER, counter_set_id=counter_set, clear=int(clear)).fields


def test_requests_are_counted_where_they_arrive(pair: Pair) -> None:
    a, b = pair.a, pair.b
    counted = b.machine.do(Op.ALLOC_Q_COUNTER)["counter_set_id"]
    result = data(a.memory, 8, a.key)
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), data(a.memory, 5000, a.key))
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"x"))
    a.qp.post(WqeOpcode.RDMA_READ, remote(b.memory, b.key), data(a.memory, 3000, a.key))
    a.qp.post(WqeOpcode.ATOMIC_FA, remote(b.memory, b.key), struct.pack(">QQ", 1, 0), result)
    pair.run()
    shown = queue(b.machine, counted)
    assert [shown[f"rx_{kind}_requests"] for kind in ("write", "read", "atomic")] == [2, 1, 1]
    later = b.machine.do(Op.ALLOC_Q_COUNTER)["counter_set_id"]
    assert queue(b.machine, later)["rx_write_requests"] == 0
    assert queue(b.machine, counted, clear=True)["rx_write_requests"] == 2
    assert queue(b.machine, counted)["rx_write_requests"] == 0


def test_failures_are_counted_by_their_cause(pair: Pair) -> None:
    a, b = pair.a, pair.b
    sets = [side.machine.do(Op.ALLOC_Q_COUNTER)["counter_set_id"] for side in (a, b)]
    b.qp.receive((16, b.key, b.memory))
    a.qp.write(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key ^ 0xFF), inline(b"x"))
    a.qp.post(WqeOpcode.NOP)
    pair.run()
    left, right = queue(a.machine, sets[0]), queue(b.machine, sets[1])
    assert (left["req_cqe_error"], left["req_remote_access_errors"], left["req_cqe_flush_error"]) == (2, 1, 1)
    assert right["resp_remote_access_errors"] == 1
    assert right["resp_cqe_error"] == right["resp_cqe_flush_error"] == 1


def test_a_message_without_a_receive_and_a_silent_peer(pair: Pair) -> None:
    a, b = pair.a, pair.b
    sets = [side.machine.do(Op.ALLOC_Q_COUNTER)["counter_set_id"] for side in (a, b)]
    a.qp.post(WqeOpcode.SEND, inline(b"x"))
    pair.run(5 * MS)
    assert queue(b.machine, sets[1])["out_of_buffer"]
    assert queue(a.machine, sets[0])["rnr_nak_retry_err"]
    b.machine.do(Op.DESTROY_QP, qpn=b.qp.number)
    pair.run(20 * SECOND)
    shown = queue(a.machine, sets[0])
    assert shown["local_ack_timeout_err"]
    assert shown["req_transport_retries_exceeded"] == 1


def frame(machine: Machine, dest: bytes, size: int) -> None:
    """A frame of ``size`` bytes arrives for the Ethernet queues, as far as counters care."""
    octets = (dest + STATION + b"\x88\xb5").ljust(size, b"\0")
    machine.device.ethernet.count_received(octets)
    machine.device.ethernet.count_sent(octets)


def test_the_port_counts_frames_of_both_kinds(pair: Pair) -> None:
    a, b = pair.a, pair.b
    machine = a.machine
    a.qp.post(WqeOpcode.RDMA_WRITE, remote(b.memory, b.key), inline(b"x"))
    pair.run()
    for dest, size in ((BROADCAST, 60), (GROUP, 70), (GROUP, 80), (STATION, 90)):
        frame(machine, dest, size)
    rdma = machine.nic.counters
    total_in, total_out = rdma.rx_packets + 4, rdma.tx_packets + 4
    ieee = group(machine, 0, groups.ETH_802_3_CNTRS_GRP_DATA_LAYOUT)
    assert (ieee["a_frames_received_ok_low"], ieee["a_frames_transmitted_ok_low"]) == (total_in, total_out)
    assert ieee["a_octets_received_ok_low"] == rdma.rx_bytes + 300
    assert (ieee["a_multicast_frames_xmitted_ok_low"], ieee["a_broadcast_frames_received_ok_low"]) == (2, 1)
    interface = group(machine, 1, groups.ETH_2863_CNTRS_GRP_DATA_LAYOUT)
    assert interface["if_in_ucast_pkts_low"] == total_in - 3
    assert interface["if_out_octets_low"] == rdma.tx_bytes + 300
    stats = group(machine, 2, groups.ETH_2819_CNTRS_GRP_DATA_LAYOUT)
    assert (stats["ether_stats_pkts_low"], stats["ether_stats_multicast_pkts_low"]) == (total_in, 2)
    priorities = [group(machine, 0x10, groups.ETH_PER_PRIO_GRP_DATA_LAYOUT, number) for number in (0, 3)]
    assert [each["tx_frames_low"] for each in priorities] == [total_out, 0]
    vport = machine.do(Op.QUERY_VPORT_COUNTER)
    assert (vport["received_eth_multicast.packets"], vport["received_eth_multicast.octets"]) == (2, 150)
    assert (vport["transmitted_eth_unicast.packets"], vport["transmitted_eth_broadcast.octets"]) == (1, 60)
    assert vport["received_ib_unicast.packets"] == rdma.rx_packets


def test_large_counters_keep_their_upper_half(pair: Pair) -> None:
    machine = pair.a.machine
    machine.device.ethernet.rx_bytes = 5 << 32 | 7
    shown = group(machine, 0, groups.ETH_802_3_CNTRS_GRP_DATA_LAYOUT)
    assert (shown["a_octets_received_ok_high"], shown["a_octets_received_ok_low"]) == (5, 7)


def test_a_cable_that_was_out_is_counted(pair: Pair) -> None:
    machine = Machine()
    machine.own_port.set_link(False)
    machine.own_port.set_link(True)
    assert group(machine, 0x12, groups.PHYS_LAYER_CNTRS)["link_down_events"] == 1
    assert group(machine, 0x20, groups.IB_PORT_CNTRS_GRP_DATA_LAYOUT)["link_downed_counter"] == 1


def test_groups_that_are_not_kept_are_zero(pair: Pair) -> None:
    head = bytes((0, 1, 0, 0x16, 0, 0, 0, 0))
    reply = pair.a.machine.do(Op.ACCESS_REG, op_mod=1, tail=head + bytes(248), register_id=Register.PPCNT)
    assert reply.data[16 : 16 + 256] == head + bytes(248)


def test_congestion_is_counted(pair: Pair) -> None:
    counters = pair.a.machine.nic.counters
    counters.np_cnp_sent, counters.rp_cnp_handled = 3, 1 << 33
    shown = pair.a.machine.do(Op.QUERY_CONG_STATISTICS)
    assert (shown["np_cnp_sent_low"], shown["rp_cnp_handled_high"]) == (3, 2)


def test_a_set_of_a_receive_queue_counts_frames_without_a_buffer(pair: Pair) -> None:
    a = pair.a
    machine = a.machine
    counted = machine.do(Op.ALLOC_Q_COUNTER)["counter_set_id"]
    ring, record = machine.allocate(4096), machine.allocate(64)
    values = {
        "ctx__cqn": a.cq.number,
        "ctx__counter_set_id": counted,
        "ctx__wq__wq_type": 1,
        "ctx__wq__pd": a.pd,
        "ctx__wq__dbr_addr": record,
        "ctx__wq__log_wq_stride": 6,
        "ctx__wq__log_wq_sz": 4,
    }
    machine.do(Op.CREATE_RQ, 0, machine.pages(ring, 4096), **values)
    machine.device.ethernet.no_buffer += 4
    assert queue(machine, counted)["out_of_buffer"] == 4
    values["ctx__counter_set_id"] = 99
    reply = machine.command(Op.CREATE_RQ, 0, machine.pages(ring, 4096), **values)
    assert reply.status is CommandStatus.BAD_RESOURCE
