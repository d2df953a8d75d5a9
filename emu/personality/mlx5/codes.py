# SPDX-License-Identifier: Apache-2.0
"""Numbers of the mlx5 interface: opcodes, statuses, events, descriptor and completion codes.

Source: ``MLX5_CMD_OP_*`` in ``include/linux/mlx5/mlx5_ifc.h``; the rest in ``device.h``, ``cq.h`` and
``qp.h`` beside it.
"""

from __future__ import annotations

import enum

__all__ = [
    "CommandOpcode",
    "CommandStatus",
    "CqeOpcode",
    "CqeSyndrome",
    "DeliveryStatus",
    "EventCode",
    "OptParam",
    "QpService",
    "QpStateCode",
    "Register",
    "RqType",
    "WaitFor",
    "WqeOpcode",
]


class CommandOpcode(enum.IntEnum):
    """Commands this device carries out."""

    QUERY_HCA_CAP = 0x100
    QUERY_ADAPTER = 0x101
    INIT_HCA = 0x102
    TEARDOWN_HCA = 0x103
    ENABLE_HCA = 0x104
    DISABLE_HCA = 0x105
    QUERY_PAGES = 0x107
    MANAGE_PAGES = 0x108
    SET_HCA_CAP = 0x109
    QUERY_ISSI = 0x10A
    SET_ISSI = 0x10B
    CREATE_MKEY = 0x200
    QUERY_MKEY = 0x201
    DESTROY_MKEY = 0x202
    QUERY_SPECIAL_CONTEXTS = 0x203
    CREATE_EQ = 0x301
    DESTROY_EQ = 0x302
    QUERY_EQ = 0x303
    CREATE_CQ = 0x400
    DESTROY_CQ = 0x401
    QUERY_CQ = 0x402
    MODIFY_CQ = 0x403
    CREATE_QP = 0x500
    DESTROY_QP = 0x501
    RST2INIT_QP = 0x502
    INIT2RTR_QP = 0x503
    RTR2RTS_QP = 0x504
    RTS2RTS_QP = 0x505
    SQERR2RTS_QP = 0x506
    QP_2ERR = 0x507
    QP_2RST = 0x50A
    QUERY_QP = 0x50B
    INIT2INIT_QP = 0x50E
    ARM_RQ = 0x703
    CREATE_XRC_SRQ = 0x705
    DESTROY_XRC_SRQ = 0x706
    QUERY_XRC_SRQ = 0x707
    ARM_XRC_SRQ = 0x708
    QUERY_VPORT_STATE = 0x750
    MODIFY_VPORT_STATE = 0x751
    QUERY_NIC_VPORT_CONTEXT = 0x754
    MODIFY_NIC_VPORT_CONTEXT = 0x755
    QUERY_ROCE_ADDRESS = 0x760
    SET_ROCE_ADDRESS = 0x761
    QUERY_HCA_VPORT_PKEY = 0x765
    QUERY_VPORT_COUNTER = 0x770
    ALLOC_Q_COUNTER = 0x771
    DEALLOC_Q_COUNTER = 0x772
    QUERY_Q_COUNTER = 0x773
    ALLOC_PD = 0x800
    DEALLOC_PD = 0x801
    ALLOC_UAR = 0x802
    DEALLOC_UAR = 0x803
    ACCESS_REG = 0x805
    ATTACH_TO_MCG = 0x806
    DETACH_FROM_MCG = 0x807
    ALLOC_XRCD = 0x80E
    DEALLOC_XRCD = 0x80F
    ALLOC_TRANSPORT_DOMAIN = 0x816
    DEALLOC_TRANSPORT_DOMAIN = 0x817
    QUERY_CONG_STATISTICS = 0x826
    QUERY_LAG = 0x842
    CREATE_TIR = 0x900
    MODIFY_TIR = 0x901
    DESTROY_TIR = 0x902
    CREATE_SQ = 0x904
    MODIFY_SQ = 0x905
    DESTROY_SQ = 0x906
    QUERY_SQ = 0x907
    CREATE_RQ = 0x908
    MODIFY_RQ = 0x909
    DESTROY_RQ = 0x90A
    QUERY_RQ = 0x90B
    CREATE_RMP = 0x90C
    MODIFY_RMP = 0x90D
    DESTROY_RMP = 0x90E
    QUERY_RMP = 0x90F
    CREATE_TIS = 0x912
    MODIFY_TIS = 0x913
    DESTROY_TIS = 0x914
    CREATE_RQT = 0x916
    MODIFY_RQT = 0x917
    DESTROY_RQT = 0x918
    SET_FLOW_TABLE_ROOT = 0x92F
    CREATE_FLOW_TABLE = 0x930
    DESTROY_FLOW_TABLE = 0x931
    CREATE_FLOW_GROUP = 0x933
    DESTROY_FLOW_GROUP = 0x934
    SET_FLOW_TABLE_ENTRY = 0x936
    DELETE_FLOW_TABLE_ENTRY = 0x938
    MODIFY_FLOW_TABLE = 0x93C
    CREATE_UCTX = 0xA04
    DESTROY_UCTX = 0xA06
    CREATE_UMEM = 0xA08
    DESTROY_UMEM = 0xA0A


class CommandStatus(enum.IntEnum):
    """``status`` of a reply."""

    OK = 0x0
    INTERNAL_ERROR = 0x1
    BAD_OP = 0x2
    BAD_PARAM = 0x3
    BAD_SYSTEM_STATE = 0x4
    BAD_RESOURCE = 0x5
    RESOURCE_BUSY = 0x6
    EXCEED_LIMIT = 0x8
    BAD_RESOURCE_STATE = 0x9
    NO_RESOURCES = 0xF
    BAD_QP_STATE = 0x10
    BAD_INPUT_LEN = 0x50
    BAD_OUTPUT_LEN = 0x51


class DeliveryStatus(enum.IntEnum):
    """Bits 7:1 of ``status_own``: whether the entry itself could be taken."""

    OK = 0x0
    BAD_BLOCK_NUMBER = 0x3
    BAD_OUTPUT_POINTER = 0x4
    BAD_INPUT_POINTER = 0x5
    BAD_INPUT_LENGTH = 0x7
    BAD_OUTPUT_LENGTH = 0x8
    BAD_DESCRIPTOR = 0x10


class EventCode(enum.IntEnum):
    """Type of an event queue entry; also its bit in the mask of CREATE_EQ."""

    COMPLETION = 0x00
    COMM_EST = 0x02
    SQ_DRAINED = 0x03
    CQ_ERROR = 0x04
    WQ_CATASTROPHIC = 0x05
    INTERNAL_ERROR = 0x08
    PORT_CHANGE = 0x09
    COMMAND = 0x0A
    WQ_INVALID_REQUEST = 0x10
    WQ_ACCESS_ERROR = 0x11
    SRQ_ERROR = 0x12
    SRQ_LAST_WQE = 0x13
    SRQ_LIMIT = 0x14


class WqeOpcode(enum.IntEnum):
    """Opcode of a send descriptor."""

    NOP = 0x00
    SEND_INVAL = 0x01
    RDMA_WRITE = 0x08
    RDMA_WRITE_IMM = 0x09
    SEND = 0x0A
    SEND_IMM = 0x0B
    LSO = 0x0E
    WAIT = 0x0F
    RDMA_READ = 0x10
    ATOMIC_CS = 0x11
    ATOMIC_FA = 0x12
    ATOMIC_MASKED_CS = 0x14
    ATOMIC_MASKED_FA = 0x15
    DUMP = 0x23
    UMR = 0x25


class WaitFor(enum.IntEnum):
    """Opcode modifier of a WAIT: what ends it."""

    CQE = 0
    DATA = 1
    TIME = 2


class CqeOpcode(enum.IntEnum):
    """Bits 7:4 of a completion's last byte."""

    REQUESTER = 0
    RESPONDER_WRITE_IMM = 1
    RESPONDER_SEND = 2
    RESPONDER_SEND_IMM = 3
    RESPONDER_SEND_INVAL = 4
    RESIZED = 5
    REQUESTER_ERROR = 13
    RESPONDER_ERROR = 14


class CqeSyndrome(enum.IntEnum):
    """Why an error completion failed."""

    LOCAL_LENGTH = 0x01
    LOCAL_QP_OPERATION = 0x02
    LOCAL_PROTECTION = 0x04
    FLUSHED = 0x05
    MEMORY_WINDOW_BIND = 0x06
    BAD_RESPONSE = 0x10
    LOCAL_ACCESS = 0x11
    REMOTE_INVALID_REQUEST = 0x12
    REMOTE_ACCESS = 0x13
    REMOTE_OPERATION = 0x14
    TRANSPORT_RETRIES = 0x15
    RNR_RETRIES = 0x16
    REMOTE_ABORTED = 0x22


class QpService(enum.IntEnum):
    """``st`` of a queue pair context."""

    RC = 0x0
    UC = 0x1
    UD = 0x2
    XRC = 0x3
    QP1 = 0x8
    REG_UMR = 0xC


class QpStateCode(enum.IntEnum):
    """``state`` of a queue pair context."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQ_ERROR = 4
    SQ_DRAINED = 5
    ERROR = 6
    SQ_DRAINING = 7


class RqType(enum.IntEnum):
    """``rq_type`` of a queue pair context."""

    OWN = 0
    SHARED = 1
    NONE = 3


class OptParam(enum.IntFlag):
    """``opt_param_mask``: attributes that a state change takes besides its own."""

    REMOTE_READ = 1 << 1
    REMOTE_ATOMIC = 1 << 2
    REMOTE_WRITE = 1 << 3
    PKEY_INDEX = 1 << 4
    Q_KEY = 1 << 5
    RNR_TIMEOUT = 1 << 6
    PRIMARY_PATH = 1 << 7
    MAX_READ_ATOMIC = 1 << 8
    MAX_DEST_READ_ATOMIC = 1 << 9
    RETRY_COUNT = 1 << 12
    RNR_RETRY = 1 << 13
    ACK_TIMEOUT = 1 << 14


class Register(enum.IntEnum):
    """Registers behind ACCESS_REG."""

    PMTU = 0x5003
    PTYS = 0x5004
    PAOS = 0x5006
    PFCC = 0x5007
    PPCNT = 0x5008
    PVLC = 0x500F
    NODE_DESCRIPTION = 0x6001
