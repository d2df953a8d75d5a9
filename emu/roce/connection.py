# SPDX-License-Identifier: Apache-2.0
"""What requester and responder of one queue pair share: attributes, state, and how frames leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from emu.fabric.run import FrameRun
from emu.nic.drops import DropReason
from emu.nic.engine import EngineHost
from emu.nic.work import QpAttributes, QpState
from emu.roce.dcqcn import CNP_INTERVAL, RateControl
from emu.roce.packet import RocePacket
from emu.roce.path import Templates, frame_path
from emu.wire.headers import BTH_SIZE
from emu.wire.opcodes import CNP
from emu.wire.template import FrameTemplate

__all__ = ["Connection"]

_CNP_TRAFFIC_CLASS = 48 << 2 | 2
"""DSCP 48 and ECT(0), as hardware sends them."""
_CNP_RESERVED = 16
_BECN = 0x40


class Connection:
    """One queue pair's attributes as last set, its state, and what follows from them: ``rights`` is the
    access rights as a plain integer, ``templates`` make the frames. ``rate`` limits packets with payload
    after a congestion notification, and ``paced`` is when it lets the next one leave, if one waits for that.
    ``send_run`` hands frames to the port together (None: the host takes single ones only). On an XRC
    connection ``srq`` is the shared receive queue that the request in work names (None on others), and
    ``target`` the one that the request to send names.
    """

    __slots__ = (
        "_cnp_owed",
        "_cnp_sent",
        "attributes",
        "dest_ip",
        "host",
        "mtu",
        "paced",
        "rate",
        "rights",
        "select_srq",
        "send_run",
        "source_ip",
        "srq",
        "state",
        "target",
        "templates",
    )

    def __init__(self, host: EngineHost) -> None:
        self.host = host
        # A host whose port carries no runs gets every frame by itself.
        self.send_run: Callable[[FrameRun], None] | None = getattr(host, "send_run", None)
        self.select_srq: Callable[[int], None] | None = getattr(host, "select_srq", None)
        self.srq: int | None = None
        self.target = 0
        self.state = QpState.RESET
        self.forget_congestion()
        self.set(QpAttributes())

    def set(self, attributes: QpAttributes) -> None:
        """Take over ``attributes`` (a copy: the core goes on changing its own)."""
        self.attributes = replace(attributes)
        self.mtu = attributes.path_mtu
        self.rights = int(attributes.access)
        path = frame_path(attributes, self.host.qpn)
        self.source_ip, self.dest_ip = path.source_ip, path.dest_ip
        self.templates = Templates(path, dest_qpn=attributes.dest_qpn, pkey=attributes.pkey)

    def send(
        self,
        opcode: int,
        psn: int,
        extension: bytes = b"",
        payload: bytes | memoryview = b"",
        ack_request: bool = False,
        solicited: bool = False,
    ) -> None:
        """Build one frame and hand it to the port."""
        frame = self.templates[opcode].build(psn, extension, payload, ack_request, solicited)
        if self.rate is not None and payload:
            self.rate.charge(len(frame))
        self.host.send(frame)

    # Congestion

    def forget_congestion(self) -> None:
        """No limit, and no notification owed."""
        self.rate: RateControl | None = None
        self.paced: int | None = None
        self._cnp_owed = False
        self._cnp_sent: int | None = None

    def holds(self, now: int) -> bool:
        """True when the rate lets no packet with payload leave now."""
        rate = self.rate
        if rate is None or rate.ready(now):
            return False
        self.paced = rate.next
        return True

    def see_mark(self, now: int) -> None:
        """A packet came with the mark of a congested switch: a notification is owed, unless one just left."""
        self.host.count("np_ecn_marked_roce_packets")
        if self._cnp_sent is None or now - self._cnp_sent >= CNP_INTERVAL:
            self._cnp_owed = True
            self._cnp_sent = now

    def settle_congestion(self, now: int) -> None:
        """Send the notification that is owed, and drop a limit that has been outgrown."""
        self.paced = None
        if self._cnp_owed:
            self._cnp_owed = False
            self.host.count("np_cnp_sent")
            template = FrameTemplate(
                replace(self.templates.path, traffic_class=_CNP_TRAFFIC_CLASS),
                CNP,
                dest_qpn=self.attributes.dest_qpn,
                migrated=False,
            )
            self.host.send(template.build(0, b"", bytes(_CNP_RESERVED)))
        if self.rate is not None:
            self.rate.advance(now)
            if self.rate.recovered:
                self.rate = None

    def notified(self, packet: RocePacket, now: int) -> None:
        """A notification came: slow down. One that is none is dropped."""
        if (
            packet.source_ip != self.dest_ip
            or packet.dest_ip != self.source_ip
            or packet.payload_length != _CNP_RESERVED
            or not packet.frame[packet.extension - BTH_SIZE + 4] & _BECN
        ):
            self.host.note_drop(DropReason.ADDRESS, "congestion notification that is not of this connection")
            return
        rate = self.rate or RateControl(now)
        self.host.count("rp_cnp_handled" if rate.notify(now) else "rp_cnp_ignored")
        self.rate = rate
