# SPDX-License-Identifier: Apache-2.0
"""What is the same in every frame of a connected queue pair: Ethernet, IP and UDP addressing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ETHERNET_SIZE", "ETHERTYPE_IPV4", "ETHERTYPE_IPV6", "ETHERTYPE_VLAN", "FramePath"]

ETHERNET_SIZE = 14
ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_IPV6 = 0x86DD
ETHERTYPE_VLAN = 0x8100


@dataclass(frozen=True, slots=True)
class FramePath:
    """Addressing of one direction. All addresses are bytes in network order; 4-byte IPs mean IPv4, 16-byte
    ones IPv6.

    ``traffic_class`` is the whole ToS or traffic-class byte (DSCP and ECN). ``identification`` is the IPv4
    ID: frames carry DF, so one constant does for all of them. ``flow_label`` is IPv6 only.

    :raises ValueError: an address has the wrong length, or the two IPs are of different versions.
    """

    source_mac: bytes
    dest_mac: bytes
    source_ip: bytes
    dest_ip: bytes
    source_port: int
    traffic_class: int = 0
    hop_limit: int = 64
    identification: int = 0
    flow_label: int = 0

    def __post_init__(self) -> None:
        if len(self.source_mac) != 6 or len(self.dest_mac) != 6:
            raise ValueError("a MAC address has 6 bytes")
        if len(self.source_ip) not in (4, 16) or len(self.source_ip) != len(self.dest_ip):
            raise ValueError("source and destination IP must both have 4 bytes or both 16")

    @property
    def version(self) -> int:
        """IP version, 4 or 6."""
        return 4 if len(self.source_ip) == 4 else 6
