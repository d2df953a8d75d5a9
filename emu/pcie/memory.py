# SPDX-License-Identifier: Apache-2.0
"""Memory of a function behind a mappable BAR: pages that the guest and this process share."""

from __future__ import annotations

import mmap
import os

__all__ = ["SharedMemory"]

PAGE = 4096


class SharedMemory:
    """A memfd of ``size`` bytes and a view of it; implements :class:`emu.pcie.bar.BarMemory`. Reads zero at
    first.
    """

    def __init__(self, name: str, size: int) -> None:
        """:raises ValueError: ``size`` is not a power of two of at least 4096 bytes.

        :raises OSError: the system has no memory for it.
        """
        if size < PAGE or size & (size - 1):
            raise ValueError(f"{name}: {size} bytes of memory are not a power of two of at least {PAGE}")
        self._size = size
        self._fd = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            os.ftruncate(self._fd, size)
            self._map = mmap.mmap(self._fd, size)
        except BaseException:
            os.close(self._fd)
            raise
        self._view = memoryview(self._map)

    @property
    def fd(self) -> int:
        """Descriptor for clients to map."""
        return self._fd

    @property
    def size(self) -> int:
        """Bytes."""
        return self._size

    @property
    def view(self) -> memoryview:
        """All of it, writable."""
        return self._view

    def clear(self) -> None:
        """Zero it, giving the pages back to the system. Maps of it stay valid, the guest's included."""
        self._map.madvise(mmap.MADV_REMOVE)

    def close(self) -> None:
        """Drop the descriptor; the pages live on as long as a view of them does."""
        os.close(self._fd)
