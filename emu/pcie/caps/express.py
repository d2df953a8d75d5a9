# SPDX-License-Identifier: Apache-2.0
"""PCI Express capability, version 2, of an endpoint.

::

     31                    16 15            8 7             0
    +------------------------+---------------+---------------+
    | capabilities           | next          | id 0x10       | +0x00
    | device capabilities      28: FLR capable               | +0x04
    | device status          | device control  15: do FLR    | +0x08
    | link capabilities        9:4 width, 3:0 speed          | +0x0c
    | link status  9:4, 3:0  | link control                  | +0x10
    | slot and root registers: not for an endpoint, read 0   | +0x14 .. +0x20
    | device capabilities 2                                  | +0x24
    | device status 2        | device control 2              | +0x28
    | link capabilities 2      7:1 supported speeds          | +0x2c
    | link status 2          | link control 2  3:0 target    | +0x30
    | slot registers 2                                       | +0x34 .. +0x38
    +------------------------+-------------------------------+

Source: PCI Express Base Specification, "PCI Express Capability Structure" and "Function Level Reset" (which
bits an FLR leaves alone); PCI_EXP_* in linux/pci_regs.h.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from emu.pcie.config import ConfigSpace

__all__ = ["DeviceStatus", "Express", "LinkSpeed"]

CAPABILITY = 0x10
SIZE = 0x3C
VERSION_2 = 2
ENDPOINT = 0 << 4

DEVICE_CAPABILITIES = 0x04
DEVICE_CONTROL = 0x08
DEVICE_STATUS = 0x0A
LINK_CAPABILITIES = 0x0C
LINK_CONTROL = 0x10
LINK_STATUS = 0x12
DEVICE_CAPABILITIES_2 = 0x24
DEVICE_CONTROL_2 = 0x28
LINK_CAPABILITIES_2 = 0x2C
LINK_CONTROL_2 = 0x30

MAX_PAYLOAD_512 = 2
EXTENDED_TAG = 1 << 5
ROLE_BASED_ERRORS = 1 << 15
FLR_CAPABLE = 1 << 28
INITIATE_FLR = 1 << 15
MAX_PAYLOAD_MASK = 0x7 << 5
CONTROL_DEFAULT = 0x2810
"""Relaxed ordering and no-snoop enabled, 512-byte read requests: the specification's defaults."""
CONTROL_WRITABLE = 0x7FFF & ~(1 << 9 | 1 << 10)
"""All but Initiate FLR (reads 0), Phantom Functions and Aux Power (not implemented)."""
LINK_CONTROL_WRITABLE = 0x03 | 1 << 3 | 1 << 6 | 1 << 7
"""ASPM control, read completion boundary, common clock, extended synch."""
TIMEOUT_DISABLE = 1 << 4


class LinkSpeed(enum.IntEnum):
    """Speed codes of the link registers."""

    GT2_5 = 1
    GT5 = 2
    GT8 = 3
    GT16 = 4
    GT32 = 5
    GT64 = 6


class DeviceStatus(enum.IntFlag):
    """RW1C bits of the device status register."""

    CORRECTABLE = 1 << 0
    NON_FATAL = 1 << 1
    FATAL = 1 << 2
    UNSUPPORTED_REQUEST = 1 << 3


class Express:
    """The capability. ``initiate_flr`` is called when the guest sets Initiate Function Level Reset."""

    def __init__(
        self,
        config: ConfigSpace,
        *,
        speed: LinkSpeed,
        width: int,
        initiate_flr: Callable[[], None],
    ) -> None:
        """A link trained at ``speed`` and ``width`` lanes. :raises ValueError: not 1, 2, 4, 8 or 16 lanes."""
        if width not in (1, 2, 4, 8, 16):
            raise ValueError(f"no PCIe link has {width} lanes")
        self._config = config
        self._initiate_flr = initiate_flr
        self.offset = offset = config.add_capability(CAPABILITY, SIZE)
        link = width << 4 | speed
        config.define(offset + 2, 2, VERSION_2 | ENDPOINT)
        config.define(
            offset + DEVICE_CAPABILITIES, 4, MAX_PAYLOAD_512 | EXTENDED_TAG | ROLE_BASED_ERRORS | FLR_CAPABLE
        )
        # Initiate FLR is stored so that the watcher sees it, and cleared before anyone can read it.
        config.define(
            offset + DEVICE_CONTROL,
            2,
            CONTROL_DEFAULT,
            writable=CONTROL_WRITABLE | INITIATE_FLR,
            kept=MAX_PAYLOAD_MASK,
        )
        config.define(offset + DEVICE_STATUS, 2, 0, clearable=sum(DeviceStatus))
        config.define(offset + LINK_CAPABILITIES, 4, link)
        config.define(offset + LINK_CONTROL, 2, 0, writable=LINK_CONTROL_WRITABLE, kept=LINK_CONTROL_WRITABLE)
        config.define(offset + LINK_STATUS, 2, link)
        config.define(offset + DEVICE_CAPABILITIES_2, 4, TIMEOUT_DISABLE)
        config.define(offset + DEVICE_CONTROL_2, 2, 0, writable=TIMEOUT_DISABLE)
        config.define(offset + LINK_CAPABILITIES_2, 4, ((1 << speed) - 1) << 1)
        config.define(offset + LINK_CONTROL_2, 2, speed, writable=0xF, sticky=0xF)
        config.watch(offset + DEVICE_CONTROL, 2, self._control_written)

    def note(self, bits: DeviceStatus) -> None:
        """Set device status bits."""
        at = self.offset + DEVICE_STATUS
        self._config.put(at, 2, self._config.get(at, 2) | bits)

    def _control_written(self) -> None:
        at = self.offset + DEVICE_CONTROL
        control = self._config.get(at, 2)
        if control & INITIATE_FLR:
            self._config.put(at, 2, control & ~INITIATE_FLR)
            self._initiate_flr()
