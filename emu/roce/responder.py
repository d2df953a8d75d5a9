# SPDX-License-Identifier: Apache-2.0
"""The receiving half of RC: request packets to memory and receive completions, and the answers to them.

Every request is judged first by its PSN: the expected one is checked and carried out, one ahead draws a
single NAK, one behind is a repetition that is answered again but not carried out again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from emu.nic.atomics import ATOMIC_SIZES, AtomicMasks, AtomicOperation
from emu.nic.drops import DropReason
from emu.nic.engine import AsyncEvent, ProtectionError
from emu.nic.work import Access, Cause, QpState
from emu.roce import syndrome as aeth
from emu.roce.connection import Connection
from emu.roce.incoming import SENDS, WRITES, Incoming, NotReady, Refusal
from emu.roce.packet import RocePacket
from emu.roce.psn import PSN_MASK, cmp24, distance24, packets_of
from emu.roce.resource import Resource, ResourceRing, ring_size
from emu.roce.response import ResponseQueue
from emu.roce.run import PacketRun
from emu.roce.syndrome import Nak
from emu.wire.headers import ATOMIC_ETH, MASKED_ATOMIC_ETH, RETH
from emu.wire.opcodes import ExtendedOpcode, OpcodeInfo, RcOpcode

__all__ = ["Responder"]

_READ = int(RcOpcode.READ_REQUEST)
_COMPARE_SWAP = int(RcOpcode.COMPARE_SWAP)
_FETCH_ADD = int(RcOpcode.FETCH_ADD)
_EXTENDED = frozenset(map(int, ExtendedOpcode))
_ADDS = frozenset({_FETCH_ADD, int(ExtendedOpcode.FETCH_ADD)})
_ATOMICS = _EXTENDED | {_COMPARE_SWAP, _FETCH_ADD}
_ANSWERED = _ATOMICS | {_READ}
"""Requests whose answer is more than a plain ACK."""
_RIGHTS: dict[int, int] = {
    **dict.fromkeys(SENDS, 0),
    **dict.fromkeys(WRITES, int(Access.REMOTE_WRITE)),
    _READ: int(Access.REMOTE_READ),
    **dict.fromkeys(_ATOMICS, int(Access.REMOTE_ATOMIC)),
}
"""Operations carried out, and the right each needs on the queue pair (an :class:`Access` bit as a plain
integer: the operators of flags are slow).
"""

_EVENT = {
    Nak.INVALID_REQUEST: AsyncEvent.QP_REQ_ERR,
    Nak.REMOTE_ACCESS: AsyncEvent.QP_ACCESS_ERR,
    Nak.REMOTE_OPERATION: AsyncEvent.QP_FATAL,
}
"""Event raised when no receive element can tell."""


class Responder:
    """Responder state of one queue pair. ``failed`` is told why when a request ended the connection."""

    def __init__(self, connection: Connection, failed: Callable[[str], None]) -> None:
        self._connection = connection
        self._host = connection.host
        self._failed = failed
        self.responses = ResponseQueue(connection)
        self._incoming = Incoming(connection)
        self.clear()

    def clear(self) -> None:
        """Forget everything, without completions."""
        self.responses.clear()
        self.epsn = 0
        self.msn = 0
        self.silent = False
        self._ring = ResourceRing(0)
        self._established = False
        self._incoming.clear()

    def start(self) -> None:
        """INIT to RTR: take the expected PSN and the size of the resource ring from the attributes."""
        self.epsn = self._connection.attributes.rq_psn & PSN_MASK
        self.adjust()

    def adjust(self) -> None:
        """Take the size of the resource ring from the attributes, which may have changed."""
        self._ring.resize(ring_size(self._connection.attributes.max_dest_rd_atomic))

    # Requests

    def receive(self, packet: RocePacket) -> None:
        """Handle one request packet."""
        order = cmp24(packet.psn, self.epsn)
        if order > 0:
            self._ahead(packet.psn)
            return
        if order < 0:
            self._host.count("duplicate_request")
            self._repeat(packet)
            return
        self.silent = False
        try:
            self._execute(packet)
        except NotReady:
            self.silent = True
            self._host.count("send_rnr_err")
            code = aeth.rnr(self._connection.attributes.min_rnr_timer)
            self.responses.refuse(packet.psn, code, self.msn)
        except Refusal as refusal:
            self._refuse(packet.psn, refusal)

    def receive_run(self, run: PacketRun) -> bool:
        """Carry packets of a message. False, and nothing done, when they are not what comes next."""
        connection, whole = self._connection, run.whole
        if run.psn != self.epsn or _RIGHTS.get(run.opcode, -1) & ~connection.rights:
            return False
        if whole is not None and connection.state is QpState.RTR and not self._established:
            return False
        try:
            if not self._incoming.carry_run(run):
                return False
        except Refusal as refusal:
            self._refuse(run.psn, refusal)
            return True
        self.silent = False
        self.epsn = (run.last + 1) & PSN_MASK
        if whole is not None:
            self.msn = (self.msn + 1) & PSN_MASK
        if run.ack_request:
            self.responses.acknowledge(run.last, self.msn)
        return True

    def _ahead(self, psn: int) -> None:
        self._host.note_drop("out_of_sequence", f"request PSN {psn} while expecting {self.epsn}")
        if not self.silent:
            self.silent = True
            self.responses.refuse(self.epsn, Nak.SEQUENCE, self.msn)

    def _execute(self, packet: RocePacket) -> None:
        """Check and carry out the expected request. :raises Refusal, NotReady: and nothing advanced."""
        info = packet.info
        if info is None:
            raise Refusal(Nak.INVALID_REQUEST, f"reserved opcode {packet.opcode:#04x}")
        opcode = packet.opcode
        self._incoming.check_sequence(info)
        needed = _RIGHTS.get(opcode)
        if needed is None:
            raise Refusal(Nak.INVALID_REQUEST, f"{info.name} is not offered", cause=Cause.BAD_OPCODE)
        if needed & ~self._connection.rights:
            raise Refusal(Nak.INVALID_REQUEST, f"{info.name} on a QP without {Access(needed).name}")
        if not self._established and self._connection.state is QpState.RTR:
            self._established = True
            self._host.raise_event(AsyncEvent.COMM_EST, "first request arrived")
        step = 1
        failure: str | None = None
        if opcode == _READ:
            step = self._read(packet, info)
        elif opcode in _ATOMICS:
            self._atomic(packet, info)
        else:
            self._incoming.carry(packet, info)
        self.epsn = (self.epsn + step) & PSN_MASK
        if info.end:
            self.msn = (self.msn + 1) & PSN_MASK
            failure = self._incoming.end(packet, info)
        if packet.ack_request and opcode not in _ANSWERED:
            self.responses.acknowledge(packet.psn, self.msn)
        if failure is not None:
            # The request itself was carried out and is acknowledged; what failed is local.
            self._failed(failure)

    def _read(self, packet: RocePacket, info: OpcodeInfo) -> int:
        """Accept a READ; returns the PSNs it takes."""
        self._check_resources(info)
        self._incoming.check_payload(packet, info)
        address, rkey, length = RETH.unpack_from(packet.frame, packet.extension)
        self._incoming.check_range(rkey, address, length, Access.REMOTE_READ, info)
        self._host.count("rx_read_requests")
        packets = packets_of(length, self._connection.mtu)
        resource = Resource(_READ, packet.psn, packets, address, rkey, length, srq=self._connection.srq)
        self._ring.add(resource)
        self.responses.read(resource)
        return packets

    def _atomic(self, packet: RocePacket, info: OpcodeInfo) -> None:
        self._check_resources(info)
        self._incoming.check_payload(packet, info)
        address, rkey, operation = _atomic_operation(packet)
        size = operation.size
        if size not in ATOMIC_SIZES:
            raise Refusal(
                Nak.INVALID_REQUEST, f"{info.name} on {size} bytes, must be 4 or 8", cause=Cause.BAD_LENGTH
            )
        if address % size:
            # The host names the broken rule; the wire has a code of its own for this one.
            with suppress(ProtectionError):
                self._host.check_remote(rkey, address, size, Access.REMOTE_ATOMIC)
            reason = f"{info.name} at {address:#x}, which is not {size}-byte aligned"
            raise Refusal(Nak.INVALID_REQUEST, reason)
        self._incoming.check_range(rkey, address, size, Access.REMOTE_ATOMIC, info)
        try:
            original = self._host.atomic(rkey, address, operation)
        except ProtectionError as error:
            raise Refusal(Nak.REMOTE_ACCESS, error.rule, cause=error.cause) from error
        self._host.count("rx_atomic_requests")
        resource = Resource(packet.opcode, packet.psn, 1, address, rkey, size, original)
        self._ring.add(resource)
        self.responses.atomic(resource)

    def _check_resources(self, info: OpcodeInfo) -> None:
        if self._ring.full:
            limit = self._connection.attributes.max_dest_rd_atomic
            raise Refusal(Nak.INVALID_REQUEST, f"{info.name} beyond the {limit} of max_dest_rd_atomic")

    # Repetitions

    def _repeat(self, packet: RocePacket) -> None:
        """Answer a request that was carried out before. Errors in it draw no NAK."""
        opcode, psn = packet.opcode, packet.psn
        if opcode == _READ:
            self._repeat_read(packet)
        elif opcode in _ATOMICS:
            resource = self._ring.find(psn)
            if resource is not None and resource.opcode == opcode:
                self.responses.atomic(resource)
            else:
                self._drop(f"repeated atomic PSN {psn} is no longer remembered")
        elif packet.ack_request and opcode in _RIGHTS:
            # A plain ACK must not reach a READ or atomic: the requester would take its answer for lost.
            later = self._ring.after(psn, self.epsn)
            covered = (self.epsn if later is None else later.first) - 1
            self.responses.acknowledge(covered & PSN_MASK, self.msn)

    def _repeat_read(self, packet: RocePacket) -> None:
        resource = self._ring.find(packet.psn)
        if resource is None or resource.opcode != _READ:
            self._drop(f"repeated READ PSN {packet.psn} is no longer remembered")
            return
        start = distance24(packet.psn, resource.first)
        offset = start * self._connection.mtu
        address, rkey, length = RETH.unpack_from(packet.frame, packet.extension)
        if (rkey, address, length) != (resource.rkey, resource.address + offset, resource.length - offset):
            self._drop(f"repeated READ PSN {packet.psn} asks for something else than before")
            return
        if length:
            try:
                self._host.check_remote(rkey, address, length, Access.REMOTE_READ)
            except ProtectionError as error:
                self._drop(f"repeated READ PSN {packet.psn}: {error.rule}")
                return
        self.responses.read(resource, start, repeat=True)

    # Ends

    def transmit(self, now: int, budget: int) -> int:
        """Send up to ``budget`` responses; returns how many left."""
        sent, lost = self.responses.transmit(now, budget, self.msn)
        if lost is not None:
            psn, error = lost
            self.responses.clear()
            # The open message is a later one and only flushed: the event tells about the READ.
            self._end(psn, Refusal(Nak.REMOTE_ACCESS, f"READ: {error.rule}", cause=error.cause))
        return sent

    def _refuse(self, psn: int, refusal: Refusal) -> None:
        """NAK the request that came, report it here, and end the connection."""
        if refusal.nak is Nak.REMOTE_ACCESS:
            self._host.count("resp_remote_access_errors")
        element = self._incoming.element
        self._incoming.close()
        if element is not None:
            self._incoming.receives.fail(element, refusal.status, refusal.cause)
        self._end(psn, refusal, told=element is not None)

    def _end(self, psn: int, refusal: Refusal, *, told: bool = False) -> None:
        """NAK ``psn`` and end the connection; raise an event when no completion has ``told`` of it."""
        self.responses.refuse(psn, refusal.nak, self.msn)
        if not told:
            self._host.raise_event(_EVENT[refusal.nak], refusal.reason)
        self._failed(refusal.reason)

    def flush(self) -> None:
        """Complete every receive element with WR_FLUSH_ERR. Answers still leave."""
        self._incoming.flush()

    def idle(self) -> bool:
        """True when no answer waits and no message is open."""
        return not self.responses and not self._incoming.open

    def _drop(self, reason: str) -> None:
        self._host.note_drop(DropReason.REPEAT, reason)


def _atomic_operation(packet: RocePacket) -> tuple[int, int, AtomicOperation]:
    """Address, key and operation of an atomic's header."""
    add = packet.opcode in _ADDS
    frame, at = packet.frame, packet.extension
    if packet.opcode not in _EXTENDED:
        address, rkey, operand, compare = ATOMIC_ETH.unpack_from(frame, at)
        return address, rkey, AtomicOperation(add, operand, compare)
    address, rkey, size, operand, compare, swap_mask, compare_mask = MASKED_ATOMIC_ETH.unpack_from(frame, at)
    masks = AtomicMasks(boundary=swap_mask) if add else AtomicMasks(compare_mask, swap_mask)
    return address, rkey, AtomicOperation(add, operand, compare, size, masks)
