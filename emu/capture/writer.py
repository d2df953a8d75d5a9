# SPDX-License-Identifier: Apache-2.0
"""Appends pcapng blocks to a file so that whatever ends the process, the file stays readable.

Blocks collect in memory and go out in one write on an append-only descriptor. A process that is killed
between writes leaves whole blocks, and one killed inside a write at most one cut block at the end, which
readers put up with.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat

from emu.capture.pcapng import Direction, LinkType, encode_interface, encode_packet, encode_section

__all__ = ["FLUSH_OCTETS", "PcapngWriter"]

FLUSH_OCTETS = 256 * 1024
"""Bytes collected before they are written without waiting for :meth:`PcapngWriter.flush`."""


class PcapngWriter:
    """Writes one section to ``path``, replacing what was there.

    After a failed write :attr:`failure` says why, the file is cut back to whole blocks, and all later packets
    are only counted in :attr:`lost`.

    :raises OSError: the file cannot be created, is written by another process, or is a pipe or socket (whose
        reader could block the writer).
    """

    def __init__(self, path: str | os.PathLike[str], *, application: str, comment: str = "") -> None:
        self.path = os.fspath(path)
        self.failure: OSError | None = None
        self.written = 0
        self.octets = 0
        self.lost = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        self._fd = os.open(self.path, flags, 0o644)
        try:
            self._regular = self._claim()
        except BaseException:
            os.close(self._fd)
            raise
        self._interfaces = 0
        self._pending: list[bytes] = [encode_section(application, comment)]
        self._pending_octets = len(self._pending[0])
        self._pending_packets = 0

    def _claim(self) -> bool:
        """Empty the file, unless another writer has it. Whether it is a regular file.

        :raises OSError: it is another's, or no file.
        """
        mode = os.fstat(self._fd).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            raise OSError(errno.EINVAL, "a capture needs a file, not a pipe or socket", self.path)
        if not stat.S_ISREG(mode):
            return False
        try:
            # Gone with the descriptor, however the process ends.
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(errno.EBUSY, "another lab is writing this capture", self.path) from None
        os.ftruncate(self._fd, 0)
        return True

    def __enter__(self) -> PcapngWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pending(self) -> bool:
        """True while something waits for :meth:`flush`."""
        return bool(self._pending)

    def add_interface(self, link_type: LinkType, name: str, description: str = "") -> int:
        """Describe one more interface; the number packets name it by."""
        self.add_block(encode_interface(link_type, name, description))
        self._interfaces += 1
        return self._interfaces - 1

    def add_packet(
        self,
        interface: int,
        time: int,
        data: bytes,
        direction: Direction = Direction.UNKNOWN,
        queue: int | None = None,
        comment: str = "",
    ) -> None:
        """Append a packet seen at ``time`` (nanoseconds since 1970)."""
        if self.failure is not None:
            self.lost += 1
            return
        head, body, tail = encode_packet(interface, time, data, direction, queue, comment)
        self._pending += (head, body, tail)
        self._pending_packets += 1
        self._pending_octets += len(head) + len(body) + len(tail)
        if self._pending_octets >= FLUSH_OCTETS:
            self.flush()

    def add_block(self, block: bytes) -> None:
        """Append a finished block that is not a packet."""
        if self.failure is None:
            self._pending.append(block)
            self._pending_octets += len(block)

    def flush(self) -> None:
        """Write what has collected. Never raises: see :attr:`failure`."""
        if not self._pending or self.failure is not None:
            return
        data = b"".join(self._pending)
        packets = self._pending_packets
        self._pending.clear()
        self._pending_octets = self._pending_packets = 0
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, memoryview(data)[done:])
        except OSError as error:
            self.failure = error
            whole, saved = _whole_blocks(data, done)
            self.written += saved
            self.lost += packets - saved
            if self._regular:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, self.octets + whole)
            self.octets += whole
            return
        self.written += packets
        self.octets += len(data)

    def close(self) -> None:
        """Write the rest and close the file. Safe to repeat."""
        if self._fd < 0:
            return
        self.flush()
        os.close(self._fd)
        self._fd = -1
        self.failure = self.failure or OSError("the capture is closed")


def _whole_blocks(data: bytes, end: int) -> tuple[int, int]:
    """How many bytes before ``end`` are whole blocks, and how many of those blocks are packets."""
    offset = packets = 0
    while offset < end:
        kind = int.from_bytes(data[offset : offset + 4], "little")
        length = int.from_bytes(data[offset + 4 : offset + 8], "little")
        if offset + length > end:
            break
        packets += kind == 6
        offset += length
    return offset, packets
