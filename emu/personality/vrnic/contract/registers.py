# SPDX-License-Identifier: Apache-2.0
"""Registers of BAR0: NIC and vGPU.

NIC BAR0 (64 KiB, trapped)::

    0x000  identity, ABI version, limits            read only
    0x040  port: state, MTU, speed, MAC             read only
    0x080  control and status                       reset, enable
    0x100  admin queue                              bases, doorbell, head
    0x200  event queue consumer indices             8 bytes each
    0x400  counters                                 8 bytes each, read only
    0x800  rules: last violation, actions           read only, read/write
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = [
    "COUNTERS",
    "GPU_REGISTERS",
    "NIC_REGISTERS",
    "ControlBits",
    "Register",
    "RegisterAccess",
    "StatusBits",
]

NIC_MAGIC = 0x434E5256
"""ASCII "VRNC" in memory order."""
GPU_MAGIC = 0x55504756
"""ASCII "VGPU" in memory order."""


class RegisterAccess(enum.Enum):
    """Who may do what to a register."""

    RO = "read only"
    RW = "read/write"
    WO = "write only, reads 0"


@dataclass(frozen=True, slots=True)
class Register:
    """One register: byte offset in its BAR, width in bytes (4 or 8), access, and what it means.

    An 8-byte register may be written as one 8-byte access or as two 4-byte ones, low half first. ``misuse``
    says what a wrong access does beyond the general rule (ignored, counted as ``bad_mmio``, one trace line).
    """

    name: str
    offset: int
    width: int
    access: RegisterAccess
    meaning: str
    misuse: str = ""


RO, RW, WO = RegisterAccess.RO, RegisterAccess.RW, RegisterAccess.WO


class ControlBits(enum.IntFlag):
    """Bits of CONTROL."""

    RESET = 1 << 0
    """Write 1: every object is destroyed, every register returns to its reset value, the bit reads 0 again.
    """
    ENABLE = 1 << 1
    """Admin queue runs. Latches the admin registers: change them only while 0."""


class StatusBits(enum.IntFlag):
    """Bits of STATUS."""

    READY = 1 << 0
    """Reset is over; registers are valid."""
    ENABLED = 1 << 1
    """The admin queue runs."""
    FATAL = 1 << 2
    """The device gave up (FATAL_CAUSE says why); only a reset helps."""


NIC_REGISTERS: tuple[Register, ...] = (
    Register("MAGIC", 0x000, 4, RO, 'constant 0x434e5256, "VRNC" in memory order'),
    Register("ABI_VERSION", 0x004, 4, RO, "major << 16 | minor; a driver refuses another major"),
    Register("VECTORS", 0x008, 4, RO, "MSI-X vectors; 0 is the admin queue's"),
    Register("DOORBELL_PAGES", 0x00C, 4, RO, "doorbell pages in BAR2, page 0 included"),
    Register("MAX_PD", 0x010, 4, RO, "protection domains"),
    Register("MAX_MR", 0x014, 4, RO, "memory regions"),
    Register("MAX_EQ", 0x018, 4, RO, "event queues"),
    Register("MAX_CQ", 0x01C, 4, RO, "completion queues"),
    Register("MAX_QP", 0x020, 4, RO, "queue pairs"),
    Register("MAX_LOG_RING", 0x024, 4, RO, "log2 of the deepest ring"),
    Register("MAX_INLINE", 0x028, 4, RO, "inline payload bytes of a 64-byte WQE"),
    Register("MAX_MESSAGE", 0x02C, 4, RO, "longest message in bytes"),
    Register("PORT_STATE", 0x040, 4, RO, "1 down, 4 active (numbers of enum ibv_port_state)"),
    Register("PORT_MTU", 0x044, 4, RO, "largest path MTU in payload bytes"),
    Register("PORT_SPEED", 0x048, 4, RO, "link speed in Mb/s, as modelled"),
    Register(
        "DOORBELL_MODE",
        0x04C,
        4,
        RO,
        "0: every doorbell store is seen, in order; 1: doorbell pages are memory, of each 64-bit word of a "
        "queue pair's block the last value is seen some time later, and the start of a page is not looked at",
    ),
    Register("MAC_LOW", 0x050, 4, RO, "bytes 0..3 of the MAC address, byte 0 in bits 7:0"),
    Register("MAC_HIGH", 0x054, 4, RO, "bytes 4..5 of the MAC address in bits 15:0"),
    Register("CONTROL", 0x080, 4, RW, "RESET, ENABLE"),
    Register("STATUS", 0x084, 4, RO, "READY, ENABLED, FATAL"),
    Register("FATAL_CAUSE", 0x088, 4, RO, "a FatalCause; 0 while STATUS.FATAL is 0"),
    Register(
        "ADMIN_SQ_BASE",
        0x100,
        8,
        RW,
        "bus address of the command ring, 64-byte aligned",
        "ignored while CONTROL.ENABLE is 1",
    ),
    Register(
        "ADMIN_RQ_BASE",
        0x108,
        8,
        RW,
        "bus address of the reply ring, 64-byte aligned",
        "ignored while CONTROL.ENABLE is 1",
    ),
    Register(
        "ADMIN_LOG_SIZE",
        0x110,
        4,
        RW,
        "log2 of the entries in both rings, 1..8",
        "ignored while CONTROL.ENABLE is 1; another value makes ENABLE fail with FATAL",
    ),
    Register(
        "ADMIN_DOORBELL",
        0x114,
        4,
        WO,
        "running index of the next free command slot",
        "more than one ring ahead of ADMIN_HEAD: FATAL",
    ),
    Register("ADMIN_HEAD", 0x118, 4, RO, "running index of the next command the device will take"),
    Register("CHECK_COUNT", 0x800, 8, RO, "rule violations since reset"),
    Register("CHECK_ID", 0x808, 4, RO, "rule of the last violation (a CheckId)"),
    Register("CHECK_QPN", 0x80C, 4, RO, "its queue pair, 0 if none"),
    Register("CHECK_INDEX", 0x810, 4, RO, "its running WQE index, 0 if none"),
    Register("CHECK_SELECT", 0x814, 4, RW, "rule that the next two registers are about (a CheckId)"),
    Register(
        "CHECK_ACTION",
        0x818,
        4,
        RW,
        "action of the selected rule (a CheckAction)",
        "ignored for a rule or an action that does not exist",
    ),
    Register("CHECK_SELECTED", 0x820, 8, RO, "violations of the selected rule since reset"),
)

EQ_CONSUMER_OFFSET = 0x200
"""EQ_CONSUMER[n], 8 bytes apart, write only: running index of the next event of EQ n the driver will read
(low
32 bits); writing it also re-arms the queue's vector.
"""
COUNTER_OFFSET = 0x400
"""COUNTER[i], 8 bytes apart, read only, in the order of COUNTERS."""

COUNTERS: tuple[tuple[str, str], ...] = (
    ("mmio_reads", "register reads"),
    ("mmio_writes", "register writes, doorbells apart"),
    ("bad_mmio", "ignored accesses: wrong size, alignment, offset or value"),
    ("admin_commands", "admin commands carried out"),
    ("admin_errors", "admin commands refused"),
    ("doorbells", "doorbell writes accepted"),
    ("doorbells_ignored", "doorbell writes ignored: foreign page, unknown QP, stale or absurd index"),
    ("wqe_fetches", "reads of the send ring, each a burst"),
    ("wqes", "send WQEs executed"),
    ("cqes", "completions written"),
    ("cqe_errors", "completions written with an error status"),
    ("cq_overruns", "completions lost because a CQ was full"),
    ("eqes", "events written"),
    ("eq_overruns", "events lost because an EQ was full"),
    ("msix", "interrupts raised"),
    ("dma_read_bytes", "bytes read from guest memory and VRAM"),
    ("dma_write_bytes", "bytes written to guest memory and VRAM"),
    ("dma_errors", "accesses to bus addresses nothing answers"),
    ("tx_packets", "frames sent"),
    ("tx_bytes", "bytes of frames sent"),
    ("rx_packets", "frames received for a queue pair"),
    ("rx_bytes", "bytes of frames received for a queue pair"),
    ("rx_dropped", "frames dropped, for any reason"),
    ("rx_icrc_encapsulated", "frames dropped for a wrong ICRC"),
    ("retransmitted_packets", "request packets sent again"),
    ("retransmitted_bytes", "payload bytes sent again"),
    ("local_ack_timeout_err", "local ACK timeouts"),
    ("packet_seq_err", "NAK sequence errors received"),
    ("out_of_sequence", "requests ahead of the expected PSN"),
    ("duplicate_request", "requests behind the expected PSN"),
    ("send_rnr_err", "RNR NAKs sent: no receive element"),
    ("rnr_nak_retry_err", "RNR NAKs received"),
    ("protection_errors", "accesses refused: key, bounds, domain or right"),
    ("out_of_buffer", "UC and UD messages dropped for want of a receive element"),
    ("bad_pkey_cntr", "packets of another partition"),
    ("qkey_viol_cntr", "datagrams with another Q_Key"),
    ("implied_nak_seq_err", "answers that show that an earlier READ or atomic response was lost"),
    ("np_ecn_marked_roce_packets", "RoCE packets that came with the mark of a congested switch"),
    ("np_cnp_sent", "congestion notifications sent"),
    ("rp_cnp_handled", "congestion notifications that slowed a queue pair down"),
    ("rp_cnp_ignored", "congestion notifications too soon after another to count"),
    ("pdcs_opened", "UET packet delivery contexts opened, by either end"),
    ("unknown_pdc", "UET packets of no packet delivery context"),
    ("nacks_sent", "UET NACKs sent"),
    ("nacks_received", "UET NACKs received"),
    ("check_violations", "rule violations, all kinds"),
    ("pushed_wqes", "WQEs taken from a doorbell page instead of the ring"),
    ("tss_unsecured", "UET packets dropped: not secured where that is asked for"),
    ("tss_unknown_domain", "UET packets dropped: secured with a domain that is not known"),
    ("tss_replays", "UET packets dropped: seen before"),
    ("tss_auth_failures", "UET packets dropped: wrong key or changed on the way"),
    ("link_downed", "times the link went down"),
    ("rx_write_requests", "WRITE messages received"),
    ("rx_read_requests", "READ requests received"),
    ("rx_atomic_requests", "atomic requests received"),
    ("resp_remote_access_errors", "requests refused: key, bounds, domain or right"),
    ("resp_local_length_error", "receives that ended for want of room"),
    ("resp_cqe_error", "receives that ended in error"),
    ("resp_cqe_flush_error", "receives flushed"),
    ("req_cqe_error", "send WQEs that ended in error"),
    ("req_cqe_flush_error", "send WQEs flushed"),
    ("req_remote_invalid_request", "send WQEs that the peer called invalid"),
    ("req_remote_access_errors", "send WQEs that the peer's memory refused"),
    ("req_transport_retries_exceeded", "send WQEs that nobody answered in time"),
    ("req_rnr_retries_exceeded", "send WQEs for which the peer never had a receive"),
    ("rx_drop_foreign", "frames dropped: nothing here takes them"),
    ("rx_drop_length", "packets dropped: truncated, or a length that cannot be"),
    ("rx_drop_checksum", "packets dropped: wrong IPv4 or UDP checksum"),
    ("rx_drop_version", "packets dropped: transport version"),
    ("rx_drop_qpn", "packets dropped: no such QP"),
    ("rx_drop_opcode", "packets dropped: opcode unknown, or of another transport than the QP's"),
    ("rx_drop_state", "packets dropped: the QP is not in a state for them"),
    ("rx_drop_address", "packets dropped: addresses are not the connection's, or the port's"),
    ("rx_drop_response", "responses dropped: nothing waits for them, or they mean nothing"),
    ("rx_drop_repeat", "repeated requests dropped: their answer is not remembered"),
    ("rx_drop_refused", "unreliable messages dropped: they cannot be carried out"),
)

GPU_REGISTERS: tuple[Register, ...] = (
    Register("GPU_MAGIC", 0x000, 4, RO, 'constant 0x55504756, "VGPU" in memory order'),
    Register("GPU_ABI_VERSION", 0x004, 4, RO, "major << 16 | minor"),
    Register("GPU_VRAM_SIZE", 0x008, 8, RO, "bytes of VRAM behind BAR2"),
)
