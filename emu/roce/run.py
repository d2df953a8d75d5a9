# SPDX-License-Identifier: Apache-2.0
"""Middle packets of one message that leave together: see :mod:`emu.fabric.run`.

They have no extension headers, carry exactly the path MTU each, and differ in PSN, payload and the request
for an acknowledgement. An engine that cannot take a run as a whole takes its packets.
"""

from __future__ import annotations

from collections.abc import Iterator

from emu.roce.connection import Connection
from emu.roce.packet import RocePacket, parse
from emu.roce.psn import PSN_MASK
from emu.wire.opcodes import BY_OPCODE

__all__ = ["ACK_INTERVAL", "RUN_MAX", "RUN_MIN", "PacketRun"]

ACK_INTERVAL = 16
"""Inside a message every so many packets ask for an acknowledgement; its last packet always does."""
RUN_MIN = 2
RUN_MAX = 64
"""Packets of a run: as many as a link delivers in one go."""


class PacketRun:
    """``count`` packets with ``opcode`` from ``psn`` on; ``payload`` is that many times ``size`` bytes.

    ``cursor`` is the place of the first one in its message, from 0. With ``asks`` every
    :data:`ACK_INTERVAL`-th packet of the message asks for an acknowledgement; READ responses never do.
    """

    __slots__ = ("_path", "_template", "asks", "count", "cursor", "dest_qpn", "info", "opcode", "payload",
                 "pkey", "psn", "size")  # fmt: skip

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
    ) -> None:
        self._path = connection.templates.path
        self._template = connection.templates[opcode]
        self.info = BY_OPCODE[opcode]
        self.dest_qpn = connection.attributes.dest_qpn
        self.pkey = connection.attributes.pkey
        self.opcode = opcode
        self.psn = psn
        self.payload = payload
        self.size = size
        self.count = len(payload) // size
        self.cursor = cursor
        self.asks = asks

    @property
    def octets(self) -> int:
        """Bytes of all frames, without FCS."""
        return self.count * self._template.frame_size(self.size)

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
        return self.asks and self.cursor // ACK_INTERVAL != (self.cursor + self.count) // ACK_INTERVAL

    def frames(self) -> Iterator[bytes]:
        """The frames, ICRC and all."""
        view, size, build = memoryview(self.payload), self.size, self._template.build
        for place in range(self.count):
            ask = self.asks and (self.cursor + place) % ACK_INTERVAL == ACK_INTERVAL - 1
            payload = view[place * size : (place + 1) * size]
            yield build((self.psn + place) & PSN_MASK, b"", payload, ask)

    def packets(self) -> Iterator[RocePacket]:
        """What the far end would make of the frames."""
        for frame in self.frames():
            packet = parse(frame)
            if isinstance(packet, RocePacket):
                yield packet
