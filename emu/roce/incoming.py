# SPDX-License-Identifier: Apache-2.0
"""A SEND or WRITE message on its way in: which packets may follow, and where their bytes go.

RC and UC share it. What a fault means differs (a NAK that ends the connection, or silence), so faults are
raised and their reader decides.
"""

from __future__ import annotations

from emu.nic.engine import ProtectionError
from emu.nic.work import Access, Cause, Completion, CompletionOpcode, ReceiveRequest, Status
from emu.roce.connection import Connection
from emu.roce.element import MAX_MESSAGE
from emu.roce.packet import RocePacket
from emu.roce.receives import Receives
from emu.roce.run import PacketRun, WholeWrite
from emu.roce.syndrome import Nak
from emu.wire.headers import IETH, IMM_DT, RETH, pad_count
from emu.wire.opcodes import OPERATION_MASK, Header, OpcodeInfo, RcOpcode

__all__ = ["SENDS", "WRITES", "Incoming", "NotReady", "Refusal"]

_INVALIDATES = frozenset({int(RcOpcode.SEND_LAST_INVALIDATE), int(RcOpcode.SEND_ONLY_INVALIDATE)})
SENDS = frozenset(range(RcOpcode.SEND_FIRST, RcOpcode.SEND_ONLY_IMM + 1)) | _INVALIDATES
"""Operations (opcodes without their class) of SEND messages."""
WRITES = frozenset(range(RcOpcode.WRITE_FIRST, RcOpcode.WRITE_ONLY_IMM + 1))
"""Operations of WRITE messages."""
_SEND_MIDDLE = int(RcOpcode.SEND_MIDDLE)
_WRITE_MIDDLE = int(RcOpcode.WRITE_MIDDLE)

_STATUS = {
    Nak.INVALID_REQUEST: Status.REM_INV_REQ_ERR,
    Nak.REMOTE_ACCESS: Status.REM_ACCESS_ERR,
    Nak.REMOTE_OPERATION: Status.LOC_PROT_ERR,
}
"""Completion of a receive element that was bound to the refused request."""


class Refusal(Exception):
    """A request that cannot be carried out: the NAK it deserves, and what to report locally."""

    def __init__(self, nak: Nak, reason: str, *, status: Status | None = None, cause: int = 0) -> None:
        super().__init__(reason)
        self.nak = nak
        self.reason = reason
        self.status = _STATUS[nak] if status is None else status
        self.cause = cause


class NotReady(Exception):
    """A request that needs a receive element while there is none."""


class Incoming:
    """The message that arrives now on one queue pair, if one is open."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._host = connection.host
        self.receives = Receives(connection.host)
        self.clear()

    def clear(self) -> None:
        """Forget everything, without completions."""
        self.receives.clear()
        self.close()

    def close(self) -> None:
        """No message is open."""
        self._open: frozenset[int] | None = None
        self.element: ReceiveRequest | None = None
        self._received = 0
        self._rkey = 0
        self._address = 0
        self._length = 0

    def abort(self) -> None:
        """Give up the open message; its receive element serves the next one from its start."""
        element = self.element
        self.close()
        if element is not None:
            self.receives.put_back(element)

    def give_up(self, status: Status = Status.LOC_QP_OP_ERR, cause: int = Cause.NONE) -> None:
        """Give up the open message for good: see :meth:`Receives.give_up` for its receive element."""
        element = self.element
        self.close()
        if element is not None:
            self.receives.give_up(element, status, cause)

    @property
    def open(self) -> bool:
        """True between a message's first packet and its last."""
        return self._open is not None

    def check_sequence(self, info: OpcodeInfo) -> None:
        """:raises Refusal: a packet of this kind cannot come now."""
        if self._open is None:
            if not info.start:
                raise Refusal(Nak.INVALID_REQUEST, f"{info.name} without an open message")
        elif info.start or info.opcode & OPERATION_MASK not in self._open:
            raise Refusal(Nak.INVALID_REQUEST, f"{info.name} inside another message")

    def check_payload(self, packet: RocePacket, info: OpcodeInfo) -> None:
        """:raises Refusal: this opcode does not take that many payload bytes."""
        if not info.payload.allows(packet.payload_length, self._connection.mtu):
            raise Refusal(
                Nak.INVALID_REQUEST,
                f"{info.name} with {packet.payload_length} payload bytes, must be {info.payload.text}",
                cause=Cause.BAD_LENGTH,
            )

    def check_range(self, rkey: int, address: int, length: int, access: Access, info: OpcodeInfo) -> None:
        """:raises Refusal: the remote key does not allow it, or it is too long."""
        if length > MAX_MESSAGE:
            raise Refusal(
                Nak.INVALID_REQUEST,
                f"{info.name} of {length} bytes, at most {MAX_MESSAGE}",
                cause=Cause.BAD_LENGTH,
            )
        # Nothing is touched by a zero-length access, so any key and address will do.
        if not length:
            return
        try:
            self._host.check_remote(rkey, address, length, access)
        except ProtectionError as error:
            raise Refusal(Nak.REMOTE_ACCESS, error.rule, cause=error.cause) from error

    def carry(self, packet: RocePacket, info: OpcodeInfo) -> None:
        """Place the bytes of one SEND or WRITE packet that is in sequence.

        :raises Refusal, NotReady: and nothing was placed.
        """
        operation = info.opcode & OPERATION_MASK
        if operation in WRITES:
            self._write(packet, info)
        else:
            self._send(packet, info)
        if not info.end:
            self._open = WRITES if operation in WRITES else SENDS

    def carry_run(self, run: PacketRun) -> bool:
        """Place the bytes of packets that are in sequence: middle ones, or a whole WRITE. False, and nothing
        done, when they do not belong to the open message or do not fit in it.

        :raises Refusal: the memory must not or cannot be written.
        """
        operation = run.opcode & OPERATION_MASK
        if run.whole is not None:
            return self._carry_whole(run, run.whole)
        if self._open is None or run.size != self._connection.mtu or operation not in self._open:
            return False
        received = self._received
        after = received + len(run.payload)
        if operation == _WRITE_MIDDLE:
            # The last packet of a message is never empty.
            if after >= self._length:
                return False
            try:
                self._host.write_remote(self._rkey, self._address + received, run.payload)
            except ProtectionError as error:
                raise Refusal(Nak.REMOTE_ACCESS, error.rule, cause=error.cause) from error
        elif operation == _SEND_MIDDLE:
            element = self.element
            if element is None or after > element.length:
                return False
            try:
                self._host.scatter(element.sges, received, run.payload)
            except ProtectionError as error:
                raise Refusal(
                    Nak.REMOTE_OPERATION, f"receive element {element.index}: {error.rule}", cause=error.cause
                ) from error
        else:
            return False
        self._received = after
        return True

    def _carry_whole(self, run: PacketRun, whole: WholeWrite) -> bool:
        """Place a WRITE that came in one run, unless another message is open."""
        if self._open is not None or run.size != self._connection.mtu or len(run.payload) != whole.length:
            return False
        self.check_range(whole.rkey, whole.address, whole.length, Access.REMOTE_WRITE, run.info)
        try:
            self._host.write_remote(whole.rkey, whole.address, run.payload)
        except ProtectionError as error:
            raise Refusal(Nak.REMOTE_ACCESS, error.rule, cause=error.cause) from error
        return True

    def _take_receive(self) -> ReceiveRequest:
        """The next receive element. :raises NotReady: there is none."""
        try:
            request = self.receives.take()
        except ProtectionError as error:
            raise Refusal(
                Nak.REMOTE_OPERATION, f"receive element cannot be read: {error.rule}", cause=error.cause
            ) from error
        if request is None:
            raise NotReady
        return request

    def _send(self, packet: RocePacket, info: OpcodeInfo) -> None:
        if info.start:
            self.element = self._take_receive()
        self.check_payload(packet, info)
        element, size = self.element, packet.payload_length
        assert element is not None  # the sequence check lets no MIDDLE or LAST through without a START
        if self._received + size > element.length:
            raise Refusal(
                Nak.INVALID_REQUEST,
                f"message longer than the {element.length} bytes of receive element {element.index}",
                status=Status.LOC_LEN_ERR,
                cause=Cause.BAD_LENGTH,
            )
        if size:
            try:
                self._host.scatter(element.sges, self._received, packet.payload)
            except ProtectionError as error:
                raise Refusal(
                    Nak.REMOTE_OPERATION, f"receive element {element.index}: {error.rule}", cause=error.cause
                ) from error
        self._received += size

    def _write(self, packet: RocePacket, info: OpcodeInfo) -> None:
        # A receive element is needed before anything else is judged, so that only this packet need be sent
        # again.
        if info.takes_receive:
            self.element = self._take_receive()
        self.check_payload(packet, info)
        size = packet.payload_length
        address, rkey, length = self._address, self._rkey, self._length
        if info.start:
            address, rkey, length = RETH.unpack_from(packet.frame, packet.extension)
            self.check_range(rkey, address, length, Access.REMOTE_WRITE, info)
            self._host.count("rx_write_requests")
        remaining = length - self._received
        fits = size == remaining if info.end else size < remaining
        if not fits or packet.pad_count != pad_count(size):
            raise Refusal(
                Nak.INVALID_REQUEST,
                f"{info.name} with {size} bytes and pad {packet.pad_count}, {remaining} of {length} left",
                cause=Cause.BAD_LENGTH,
            )
        if size:
            try:
                self._host.write_remote(rkey, address + self._received, packet.payload)
            except ProtectionError as error:
                raise Refusal(Nak.REMOTE_ACCESS, error.rule, cause=error.cause) from error
        self._address, self._rkey, self._length = address, rkey, length
        self._received += size

    def end(self, packet: RocePacket, info: OpcodeInfo) -> str | None:
        """The message's last packet was carried: report its receive element, if it took one.

        Returns why the key that the sender wanted invalidated could not be; the element has failed then.
        """
        element, received = self.element, self._received
        self.close()
        if element is None:
            return None
        operation = info.opcode & OPERATION_MASK
        invalidated = immediate = None
        at = packet.extension + info.extension_size - Header.IMM_DT.size
        if operation in _INVALIDATES:
            (invalidated,) = IETH.unpack_from(packet.frame, at)
            try:
                self._host.invalidate(invalidated)
            except ProtectionError as error:
                self.receives.fail(element, Status.LOC_PROT_ERR, error.cause)
                return f"SEND with invalidate: {error.rule}"
        elif Header.IMM_DT in info.headers:
            (immediate,) = IMM_DT.unpack_from(packet.frame, at)
        self._host.complete(
            Completion(
                self._host.qpn,
                element.index,
                CompletionOpcode.RECV_WRITE_IMM if operation in WRITES else CompletionOpcode.RECV,
                Status.SUCCESS,
                length=received,
                immediate=immediate,
                solicited=packet.solicited,
                cookie=element.cookie,
                invalidated=invalidated,
            )
        )
        return None

    def flush(self) -> None:
        """Complete every receive element with WR_FLUSH_ERR, the open message's first."""
        self.abort()
        self.receives.flush()
