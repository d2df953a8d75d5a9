# SPDX-License-Identifier: Apache-2.0
"""Frames at data-path speed: templates compiled from the scapy layers, patched with ``struct``.

scapy builds some hundred frames a second; it is asked once per IP version and opcode for the bytes of a
frame, which become the template. Addresses and flow constants are patched in when a queue pair gets its path.
Per packet only the PSN word, the extension headers and the payload remain: the CRC over everything before
them depends on nothing but the payload length, so both the header bytes and the CRC's state after them are
kept per length.
"""

from __future__ import annotations

import struct
from functools import cache

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from emu.wire import roce
from emu.wire.frame import ETHERNET_SIZE, FramePath
from emu.wire.headers import (
    BTH_ACK_REQUEST,
    BTH_BECN,
    BTH_MIGRATED,
    BTH_SIZE,
    BTH_SOLICITED,
    ICRC_SIZE,
    UDP_SIZE,
)
from emu.wire.icrc import PRESET, crc32, masked_header
from emu.wire.opcodes import BY_OPCODE, CNP

__all__ = ["FrameTemplate"]

_HEADS_KEPT = 64
"""Payload lengths whose header bytes a template remembers; a stream uses two, a hostile mix must not eat
memory.
"""

_WORD = struct.Struct(">I")
_HALF = struct.Struct(">H")
_PADS = (b"", b"\0\0\0", b"\0\0", b"\0")
"""Pad bytes by payload length modulo four."""


@cache
def _shape(version: int, opcode: int) -> bytes:
    """Ethernet to BTH of an otherwise empty frame, as the scapy layers make it."""
    network: Packet = (
        IP(src="0.0.0.0", dst="0.0.0.0", id=0, flags="DF") if version == 4 else IPv6(src="::", dst="::")
    )
    frame = Ether(src="00:00:00:00:00:00", dst="00:00:00:00:00:00") / network / UDP(sport=0)
    frame /= roce.BTH(opcode=opcode, becn=int(opcode == CNP))
    for layer in roce.layers_of(opcode):
        frame /= layer()
    octets = bytes(frame)
    return octets[: ETHERNET_SIZE + len(network) + UDP_SIZE + BTH_SIZE]


def _ipv4_checksum(header: bytearray, start: int) -> int:
    total: int = sum(word for (word,) in _HALF.iter_unpack(header[start : start + 20]))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


class FrameTemplate:
    """Builds frames of one opcode on one path to one queue pair.

    ``migrated`` is the BTH M bit: hardware sends 1, Linux rxe 0, receivers ignore it.

    :raises ValueError: the opcode is not in :data:`emu.wire.opcodes.BY_OPCODE`.
    """

    __slots__ = ("_base", "_bth", "_extension_size", "_heads", "_ip", "_udp", "_version", "opcode")

    def __init__(
        self, path: FramePath, opcode: int, *, dest_qpn: int, pkey: int = 0xFFFF, migrated: bool = True
    ) -> None:
        info = BY_OPCODE.get(opcode)
        if info is None:
            raise ValueError(f"opcode {opcode:#04x} is not defined")
        self.opcode = opcode
        self._version = path.version
        self._extension_size = info.extension_size
        base = bytearray(_shape(path.version, int(opcode)))
        self._ip = ip = ETHERNET_SIZE
        self._udp = udp = ip + (20 if path.version == 4 else 40)
        self._bth = bth = udp + UDP_SIZE
        base[0:6] = path.dest_mac
        base[6:12] = path.source_mac
        if path.version == 4:
            base[ip + 1] = path.traffic_class & 0xFF
            _HALF.pack_into(base, ip + 4, path.identification & 0xFFFF)
            base[ip + 8] = path.hop_limit & 0xFF
            base[ip + 12 : ip + 16] = path.source_ip
            base[ip + 16 : ip + 20] = path.dest_ip
        else:
            flow = 6 << 28 | (path.traffic_class & 0xFF) << 20 | path.flow_label & 0xFFFFF
            _WORD.pack_into(base, ip, flow)
            base[ip + 7] = path.hop_limit & 0xFF
            base[ip + 8 : ip + 24] = path.source_ip
            base[ip + 24 : ip + 40] = path.dest_ip
        _HALF.pack_into(base, udp, path.source_port & 0xFFFF)
        base[bth + 1] = BTH_MIGRATED if migrated else 0
        _HALF.pack_into(base, bth + 2, pkey & 0xFFFF)
        marks = BTH_BECN if opcode == CNP else 0
        _WORD.pack_into(base, bth + 4, marks | dest_qpn & 0xFFFFFF)
        self._base = bytes(base)
        self._heads: dict[int, tuple[bytes, int, bytes]] = {}

    def build(
        self,
        psn: int,
        extension: bytes = b"",
        payload: bytes | memoryview = b"",
        ack_request: bool = False,
        solicited: bool = False,
    ) -> bytes:
        """A whole Ethernet frame (no FCS), ICRC included.

        ``psn`` must be below 2^24. ``extension`` is the opcode's extension headers, packed
        (:mod:`emu.wire.headers`).
        """
        length = len(payload)
        key = length << 1 | solicited
        head = self._heads.get(key)
        if head is None:
            head = self._head(key, length, solicited)
        octets, state, pad = head
        body = b"".join((_WORD.pack(psn | BTH_ACK_REQUEST if ack_request else psn), extension, payload, pad))
        return b"".join((octets, body, crc32(body, state).to_bytes(4, "little")))

    def frame_size(self, length: int) -> int:
        """Bytes of a frame with ``length`` payload bytes, without FCS."""
        return len(self._base) + self._extension_size + length + (-length & 3) + ICRC_SIZE

    def _head(self, key: int, length: int, solicited: bool) -> tuple[bytes, int, bytes]:
        pad = _PADS[length & 3]
        base = bytearray(self._base)
        datagram = UDP_SIZE + BTH_SIZE + self._extension_size + length + len(pad) + ICRC_SIZE
        _HALF.pack_into(base, self._udp + 4, datagram)
        if self._version == 4:
            _HALF.pack_into(base, self._ip + 2, datagram + 20)
            _HALF.pack_into(base, self._ip + 10, 0)
            _HALF.pack_into(base, self._ip + 10, _ipv4_checksum(base, self._ip))
        else:
            _HALF.pack_into(base, self._ip + 4, datagram)
        base[self._bth + 1] |= len(pad) << 4 | (BTH_SOLICITED if solicited else 0)
        masked = masked_header(base[self._ip :])
        head = (bytes(base[:-4]), crc32(masked[:-4], PRESET), pad)
        if len(self._heads) >= _HEADS_KEPT:
            self._heads.clear()
        self._heads[key] = head
        return head
