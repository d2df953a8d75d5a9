# SPDX-License-Identifier: Apache-2.0
"""Congestion: marks draw notifications, notifications slow the sender down, and it recovers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.clock import MS, NS_PER_S, US
from emu.nic.work import Opcode, QpState, Status, Transport
from emu.roce.dcqcn import CNP_INTERVAL, LEAST_RATE, LINE_RATE, PERIOD, RateControl
from emu.wire.congestion import mark
from emu.wire.headers import pack_reth
from emu.wire.opcodes import CNP
from emu.wire.opcodes import RcOpcode as Op
from tests.roce.bench import BASE, LATENCY, RKEY, Host, Pair, pattern, silence

PSN = 100
ECT = 2


def marking(*senders: str) -> Any:
    """Every packet of these senders is marked on its way."""

    def impair(sender: Host, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        marked = mark(frame) if sender.name in senders else None
        return [(LATENCY, marked or frame)]

    return impair


def cnps(pair: Pair, name: str) -> list[bytes]:
    side = pair.a if name == "a" else pair.b
    return [packet.frame for packet in side.packets() if packet.opcode == CNP]


def notify(pair: Pair, **lies: Any) -> None:
    """``b`` reports congestion to ``a``."""
    pair.a.deliver(pair.b.frame(CNP, 0, b"", bytes(16), **lies))


def test_the_first_notification_halves_the_rate() -> None:
    rate = RateControl(0)
    assert rate.rate == LINE_RATE
    assert rate.notify(0)
    assert rate.rate == LINE_RATE / 2
    assert rate.target == LINE_RATE


def test_notifications_within_the_interval_count_once() -> None:
    rate = RateControl(0)
    assert rate.notify(0)
    assert not rate.notify(CNP_INTERVAL - 1)
    assert rate.notify(CNP_INTERVAL)
    assert rate.rate == pytest.approx(LINE_RATE / 4, rel=0.01)


def test_recovery_goes_half_the_way_five_times_and_then_adds() -> None:
    rate = RateControl(0)
    rate.notify(0)
    rate.notify(CNP_INTERVAL)
    seen, target = rate.rate, rate.target
    for step in range(1, 5):
        rate.advance(CNP_INTERVAL + step * PERIOD)
        assert rate.rate == pytest.approx((target + seen) / 2)
        assert rate.target == target
        seen = rate.rate
    rate.advance(CNP_INTERVAL + 5 * PERIOD)
    assert rate.target == target + 5_000_000


def test_alpha_decays_without_notifications_so_the_next_cut_is_smaller() -> None:
    rate = RateControl(0)
    rate.notify(0)
    rate.advance(200 * PERIOD)
    before, alpha = rate.rate, rate.alpha
    assert alpha == pytest.approx((1 - 1 / 256) ** 200)
    rate.notify(200 * PERIOD)
    assert rate.rate == pytest.approx(before * (1 - alpha / 2))


def test_the_rate_reaches_the_line_again() -> None:
    rate = RateControl(0)
    rate.notify(0)
    rate.advance(NS_PER_S)
    assert rate.recovered and rate.rate == LINE_RATE


def test_bytes_are_steps_too() -> None:
    rate = RateControl(0)
    rate.notify(0)
    before = rate.rate
    rate.charge(10_000_000)
    assert rate.rate == pytest.approx((LINE_RATE + before) / 2)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, MS), st.booleans(), st.integers(0, 1 << 16)), max_size=60))
def test_the_rate_stays_in_its_bounds(steps: list[tuple[int, bool, int]]) -> None:
    rate, now = RateControl(0), 0
    for wait, congested, octets in steps:
        now += wait
        if congested:
            rate.notify(now)
        if rate.ready(now):
            rate.charge(octets)
        assert LEAST_RATE <= rate.rate <= rate.target <= LINE_RATE
        assert 0 < rate.alpha <= 1
        # Never further ahead than the largest packet takes at the least rate.
        assert rate.next <= now + (1 << 16) * NS_PER_S // LEAST_RATE + 1


@pytest.mark.parametrize("transport", [Transport.ROCE_RC, Transport.ROCE_UC])
def test_marks_draw_one_notification_an_interval(transport: Transport) -> None:
    pair = Pair(marking("a"), transport=transport, traffic_class=ECT)
    for _ in range(5):
        pair.a.post(Opcode.WRITE, 1000)
    pair.run()
    (frame,) = cnps(pair, "b")
    assert pair.b.host.counts["np_ecn_marked_roce_packets"] == 5
    assert pair.b.host.counts["np_cnp_sent"] == 1
    assert pair.a.host.counts["rp_cnp_handled"] == 1
    # As hardware sends them: DSCP 48 and ECT(0), no M bit, BECN, full partition, no AckReq.
    assert frame[15] == 0xC2
    assert frame[42:54] == bytes.fromhex("8100ffff4000001100000000")
    assert frame[54:70] == bytes(16)
    assert pair.a.host.statuses == [(number, Status.SUCCESS) for number in range(5)]


def test_senders_that_take_no_part_are_not_marked() -> None:
    pair = Pair(marking("a"))
    pair.a.post(Opcode.WRITE, 1000)
    pair.run()
    assert cnps(pair, "b") == []


def test_a_notification_draws_no_notification() -> None:
    pair = Pair(marking("a", "b"), traffic_class=ECT)
    pair.a.post(Opcode.WRITE, 1000)
    pair.run()
    # The answer is marked as well, so each end notifies once; the notifications are marked and draw nothing.
    assert (len(cnps(pair, "a")), len(cnps(pair, "b"))) == (1, 1)


@pytest.mark.parametrize("transport", [Transport.ROCE_RC, Transport.ROCE_UC])
def test_a_slowed_sender_spreads_its_packets(transport: Transport) -> None:
    pair = Pair(silence, transport=transport, timeout=0)
    for step in range(12):
        pair.scheduler.run(until=step * CNP_INTERVAL)
        notify(pair)
    assert pair.a.host.counts["rp_cnp_handled"] == 12
    start = pair.scheduler.now()
    pair.a.post(Opcode.WRITE, 20 * 1024)
    assert len(pair.a.host.sent) == 1
    pair.scheduler.run(until=start + 400 * US)
    few = len(pair.a.host.sent)
    assert 1 < few < 20
    pair.run()
    assert len(pair.a.host.sent) == 20
    # Twelve cuts leave a four-thousandth of the line's speed, 3 MB/s, which then recovers.
    assert pair.scheduler.now() - start > 400 * US


def test_read_responses_are_paced_and_acknowledgements_are_not() -> None:
    pair = Pair(silence, timeout=0)
    pair.remote(pair.a)[:] = pattern(1 << 16)
    for step in range(12):
        pair.scheduler.run(until=step * CNP_INTERVAL)
        notify(pair)

    pair.a.deliver(pair.b.frame(Op.READ_REQUEST, PSN, pack_reth(BASE, RKEY, 8192)))
    pair.a.deliver(pair.b.frame(Op.WRITE_ONLY, PSN + 8, pack_reth(BASE, RKEY, 4), b"data", ack_request=True))
    assert [name for name, _ in pair.a.trace()] == ["READ RESPONSE FIRST"]
    pair.run()
    assert [psn for _, psn in pair.a.trace()] == [*range(PSN, PSN + 8), PSN + 8]


def test_a_notification_changes_nothing_but_the_rate() -> None:
    pair = Pair(silence)
    pair.a.post(Opcode.SEND, 4)
    notify(pair)
    pair.a.deliver(pair.b.frame(Op.ACKNOWLEDGE, PSN, bytes([0x1F, 0, 0, 1])))
    assert pair.a.host.statuses == [(0, Status.SUCCESS)]
    assert pair.a.engine.expected_psn == PSN


@pytest.mark.parametrize("what", ["address", "becn", "length", "state"])
def test_what_is_no_notification_is_dropped(what: str) -> None:
    pair = Pair(silence)
    lies: dict[str, Any] = {}
    if what == "address":
        lies["source_gid"] = bytes(10) + b"\xff\xff" + bytes([10, 77, 0, 9])
    if what == "state":
        pair.a.modify(QpState.RESET)
    frame = pair.b.frame(CNP, 0, b"", bytes(12 if what == "length" else 16), **lies)
    if what == "becn":
        # The bit is not under the ICRC.
        frame = frame[:46] + bytes([frame[46] & ~0x40]) + frame[47:]
    pair.a.deliver(frame)
    assert len(pair.a.host.drops) + len(pair.a.dropped) == 1
    assert "rp_cnp_handled" not in pair.a.host.counts


def test_reset_forgets_the_limit() -> None:
    pair = Pair(silence)
    for step in range(12):
        pair.scheduler.run(until=step * CNP_INTERVAL)
        notify(pair)
    pair.a.modify(QpState.RESET)
    pair.a.connect()
    pair.a.post(Opcode.WRITE, 20 * 1024)
    assert len(pair.a.host.sent) == 20
