# SPDX-License-Identifier: Apache-2.0
"""An mlx5-compatible virtual function: unmodified kernels, rdma-core and tools drive it.

An emulation written from what open-source drivers expect. It is not the vendor's device and does not claim
to be: a capability is announced only when it works here.
"""
