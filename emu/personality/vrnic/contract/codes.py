# SPDX-License-Identifier: Apache-2.0
"""Numbers of the contract that are not layouts: admin opcodes and statuses, event types, modes, causes,
rules.
"""

from __future__ import annotations

import enum

from emu.checks.rule import Action, Rule


class AdminOpcode(enum.IntEnum):
    """First field of an admin command."""

    NOP = 0x00
    ALLOC_CTX = 0x01
    FREE_CTX = 0x02
    ALLOC_PD = 0x03
    FREE_PD = 0x04
    REG_MR = 0x05
    DEREG_MR = 0x06
    CREATE_EQ = 0x07
    DESTROY_EQ = 0x08
    CREATE_CQ = 0x09
    DESTROY_CQ = 0x0A
    CREATE_QP = 0x0B
    MODIFY_QP = 0x0C
    QUERY_QP = 0x0D
    DESTROY_QP = 0x0E
    QUERY_GID = 0x0F
    SET_GID = 0x10
    QUERY_OBJECTS = 0x11
    SET_HINTS = 0x20
    CREATE_AH = 0x12
    DESTROY_AH = 0x13
    ATTACH_MULTICAST = 0x14
    DETACH_MULTICAST = 0x15


class AdminStatus(enum.IntEnum):
    """First field of an admin reply."""

    OK = 0
    BAD_OPCODE = 1
    """No such command."""
    BAD_FIELD = 2
    """A field has a value that is not allowed; the reply's ``refused`` is its byte offset in the command."""
    BAD_OBJECT = 3
    """A field names an object that does not exist; ``refused`` is its byte offset."""
    NOT_OWNER = 4
    """The object exists but belongs to another context or protection domain."""
    BUSY = 5
    """The object is still used by others (destroy those first)."""
    NO_RESOURCE = 6
    """The table is full."""
    BAD_STATE = 7
    """The queue pair is in a state that does not allow it, or a required attribute is missing."""
    DMA_ERROR = 8
    """A bus address in the command cannot be reached."""
    UNSUPPORTED = 9
    """Valid, but this device does not offer it (see the limits)."""


class EventType(enum.IntEnum):
    """Type of an event queue entry. 0..31 are ``enum ibv_event_type`` numbers."""

    CQ_ERR = 0
    QP_FATAL = 1
    QP_REQ_ERR = 2
    QP_ACCESS_ERR = 3
    COMM_EST = 4
    SQ_DRAINED = 5
    DEVICE_FATAL = 8
    PORT_ACTIVE = 9
    PORT_ERR = 10
    COMPLETION = 32
    """A completion arrived on an armed CQ; ``object`` is its CQN. The CQ is disarmed."""


class CqMode(enum.IntEnum):
    """How a CQ reports."""

    RING = 0
    """Entries go round the ring; each pass flips the phase bit (first pass 1)."""
    COLLAPSED = 1
    """Every entry goes to slot 0 with phase 1; software reads the 16-bit index, or the running index."""
    COUNTER = 2
    """No entries: two u64 counters (success, error) at the ring's address."""


class CqOverrun(enum.IntEnum):
    """What happens when a ring CQ is full (consumer index from the CQ doorbell)."""

    ERROR = 0
    """CQ_ERR event, the CQ stops, its QPs go to ERR."""
    IGNORE = 1
    """Overwrite; software answers for it."""


class DbrPolicy(enum.IntEnum):
    """What the doorbell record means."""

    NONE = 0
    """Not read."""
    RECOVERY = 1
    """Read after a stall; it may be ahead of lost doorbells."""
    AUTHORITATIVE = 2
    """Read at each doorbell; the doorbell is only a hint."""
    STRICT = 3
    """A doorbell ahead of the record is a violation and is ignored."""


class MrKind(enum.IntEnum):
    """Where a region's pages are; for checks and captures."""

    HOST = 0
    GPU = 1


class MrFlags(enum.IntFlag):
    """REG_MR flags."""

    INDIRECT = 1 << 0
    """``pages`` is a list of bus addresses of 4 KiB blocks, each holding 512 page addresses."""
    ATOMIC_CAPABLE = 1 << 1
    """Remote atomics may target it."""
    CONTIGUOUS = 1 << 2
    """``pages`` is itself the bus address of one contiguous range of ``length`` bytes; there is no list."""
    INVALIDATABLE = 1 << 3
    """A peer's SEND_INV may take the key out of use; DEREG_MR is still due."""
    RELAXED_ORDERING = 1 << 4
    """Payload may be written with PCIe relaxed ordering: it may be seen after what was written later."""


class QpFlags(enum.IntFlag):
    """CREATE_QP flags."""

    PHASE = 1 << 0
    """Slots carry a phase bit: 1 when (index - start_index) / slots is even, else 0; a slot with the wrong
    one
    is stale. So the first write to each slot of a zeroed ring carries 1, wherever the ring starts.
    """
    SIGNAL_ALL = 1 << 1
    """Every send WQE completes, flagged or not."""


class FatalCause(enum.IntEnum):
    """Why STATUS.FATAL is set."""

    NONE = 0
    ADMIN_LOG_SIZE = 1
    ADMIN_BASE = 2
    ADMIN_DOORBELL = 3
    ADMIN_DMA = 4
    INTERNAL = 5


CheckAction = Action
"""What CHECK_ACTION takes."""
CheckId = Rule
"""Rules a driver or kernel can break; what they say is in :mod:`emu.checks`."""


class VendorCause(enum.IntEnum):
    """``cause`` of an error completion: more than the status says."""

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
