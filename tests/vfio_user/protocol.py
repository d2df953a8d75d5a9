# SPDX-License-Identifier: Apache-2.0
"""The vfio-user wire format, from the protocol's specification (docs/interop/vfio-user in QEMU's tree).

Little endian. Every message starts with a 16-byte header::

    0        2        4                 8                 12                16
    +--------+--------+-----------------+-----------------+-----------------+
    | id     | command| size with header| flags           | errno of a reply|
    +--------+--------+-----------------+-----------------+-----------------+

flags: bits 3:0 type (0 command, 1 reply), bit 4 no reply wanted, bit 5 the reply is an error.
"""

from __future__ import annotations

import enum
import struct

__all__ = ["Command", "Flags", "Irq", "IrqAction"]


class Command(enum.IntEnum):
    """Commands a client may send."""

    VERSION = 1
    DMA_MAP = 2
    DMA_UNMAP = 3
    DEVICE_GET_INFO = 4
    DEVICE_GET_REGION_INFO = 5
    DEVICE_GET_REGION_IO_FDS = 6
    DEVICE_GET_IRQ_INFO = 7
    DEVICE_SET_IRQS = 8
    REGION_READ = 9
    REGION_WRITE = 10
    DMA_READ = 11
    DMA_WRITE = 12
    DEVICE_RESET = 13
    REGION_WRITE_MULTI = 15


class Flags(enum.IntFlag):
    """Flags of the header."""

    REPLY = 0x1
    NO_REPLY = 0x10
    ERROR = 0x20


class Irq(enum.IntEnum):
    """Interrupt types by VFIO index."""

    INTX = 0
    MSI = 1
    MSIX = 2
    ERR = 3
    REQ = 4


class IrqAction(enum.IntFlag):
    """Flags of DEVICE_SET_IRQS: how data comes, and what to do."""

    DATA_NONE = 0x01
    DATA_BOOL = 0x02
    DATA_EVENTFD = 0x04
    MASK = 0x08
    UNMASK = 0x10
    TRIGGER = 0x20


HEADER = struct.Struct("<HHIII")
VERSION = struct.Struct("<HH")
DEVICE_INFO = struct.Struct("<IIII")
REGION_INFO = struct.Struct("<IIIIQQ")
REGION_ACCESS = struct.Struct("<QII")
WRITE_MULTI = struct.Struct("<QII8s")
IRQ_INFO = struct.Struct("<IIII")
IRQ_SET = struct.Struct("<IIIII")
DMA_MAP = struct.Struct("<IIQQQ")
DMA_UNMAP = struct.Struct("<IIQQ")

REGION_FLAG_MMAP = 0x4
DMA_READ_WRITE = 0x3
DMA_READ_ONLY = 0x1
