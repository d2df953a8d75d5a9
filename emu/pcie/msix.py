# SPDX-License-Identifier: Apache-2.0
"""MSI-X vectors of one function: table, masks, pending bits.

Table entry, 16 bytes, and pending bit array, one bit a vector::

     127    97 96    95       64 63                         0
    +---------+----+------------+----------------------------+
    | reserved| M  | data       | message address            |      M: vector masked, 1 after reset
    +---------+----+------------+----------------------------+

Two kinds of clients exist, and the difference matters. A plain one writes the table through the BAR like a
guest would on a real bus. QEMU answers the table itself: its server never sees a message address or a vector
mask, the event descriptor of a vector stays in place while the guest masks it, and QEMU's own MSI-X model
holds the message back and sets the pending bit. What QEMU does pass on is the capability's control word
(enable and function mask) and, one by one as the guest unmasks them, the event descriptors.

So the vector masks kept here count only once the table was written through the BAR; until then the client is
taken to keep the table. Enable, function mask and bus mastering always count. A message that cannot go sets
the pending bit, and goes when the reason is over. A message for a vector that has no event descriptor yet is
the sink's to keep.

Source: PCI Express Base Specification, "MSI-X"; behaviour of QEMU from its ``hw/vfio/pci.c``.
"""

from __future__ import annotations

from collections.abc import Callable

from emu.pcie.caps.msix import MsixCapability
from emu.pcie.config import ConfigSpace
from emu.transport.model import IrqSink

__all__ = ["Msix"]

ENTRY_SIZE = 16
VECTOR_CONTROL = 12
MASKED_ENTRY = bytes(VECTOR_CONTROL) + b"\x01\x00\x00\x00"


class Msix:
    """The vectors; implements :class:`emu.pcie.bus.Interrupts`, and is the handler of its own BAR.

    ``raised`` counts messages handed to the sink, ``held`` those that became pending, ``absent`` triggers of
    vectors that do not exist. ``may_send`` says whether the function may send messages at all (bus master,
    D0).
    """

    def __init__(
        self,
        config: ConfigSpace,
        vectors: int,
        bar: int,
        bar_size: int,
        may_send: Callable[[], bool],
    ) -> None:
        """Table at the start of ``bar``, pending bits at its middle. :raises ValueError: no room."""
        self.raised = 0
        self.held = 0
        self.absent = 0
        self.vectors = vectors
        self._may_send = may_send
        self._sink: IrqSink | None = None
        self._pba = bar_size // 2
        self._capability = MsixCapability(config, vectors, bar, self._pba, self.flush)
        self._table = bytearray(MASKED_ENTRY * vectors)
        self._table_written = False
        self._pending = 0

    def connect(self, sink: IrqSink | None) -> None:
        """Send messages to ``sink`` from now on (None: nowhere)."""
        self._sink = sink

    def trigger(self, vector: int) -> None:
        """Signal ``vector`` now, or when what holds it back is over; count an absent one."""
        if not 0 <= vector < self.vectors:
            self.absent += 1
            return
        if self._open() and self._allowed(vector):
            self._send(vector)
        else:
            self._pending |= 1 << vector
            self.held += 1

    @property
    def pending(self) -> int:
        """Pending bits, bit n for vector n."""
        return self._pending

    def reset(self) -> None:
        """Every entry masked and zero, nothing pending; the control word is the configuration space's."""
        self._table[:] = MASKED_ENTRY * self.vectors
        self._table_written = False
        self._pending = 0

    def read(self, offset: int, size: int) -> bytes:
        """Table and pending bits; zero elsewhere."""
        if offset < self._pba:
            data = bytes(self._table[offset : offset + size])
        else:
            bits = self._pending.to_bytes((self.vectors + 63) // 64 * 8, "little")
            data = bits[offset - self._pba : offset - self._pba + size]
        return data + bytes(size - len(data))

    def write(self, offset: int, data: bytes) -> None:
        """Write the table. Vector control keeps only the mask bit; the rest of the BAR is read-only."""
        end = min(offset + len(data), len(self._table))
        if offset >= end:
            return
        self._table_written = True
        self._table[offset:end] = data[: end - offset]
        for control in range(offset // ENTRY_SIZE * ENTRY_SIZE + VECTOR_CONTROL, end, ENTRY_SIZE):
            self._table[control] &= 1
            self._table[control + 1 : control + 4] = b"\0\0\0"
        self.flush()

    def _open(self) -> bool:
        """Whether messages may leave the function at all."""
        capability = self._capability
        return self._sink is not None and capability.enabled and not capability.masked and self._may_send()

    def _allowed(self, vector: int) -> bool:
        return not (self._table_written and self._table[vector * ENTRY_SIZE + VECTOR_CONTROL] & 1)

    def _send(self, vector: int) -> None:
        if self._sink is not None:
            self._sink.trigger(vector)
            self.raised += 1

    def flush(self) -> None:
        """Send what is pending and may go; called when a mask, bus mastering or power changed."""
        if not self._pending or not self._open():
            return
        for vector in range(self._pending.bit_length()):
            bit = 1 << vector
            if self._pending & bit and self._allowed(vector):
                self._pending &= ~bit
                self._send(vector)
