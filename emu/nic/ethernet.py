# SPDX-License-Identifier: Apache-2.0
"""Ethernet queues: frames out of memory onto the port, and frames from the port into memory.

Both have a ring, a doorbell record with their producer counter, and a CQ. Which receive queue a frame goes
to is the personality's to say.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from emu.events import Kind
from emu.nic.context import ProtectionDomain
from emu.nic.cq import CompletionQueue
from emu.nic.engine import ProtectionError
from emu.nic.formats import WqeFault
from emu.nic.frame import NO_HASH, FlowHash, FrameInfo, inspect, segment, with_checksums
from emu.nic.mr import MemoryKeys
from emu.nic.platform import Platform
from emu.nic.record import DbrPolicy, DoorbellRecord
from emu.nic.ring import Ring, RingMemory
from emu.nic.serial import MASK, ahead
from emu.nic.work import Access, Cause, Completion, CompletionOpcode, Sge, Status
from emu.pcie.bus import BusError

__all__ = [
    "EthernetCounters",
    "EthernetReceiveQueue",
    "EthernetSendQueue",
    "FrameFormat",
    "FrameRequest",
    "QueueConfig",
    "QueueState",
    "ScatterFormat",
]

BURST = 64
"""Slots read at once."""
LARGEST_FRAME = 9978 + 22
"""Longest frame on the link without FCS: the largest MTU, Ethernet header, two VLAN tags."""

_FETCH = Kind.WQE_FETCH.bit
_FRAME_OUT = Kind.FRAME_OUT.bit
_FRAME_DROP = Kind.FRAME_DROP.bit


class QueueState(enum.IntEnum):
    """State of an Ethernet queue; numbers are the mlx5 interface's."""

    RESET = 0
    READY = 1
    ERROR = 3


@dataclass(slots=True)
class EthernetCounters:
    """Frames and bytes of all Ethernet queues of a NIC, those to groups and to everybody among them once
    more; ``no_buffer`` counts frames dropped for want of one."""

    tx_packets: int = 0
    tx_bytes: int = 0
    rx_packets: int = 0
    rx_bytes: int = 0
    no_buffer: int = 0
    tx_multicast_packets: int = 0
    tx_multicast_bytes: int = 0
    tx_broadcast_packets: int = 0
    tx_broadcast_bytes: int = 0
    rx_multicast_packets: int = 0
    rx_multicast_bytes: int = 0
    rx_broadcast_packets: int = 0
    rx_broadcast_bytes: int = 0

    def count_sent(self, frame: bytes) -> None:
        """A frame left."""
        size = len(frame)
        self.tx_packets += 1
        self.tx_bytes += size
        if frame[0] & 1:
            if frame[:6] == _BROADCAST:
                self.tx_broadcast_packets += 1
                self.tx_broadcast_bytes += size
            else:
                self.tx_multicast_packets += 1
                self.tx_multicast_bytes += size

    def count_received(self, frame: bytes) -> None:
        """A frame was put into a buffer."""
        size = len(frame)
        self.rx_packets += 1
        self.rx_bytes += size
        if frame[0] & 1:
            if frame[:6] == _BROADCAST:
                self.rx_broadcast_packets += 1
                self.rx_broadcast_bytes += size
            else:
                self.rx_multicast_packets += 1
                self.rx_multicast_bytes += size

    def sent(self) -> dict[str, tuple[int, int]]:
        """Packets and bytes sent, by kind of destination."""
        group = (self.tx_multicast_packets, self.tx_multicast_bytes)
        everybody = (self.tx_broadcast_packets, self.tx_broadcast_bytes)
        return _by_kind((self.tx_packets, self.tx_bytes), group, everybody)

    def received(self) -> dict[str, tuple[int, int]]:
        """Packets and bytes received, by kind of destination."""
        group = (self.rx_multicast_packets, self.rx_multicast_bytes)
        everybody = (self.rx_broadcast_packets, self.rx_broadcast_bytes)
        return _by_kind((self.rx_packets, self.rx_bytes), group, everybody)


_BROADCAST = b"\xff" * 6


def _by_kind(
    every: tuple[int, int], group: tuple[int, int], everybody: tuple[int, int]
) -> dict[str, tuple[int, int]]:
    one = (every[0] - group[0] - everybody[0], every[1] - group[1] - everybody[1])
    return {"unicast": one, "multicast": group, "broadcast": everybody}


@dataclass(slots=True)
class FrameRequest:
    """One send element: the bytes ``header`` and then those of ``sges`` are a frame.

    ``segment_size`` above 0 asks to cut a large TCP send into frames of so many payload bytes; ``header``
    is then all its headers. ``checksum_l3`` and ``checksum_l4`` ask for checksums. ``send`` False is an
    element that only completes.
    """

    index: int
    slots: int = 1
    header: bytes = b""
    sges: list[Sge] = field(default_factory=list)
    segment_size: int = 0
    checksum_l3: bool = False
    checksum_l4: bool = False
    signaled: bool = False
    send: bool = True
    cookie: object = None


class FrameFormat(Protocol):
    """Descriptors of Ethernet send queues."""

    slot_size: int

    def decode(self, burst: bytes, first: int, count: int, number: int) -> list[FrameRequest | WqeFault]:
        """As :meth:`emu.nic.formats.WqeFormat.decode`, for queue ``number``."""


class ScatterFormat(Protocol):
    """Descriptors of Ethernet receive queues."""

    def scatter(self, slot: bytes) -> list[Sge]:
        """Where one slot wants a frame."""


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """What both kinds of queue are made of. ``slot_size`` is bytes."""

    pd: ProtectionDomain
    cq: CompletionQueue
    ring: RingMemory
    log_size: int
    slot_size: int
    record: RingMemory


class _EthernetQueue:
    """What both have in common. ``taken`` is the running index of the next element to use."""

    def __init__(
        self,
        platform: Platform,
        counters: EthernetCounters,
        keys: MemoryKeys,
        number: int,
        config: QueueConfig,
    ) -> None:
        self._platform = platform
        self._counters = counters
        self._keys = keys
        self.number = number
        self.pd = config.pd
        self.cq = config.cq
        self.state = QueueState.RESET
        self.ring = Ring(config.ring, config.slot_size, config.log_size, platform.dma)
        self.record = DoorbellRecord(
            config.record, DbrPolicy.AUTHORITATIVE, platform.formats.record, platform.dma
        )
        self.taken = self.posted = 0
        self.cq.queues.add(number)

    def set_state(self, state: QueueState) -> None:
        """Enter ``state``; RESET empties the queue."""
        self.state = state
        if state is QueueState.RESET:
            self.taken = self.posted = 0

    def close(self) -> None:
        """End it, without completions for what it still held."""
        self.state = QueueState.RESET
        self.cq.queues.discard(self.number)

    def _fail(self, reason: str, index: int, opcode: CompletionOpcode, status: Status, cause: int) -> None:
        """Enter ERROR with one error completion."""
        self.state = QueueState.ERROR
        self._platform.counters.protection_errors += 1
        if self._platform.events.mask & _FRAME_DROP:
            self._platform.trace.emit(
                Kind.FRAME_DROP, f"Ethernet queue {self.number:#x}: {reason}", qpn=self.number, index=index
            )
        self.cq.post(Completion(self.number, index & MASK, opcode, status, cause=cause))

    def _pieces(self, sge: Sge, access: Access) -> list[tuple[int, int]]:
        """Bus pieces of a data segment. :raises ProtectionError: its key does not allow it."""
        region = self._keys.check(sge.lkey, sge.address, sge.length, self.pd, access, remote=False)
        return region.translate(sge.address, sge.length)


class EthernetSendQueue(_EthernetQueue):
    """Sends frames in order, a burst per doorbell."""

    def __init__(
        self,
        platform: Platform,
        counters: EthernetCounters,
        keys: MemoryKeys,
        number: int,
        config: QueueConfig,
        form: FrameFormat,
    ) -> None:
        super().__init__(platform, counters, keys, number, config)
        self._format = form
        self._scheduled = False

    def doorbell(self) -> None:
        """The record has a new counter."""
        self._platform.counters.doorbells += 1
        if not self._scheduled:
            self._scheduled = True
            self._platform.scheduler.call_soon(self._serve)

    def _serve(self) -> None:
        self._scheduled = False
        if self.state is not QueueState.READY:
            return
        try:
            posted = self.record.send(self.posted)
        except BusError as error:
            self._fail(f"doorbell record: {error}", self.taken, CompletionOpcode.SEND, Status.LOC_PROT_ERR, 0)
            return
        if 0 < ahead(posted, self.taken) <= self.ring.size:
            self.posted = posted
        count = min((self.posted - self.taken) & MASK, BURST)
        if not count:
            return
        self._burst(self.taken, count)
        if self.state is QueueState.READY and self.taken != self.posted:
            self._scheduled = True
            self._platform.scheduler.call_soon(self._serve)

    def _burst(self, first: int, count: int) -> None:
        platform = self._platform
        try:
            data = self.ring.read(first, count)
        except BusError as error:
            self._fail(f"send ring: {error}", first, CompletionOpcode.SEND, Status.LOC_PROT_ERR, 0)
            return
        platform.counters.wqe_fetches += 1
        if platform.events.mask & _FETCH:
            platform.trace.emit(
                Kind.WQE_FETCH,
                f"Ethernet queue {self.number:#x}: fetch slots {first}..{(first + count - 1) & MASK}",
                qpn=self.number,
                index=first,
                length=len(data),
                value=count,
            )
        found = self._format.decode(data, first, count, self.number)
        if not found:
            text = f"doorbell record covers only a part of the descriptor at index {first}"
            self._fail(text, first, CompletionOpcode.SEND, Status.LOC_QP_OP_ERR, Cause.BAD_LENGTH)
            return
        for request in found:
            if isinstance(request, WqeFault):
                self._fail(request.text, request.index, request.opcode, request.status, request.cause)
                return
            if not self._send(request):
                return
            self.taken = (request.index + request.slots) & MASK
            platform.counters.wqes += 1

    def _send(self, request: FrameRequest) -> bool:
        """Carry out one element. False when the queue failed."""
        if request.send:
            try:
                frames = self._frames(request)
            except (ProtectionError, BusError) as error:
                self._fail(str(error), request.index, CompletionOpcode.SEND, Status.LOC_PROT_ERR, 0)
                return False
            except ValueError as error:
                self._fail(str(error), request.index, CompletionOpcode.SEND, Status.LOC_QP_OP_ERR, 0)
                return False
            for frame in frames:
                self._transmit(frame)
        if request.signaled:
            done = Completion(
                self.number, request.index, CompletionOpcode.SEND, Status.SUCCESS, cookie=request.cookie
            )
            if not self.cq.post(done):
                self.state = QueueState.ERROR
                return False
        return True

    def _frames(self, request: FrameRequest) -> list[bytes]:
        """:raises ProtectionError, BusError: memory; ValueError: not a frame."""
        dma = self._platform.dma
        parts = [
            dma.read(address, size)
            for sge in request.sges
            for address, size in self._pieces(sge, Access.NONE)
        ]
        if request.segment_size:
            cut = segment(request.header, b"".join(parts), request.segment_size)
            return [with_checksums(frame, l3=True, l4=True) for frame in cut]
        frame = b"".join((request.header, *parts))
        if not 14 <= len(frame) <= LARGEST_FRAME:
            raise ValueError(f"a frame of {len(frame)} bytes")
        return [with_checksums(frame, l3=request.checksum_l3, l4=request.checksum_l4)]

    def _transmit(self, frame: bytes) -> None:
        platform = self._platform
        self._counters.count_sent(frame)
        if platform.events.mask & _FRAME_OUT:
            platform.trace.emit(
                Kind.FRAME_OUT, f"{len(frame)} bytes", qpn=self.number, length=len(frame), frame=frame
            )
        platform.port.send(frame)


class EthernetReceiveQueue(_EthernetQueue):
    """Takes frames into the buffers that software posted."""

    def __init__(
        self,
        platform: Platform,
        counters: EthernetCounters,
        keys: MemoryKeys,
        number: int,
        config: QueueConfig,
        form: ScatterFormat,
    ) -> None:
        super().__init__(platform, counters, keys, number, config)
        self._format = form
        self._buffers: deque[list[Sge]] = deque()

    def set_state(self, state: QueueState) -> None:
        """Enter ``state``; RESET empties the queue."""
        super().set_state(state)
        self._buffers.clear()

    def receive(self, frame: bytes, flow: FlowHash = NO_HASH) -> None:
        """Put a frame into the next buffer; without one it is dropped and counted, as on any adapter."""
        platform = self._platform
        counters = self._counters
        if self.state is not QueueState.READY:
            counters.no_buffer += 1
            return
        index = self.taken
        try:
            pieces = self._next()
            if pieces is None:
                counters.no_buffer += 1
                if platform.events.mask & _FRAME_DROP:
                    platform.trace.emit(
                        Kind.FRAME_DROP, f"Ethernet queue {self.number:#x} has no buffer", qpn=self.number
                    )
                return
            self._scatter(pieces, frame)
        except (ProtectionError, BusError) as error:
            self._fail(str(error), index, CompletionOpcode.RECV, Status.LOC_PROT_ERR, 0)
            return
        except ValueError as error:
            self._fail(str(error), index, CompletionOpcode.RECV, Status.LOC_LEN_ERR, 0)
            return
        counters.count_received(frame)
        info: FrameInfo = inspect(frame, flow)
        done = Completion(
            self.number, index, CompletionOpcode.RECV, Status.SUCCESS, length=len(frame), cookie=info
        )
        if not self.cq.post(done):
            self.state = QueueState.ERROR

    def _next(self) -> list[Sge] | None:
        """The next buffer, None without. :raises BusError: ring or record is unreachable."""
        if not self._buffers:
            if self.taken == self.posted:
                posted = self.record.receive(self.posted)
                if 0 < ahead(posted, self.taken) <= self.ring.size:
                    self.posted = posted
            count = min((self.posted - self.taken) & MASK, BURST)
            if not count:
                return None
            data = self.ring.read(self.taken, count)
            size = self.ring.slot_size
            for at in range(0, len(data), size):
                self._buffers.append(self._format.scatter(data[at : at + size]))
        self.taken = (self.taken + 1) & MASK
        return self._buffers.popleft()

    def _scatter(self, pieces: list[Sge], frame: bytes) -> None:
        """:raises ProtectionError, BusError: memory; ValueError: the buffer is too short."""
        dma = self._platform.dma
        view, done = memoryview(frame), 0
        for sge in pieces:
            size = min(sge.length, len(frame) - done)
            if not size:
                break
            for address, length in self._pieces(Sge(sge.address, size, sge.lkey), Access.LOCAL_WRITE):
                dma.write(address, view[done : done + length])
                done += length
        if done < len(frame):
            raise ValueError(f"a frame of {len(frame)} bytes for a buffer of {done}")
