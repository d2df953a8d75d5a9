# SPDX-License-Identifier: Apache-2.0
"""Admin commands and replies: 64 bytes each, little-endian.

The driver writes a command into slot ``n % size`` of the command ring and stores ``n + 1`` to ADMIN_DOORBELL.
The device writes the reply into the same slot of the reply ring, its first 8 bytes (the commit word) last,
advances ADMIN_HEAD and raises vector 0. ``sequence`` of the reply is ``n + 1``.
"""

from __future__ import annotations

from construct import Array, Byte, Bytes, Int16ul, Int32ul, Int64ul, Struct

from emu.personality.vrnic.contract.codes import AdminOpcode

ADMIN_ENTRY_SIZE = 64

NO_EQ = 0xFFFFFFFF
"""CREATE_CQ ``eq``: neither completions nor errors raise an event."""
NO_RECEIVE_RING = 255
"""CREATE_QP ``rq_log_size``: the QP has no receive ring."""

HEADER = (
    "opcode" / Int16ul * "AdminOpcode",
    "command_flags" / Int16ul * "0",
    "tag" / Int32ul * "any value; echoed in traces",
)

REPLY_HEADER = (
    "status" / Int16ul * "commit word: AdminStatus",
    "refused" / Int16ul * "commit word: byte offset in the command of the field that was refused, else 0",
    "sequence" / Int32ul * "commit word: running index of the command plus 1",
)

Command = Struct(*HEADER, "body" / Bytes(56))
Reply = Struct(*REPLY_HEADER, "body" / Bytes(56))

AllocCtxReply = Struct(
    *REPLY_HEADER, "ctx" / Int32ul * "context number = doorbell page in BAR2", "reserved" / Array(13, Int32ul)
)
FreeCtx = Struct(
    *HEADER,
    "ctx" / Int32ul * "context",
    "force" / Int32ul * "1: destroy what it still owns",
    "reserved" / Array(12, Int32ul),
)
AllocPd = Struct(*HEADER, "ctx" / Int32ul * "owner", "reserved" / Array(13, Int32ul))
ObjectReply = Struct(
    *REPLY_HEADER,
    "object" / Int32ul * "number of the new object (PDN, key, EQN, CQN, QPN, AHN)",
    "reserved" / Array(13, Int32ul),
)
ObjectCommand = Struct(
    *HEADER, "object" / Int32ul * "object to destroy or query", "reserved" / Array(13, Int32ul)
)

RegMr = Struct(
    *HEADER,
    "pd" / Int32ul * "protection domain",
    "access" / Int32ul * "enum ibv_access_flags",
    "kind" / Byte * "MrKind",
    "page_shift" / Byte * "log2 of the page size, 12..21",
    "flags" / Int16ul * "MrFlags",
    "page_count" / Int32ul * "pages in the list",
    "address" / Int64ul * "virtual address of the first byte",
    "length" / Int64ul * "bytes; the first page is used from address modulo page size on",
    "pages" / Int64ul * "bus address of the page list (u64 entries), or see MrFlags",
    "reserved" / Array(4, Int32ul),
)

CreateEq = Struct(
    *HEADER,
    "vector" / Int16ul * "MSI-X vector",
    "log_size" / Byte * "log2 of the entries, 1..16",
    "reserved0" / Byte,
    "reserved1" / Int32ul,
    "base" / Int64ul * "bus address of the ring, contiguous, 64-byte aligned, zeroed by the driver",
    "reserved" / Array(10, Int32ul),
)

CreateCq = Struct(
    *HEADER,
    "ctx" / Int32ul * "owner",
    "eq" / Int32ul * "event queue for completions and errors, 0xffffffff none",
    "mode" / Byte * "CqMode",
    "overrun" / Byte * "CqOverrun",
    "log_size" / Byte * "log2 of the entries, 0..MAX_LOG_RING",
    "reserved0" / Byte,
    "ring_key" / Int32ul * "lkey of the region that holds the ring (LOCAL_WRITE)",
    "ring_address" / Int64ul * "virtual address of the ring in it, 64-byte aligned",
    "reserved" / Array(8, Int32ul),
)

CreateQp = Struct(
    *HEADER,
    "ctx" / Int32ul * "owner; doorbells come through its page",
    "pd" / Int32ul * "protection domain",
    "send_cq" / Int32ul * "CQ of the send ring",
    "recv_cq" / Int32ul * "CQ of the receive ring",
    "transport" / Byte * "Transport",
    "sq_log_size" / Byte * "log2 of the send slots, 1..MAX_LOG_RING",
    "rq_log_size" / Byte * "log2 of the receive slots; 255: no receive ring",
    "dbr_policy" / Byte * "DbrPolicy",
    "ring_key" / Int32ul * "lkey of the region that holds rings and doorbell record",
    "sq_address" / Int64ul * "virtual address of the send ring, 64-byte aligned",
    "rq_address" / Int64ul * "virtual address of the receive ring, 32-byte aligned",
    "dbr_address" / Int64ul * "virtual address of the doorbell record, 8-byte aligned; unused with NONE",
    "flags" / Int32ul * "QpFlags",
    "start_index" / Int32ul * "first running index of both rings",
)

CreateQpReply = Struct(
    *REPLY_HEADER,
    "object" / Int32ul * "queue pair number",
    "doorbell"
    / Int32ul
    * "byte offset of its block in the doorbell page; 0: it has none, use the page's start",
    "reserved" / Array(12, Int32ul),
)

ModifyQp = Struct(
    *HEADER,
    "qpn" / Int32ul * "queue pair",
    "mask" / Int32ul * "attributes given: enum ibv_qp_attr_mask; port and partition are implied",
    "state" / Byte * "new state in bits 3:0; with CUR_STATE the state it is expected to be in, in bits 7:4",
    "path_mtu" / Byte * "1=256 .. 5=4096",
    "timeout" / Byte * "local ACK timeout exponent, 0..31",
    "retry_cnt" / Byte * "0..7",
    "rnr_retry" / Byte * "0..7, 7 = for ever",
    "min_rnr_timer" / Byte * "RNR timer code, 0..31",
    "max_rd_atomic" / Byte * "outstanding READs and atomics as requester",
    "max_dest_rd_atomic" / Byte * "outstanding READs and atomics as responder",
    "dest_qpn" / Int32ul * "peer's QP; with QKEY the Q_Key: datagrams have no one peer",
    "rq_psn" / Int32ul * "24 bits",
    "sq_psn" / Int32ul * "24 bits",
    "access" / Byte * "enum ibv_access_flags",
    "traffic_class" / Byte * "IP traffic class (AV)",
    "hop_limit" / Byte * "IP TTL (AV); 0 reads as 64",
    "gid_index" / Byte * "own GID (AV)",
    "dest_gid" / Bytes(16) * "peer's GID, ::ffff:a.b.c.d for IPv4 (AV)",
    "dest_mac" / Bytes(6) * "next hop's MAC address (AV)",
    "udp_source_port" / Int16ul * "0: derived from the QP numbers (AV)",
)

QueryQpReply = Struct(
    *REPLY_HEADER,
    "state" / Byte * "QpState",
    "transport" / Byte * "Transport",
    "sq_draining" / Byte * "1: moved to SQD, and what had begun is not finished",
    "reserved0" / Byte,
    "doorbell_index" / Int32ul * "last accepted send doorbell",
    "fetched_index" / Int32ul * "next slot to fetch",
    "completed_index" / Int32ul * "every slot before it is done",
    "receive_index" / Int32ul * "next receive slot to use",
    "receive_doorbell" / Int32ul * "last accepted receive doorbell",
    "first_error_index" / Int32ul * "element that failed first",
    "first_error_status" / Byte * "its status, 0 if none",
    "reserved1" / Byte,
    "first_error_cause" / Int16ul * "its VendorCause",
    "next_psn" / Int32ul * "requester's next PSN",
    "expected_psn" / Int32ul * "responder's expected PSN",
    "reserved" / Array(4, Int32ul),
)

GidCommand = Struct(
    *HEADER,
    "gid_index" / Int32ul * "0..GID_TABLE_SIZE-1",
    "reserved0" / Int32ul,
    "gid" / Bytes(16) * "SET_GID: network byte order",
    "reserved" / Array(8, Int32ul),
)
GidReply = Struct(
    *REPLY_HEADER,
    "gid" / Bytes(16) * "network byte order",
    "mac" / Bytes(6) * "port's MAC",
    "reserved0" / Int16ul,
    "reserved" / Array(8, Int32ul),
)
GID_TABLE_SIZE = 16

SetHints = Struct(
    *HEADER,
    "ctx" / Int32ul * "owner",
    "ring_key" / Int32ul * "lkey of the region that holds the ring (LOCAL_WRITE)",
    "ring_address" / Int64ul * "virtual address of the ring in it, 64-byte aligned",
    "log_size" / Byte * "log2 of the entries, 0..16; 255: no more hints",
    "reserved0" / Array(3, Byte),
    "reserved" / Array(9, Int32ul),
)

CreateAh = Struct(
    *HEADER,
    "pd" / Int32ul * "protection domain; only its QPs can use the handle",
    "traffic_class" / Byte * "IP traffic class",
    "hop_limit" / Byte * "IP TTL; 0 reads as 64",
    "gid_index" / Byte * "own GID",
    "reserved0" / Byte,
    "dest_gid" / Bytes(16) * "GID to send to, ::ffff:a.b.c.d for IPv4; may be a multicast group",
    "dest_mac" / Bytes(6) * "next hop's MAC address, or the group's",
    "udp_source_port" / Int16ul * "0: derived from the QP numbers",
    "reserved" / Array(6, Int32ul),
)

MulticastCommand = Struct(
    *HEADER,
    "qpn" / Int32ul * "queue pair of datagrams",
    "reserved0" / Int32ul,
    "gid" / Bytes(16) * "the group's GID, ::ffff:a.b.c.d for IPv4",
    "reserved" / Array(8, Int32ul),
)

QueryObjectsReply = Struct(
    *REPLY_HEADER,
    "contexts" / Int32ul * "contexts alive",
    "pds" / Int32ul * "protection domains alive",
    "mrs" / Int32ul * "memory regions alive",
    "eqs" / Int32ul * "event queues alive",
    "cqs" / Int32ul * "completion queues alive",
    "qps" / Int32ul * "queue pairs alive",
    "ahs" / Int32ul * "address handles alive",
    "reserved" / Array(7, Int32ul),
)

COMMANDS = {
    AdminOpcode.NOP: (Command, Reply),
    AdminOpcode.ALLOC_CTX: (Command, AllocCtxReply),
    AdminOpcode.FREE_CTX: (FreeCtx, Reply),
    AdminOpcode.ALLOC_PD: (AllocPd, ObjectReply),
    AdminOpcode.FREE_PD: (ObjectCommand, Reply),
    AdminOpcode.REG_MR: (RegMr, ObjectReply),
    AdminOpcode.DEREG_MR: (ObjectCommand, Reply),
    AdminOpcode.CREATE_EQ: (CreateEq, ObjectReply),
    AdminOpcode.DESTROY_EQ: (ObjectCommand, Reply),
    AdminOpcode.CREATE_CQ: (CreateCq, ObjectReply),
    AdminOpcode.DESTROY_CQ: (ObjectCommand, Reply),
    AdminOpcode.CREATE_QP: (CreateQp, CreateQpReply),
    AdminOpcode.MODIFY_QP: (ModifyQp, Reply),
    AdminOpcode.QUERY_QP: (ObjectCommand, QueryQpReply),
    AdminOpcode.DESTROY_QP: (ObjectCommand, Reply),
    AdminOpcode.QUERY_GID: (GidCommand, GidReply),
    AdminOpcode.SET_GID: (GidCommand, Reply),
    AdminOpcode.QUERY_OBJECTS: (Command, QueryObjectsReply),
    AdminOpcode.SET_HINTS: (SetHints, Reply),
    AdminOpcode.CREATE_AH: (CreateAh, ObjectReply),
    AdminOpcode.DESTROY_AH: (ObjectCommand, Reply),
    AdminOpcode.ATTACH_MULTICAST: (MulticastCommand, Reply),
    AdminOpcode.DETACH_MULTICAST: (MulticastCommand, Reply),
}
"""Command and reply layout of every opcode."""
