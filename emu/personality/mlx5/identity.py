# SPDX-License-Identifier: Apache-2.0
"""Who the function says it is, and how its BARs are laid out."""

from __future__ import annotations

from emu.nic.limits import NicLimits
from emu.pcie.header import Identity

__all__ = [
    "BAR_SIZE",
    "COMMAND_INTERFACE",
    "FIRMWARE",
    "FIRST_UAR",
    "IDENTITY",
    "LIMITS",
    "LOG_BF_SIZE",
    "LOG_RQT_ENTRIES",
    "MSIX_BAR",
    "MSIX_SIZE",
    "REGISTER_BAR",
    "UAR_COUNT",
    "UAR_SIZE",
]

IDENTITY = Identity(
    vendor=0x15B3, device=0x101E, class_code=0x020000, subsystem_vendor=0x15B3, subsystem=0x0001
)
"""The id of virtual functions: a driver that sees it leaves out what only a physical function has (SR-IOV,
e-switch, health control, firmware reset). What answers is an emulation, described to people as an
"mlx5-compatible virtual function"."""

REGISTER_BAR = 0
BAR_SIZE = 32 << 20
MSIX_BAR = 4
VECTORS = 32
MSIX_SIZE = 8192

UAR_SIZE = 4096
FIRST_UAR = 16
"""User access regions are 4 KiB pages of BAR0 by index; those below hold the initialization segment."""
UAR_COUNT = BAR_SIZE // UAR_SIZE
LOG_BF_SIZE = 9
"""Two doorbell registers of 512 bytes from offset 0x800 of a region, for fast paths two more."""

FIRMWARE = (22, 16, 0x0400)
"""Major, minor and sub-minor version in the initialization segment; drivers only print it."""
LOG_RQT_ENTRIES = 8
"""Queues in a receive queue table. Linux 6.1 fills tables of 256 whatever it is told."""
COMMAND_INTERFACE = 5
"""The only revision of the command interface that drivers accept."""

LIMITS = NicLimits(
    contexts=1,
    pds=1 << 16,
    mrs=1 << 20,
    eqs=64,
    cqs=1 << 16,
    qps=1 << 17,
    vectors=VECTORS,
    first_vector=0,
    # Key 0x100 ends a scatter list, so no region may have it.
    first_mr=0x100,
    min_log_send=0,
    max_log_ring=22,
    max_message=1 << 30,
    max_inline=1024,
)
