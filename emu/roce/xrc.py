# SPDX-License-Identifier: Apache-2.0
"""Extended reliable connection (XRC): RC whose requests say which shared receive queue they are for.

One end only sends requests (initiator), the other only answers them (target); a target serves every shared
receive queue of its XRC domain, and memory is checked against the protection domain of the one that a request
names. Source: IBTA volume 1, annex A14. A request for a queue that is not of the domain is refused as a NAK
would be on RC: SENDs with "remote operational error", others with "remote access error"; the annex is not
public, so that choice is unconfirmed.
"""

from __future__ import annotations

from emu.nic.drops import DropReason
from emu.nic.engine import EngineHost, Packet
from emu.roce.connection import Connection
from emu.roce.packet import RocePacket
from emu.roce.rc import RcEngine
from emu.wire.headers import XRC_ETH
from emu.wire.opcodes import BY_OPCODE, CNP, TransportClass, rc_opcode

__all__ = ["XrcEngine"]

_XRC = int(TransportClass.XRC)
_SRQN = 0xFFFFFF


class XrcConnection(Connection):
    """Puts XRC's own opcodes and header on the wire."""

    __slots__ = ()

    def __init__(self, host: EngineHost) -> None:
        super().__init__(host)
        # Runs are made of RC's frames.
        self.send_run = None

    def send(
        self,
        opcode: int,
        psn: int,
        extension: bytes = b"",
        payload: bytes | memoryview = b"",
        ack_request: bool = False,
        solicited: bool = False,
    ) -> None:
        """As :meth:`Connection.send`, which gets RC's opcode and headers."""
        opcode |= _XRC
        if not BY_OPCODE[opcode].response:
            extension = XRC_ETH.pack(self.target & _SRQN) + extension
        super().send(opcode, psn, extension, payload, ack_request, solicited)


class XrcEngine(RcEngine):
    """XRC protocol state of one queue pair, initiator or target."""

    connection_type = XrcConnection

    def receive(self, packet: Packet, now: int) -> None:
        """Handle one inbound packet, in the terms of RC once it is known to be one of XRC."""
        if not isinstance(packet, RocePacket):
            self._drop(DropReason.FOREIGN, f"no RoCE packet: {packet!r}")
            return
        opcode = rc_opcode(packet.opcode)
        if opcode == packet.opcode and opcode != CNP:
            self._drop(DropReason.OPCODE, f"opcode {opcode:#04x} is of another transport than XRC")
            return
        if opcode != CNP:
            packet.opcode, packet.info = opcode, BY_OPCODE[opcode]
            if not packet.info.response:
                (srqn,) = XRC_ETH.unpack_from(packet.frame, packet.extension)
                packet.extension += XRC_ETH.size
                connection = self._connection
                connection.srq = srqn & _SRQN
                if connection.select_srq is not None:
                    connection.select_srq(srqn & _SRQN)
        super().receive(packet, now)
