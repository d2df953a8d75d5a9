# SPDX-License-Identifier: Apache-2.0
"""What every RDMA NIC has, whatever its registers and descriptors look like.

:class:`emu.nic.device.Nic` holds the objects of one function and carries out work: a personality turns
    register writes
and descriptors into its calls, a transport engine (:mod:`emu.nic.engine`) turns work into packets.
"""
