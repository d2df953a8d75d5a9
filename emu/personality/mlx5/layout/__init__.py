# SPDX-License-Identifier: Apache-2.0
"""Structures of the mlx5 command interface as data. Names and places are those of the kernel's
``mlx5_ifc.h``."""
