# SPDX-License-Identifier: Apache-2.0
"""Descriptors, completions, events and doorbell records of the mlx5 interface, for the core."""

from __future__ import annotations

from emu.nic.formats import Formats
from emu.nic.limits import NicLimits
from emu.personality.mlx5.addresses import AddressTable
from emu.personality.mlx5.formats.cqe import CompletionFormat
from emu.personality.mlx5.formats.eqe import EventFormat
from emu.personality.mlx5.formats.record import Record
from emu.personality.mlx5.formats.rwqe import ReceiveFormat
from emu.personality.mlx5.formats.wqe import SendFormat
from emu.personality.mlx5.mkey import MkeyTable

__all__ = ["mlx5_formats"]


def mlx5_formats(limits: NicLimits, addresses: AddressTable, mkeys: MkeyTable) -> Formats:
    """The formats of a NIC with ``limits``; datagrams name their source by its place in ``addresses``, and
    descriptors that change keys change those of ``mkeys``.
    """
    return Formats(
        SendFormat(limits, addresses, mkeys), ReceiveFormat(), CompletionFormat(), EventFormat(), Record()
    )
