# SPDX-License-Identifier: Apache-2.0
"""Datagram queue pairs of guests that know only RoCE, carried by UET's unreliable delivery (UUD)."""

from __future__ import annotations

from emu.nic.endpoint import Endpoint
from emu.nic.engine import Engine, EngineHost, Packet
from emu.nic.work import QpAttributes, QpState, SendRequest, Transport
from emu.roce import UdEngine

__all__ = ["CarriedDatagrams"]


class CarriedDatagrams:
    """One such queue pair, behind :class:`emu.nic.engine.Engine`.

    A queue pair that speaks for another number stays with RoCE: that is QP1, through which guests set
    connections up, and which peers address by its own number. Which it is shows when it leaves RESET. RoCE's
    multicast does not reach a carried queue pair, since UET has none.
    """

    def __init__(self, endpoint: Endpoint, host: EngineHost) -> None:
        self._endpoint = endpoint
        self._host = host
        self._engine: Engine = UdEngine(host)

    def modify(self, attributes: QpAttributes, previous: QpState) -> None:
        """Take over attributes and enter ``attributes.state``; out of RESET, choose the engine."""
        if previous is QpState.RESET and attributes.state is QpState.INIT:
            self._endpoint.forget_engine(self._host.qpn)
            if attributes.source_qpn:
                self._engine = UdEngine(self._host)
            else:
                self._engine = self._endpoint.create_engine(Transport.UET_UUD, self._host)
        self._engine.modify(attributes, previous)

    def post(self, request: SendRequest) -> None:
        """Queue one send element."""
        self._engine.post(request)

    def receive(self, packet: Packet, now: int) -> None:
        """A RoCE packet for this queue pair."""
        self._engine.receive(packet, now)

    def receive_posted(self, now: int) -> None:
        """Receive elements were added."""
        self._engine.receive_posted(now)

    def transmit(self, now: int, budget: int) -> bool:
        """Send at most ``budget`` datagrams. True when more could be sent."""
        return self._engine.transmit(now, budget)

    def deadline(self) -> int | None:
        """When :meth:`expire` wants to be called (ns), or None."""
        return self._engine.deadline()

    def expire(self, now: int) -> None:
        """The deadline passed."""
        self._engine.expire(now)

    def idle(self) -> bool:
        """True when nothing is queued."""
        return self._engine.idle()

    @property
    def next_psn(self) -> int:
        """Number of the next datagram (24 bits)."""
        return self._engine.next_psn

    @property
    def expected_psn(self) -> int:
        """Receivers of datagrams expect no number."""
        return self._engine.expected_psn
