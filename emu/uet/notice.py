# SPDX-License-Identifier: Apache-2.0
"""One-packet requests behind which no guest's element stands: DEFERRABLE_RTR, MSG_ERROR about an offer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from emu.uet.headers import ResponseHeader, standard_request
from emu.uet.outgoing import Failure, Outgoing
from emu.wire.uet_names import NextHeader, RequestOpcode, SesFlag

if TYPE_CHECKING:
    from emu.uet.engine import UetEngine
    from emu.uet.pdc import Pdc

__all__ = ["Notice"]

_WHOLE, _REL = int(SesFlag.SOM | SesFlag.EOM), int(SesFlag.REL)


class Notice:
    """Implements :class:`emu.uet.outgoing.Work`. ``refused`` is called when the peer does not take it."""

    reads = False
    abandoned = False

    def __init__(
        self,
        engine: UetEngine,
        opcode: RequestOpcode,
        key: int,
        refused: Callable[[], None] | None = None,
    ) -> None:
        self._engine = engine
        self._opcode = opcode
        self._key = key
        self._refused = refused
        self._left = True
        self.qpn: int | None = engine.qpn
        self.message_id = 0
        self.pdc: Pdc | None = None

    @property
    def remaining(self) -> int:
        """Nominal bytes of the packets still to be made, or a little more."""
        return 160 if self._left else 0

    def next(self) -> Outgoing | None:
        """The packet, once."""
        if not self._left:
            return None
        self._left = False
        engine = self._engine
        header = standard_request(
            self._opcode,
            _WHOLE | (_REL if engine.parameters.relative else 0),
            message_id=self.message_id,
            job_id=engine.parameters.job_id,
            pid=engine.dest_qpn >> 12,
            resource_index=engine.dest_qpn & 0xFFF,
            buffer_offset=0,
            initiator=engine.qpn,
            key=self._key,
            request_length=0,
        )
        return Outgoing(self, NextHeader.REQUEST_STD, header, 0, last=True)

    def acknowledged(self, outgoing: Outgoing, header: ResponseHeader | None, frame: bytes) -> None:
        """The peer has it."""
        self._engine.release(self)
        if header is not None and not header.good and self._refused is not None:
            self._refused()

    def failed(self, failure: Failure) -> None:
        """The peer is gone."""
        self._engine.release(self)
        if self._refused is not None:
            self._refused()

    def place(self, offset: int, data: memoryview) -> None:
        """It asked for no data."""
