# SPDX-License-Identifier: Apache-2.0
"""The security (TSS) header, as a table. It comes before the packet delivery header; a 16-byte ICV ends the
packet.
"""

from __future__ import annotations

from emu.wire.uet_format import Field, Group, HeaderFormat, when
from emu.wire.uet_names import PdsType

__all__ = ["ICV_SIZE", "SECURITY"]

_TSC = Group("uet.tss.tsc", "TSC", 64)
ICV_SIZE = 16
"""Bytes of the AES-GCM tag that takes the place of the CRC."""

SECURITY = HeaderFormat(
    "Security",
    "TSS",
    "uet.tss",
    (
        Field("type", 5, "uet.tss.type", "Type", {PdsType.TSS.value: PdsType.TSS.name}),
        Field("sp", 1, "uet.tss.sp", "SSI present (SP)"),
        Field("rsvd", 1, "uet.tss.reserved", "Reserved", hexadecimal=True),
        Field("an", 1, "uet.tss.an", "Association number (AN)"),
        Field("sdi", 24, "uet.tss.sdi", "Secure domain identifier (SDI)"),
        Field("ssi", 32, "uet.tss.ssi", "Secure source identifier (SSI)", conditions=(when("sp", 1),)),
        Field("tsc_epoch", 16, "uet.tss.tsc.epoch", "TSC epoch", group=_TSC),
        Field("tsc_counter", 48, "uet.tss.tsc.counter", "TSC counter", hexadecimal=True, group=_TSC),
    ),
)
"""12 bytes, 16 with an SSI. The layout is the reference provider's; Wireshark's development branch reads an
older one.
"""
