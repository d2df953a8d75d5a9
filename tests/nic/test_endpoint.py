# SPDX-License-Identifier: Apache-2.0
"""A transport with state of its own at the NIC: its queue pairs, its frames, and when it has to forget."""

from __future__ import annotations

import pytest

from emu.events import Kind
from emu.fabric.port import Port
from emu.nic.device import Nic
from emu.nic.endpoint import EndpointHost
from emu.nic.engine import Drop, Engine, EngineHost
from emu.nic.errors import ErrorKind, NicError
from emu.nic.formats import Formats
from emu.nic.qp import QpConfig, QueuePair
from emu.nic.work import Transport
from tests.nic.fakes import FakeEngine
from tests.nic.rig import MAC, SLOT, Rig, TinyCqe, TinyEqe, TinyReceive, TinyRecord, TinyWqe

OURS = MAC + bytes(8) + b"ours"


class FakeEndpoint:
    """Takes frames that say "ours"."""

    def __init__(self, host: EndpointHost) -> None:
        self.host = host
        self.frames: list[bytes] = []
        self.made: list[tuple[Transport, int]] = []
        self.forgotten: list[int] = []
        self.resets = 0

    def create_engine(self, transport: Transport, host: EngineHost) -> Engine:
        if transport is Transport.UET_UUD:
            raise ValueError("no datagrams here")
        self.made.append((transport, host.qpn))
        return FakeEngine(host)

    def forget_engine(self, qpn: int) -> None:
        self.forgotten.append(qpn)

    def receive(self, frame: bytes, now: int) -> Drop | None:
        if frame[14:] != b"ours":
            return Drop("not ours", foreign=True)
        self.frames.append(frame)
        return None

    def reset(self) -> None:
        self.resets += 1


class EndpointRig(Rig):
    """The rig with an endpoint; every frame is foreign to the queue-pair transports."""

    def __init__(self) -> None:
        super().__init__()
        self.endpoints: list[FakeEndpoint] = []
        port: Port = self.port
        self.nic = Nic(
            "node0.nic0",
            bus=self.bus,
            interrupts=self.interrupts,
            port=port,
            scheduler=self.clock,
            events=self.event_bus,
            formats=Formats(TinyWqe(), TinyReceive(), TinyCqe(), TinyEqe(), TinyRecord()),
            create_engine=self.engines.create,
            parse=lambda frame: Drop("foreign", foreign=True),
            mac=MAC,
            gids=(),
            create_endpoint=self._endpoint,
        )
        self.context = self.nic.alloc_context()
        self.pd = self.nic.alloc_pd(self.context)

    def _endpoint(self, host: EndpointHost) -> FakeEndpoint:
        self.endpoints.append(FakeEndpoint(host))
        return self.endpoints[0]

    def queue_pair(self, transport: Transport) -> QueuePair:
        """A queue pair of this service."""
        cq, _ = self.create_cq()
        return self.nic.create_qp(
            QpConfig(self.pd, cq, cq, transport, send=self.memory(SLOT << 4), send_log_size=4)
        )


def test_the_service_decides_who_makes_the_engine() -> None:
    rig = EndpointRig()
    endpoint = rig.endpoints[0]
    rig.queue_pair(Transport.ROCE_RC)
    qp = rig.queue_pair(Transport.UET_RUD)
    assert list(rig.engines.made) == [qp.number - 1]
    assert endpoint.made == [(Transport.UET_RUD, qp.number)]
    with pytest.raises(NicError) as refused:
        rig.queue_pair(Transport.UET_UUD)
    assert refused.value.kind is ErrorKind.UNSUPPORTED


def test_without_an_endpoint_there_are_no_such_queue_pairs() -> None:
    rig = Rig()
    cq, _ = rig.create_cq()
    ring = rig.memory(SLOT << 4)
    with pytest.raises(NicError) as refused:
        rig.nic.create_qp(QpConfig(rig.pd, cq, cq, Transport.UET_RUD, send=ring, send_log_size=4))
    assert refused.value.kind is ErrorKind.UNSUPPORTED


def test_foreign_frames_are_offered_to_the_endpoint_then_to_ethernet() -> None:
    rig = EndpointRig()
    endpoint, other = rig.endpoints[0], MAC + bytes(8) + b"else"
    rig.port.deliver(OURS)
    assert endpoint.frames == [OURS]
    assert rig.nic.counters.rx_packets == 1 and rig.nic.counters.rx_bytes == len(OURS)
    rig.port.deliver(other)
    assert rig.nic.counters.rx_dropped == 1
    taken: list[bytes] = []
    rig.nic.ethernet = taken.append
    rig.port.deliver(other)
    assert taken == [other] and rig.nic.counters.rx_packets == 1


def test_the_endpoint_forgets_with_the_nic() -> None:
    rig = EndpointRig()
    endpoint = rig.endpoints[0]
    qp = rig.queue_pair(Transport.UET_RUD)
    rig.nic.destroy_qp(qp)
    assert endpoint.forgotten == [qp.number]
    rig.nic.reset("test")
    assert endpoint.resets == 1


def test_what_the_endpoint_does_is_counted_and_traced() -> None:
    rig = EndpointRig()
    host = rig.endpoints[0].host
    host.send(b"frame of the endpoint", 0x123)
    host.note_retransmit(0x123, 7, 2, 100, "a reason")
    host.note_drop("unknown_pdc", "no such context")
    host.note_drop("rx_dropped", "else")
    host.note_timer("late")
    host.count("nacks_sent")
    counters = rig.nic.counters
    assert rig.port.sent == [b"frame of the endpoint"]
    assert (counters.tx_packets, counters.tx_bytes) == (1, 21)
    assert (counters.retransmitted_packets, counters.retransmitted_bytes) == (2, 100)
    assert (counters.rx_dropped, counters.unknown_pdc, counters.nacks_sent) == (2, 1, 1)
    kinds = [event.kind for event in rig.events.events]
    assert kinds == [Kind.FRAME_OUT, Kind.RETRANSMIT, Kind.FRAME_DROP, Kind.FRAME_DROP, Kind.TIMER]
    assert rig.events.events[0].qpn == 0x123
    rig.port.backlog = 5
    assert host.backlog == 5


def test_a_woken_queue_pair_has_its_turn() -> None:
    rig = EndpointRig()
    qp = rig.queue_pair(Transport.UET_RUD)
    engine = qp.engine
    assert isinstance(engine, FakeEngine)
    engine.due = 5_000
    rig.endpoints[0].host.wake(qp.number)
    rig.endpoints[0].host.wake(0xABCDEF)
    rig.clock.run(until=4_000)
    assert qp.timer is not None and qp.timer.when == 5_000
