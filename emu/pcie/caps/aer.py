# SPDX-License-Identifier: Apache-2.0
"""Advanced Error Reporting extended capability.

::

     31        20 19   16 15                              0
    +------------+-------+---------------------------------+
    | next       | ver 2 | id 0x0001                       | +0x00
    | uncorrectable status    20: unsupported request      | +0x04   RW1C, sticky
    | uncorrectable mask                                   | +0x08   RW, sticky
    | uncorrectable severity                               | +0x0c   RW, sticky
    | correctable status      13: advisory non-fatal       | +0x10   RW1C, sticky
    | correctable mask                                     | +0x14   RW, sticky
    | capabilities and control    4:0 first error pointer  | +0x18   sticky
    | header log, 4 words                                  | +0x1c   sticky
    +------------------------------------------------------+

Source: PCI Express Base Specification, "Advanced Error Reporting Extended Capability"; PCI_ERR_* in
linux/pci_regs.h.
"""

from __future__ import annotations

import enum

from emu.pcie.config import ConfigSpace

__all__ = ["AdvancedErrors", "Correctable", "Uncorrectable"]

CAPABILITY = 0x0001
VERSION = 2
SIZE = 0x2C
UNCORRECTABLE_STATUS = 0x04
UNCORRECTABLE_MASK = 0x08
UNCORRECTABLE_SEVERITY = 0x0C
CORRECTABLE_STATUS = 0x10
CORRECTABLE_MASK = 0x14
CONTROL = 0x18
FIRST_ERROR_MASK = 0x1F


class Uncorrectable(enum.IntFlag):
    """Uncorrectable error bits."""

    DATA_LINK = 1 << 4
    POISONED = 1 << 12
    FLOW_CONTROL = 1 << 13
    COMPLETION_TIMEOUT = 1 << 14
    COMPLETER_ABORT = 1 << 15
    UNEXPECTED_COMPLETION = 1 << 16
    RECEIVER_OVERFLOW = 1 << 17
    MALFORMED = 1 << 18
    ECRC = 1 << 19
    UNSUPPORTED_REQUEST = 1 << 20
    INTERNAL = 1 << 22


class Correctable(enum.IntFlag):
    """Correctable error bits."""

    RECEIVER = 1 << 0
    BAD_TLP = 1 << 6
    BAD_DLLP = 1 << 7
    REPLAY_ROLLOVER = 1 << 8
    REPLAY_TIMEOUT = 1 << 12
    ADVISORY_NON_FATAL = 1 << 13
    INTERNAL = 1 << 14


FATAL_BY_DEFAULT = (
    Uncorrectable.DATA_LINK
    | Uncorrectable.FLOW_CONTROL
    | Uncorrectable.RECEIVER_OVERFLOW
    | Uncorrectable.MALFORMED
    | Uncorrectable.INTERNAL
)
MASKED_BY_DEFAULT = Correctable.ADVISORY_NON_FATAL | Correctable.INTERNAL


class AdvancedErrors:
    """The capability."""

    def __init__(self, config: ConfigSpace) -> None:
        self._config = config
        self.offset = offset = config.add_extended_capability(CAPABILITY, VERSION, SIZE)
        uncorrectable, correctable = sum(Uncorrectable), sum(Correctable)
        config.define(offset + UNCORRECTABLE_STATUS, 4, 0, clearable=uncorrectable, sticky=uncorrectable)
        config.define(offset + UNCORRECTABLE_MASK, 4, 0, writable=uncorrectable, sticky=uncorrectable)
        config.define(
            offset + UNCORRECTABLE_SEVERITY,
            4,
            FATAL_BY_DEFAULT,
            writable=uncorrectable,
            sticky=uncorrectable,
        )
        config.define(offset + CORRECTABLE_STATUS, 4, 0, clearable=correctable, sticky=correctable)
        config.define(
            offset + CORRECTABLE_MASK, 4, MASKED_BY_DEFAULT, writable=correctable, sticky=correctable
        )
        config.define(offset + CONTROL, 4, 0, sticky=FIRST_ERROR_MASK)

    def record(self, error: Uncorrectable) -> None:
        """Set an uncorrectable error's status bit; the first unmasked one also goes to First Error Pointer.

        No message goes to the root port: a vfio-user client offers no way to send one, so software finds
        errors by reading.
        """
        at = self.offset + UNCORRECTABLE_STATUS
        before = self._config.get(at, 4)
        mask = self._config.get(self.offset + UNCORRECTABLE_MASK, 4)
        if not before and not error & mask:
            self._config.put(self.offset + CONTROL, 4, error.bit_length() - 1)
        self._config.put(at, 4, before | error)
