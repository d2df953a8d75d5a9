# SPDX-License-Identifier: Apache-2.0
"""Device Serial Number extended capability.

::

     31        20 19   16 15                              0
    +------------+-------+---------------------------------+
    | next       | ver 1 | id 0x0003                       | +0
    | serial number, low word (an EUI-64)                  | +4
    | serial number, high word                             | +8
    +------------------------------------------------------+

Source: PCI Express Base Specification, "Device Serial Number Extended Capability".
"""

from __future__ import annotations

from emu.pcie.config import ConfigSpace

__all__ = ["SerialNumber", "eui64"]

CAPABILITY = 0x0003
VERSION = 1
SIZE = 12


def eui64(mac: bytes) -> int:
    """EUI-64 of a 48-bit MAC address (``ff:fe`` in the middle), first octet in the top bits."""
    return int.from_bytes(mac[:3] + b"\xff\xfe" + mac[3:], "big")


class SerialNumber:
    """The capability, holding a 64-bit serial number."""

    def __init__(self, config: ConfigSpace, serial: int) -> None:
        self.offset = config.add_extended_capability(CAPABILITY, VERSION, SIZE)
        config.define(self.offset + 4, 8, serial)
