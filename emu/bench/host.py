# SPDX-License-Identifier: Apache-2.0
"""What stands in for the core where only engines are measured or compared."""

from __future__ import annotations

from collections import deque

from emu.nic.atomics import AtomicOperation
from emu.nic.engine import AsyncEvent, ProtectionError
from emu.nic.work import Access, Completion, QpState, ReceiveRequest, Sge

__all__ = ["FIRST_QPN", "KEY", "WINDOW", "BenchHost"]

KEY = 7
"""Of all memory."""
WINDOW = 1 << 20
"""Bytes of it."""
FIRST_QPN = 0x100


class BenchHost:
    """The least a core could be: one piece of memory under one key, a queue of frames, a completion count."""

    __slots__ = ("completed", "failed", "frames", "memory", "qpn")

    def __init__(self, qpn: int, memory: bytearray, frames: deque[bytes]) -> None:
        self.qpn = qpn
        self.memory = memory
        self.frames = frames
        self.completed = 0
        self.failed = ""

    def send(self, frame: bytes) -> None:
        self.frames.append(frame)

    def owns_address(self, address: bytes) -> bool:
        return True

    def gather(self, sges: list[Sge], offset: int, length: int) -> bytes:
        start = sges[0].address + offset
        return bytes(self.memory[start : start + length])

    def scatter(self, sges: list[Sge], offset: int, data: bytes | memoryview) -> None:
        self.write_remote(KEY, sges[0].address + offset, data)

    def check_remote(self, rkey: int, address: int, length: int, access: Access) -> None:
        if rkey != KEY or address + length > WINDOW:
            raise ProtectionError(f"key {rkey:#x}")

    def write_remote(self, rkey: int, address: int, data: bytes | memoryview) -> None:
        self.memory[address : address + len(data)] = data

    def read_remote(self, rkey: int, address: int, length: int) -> bytes:
        return bytes(self.memory[address : address + length])

    def invalidate(self, rkey: int) -> None:
        raise ProtectionError(f"key {rkey:#x}")

    def atomic(self, rkey: int, address: int, operation: AtomicOperation) -> int:
        raise ProtectionError(f"key {rkey:#x}")

    def take_receive(self) -> ReceiveRequest | None:
        return None

    def complete(self, completion: Completion) -> None:
        self.completed += 1
        self.failed = self.failed or ("" if not completion.status else completion.status.name)

    def retire(self, index: int) -> None:
        pass

    def moved(self, state: QpState, reason: str) -> None:
        self.failed = reason

    def raise_event(self, event: AsyncEvent, reason: str) -> None:
        self.failed = reason

    def note_retransmit(self, psn: int, packets: int, octets: int, reason: str) -> None:
        self.failed = reason

    def note_drop(self, counter: str, reason: str) -> None:
        self.failed = reason

    def note_timer(self, name: str) -> None:
        self.failed = name

    def count(self, counter: str) -> None:
        pass
