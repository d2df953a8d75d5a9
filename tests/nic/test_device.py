# SPDX-License-Identifier: Apache-2.0
"""The NIC as a whole: routing of frames, lifetimes, reset, and silence when nobody listens."""

from __future__ import annotations

import pytest

from emu.events import Kind
from emu.nic.cq import CqMode, CqOverrun
from emu.nic.errors import ErrorKind, NicError
from emu.nic.gid import GidTable
from emu.nic.limits import NicLimits
from emu.nic.pages import PageList
from emu.nic.qp import QpConfig
from emu.nic.ring import RingMemory
from emu.nic.work import Access, ModifyMask, QpAttributes, QpState, Transport
from tests.nic.rig import MAC, RAM, Rig

OTHER = bytes.fromhex("0200000000ff")
BROADCAST = b"\xff" * 6


@pytest.fixture
def rig() -> Rig:
    return Rig()


def frame(body: bytes, dest: bytes = MAC) -> bytes:
    """A frame of the tests."""
    return dest + OTHER + b"\x88\xb5" + body


def test_a_reset_calls_off_a_failure_that_was_about_to_come(rig: Rig) -> None:
    cq, _ = rig.create_cq()
    qp, _, _, _ = rig.create_qp(cq)
    qp.fail_soon("an old story")
    qp.modify(ModifyMask.STATE, QpAttributes(state=QpState.RESET))
    rig.to_rts(qp)
    rig.settle()
    states = [qp.state]
    qp.fail_soon("a new one")
    rig.settle()
    states.append(qp.state)
    assert states == [QpState.RTS, QpState.ERR]


class TestRouting:
    def test_without_bus_mastering_nobody_is_answered(self, rig: Rig) -> None:
        cq, _ = rig.create_cq()
        qp, engine, _, _ = rig.create_qp(cq)
        rig.bus.mastering = False
        rig.port.deliver(frame(qp.number.to_bytes(3, "big")))
        rig.settle()
        assert engine.packets == []
        assert rig.nic.counters.rx_dropped == 1
        rig.bus.mastering = True
        rig.port.deliver(frame(qp.number.to_bytes(3, "big")))
        rig.settle()
        assert len(engine.packets) == 1

    def test_a_packet_reaches_the_engine_of_its_queue_pair(self, rig: Rig) -> None:
        cq, _ = rig.create_cq()
        first, engine, _, _ = rig.create_qp(cq)
        _, other, _, _ = rig.create_qp(cq)
        rig.port.deliver(frame(first.number.to_bytes(3, "big")))
        rig.settle()
        assert [packet.dest_qpn for packet in engine.packets] == [first.number]
        assert other.packets == []
        assert (rig.nic.counters.rx_packets, rig.nic.counters.rx_dropped) == (1, 0)

    @pytest.mark.parametrize(
        ("data", "reason", "counter"),
        [
            (frame(b"\xab\xcd\xef"), "there is no QP 0xabcdef", None),
            (frame(b"bad"), "marked as bad", "rx_icrc_encapsulated"),
            (frame(b"\0\1\0", OTHER), "for another station", None),
            (b"", "for another station", None),
            (b"\x02", "for another station", None),
        ],
    )
    def test_other_frames_are_dropped_and_counted(
        self, rig: Rig, data: bytes, reason: str, counter: str | None
    ) -> None:
        rig.port.deliver(data)
        assert rig.nic.counters.rx_dropped == 1
        assert rig.events.texts(Kind.FRAME_DROP) == [reason]
        if counter is not None:
            assert getattr(rig.nic.counters, counter) == 1

    def test_group_addresses_are_let_in(self, rig: Rig) -> None:
        cq, _ = rig.create_cq()
        qp, engine, _, _ = rig.create_qp(cq)
        rig.port.deliver(frame(qp.number.to_bytes(3, "big"), BROADCAST))
        assert len(engine.packets) == 1

    def test_a_packet_for_a_destroyed_queue_pair_is_dropped(self, rig: Rig) -> None:
        cq, _ = rig.create_cq()
        qp, engine, _, _ = rig.create_qp(cq)
        rig.nic.destroy_qp(qp)
        rig.port.deliver(frame(qp.number.to_bytes(3, "big")))
        assert engine.packets == []
        assert rig.nic.counters.rx_dropped == 1

    def test_frames_are_traced_with_their_bytes(self, rig: Rig) -> None:
        rig.port.deliver(frame(b"bad"))
        assert [event.frame for event in rig.events.events if event.kind is Kind.FRAME_IN] == [frame(b"bad")]


class TestLifetimes:
    def test_a_ring_pins_its_region_until_its_queue_is_gone(self, rig: Rig) -> None:
        region = rig.region(0x5000, PageList.contiguous(RAM + 0x8000, 0x1000))
        cq = rig.nic.create_cq(
            rig.context,
            None,
            mode=CqMode.RING,
            overrun=CqOverrun.IGNORE,
            log_size=0,
            memory=RingMemory(region.pages, 0, region),
        )
        qp = rig.nic.create_qp(
            QpConfig(
                pd=rig.pd,
                send_cq=cq,
                recv_cq=cq,
                transport=Transport.ROCE_RC,
                send=RingMemory(region.pages, 64, region),
                send_log_size=1,
                receive=RingMemory(region.pages, 128, region),
                record=RingMemory(region.pages, 256, region),
            )
        )
        assert region.pins == 4
        rig.nic.destroy_qp(qp)
        with pytest.raises(NicError) as caught:
            rig.nic.deregister_mr(region)
        assert caught.value.kind is ErrorKind.BUSY
        rig.nic.destroy_cq(cq)
        rig.nic.deregister_mr(region)

    def test_a_refused_queue_pair_pins_nothing(self, rig: Rig) -> None:
        region = rig.region(0x5000, PageList.contiguous(RAM + 0x8000, 0x1000))
        cq, _ = rig.create_cq()
        with pytest.raises(NicError) as caught:
            rig.nic.create_qp(
                QpConfig(
                    pd=rig.pd,
                    send_cq=cq,
                    recv_cq=cq,
                    transport=Transport.UET_RUD,
                    send=RingMemory(region.pages, 0, region),
                    send_log_size=1,
                )
            )
        assert (caught.value.kind, caught.value.field) == (ErrorKind.UNSUPPORTED, "transport")
        assert region.pins == 0
        assert cq.qps == {}
        rig.nic.deregister_mr(region)

    def test_destroying_twice_is_harmless(self, rig: Rig) -> None:
        cq, _ = rig.create_cq()
        qp, _, _, _ = rig.create_qp(cq)
        rig.nic.destroy_qp(qp)
        rig.nic.destroy_qp(qp)
        assert rig.nic.objects().qps == 0

    def test_tables_run_out(self) -> None:
        rig = Rig(NicLimits(qps=1, cqs=1))
        cq, _ = rig.create_cq()
        rig.create_qp(cq)
        for make in (lambda: rig.create_qp(cq), rig.create_cq):
            with pytest.raises(NicError) as caught:
                make()
            assert caught.value.kind is ErrorKind.NO_RESOURCE

    def test_force_frees_everything_of_a_context(self, rig: Rig) -> None:
        rig.region(0, PageList.contiguous(RAM, 64))
        cq, _ = rig.create_cq()
        rig.create_qp(cq)
        rig.create_qp(cq)
        rig.nic.free_context(rig.context, force=True)
        assert set(rig.nic.objects().to_json().values()) == {0}


def test_reset_empties_the_nic_and_says_so(rig: Rig) -> None:
    cq, _ = rig.create_cq()
    qp, engine, _, _ = rig.create_qp(cq)
    engine.due = 1_000
    rig.nic.submission.kick(qp)
    rig.settle()
    rig.nic.reset("a test")
    rig.clock.run()
    assert engine.expired == []
    assert set(rig.nic.objects().to_json().values()) == {0}
    assert set(rig.nic.counters.snapshot().values()) == {0}
    assert rig.events.texts(Kind.RESET) == ["a test"]
    rig.port.deliver(frame(qp.number.to_bytes(3, "big")))
    assert rig.nic.counters.rx_dropped == 1


def test_a_snapshot_shows_a_queue_pair(rig: Rig) -> None:
    cq, _ = rig.create_cq()
    qp, _, _, _ = rig.create_qp(cq)
    (shot,) = rig.nic.qp_snapshots()
    row = shot.to_json()
    assert row["qpn"] == qp.number
    assert row["state"] == QpState.RTS.name
    assert row["first_error"] is None


def test_an_event_about_a_queue_pair_without_an_eq_goes_nowhere(rig: Rig) -> None:
    cq, _ = rig.create_cq()
    qp, _, _, _ = rig.create_qp(cq)
    qp.fail("the test says so")
    assert qp.state is QpState.ERR
    assert rig.nic.counters.eqes == 0


def test_remote_rights_need_local_write(rig: Rig) -> None:
    with pytest.raises(NicError) as caught:
        rig.region(0, PageList.contiguous(RAM, 8), Access.REMOTE_ATOMIC)
    assert caught.value.field == "access"


@pytest.mark.parametrize(
    ("mac", "gids"), [(b"\2" * 5, ()), (b"\2" * 6, (b"short",)), (b"\2" * 6, (bytes(16),) * 3)]
)
def test_addresses_of_the_wrong_size_are_refused(mac: bytes, gids: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError, match="a port has"):
        GidTable(mac, gids, 2)


def test_nothing_is_built_for_events_nobody_wants(rig: Rig) -> None:
    rig.event_bus.mask = 0
    seen = len(rig.events.events)
    cq, _ = rig.create_cq()
    qp, engine, _, _ = rig.create_qp(cq)
    engine.host.send(b"x")
    rig.port.deliver(frame(b"bad"))
    rig.nic.destroy_qp(qp)
    assert len(rig.events.events) == seen
