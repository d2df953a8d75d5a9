# SPDX-License-Identifier: Apache-2.0
"""vrnic: a virtual RDMA NIC for QEMU."""

__version__ = "0.1.0"
