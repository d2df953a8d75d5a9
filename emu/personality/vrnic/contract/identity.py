# SPDX-License-Identifier: Apache-2.0
"""PCI identity and BAR layout of the `vrnic` NIC and the vGPU.

The ids are the project's own choice for emulation only; the PCI-SIG did not assign them to us.
"""

VENDOR_ID = 0x7672
NIC_DEVICE_ID = 0x6E01
GPU_DEVICE_ID = 0x6E02
SUBSYSTEM_ID = 0x0001

NIC_CLASS = 0x020000
"""Ethernet controller."""
GPU_CLASS = 0x030200
"""3D controller."""

NIC_REGISTER_BAR = 0
NIC_REGISTER_SIZE = 64 * 1024
NIC_DOORBELL_BAR = 2
NIC_MSIX_BAR = 4
NIC_MSIX_SIZE = 8 * 1024
NIC_VECTORS = 32
"""MSI-X vectors: 0 admin completions, 1.. event queues."""

DOORBELL_PAGE_SIZE = 4096
DOORBELL_PAGES = 256
"""Doorbell BAR is DOORBELL_PAGES * DOORBELL_PAGE_SIZE; page 0 is never handed out."""

DOORBELL_BLOCK_BASE = 0x400
DOORBELL_BLOCK_SIZE = 64
"""From DOORBELL_BLOCK_BASE on a doorbell page holds blocks, each of one queue pair, with the same registers
as the start of the page."""

GPU_REGISTER_BAR = 0
GPU_REGISTER_SIZE = 4096
GPU_VRAM_BAR = 2
GPU_VRAM_DEFAULT = 64 * 1024 * 1024
