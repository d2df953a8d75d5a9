# SPDX-License-Identifier: Apache-2.0
"""What is counted, under the names that drivers show: vport, counter sets of queues, the port, congestion."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emu.nic.ethernet import EthernetCounters
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.commands.command import NOTHING_OUT, Command, Request
from emu.personality.mlx5.device import CounterSet, Mlx5Device
from emu.personality.mlx5.layout import counters as groups
from emu.personality.mlx5.layout import ports as layout
from emu.personality.mlx5.layout.structure import Structure

__all__ = ["COMMANDS", "port_counters"]

WORD, BYTE, HALF_WORD = 0xFFFFFFFF, 0xFF, 0xFFFF
GROUP_AT = layout.PPCNT_REG.byte("counter_set")


def query_vport_counter(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """Frames and bytes, RDMA and Ethernet apart."""
    rdma, ethernet = device.nic.counters, device.ethernet
    received, sent = ethernet.received(), ethernet.sent()
    values = {
        "received_ib_unicast.packets": rdma.rx_packets,
        "received_ib_unicast.octets": rdma.rx_bytes,
        "transmitted_ib_unicast.packets": rdma.tx_packets,
        "transmitted_ib_unicast.octets": rdma.tx_bytes,
    }
    for kind in ("unicast", "multicast", "broadcast"):
        for direction, counted in (("received", received), ("transmitted", sent)):
            values[f"{direction}_eth_{kind}.packets"], values[f"{direction}_eth_{kind}.octets"] = counted[
                kind
            ]
    return values


def _queue_values(device: Mlx5Device, counter_set: CounterSet) -> dict[str, int]:
    """Totals of the function. A set that an Ethernet receive queue names is about frames."""
    counters = device.nic.counters.snapshot()
    values = {name: counters[name] for name in Q_COUNTERS if name in counters}
    values["out_of_buffer"] = device.ethernet.no_buffer if counter_set.ethernet else counters["send_rnr_err"]
    return values


Q_COUNTERS = tuple(layout.QUERY_Q_COUNTER_OUT.fields)


def alloc_q_counter(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A counter set: what the function counts from now on."""
    table = device.objects.counter_sets
    number = table.reserve()
    counter_set = CounterSet()
    counter_set.base = _queue_values(device, counter_set)
    table.items[number] = counter_set
    return {"counter_set_id": number}


def dealloc_q_counter(device: Mlx5Device, request: Request) -> None:
    """End a counter set."""
    device.objects.counter_sets.get(request["counter_set_id"], "counter_set_id")
    del device.objects.counter_sets.items[request["counter_set_id"]]


def query_q_counter(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A set's 32-bit counters, which may be cleared thereby."""
    counter_set = device.objects.counter_sets.get(request["counter_set_id"], "counter_set_id")
    values = _queue_values(device, counter_set)
    shown = {name: value - counter_set.base.get(name, 0) & WORD for name, value in values.items()}
    if request["clear"]:
        counter_set.base = values
    return shown


def query_congestion(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """Marks, and notifications sent and heeded."""
    counters = device.nic.counters
    names = ("rp_cnp_ignored", "rp_cnp_handled", "np_ecn_marked_roce_packets", "np_cnp_sent")
    return groups.halves({name: getattr(counters, name) for name in names})


# The port


def _frames(device: Mlx5Device) -> tuple[int, int, int, int]:
    """Frames and bytes in, frames and bytes out, of both kinds."""
    rdma, ethernet = device.nic.counters, device.ethernet
    return (
        rdma.rx_packets + ethernet.rx_packets,
        rdma.rx_bytes + ethernet.rx_bytes,
        rdma.tx_packets + ethernet.tx_packets,
        rdma.tx_bytes + ethernet.tx_bytes,
    )


def _ieee_802_3(device: Mlx5Device, priority: int) -> dict[str, int]:
    frames_in, bytes_in, frames_out, bytes_out = _frames(device)
    ethernet = device.ethernet
    return {
        "a_frames_transmitted_ok": frames_out,
        "a_frames_received_ok": frames_in,
        "a_octets_transmitted_ok": bytes_out,
        "a_octets_received_ok": bytes_in,
        "a_multicast_frames_xmitted_ok": ethernet.tx_multicast_packets,
        "a_broadcast_frames_xmitted_ok": ethernet.tx_broadcast_packets,
        "a_multicast_frames_received_ok": ethernet.rx_multicast_packets,
        "a_broadcast_frames_received_ok": ethernet.rx_broadcast_packets,
    }


def _rfc_2863(device: Mlx5Device, priority: int) -> dict[str, int]:
    frames_in, bytes_in, frames_out, bytes_out = _frames(device)
    ethernet: EthernetCounters = device.ethernet
    return {
        "if_in_octets": bytes_in,
        "if_in_ucast_pkts": frames_in - ethernet.rx_multicast_packets - ethernet.rx_broadcast_packets,
        "if_in_discards": 0,
        "if_in_errors": device.nic.counters.rx_icrc_encapsulated,
        "if_out_octets": bytes_out,
        "if_out_ucast_pkts": frames_out - ethernet.tx_multicast_packets - ethernet.tx_broadcast_packets,
        "if_in_multicast_pkts": ethernet.rx_multicast_packets,
        "if_in_broadcast_pkts": ethernet.rx_broadcast_packets,
        "if_out_multicast_pkts": ethernet.tx_multicast_packets,
        "if_out_broadcast_pkts": ethernet.tx_broadcast_packets,
    }


def _rfc_2819(device: Mlx5Device, priority: int) -> dict[str, int]:
    """Of received frames. How long each was is not kept, so the counters by size stay 0."""
    frames_in, bytes_in, _, _ = _frames(device)
    ethernet = device.ethernet
    return {
        "ether_stats_octets": bytes_in,
        "ether_stats_pkts": frames_in,
        "ether_stats_broadcast_pkts": ethernet.rx_broadcast_packets,
        "ether_stats_multicast_pkts": ethernet.rx_multicast_packets,
    }


def _priority(device: Mlx5Device, priority: int) -> dict[str, int]:
    """Everything is of priority 0."""
    frames_in, bytes_in, frames_out, bytes_out = _frames(device) if priority == 0 else (0, 0, 0, 0)
    return {
        "rx_octets": bytes_in,
        "rx_frames": frames_in,
        "tx_octets": bytes_out,
        "tx_frames": frames_out,
        "rx_discards": 0,
    }


_WIDE: dict[int, tuple[Structure, Callable[[Mlx5Device, int], dict[str, int]]]] = {
    0x00: (groups.ETH_802_3_CNTRS_GRP_DATA_LAYOUT, _ieee_802_3),
    0x01: (groups.ETH_2863_CNTRS_GRP_DATA_LAYOUT, _rfc_2863),
    0x02: (groups.ETH_2819_CNTRS_GRP_DATA_LAYOUT, _rfc_2819),
    0x10: (groups.ETH_PER_PRIO_GRP_DATA_LAYOUT, _priority),
}
"""Groups of 64-bit counters by number."""
PHYSICAL, INFINIBAND = 0x12, 0x20


def port_counters(device: Mlx5Device, data: bytes, read: bool) -> bytes:
    """The PPCNT register: the group that is asked for; one that is not kept reads as zeros."""
    head = bytes(data[:GROUP_AT]).ljust(GROUP_AT, b"\0")
    register = layout.PPCNT_REG.unpack(head)
    group = register["grp"]
    wide = _WIDE.get(group)
    if wide is not None:
        structure, values = wide
        return head + structure.pack(groups.halves(values(device, register["prio_tc"])))
    counters = device.nic.counters
    if group == PHYSICAL:
        return head + groups.PHYS_LAYER_CNTRS.pack({"link_down_events": counters.link_downed & WORD})
    if group == INFINIBAND:
        small = {
            "link_downed_counter": min(counters.link_downed, BYTE),
            "port_rcv_errors": min(counters.rx_icrc_encapsulated, HALF_WORD),
            "port_xmit_discards": 0,
        }
        return head + groups.IB_PORT_CNTRS_GRP_DATA_LAYOUT.pack(small)
    return head


COMMANDS = (
    Command(
        Op.QUERY_VPORT_COUNTER,
        layout.QUERY_VPORT_COUNTER_IN,
        layout.QUERY_VPORT_COUNTER_OUT,
        query_vport_counter,
    ),
    Command(
        Op.QUERY_CONG_STATISTICS,
        groups.QUERY_CONG_STATISTICS_IN,
        groups.QUERY_CONG_STATISTICS_OUT,
        query_congestion,
    ),
    Command(Op.ALLOC_Q_COUNTER, layout.ALLOC_Q_COUNTER_IN, layout.ALLOC_Q_COUNTER_OUT, alloc_q_counter),
    Command(Op.DEALLOC_Q_COUNTER, layout.DEALLOC_Q_COUNTER_IN, NOTHING_OUT, dealloc_q_counter),
    Command(Op.QUERY_Q_COUNTER, layout.QUERY_Q_COUNTER_IN, layout.QUERY_Q_COUNTER_OUT, query_q_counter),
)
