# SPDX-License-Identifier: Apache-2.0
"""Event queue entries: 64 bytes, the last one the owner bit.

::

    1 type   3 sub-type   32..59 data   63 owner: 0 in the first pass over the ring, 1 in the second ...

Source: ``struct mlx5_eqe`` in ``include/linux/mlx5/device.h``.
"""

from __future__ import annotations

import struct

from emu.nic.engine import AsyncEvent
from emu.nic.eq import EventQueue
from emu.personality.mlx5.codes import EventCode

__all__ = ["EQE_SIZE", "EVENTS", "EventFormat", "command_entry"]

EQE_SIZE = 64
PORT_DOWN, PORT_ACTIVE = 1, 4
_PORT_ONE = 1 << 4
_ENTRY = struct.Struct(">xBxB28x28s3x")
_FIRST = struct.Struct(">I24x")
_AT_8 = struct.Struct(">8xB19x")
_AT_24 = struct.Struct(">24xI")
_QUEUE = struct.Struct(">20xB3xI")
_CQ = struct.Struct(">I7xB16x")
_CQ_OVERRUN = 1
"""Syndrome of a CQ error; a ring that cannot be written has none of its own here."""
_SHARED_RECEIVE = 5
"""Type of queue in an event about one: queue pairs are 0."""

EVENTS: dict[AsyncEvent, EventCode] = {
    AsyncEvent.COMM_EST: EventCode.COMM_EST,
    AsyncEvent.SQ_DRAINED: EventCode.SQ_DRAINED,
    AsyncEvent.CQ_ERR: EventCode.CQ_ERROR,
    AsyncEvent.QP_FATAL: EventCode.WQ_CATASTROPHIC,
    AsyncEvent.QP_REQ_ERR: EventCode.WQ_INVALID_REQUEST,
    AsyncEvent.QP_ACCESS_ERR: EventCode.WQ_ACCESS_ERROR,
    AsyncEvent.QP_LAST_WQE_REACHED: EventCode.SRQ_LAST_WQE,
    AsyncEvent.SRQ_ERR: EventCode.SRQ_ERROR,
    AsyncEvent.SRQ_LIMIT_REACHED: EventCode.SRQ_LIMIT,
    AsyncEvent.DEVICE_FATAL: EventCode.INTERNAL_ERROR,
    AsyncEvent.PORT_ACTIVE: EventCode.PORT_CHANGE,
    AsyncEvent.PORT_ERR: EventCode.PORT_CHANGE,
}
"""Which type of entry an event of the core is."""


def _entry(eq: EventQueue, code: EventCode, data: bytes, sub_type: int = 0) -> tuple[bytes, bytes]:
    return _ENTRY.pack(code, sub_type, data), bytes([eq.producer >> eq.ring.log_size & 1])


def command_entry(slots: int, eq: EventQueue) -> tuple[bytes, bytes]:
    """Body and owner byte of the event that says which command slots (bit mask) are done."""
    return _entry(eq, EventCode.COMMAND, _FIRST.pack(slots))


class EventFormat:
    """Implements :class:`emu.nic.formats.EqeFormat`."""

    slot_size = EQE_SIZE

    def encode(
        self, event: AsyncEvent | None, number: int, eq: EventQueue, timestamp: int
    ) -> tuple[bytes, bytes]:
        """Body and owner byte."""
        if event is None:
            return _entry(eq, EventCode.COMPLETION, _AT_24.pack(number))
        code = EVENTS[event]
        if code is EventCode.PORT_CHANGE:
            active = PORT_ACTIVE if event is AsyncEvent.PORT_ACTIVE else PORT_DOWN
            return _entry(eq, code, _AT_8.pack(_PORT_ONE), active)
        if code is EventCode.CQ_ERROR:
            return _entry(eq, code, _CQ.pack(number, _CQ_OVERRUN))
        if code in (EventCode.SRQ_LIMIT, EventCode.SRQ_ERROR):
            return _entry(eq, code, _QUEUE.pack(_SHARED_RECEIVE, number))
        return _entry(eq, code, _AT_24.pack(number))
