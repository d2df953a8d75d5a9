# SPDX-License-Identifier: Apache-2.0
"""Packets of one message that leave together: see :mod:`emu.fabric.run`.

Either middle packets, which have no extension headers, carry exactly the path MTU each, and differ in PSN,
payload and the request for an acknowledgement; or all packets of one WRITE. An engine that cannot take a run
as a whole takes its packets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emu.roce.connection import Connection
from emu.roce.packet import RocePacket, parse
from emu.roce.psn import PSN_MASK
from emu.wire.headers import pack_reth
from emu.wire.opcodes import BY_OPCODE

__all__ = ["ACK_INTERVAL", "RUN_MAX", "RUN_MIN", "WHOLE_MIN", "PacketRun", "WholeWrite"]

ACK_INTERVAL = 16
"""Inside a message every so many packets ask for an acknowledgement; its last packet always does."""
RUN_MIN = 2
WHOLE_MIN = 3
"""Packets that a run needs at least: of middle ones, and of a whole message."""
RUN_MAX = 64
"""Packets of a run: as many as a link delivers in one go."""


@dataclass(frozen=True, slots=True)
class WholeWrite:
    """What a run is that holds all of a WRITE: where it goes, and the opcodes at its ends."""

    first: int
    last: int
    rkey: int
    address: int
    length: int


class PacketRun:
    """Packets with ``opcode`` from ``psn`` on, ``size`` bytes of ``payload`` each.

    ``cursor`` is the place of the first one in its message, from 0. With ``asks`` every
    :data:`ACK_INTERVAL`-th packet of the message asks for an acknowledgement; READ responses never do. With
    ``whole`` the first and the last have opcodes of their own and the last one carries the rest.
    """

    __slots__ = ("_path", "_templates", "asks", "count", "cursor", "dest_qpn", "info", "opcode", "payload",
                 "pkey", "psn", "size", "whole")  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        opcode: int,
        psn: int,
        payload: bytes,
        size: int,
        *,
        cursor: int = 0,
        asks: bool = False,
        whole: WholeWrite | None = None,
    ) -> None:
        self._templates = connection.templates
        self._path = connection.templates.path
        self.info = BY_OPCODE[opcode]
        self.dest_qpn = connection.attributes.dest_qpn
        self.pkey = connection.attributes.pkey
        self.opcode = opcode
        self.psn = psn
        self.payload = payload
        self.size = size
        self.count = -(-len(payload) // size)
        self.cursor = cursor
        self.asks = asks
        self.whole = whole

    @property
    def octets(self) -> int:
        """Bytes of all frames, without FCS."""
        middle = self._templates[self.opcode].frame_size(self.size)
        if self.whole is None:
            return self.count * middle
        rest = len(self.payload) - (self.count - 1) * self.size
        ends = self._templates[self.whole.first].frame_size(self.size)
        return (self.count - 2) * middle + ends + self._templates[self.whole.last].frame_size(rest)

    @property
    def dest_mac(self) -> bytes:
        """Where the frames go."""
        return self._path.dest_mac

    @property
    def source_mac(self) -> bytes:
        """Where the frames come from."""
        return self._path.source_mac

    @property
    def source_ip(self) -> bytes:
        """4 or 16 bytes in network order."""
        return self._path.source_ip

    @property
    def dest_ip(self) -> bytes:
        """4 or 16 bytes in network order."""
        return self._path.dest_ip

    @property
    def ecn(self) -> int:
        """ECN bits of the IP headers."""
        return self._path.traffic_class & 3

    @property
    def last(self) -> int:
        """PSN of the last packet."""
        return (self.psn + self.count - 1) & PSN_MASK

    @property
    def ack_request(self) -> bool:
        """Whether one of the packets asks for an acknowledgement."""
        passed = self.cursor // ACK_INTERVAL != (self.cursor + self.count) // ACK_INTERVAL
        return self.whole is not None or (self.asks and passed)

    def frames(self) -> Iterator[bytes]:
        """The frames, ICRC and all."""
        view, size, whole = memoryview(self.payload), self.size, self.whole
        final = self.count - 1
        for place in range(self.count):
            opcode, extension = self.opcode, b""
            ask = self.asks and (self.cursor + place) % ACK_INTERVAL == ACK_INTERVAL - 1
            if whole is not None and place == 0:
                opcode, extension = whole.first, pack_reth(whole.address, whole.rkey, whole.length)
            elif whole is not None and place == final:
                opcode, ask = whole.last, True
            payload = view[place * size : (place + 1) * size]
            yield self._templates[opcode].build((self.psn + place) & PSN_MASK, extension, payload, ask)

    def packets(self) -> Iterator[RocePacket]:
        """What the far end would make of the frames."""
        for frame in self.frames():
            packet = parse(frame)
            if isinstance(packet, RocePacket):
                yield packet
