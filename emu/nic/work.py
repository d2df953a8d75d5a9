# SPDX-License-Identifier: Apache-2.0
"""Work as the core sees it, whatever the descriptor bytes look like: requests in, completions out.

A personality decodes its descriptors into :class:`SendRequest` and :class:`ReceiveRequest` and encodes
:class:`Completion` into its own CQE bytes. Transport engines know nothing else.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from emu.nic.atomics import AtomicMasks

__all__ = [
    "Access",
    "AddressHandle",
    "Cause",
    "Completion",
    "CompletionOpcode",
    "ModifyMask",
    "Opcode",
    "QpAttributes",
    "QpState",
    "ReceiveRequest",
    "SendMode",
    "SendRequest",
    "Sge",
    "Status",
    "Transport",
]


class Transport(enum.IntEnum):
    """Transport service of a queue pair (contract value)."""

    ROCE_RC = 0
    ROCE_UC = 1
    ROCE_UD = 2
    UET_ROD = 8
    UET_RUD = 9
    UET_RUDI = 10
    UET_UUD = 11
    LOCAL = 16
    """No wire: elements work on the NIC itself."""
    ROCE_XRC = 17
    """Reliable connection to the shared receive queues of a domain."""


class Opcode(enum.IntEnum):
    """Send-side operations. The values are the `vrnic` contract's."""

    NOP = 0
    WRITE = 1
    WRITE_IMM = 2
    READ = 3
    SEND = 4
    SEND_IMM = 5
    ATOMIC_ADD = 6
    ATOMIC_CAS = 7
    SEND_INV = 8


class SendMode(enum.IntEnum):
    """How a SEND's data travels, where the transport has a choice (UET)."""

    EAGER = 0
    """At once."""
    RENDEZVOUS = 1
    """Its beginning at once; the rest is fetched by the peer when it has a place for it."""
    DEFERRABLE = 2
    """At once, but the peer may call it off, and ask for it when it has a place for it."""


class CompletionOpcode(enum.IntEnum):
    """What a completion is for; values fit the contract's four-bit field."""

    SEND = 0
    WRITE = 1
    READ = 2
    ATOMIC_CAS = 3
    ATOMIC_ADD = 4
    NOP = 5
    RECV = 8
    RECV_WRITE_IMM = 9


class Status(enum.IntEnum):
    """Work completion status; numbers are the verbs API's ``enum ibv_wc_status``."""

    SUCCESS = 0
    LOC_LEN_ERR = 1
    LOC_QP_OP_ERR = 2
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    MW_BIND_ERR = 6
    BAD_RESP_ERR = 7
    LOC_ACCESS_ERR = 8
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    RNR_RETRY_EXC_ERR = 13
    FATAL_ERR = 19
    GENERAL_ERR = 21


class Cause(enum.IntEnum):
    """``cause`` of an error completion: more than its status says; values are the `vrnic` contract's."""

    NONE = 0
    INDEX_MISMATCH = 1
    QPN_MISMATCH = 2
    PHASE_STALE = 3
    BAD_OPCODE = 4
    BAD_LENGTH = 5
    BAD_FLAGS = 6
    HANDLE_UNKNOWN = 7
    LKEY_UNKNOWN = 16
    LKEY_BOUNDS = 17
    LKEY_ACCESS = 18
    LKEY_PD = 19
    RKEY_UNKNOWN = 20
    RKEY_BOUNDS = 21
    RKEY_ACCESS = 22
    RKEY_PD = 23
    BUS_ERROR = 24
    REMOTE_NAK = 32
    ACK_TIMEOUT = 33
    SEQUENCE_RETRIES = 34
    RNR_RETRIES = 35
    FLUSHED = 48
    RULE_BROKEN = 49


class Access(enum.IntFlag):
    """Access rights of memory regions and queue pairs; values are ``enum ibv_access_flags``."""

    NONE = 0
    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8


class QpState(enum.IntEnum):
    """Queue pair states; numbers are ``enum ibv_qp_state``."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6


class ModifyMask(enum.IntFlag):
    """Which attributes a modify names; bit numbers are ``enum ibv_qp_attr_mask``."""

    STATE = 1 << 0
    CUR_STATE = 1 << 1
    EN_SQD_ASYNC_NOTIFY = 1 << 2
    ACCESS_FLAGS = 1 << 3
    PKEY_INDEX = 1 << 4
    PORT = 1 << 5
    QKEY = 1 << 6
    AV = 1 << 7
    PATH_MTU = 1 << 8
    TIMEOUT = 1 << 9
    RETRY_CNT = 1 << 10
    RNR_RETRY = 1 << 11
    RQ_PSN = 1 << 12
    MAX_RD_ATOMIC = 1 << 13
    ALT_PATH = 1 << 14
    MIN_RNR_TIMER = 1 << 15
    SQ_PSN = 1 << 16
    MAX_DEST_RD_ATOMIC = 1 << 17
    PATH_MIG_STATE = 1 << 18
    DEST_QPN = 1 << 20


@dataclass(slots=True)
class Sge:
    """A piece of local memory: virtual address in the key's space, byte length, lkey."""

    address: int
    length: int
    lkey: int


@dataclass(frozen=True, slots=True)
class AddressHandle:
    """Where a datagram goes and the addresses it comes from; fields as in :class:`QpAttributes`."""

    source_mac: bytes
    dest_mac: bytes
    source_gid: bytes
    dest_gid: bytes
    traffic_class: int = 0
    hop_limit: int = 64
    udp_source_port: int = 0


@dataclass(slots=True)
class SendRequest:
    """One send-queue element, decoded.

    ``tag`` is the 64 match bits of a tagged SEND (None: it is not tagged), ``mode`` how its data travels.
    ``index`` is the running index of its first slot and ``slots`` how many ring slots it takes, so the next
    element is at ``index + slots``. ``length`` is the payload in bytes (for READ: bytes asked for; for
    atomics 4 or 8). ``inline`` are the first bytes of the payload, those that were in the descriptor (None:
    there were none). ``sges`` is the gather list of the others, or for READ and atomics the scatter list of
    the result. ``swap_add``/``compare`` are host integers.
    ``masks`` of an atomic say which of their bits count; None for all.
    ``rkey`` of SEND_INV is the key to invalidate at the peer.
    ``handle``, ``dest_qpn`` and ``qkey`` are for datagrams only. ``cookie`` is the personality's own, handed
    back in the completion. ``local`` is what the NIC does itself, such as changing a memory key, once every
    element before this one is complete: no engine sees such an element. It may raise ProtectionError, which
    its completion reports as ``local_status``. ``ready``, where there is one, is asked before that; while it
    says no, the queue stands still, and who made it has the queue pair woken when that may have changed.
    """

    index: int
    opcode: Opcode
    slots: int = 1
    length: int = 0
    sges: list[Sge] = field(default_factory=list)
    inline: bytes | None = None
    remote_address: int = 0
    rkey: int = 0
    immediate: int = 0
    swap_add: int = 0
    compare: int = 0
    masks: AtomicMasks | None = None
    signaled: bool = False
    solicited: bool = False
    fence: bool = False
    cookie: object = None
    handle: AddressHandle | None = None
    dest_qpn: int = 0
    qkey: int = 0
    tag: int | None = None
    mode: SendMode = SendMode.EAGER
    local: Callable[[], None] | None = None
    srq: int = 0
    local_status: Status = Status.MW_BIND_ERR
    ready: Callable[[], bool] | None = None


@dataclass(slots=True)
class ReceiveRequest:
    """One receive-queue element: running index and the scatter list.

    With a ``tag`` it takes only a tagged SEND whose match bits are equal where ``ignore`` has no bit set;
    without, only one that is not tagged.

    ``shared`` elements come from a queue that other queue pairs take from, too: one that was taken cannot be
    put back there.
    """

    index: int
    sges: list[Sge] = field(default_factory=list)
    cookie: object = None
    shared: bool = False
    tag: int | None = None
    ignore: int = 0

    @property
    def length(self) -> int:
        """Bytes the scatter list can take."""
        return sum(sge.length for sge in self.sges)


@dataclass(slots=True)
class Completion:
    """The outcome of one element.

    ``index`` names the element (send or receive ring by ``opcode``), ``length`` is bytes transferred,
    ``immediate`` is the 32-bit value as on the wire (big-endian number) or None, ``cause`` a vendor code that
    says more than ``status`` (0 when there is nothing more to say).

    ``invalidated`` is the key that the sender had invalidated here, ``tag`` the match bits of a tagged SEND;
    both are None when there was none. Of a received
    datagram ``length`` includes the 40 bytes for the network header before the data,
    ``source_qpn`` is the sender and ``ip_version`` (4 or 6, else 0) tells what those 40 bytes hold: an IPv6
    header, or twenty zero bytes and an IPv4 header.
    """

    qpn: int
    index: int
    opcode: CompletionOpcode
    status: Status
    length: int = 0
    immediate: int | None = None
    solicited: bool = False
    cause: int = 0
    cookie: object = None
    source_qpn: int = 0
    ip_version: int = 0
    invalidated: int | None = None
    tag: int | None = None


@dataclass(slots=True)
class QpAttributes:
    """Everything a modify can set. Addresses are bytes in network order; ``path_mtu`` is payload bytes.

    ``timeout`` is the local ACK timeout exponent (4.096 us * 2^n, 0 = wait for ever), ``min_rnr_timer`` the
    RNR timer code, PSNs are 24 bits. ``source_gid``/``dest_gid`` are 16 bytes, an IPv4 peer as
    ``::ffff:a.b.c.d``. ``udp_source_port`` 0 means: derive it from the QP numbers. ``source_qpn`` is the
    sender's number in datagrams where that is not the queue pair's own (0: it is). ``current`` is what the
    caller takes for the state before the step, ``sqd_notify`` whether it wants SQ_DRAINED.
    """

    state: QpState = QpState.RESET
    access: Access = Access.NONE
    path_mtu: int = 1024
    dest_qpn: int = 0
    rq_psn: int = 0
    sq_psn: int = 0
    max_rd_atomic: int = 1
    max_dest_rd_atomic: int = 1
    min_rnr_timer: int = 0
    timeout: int = 0
    retry_cnt: int = 0
    rnr_retry: int = 0
    source_mac: bytes = b"\0" * 6
    dest_mac: bytes = b"\0" * 6
    source_gid: bytes = b"\0" * 16
    dest_gid: bytes = b"\0" * 16
    traffic_class: int = 0
    hop_limit: int = 64
    udp_source_port: int = 0
    pkey: int = 0xFFFF
    qkey: int = 0
    source_qpn: int = 0
    current: QpState = QpState.RESET
    sqd_notify: bool = False
