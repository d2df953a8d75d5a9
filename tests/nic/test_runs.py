# SPDX-License-Identifier: Apache-2.0
"""A NIC that talks to itself: packets travel together while nobody looks, and count the same when somebody
does.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emu.events import Event, EventBus, Kind
from emu.nic.mr import MemoryRegion
from emu.nic.pages import PageList
from emu.nic.qp import QpConfig, QueuePair
from emu.nic.work import Access, Opcode, QpAttributes, QpState, SendRequest, Sge, Transport
from emu.roce import create_engine, parse
from tests.nic import rig as rig_module
from tests.nic.rig import MAC, RAM, SLOT, Rig

GID = bytes(10) + b"\xff\xff" + bytes((10, 77, 0, 1))
RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
PAGE = 4096
BUFFER = 16 * PAGE


class Silent:
    """Stands for the rig's recorder: nobody listens."""

    def __init__(self, bus: EventBus) -> None:
        self.events: list[Event] = []


class Loop:
    """Two connected queue pairs of one NIC, and a buffer for each whose pages lie in reverse order."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.source, self.target = (self._region(RAM + (8 + half) * BUFFER) for half in (0, 1))
        self.left, self.right = self._queue_pair(), self._queue_pair()
        for own, peer in ((self.left, self.right), (self.right, self.left)):
            for state in (QpState.INIT, QpState.RTR, QpState.RTS):
                attributes = QpAttributes(
                    state=state,
                    access=RIGHTS,
                    path_mtu=1024,
                    dest_qpn=peer.number,
                    timeout=14,
                    retry_cnt=7,
                    source_mac=MAC,
                    dest_mac=MAC,
                    source_gid=GID,
                    dest_gid=GID,
                    max_rd_atomic=1,
                    max_dest_rd_atomic=1,
                )
                own.engine.modify(attributes, QpState(state - 1))
                own.state, own.attributes = state, attributes

    def _region(self, base: int) -> MemoryRegion:
        pages = [base + BUFFER - PAGE * (place + 1) for place in range(BUFFER // PAGE)]
        return self.rig.region(base, PageList(pages, 12, 0, BUFFER), RIGHTS)

    def _queue_pair(self) -> QueuePair:
        cq, _ = self.rig.create_cq()
        ring = self.rig.memory(SLOT << 2)
        return self.rig.nic.create_qp(
            QpConfig(
                pd=self.rig.pd,
                send_cq=cq,
                recv_cq=cq,
                transport=Transport.ROCE_RC,
                send=ring,
                send_log_size=2,
            )
        )

    def play(self, opcode: Opcode, length: int) -> bytes:
        """One message from buffer to buffer; what the target holds then."""
        rig = self.rig
        pattern = bytes((place * 7 + place // 251) & 0xFF for place in range(BUFFER))
        near, far = (self.target, self.source) if opcode is Opcode.READ else (self.source, self.target)
        self.source.pages.write(rig.nic.platform.dma, 0, pattern)
        self.left.engine.post(
            SendRequest(
                0,
                opcode,
                length=length,
                sges=[Sge(near.address, length, near.key)],
                remote_address=far.address,
                rkey=far.key,
                signaled=True,
            )
        )
        rig.nic.submission.kick(self.left)
        rig.clock.run(until=rig.clock.now() + 10_000_000)
        return self.target.pages.read(rig.nic.platform.dma, 0, length)


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Loop]:
    """Makes a NIC that nobody listens to."""
    monkeypatch.setattr(rig_module, "Recorder", Silent)
    return lambda: Loop(Rig(create_engine=create_engine, parse=parse))


@pytest.mark.parametrize("opcode", [Opcode.WRITE, Opcode.READ])
@pytest.mark.parametrize("length", [3 * 1024 + 5, 20_000, BUFFER])
def test_a_listener_changes_nothing_but_what_it_sees(
    make: Callable[[], Loop], opcode: Opcode, length: int
) -> None:
    alone, watched = make(), make()
    frames: list[Event] = []
    watched.rig.event_bus.subscribe(frames.append, [Kind.FRAME_OUT, Kind.FRAME_IN])
    assert alone.play(opcode, length) == watched.play(opcode, length)
    counters = [loop.rig.nic.counters.snapshot() for loop in (alone, watched)]
    assert counters[0]["cqes"] == counters[1]["cqes"] == 1
    assert counters[0]["cqe_errors"] == counters[1]["cqe_errors"] == 0
    # How often something is acknowledged is up to the responder, so ACKs are no part of it.
    packets = -(-length // 1024)
    for found in counters:
        assert found["tx_packets"] == found["rx_packets"] >= packets + 1
        assert found["tx_bytes"] == found["rx_bytes"]
        assert found["rx_dropped"] == found["retransmitted_packets"] == 0
    assert counters[0]["dma_read_bytes"] == counters[1]["dma_read_bytes"]
    assert counters[0]["dma_write_bytes"] == counters[1]["dma_write_bytes"]
    assert len(frames) == counters[1]["tx_packets"] * 2


def test_what_travels_together_is_not_parsed(
    make: Callable[[], Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = make()
    parsed = 0

    def counting(frame: bytes) -> object:
        nonlocal parsed
        parsed += 1
        return parse(frame)

    monkeypatch.setattr(loop.rig.nic, "_parse", counting)
    loop.play(Opcode.WRITE, 20 * 1024)
    assert loop.rig.nic.counters.rx_packets >= 21
    assert parsed <= 3
