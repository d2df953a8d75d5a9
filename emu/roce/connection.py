# SPDX-License-Identifier: Apache-2.0
"""What requester and responder of one queue pair share: attributes, state, and how frames leave."""

from __future__ import annotations

from dataclasses import replace

from emu.nic.engine import EngineHost
from emu.nic.work import QpAttributes, QpState
from emu.roce.path import Templates, frame_path

__all__ = ["Connection"]


class Connection:
    """One queue pair's attributes as last set, its state, and what follows from them: ``rights`` is the
    access rights as a plain integer, ``templates`` make the frames.
    """

    __slots__ = ("attributes", "dest_ip", "host", "mtu", "rights", "source_ip", "state", "templates")

    def __init__(self, host: EngineHost) -> None:
        self.host = host
        self.state = QpState.RESET
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
        self.host.send(self.templates[opcode].build(psn, extension, payload, ack_request, solicited))
