# SPDX-License-Identifier: Apache-2.0
"""The port as its driver sees and sets it: addresses, MTU, state."""

from __future__ import annotations

from emu.nic.device import Nic

__all__ = ["LARGEST_MTU", "PortState"]

ETHERNET_MTU = 1500
LARGEST_MTU = 9978
"""Largest frame payload in bytes, as adapters of this kind report it."""


class PortState:
    """State of port 1. ``node_description`` is 64 bytes, ``mtu`` what the driver set for Ethernet."""

    def __init__(self, nic: Nic) -> None:
        self._nic = nic
        self.mac = nic.gids.mac
        self.mtu = ETHERNET_MTU
        self.admin_up = True
        self.roce_enabled = True
        self.promiscuous_unicast = False
        self.promiscuous_multicast = False
        self.promiscuous_all = False
        self.unicast: tuple[bytes, ...] = ()
        self.multicast: tuple[bytes, ...] = ()
        self.vlans: tuple[int, ...] = ()
        self.node_description = b"vrnic mlx5-compatible".ljust(64, b"\0")

    def listen(self, *, unicast: bool, multicast: bool, every: bool) -> None:
        """Take frames that are for others: every unicast, every multicast, or all. Those to groups get here
        anyway, and flow tables choose among them.
        """
        self.promiscuous_unicast = unicast
        self.promiscuous_multicast = multicast
        self.promiscuous_all = every
        self._nic.promiscuous = unicast or every

    @property
    def up(self) -> bool:
        """Whether the link is up."""
        return self._nic.port_up

    @property
    def guid(self) -> int:
        """The port's GUID: the EUI-64 of its MAC."""
        mac = self.mac
        return int.from_bytes(bytes((mac[0] ^ 2, *mac[1:3], 0xFF, 0xFE, *mac[3:])), "big")
