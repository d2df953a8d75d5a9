# SPDX-License-Identifier: Apache-2.0
"""Wire choices of UET on which public sources disagree or say nothing, in one place with one default each.

Layers, codec and engine take them from a :class:`Profile`; to change a mind is to change a line here. Both
ends of a link must use equal profiles. Disputed *layouts* are lines of the header tables in
:mod:`emu.wire.uet_pds`, :mod:`emu.wire.uet_ses` and :mod:`emu.wire.uet_tss`, named at the top of each.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

from emu.wire.uet_names import ReturnCode

__all__ = ["DEFAULT", "Profile", "Trailer"]


class Trailer(enum.IntEnum):
    """What protects a packet that TSS does not: nothing, or a CRC-32C behind the payload (UET_Data_Protect).
    No bit in the packet tells.
    """

    NONE = 0
    CRC = 1


@dataclass(frozen=True, slots=True)
class Profile:
    """The choices.

    ``over_udp``
        Encapsulate in UDP (UET_Over_UDP); else an entropy header follows IP at once.
    ``native_protocol``
        IP protocol of UET without UDP. None is assigned; 253 is for experiments and what the reference
        provider uses.
    ``trailer``, ``crc_order``, ``crc_covers_addresses``
        The CRC is off by default. When on, it goes out least significant byte first and covers everything
        from the IP source address on; else only what follows the IP header.
        The UDP checksum counts as 0 in it.
    ``udp_checksum_ipv6``
        Compute the UDP checksum over IPv6 too. Off, both ends agree on 0, which a switch that trims keeps
        right; IPv4 always sends 0.
    ``dscp_data``, ``dscp_no_trim``, ``dscp_trimmed``, ``dscp_trimmed_last_hop``, ``dscp_control``
        DSCP values of the traffic classes; the specification names the classes only. ACKs, NACKs and control
        packets are control; secured data is the second.
    ``default_return_code``
        Return code of a response that the delivery layer makes by itself: NULL or, in one source, OK.
    ``deferred_return_code``
        Return code by which a target calls a deferrable send off until it asks for it; one of the vendor's.
    ``credit_quantum``
        Bytes in one unit of receiver credit and of credit targets.
    ``mpr``, ``mpr_zero_means``
        MP_RANGE to announce, in units of 128 PSNs, and what an announced 0 is taken for.
    ``trim_size``
        IP payload bytes that a switch keeps of a trimmed packet: a UDP header and 16 bytes of UET.
    ``tss_crypt_offset``
        Bytes behind the security header that stay readable, though authenticated.
    """

    over_udp: bool = True
    native_protocol: int = 253
    trailer: Trailer = Trailer.NONE
    crc_order: Literal["little", "big"] = "little"
    crc_covers_addresses: bool = True
    udp_checksum_ipv6: bool = False
    dscp_data: int = 0
    dscp_no_trim: int = 8
    dscp_trimmed: int = 16
    dscp_trimmed_last_hop: int = 18
    dscp_control: int = 46
    default_return_code: ReturnCode = ReturnCode.NULL
    deferred_return_code: int = 0x30
    credit_quantum: int = 256
    mpr: int = 8
    mpr_zero_means: int = 1
    trim_size: int = 24
    tss_crypt_offset: int = 0


DEFAULT = Profile()
"""The choices in force where nobody says otherwise."""
