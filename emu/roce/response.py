# SPDX-License-Identifier: Apache-2.0
"""Responses waiting to leave. They go out in the order of their requests, a READ packet by packet."""

from __future__ import annotations

from dataclasses import dataclass

from emu.nic.engine import ProtectionError
from emu.roce import syndrome as aeth
from emu.roce.connection import Connection
from emu.roce.psn import PSN_MASK, cmp24
from emu.roce.resource import Resource
from emu.roce.run import RUN_MAX, RUN_MIN, PacketRun
from emu.wire.headers import pack_aeth, pack_atomic_ack
from emu.wire.opcodes import RcOpcode

__all__ = ["Acknowledgement", "AtomicReply", "ReadStream", "ResponseQueue"]

_ACKNOWLEDGE = int(RcOpcode.ACKNOWLEDGE)
_ATOMIC_ACKNOWLEDGE = int(RcOpcode.ATOMIC_ACKNOWLEDGE)
_FIRST = int(RcOpcode.READ_RESPONSE_FIRST)
_MIDDLE = int(RcOpcode.READ_RESPONSE_MIDDLE)
_LAST = int(RcOpcode.READ_RESPONSE_LAST)
_ONLY = int(RcOpcode.READ_RESPONSE_ONLY)

_LIMIT = 1024
"""Responses that may wait. Only a peer that repeats requests faster than answers leave gets here; it will
ask again.
"""


@dataclass(slots=True)
class Acknowledgement:
    """ACK, NAK or RNR NAK for ``psn``; ``msn`` is the one at that moment."""

    psn: int
    syndrome: int
    msn: int


@dataclass(slots=True)
class AtomicReply:
    """The saved original value of an atomic."""

    resource: Resource


@dataclass(slots=True)
class ReadStream:
    """Responses to a READ from packet ``start``; ``index`` is the next, ``repeat`` marks a repetition."""

    resource: Resource
    start: int
    index: int
    repeat: bool = False


class ResponseQueue:
    """FIFO of responses of one responder."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: list[Acknowledgement | AtomicReply | ReadStream] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def clear(self) -> None:
        """Forget all."""
        self._waiting.clear()

    def acknowledge(self, psn: int, msn: int) -> None:
        """Queue an ACK, or move the waiting one forward: it covers all before it."""
        tail = self._waiting[-1] if self._waiting else None
        if isinstance(tail, Acknowledgement) and aeth.is_ack(tail.syndrome):
            # A repeated request may ask for less than what already waits to be acknowledged.
            if cmp24(psn, tail.psn) > 0:
                tail.psn, tail.msn = psn, msn
        else:
            self._add(Acknowledgement(psn, aeth.ACK, msn))

    def refuse(self, psn: int, syndrome: int, msn: int) -> None:
        """Queue a NAK or RNR NAK."""
        self._waiting.append(Acknowledgement(psn, syndrome, msn))

    def atomic(self, resource: Resource) -> None:
        """Queue an atomic's answer, unless the very same still waits."""
        if not any(isinstance(job, AtomicReply) and job.resource is resource for job in self._waiting):
            self._add(AtomicReply(resource))

    def read(self, resource: Resource, start: int = 0, *, repeat: bool = False) -> None:
        """Queue a READ's answer from packet ``start`` on, unless a waiting stream has yet to come to it."""
        for job in self._waiting:
            if isinstance(job, ReadStream) and job.resource is resource and job.index <= start:
                return
        self._add(ReadStream(resource, start, start, repeat))

    def _add(self, job: Acknowledgement | AtomicReply | ReadStream) -> None:
        if len(self._waiting) < _LIMIT:
            self._waiting.append(job)

    def transmit(self, now: int, budget: int, msn: int) -> tuple[int, tuple[int, ProtectionError] | None]:
        """Send up to ``budget`` packets.

        Returns how many left, and the PSN and error of a READ whose memory became unreachable: that stream
        ends there.
        """
        sent = 0
        waiting = self._waiting
        while waiting and sent < budget:
            job = waiting[0]
            if isinstance(job, ReadStream):
                if self._connection.holds(now):
                    break
                before = job.index
                error = self._read_packets(job, msn, budget - sent)
                if error is not None:
                    del waiting[0]
                    if not job.repeat:
                        return sent, ((job.resource.first + job.index) & PSN_MASK, error)
                    continue
                if job.index == job.resource.packets:
                    job.resource.replied = True
                    del waiting[0]
                sent += job.index - before
            else:
                del waiting[0]
                if isinstance(job, AtomicReply):
                    resource = job.resource
                    resource.replied = True
                    extension = pack_atomic_ack(aeth.ACK, msn, resource.original)
                    self._connection.send(_ATOMIC_ACKNOWLEDGE, resource.first, extension)
                else:
                    self._connection.send(_ACKNOWLEDGE, job.psn, pack_aeth(job.syndrome, job.msn))
                sent += 1
        return sent, None

    def _read_packets(self, job: ReadStream, msn: int, room: int) -> ProtectionError | None:
        """Send the next response packet, or up to ``room`` middle ones together.

        Memory is read now, so a repeated READ sees what is there now.
        """
        resource, index = job.resource, job.index
        connection = self._connection
        if resource.srq is not None and connection.select_srq is not None:
            connection.select_srq(resource.srq)
        mtu = connection.mtu
        offset = index * mtu
        count = min(resource.packets - 1 - index, room, RUN_MAX)
        if (
            connection.send_run is not None
            and index > job.start
            and count >= RUN_MIN
            and connection.rate is None
        ):
            try:
                data = connection.host.read_remote(resource.rkey, resource.address + offset, count * mtu)
            except ProtectionError as error:
                return error
            psn = (resource.first + index) & PSN_MASK
            connection.send_run(PacketRun(connection, _MIDDLE, psn, data, mtu, cursor=index))
            job.index = index + count
            return None
        final = index == resource.packets - 1
        size = resource.length - offset if final else mtu
        data = b""
        if size:
            try:
                data = self._connection.host.read_remote(resource.rkey, resource.address + offset, size)
            except ProtectionError as error:
                return error
        begin, go_on = (_ONLY, _LAST) if final else (_FIRST, _MIDDLE)
        opcode = begin if index == job.start else go_on
        extension = b"" if opcode == _MIDDLE else pack_aeth(aeth.ACK, msn)
        self._connection.send(opcode, (resource.first + index) & PSN_MASK, extension, data)
        job.index = index + 1
        return None
