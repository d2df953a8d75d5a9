# SPDX-License-Identifier: Apache-2.0
"""A vfio-user client that lives beside the server's loop, so that devices are tested without QEMU."""

from tests.vfio_user.client import Client, ClientError, Disconnected, Ram, RegionInfo

__all__ = ["Client", "ClientError", "Disconnected", "Ram", "RegionInfo"]
