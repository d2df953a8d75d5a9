# SPDX-License-Identifier: Apache-2.0
"""Kernels of many lanes against NICs in this process: no guest, virtual time, one seed is one run."""
