# SPDX-License-Identifier: Apache-2.0
"""Frames and a bus for the capture tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from emu.capture.capture import Capture
from emu.clock import VirtualScheduler
from emu.events import Event, EventBus, Kind
from emu.wire.icrc import icrc

__all__ = ["ACK", "CNP", "READ_IPV6", "SEND", "WRITE", "Stage", "packet"]

# Built with scapy and checked against a bitwise CRC; CNP is a frame captured from a ConnectX-4 Lx.
SEND = bytes.fromhex(
    "020000000002020000000001080045020034123440004011a47fc0000201c0000202c01112b7002000000430ffff"
    "000000128000010268656c6c6f000000777296e3"
)
WRITE = bytes.fromhex(
    "02000000000202000000000108004502004c123540004011a466c0000201c0000202c01112b7003800000a40ffff"
    "000000128000010300007f00123450000001020300000010000102030405060708090a0b0c0d0e0f33087d9c"
)
ACK = bytes.fromhex(
    "020000000001020000000002080045020030000140004011b6b6c0000202c0000201c01212b7001c00001100ffff"
    "00000011000001031f000002abd49287"
)
READ_IPV6 = bytes.fromhex(
    "02000000000202000000000186dd602123450028114020010db800000000000000000000000120010db800000000"
    "0000000000000002c01112b7002800000c00ffff000000128000010400007f0012345000000102030000100040ba6051"
)
CNP = bytes.fromhex(
    "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff"
    "40000118000000000000000000000000000000000000000082fd002a"
)


def packet(
    opcode: int, psn: int, body: bytes = b"", *, qpn: int = 0x12, source: int = 1, destination: int = 2
) -> bytes:
    """An IPv4 RoCE frame between hosts of 192.0.2.0/24; ``body`` is everything after the BTH."""
    ip_length = 20 + 8 + 12 + len(body) + 4
    network = bytes.fromhex("4500") + ip_length.to_bytes(2) + bytes.fromhex("00004000401100" + "00")
    network += bytes([192, 0, 2, source, 192, 0, 2, destination])
    total = sum(int.from_bytes(network[i : i + 2]) for i in range(0, 20, 2))
    total = (total & 0xFFFF) + (total >> 16)
    network = network[:10] + (total & 0xFFFF ^ 0xFFFF).to_bytes(2) + network[12:]
    udp = bytes.fromhex("c01112b7") + (ip_length - 20).to_bytes(2) + b"\0\0"
    bth = bytes([opcode, 0, 0xFF, 0xFF, 0]) + qpn.to_bytes(3) + b"\x80" + psn.to_bytes(3)
    ethernet = bytes([2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source, 8, 0])
    whole = network + udp + bth + body
    return ethernet + whole + icrc(whole)


class Stage:
    """A capture in virtual time; every event comes a microsecond after the last."""

    EPOCH = 1_700_000_000_000_000_000

    def __init__(self, path: Path, **options: object) -> None:
        self.path = path
        self.scheduler = VirtualScheduler()
        self.bus = EventBus()
        make: Callable[..., Capture] = Capture
        self.capture = make(path, self.scheduler, self.bus, self.EPOCH, **options)

    def emit(self, kind: Kind, function: str = "node0.nic0", **fields: object) -> None:
        self.scheduler.run(until=self.scheduler.now() + 1_000)
        make: Callable[..., Event] = Event
        self.bus.emit(make(kind, self.scheduler.now(), function, **fields))

    def carry(
        self, frame: bytes, sender: str = "node0.nic0", receiver: str = "node1.nic0", *, lost: bool = False
    ) -> None:
        """A frame leaves one NIC and arrives at the other, or is lost between them."""
        self.emit(Kind.FRAME_OUT, sender, frame=frame)
        if lost:
            self.emit(Kind.FRAME_DROP, sender, frame=frame, length=len(frame), text="lost")
        else:
            self.emit(Kind.FRAME_IN, receiver, frame=frame)
