# SPDX-License-Identifier: Apache-2.0
"""Two NICs with the real RoCEv2 engine in virtual time: any work over any link ends as over a perfect one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.clock import MS, VirtualScheduler
from emu.events import EventBus
from emu.fabric.switch import Switch
from emu.nic.work import Opcode, Status
from emu.personality.vrnic.contract.codes import AdminOpcode
from emu.personality.vrnic.contract.descriptors import DoorbellType, WqeFlags
from emu.roce import create_engine, parse
from tests.personality.bare_machine import BareMachine
from tests.personality.driver import Cq, Driver, Qp

WINDOW = 0x8000
SECOND = 1000 * MS


@dataclass
class Side:
    """One NIC with a connected queue pair and a window of memory the peer may use."""

    machine: BareMachine
    driver: Driver
    cq: Cq
    qp: Qp
    window: int


class Pair:
    """Both sides on a switch."""

    def __init__(self, loss: float, seed: int, *, rnr_retry: int = 7) -> None:
        self.clock = VirtualScheduler()
        events = EventBus()
        switch = Switch(self.clock, events)
        self.sides = [self._side(switch, number, loss, seed) for number in (1, 2)]
        self.a, self.b = self.sides
        self.a.driver.connect(self.a.qp, self.b.driver, self.b.qp, rnr_retry=rnr_retry)
        self.b.driver.connect(self.b.qp, self.a.driver, self.a.qp, rnr_retry=rnr_retry)

    def _side(self, switch: Switch, number: int, loss: float, seed: int) -> Side:
        machine = BareMachine(
            mac=bytes((2, 0, 0, 0, 0, number)),
            gid=bytes(10) + b"\xff\xff" + bytes((10, 77, 0, number)),
            clock=self.clock,
            port=switch.port(f"nic{number}", loss=loss, seed=seed),
            create_engine=create_engine,
            parse=parse,
        )
        machine.event_bus.mask = 0
        driver = Driver(machine)
        driver.up()
        cq = driver.create_cq(log_size=7)
        qp = driver.create_qp(cq, sq_log_size=5, rq_log_size=5, phase=True, start=0xFFFFFFF0)
        return Side(machine, driver, cq, qp, driver.allocate(WINDOW))

    def run(self, span: int) -> None:
        """Let virtual time pass."""
        self.clock.run(until=self.clock.now() + span)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from([Opcode.WRITE, Opcode.WRITE_IMM, Opcode.SEND, Opcode.READ, Opcode.ATOMIC_ADD]),
        st.integers(0, WINDOW // 8 - 1),
        st.integers(0, 3000),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(OPERATIONS, st.sampled_from([0.0, 0.05]), st.integers(0, 1 << 32), st.integers(1, 30))
def test_any_work_over_any_link_gives_the_bytes_of_a_perfect_one(
    operations: list[tuple[Opcode, int, int]], loss: float, seed: int, burst: int
) -> None:
    pair = Pair(loss, seed)
    a, b = pair.a, pair.b
    source = bytes((position * 7 + position // 256 + 1) & 0xFF for position in range(WINDOW))
    a.machine.store(a.window, source)
    near, far = bytearray(source), bytearray(WINDOW)
    received: list[tuple[int, int]] = []
    inbox = b.driver.allocate(3000 * 30)
    for number, (opcode, at, length) in enumerate(operations):
        at *= 8
        length = 8 if opcode is Opcode.ATOMIC_ADD else min(length, WINDOW - at)
        fields: dict[str, Any] = {
            "remote_address": b.driver.virtual(b.window + at),
            "rkey": b.driver.key,
            "length": length,
            "local_address": a.driver.virtual(a.window + at),
            "lkey": a.driver.key,
            "immediate": number,
        }
        if opcode in (Opcode.SEND, Opcode.WRITE_IMM):
            b.qp.post_receive(b.driver.virtual(inbox + 3000 * number), b.driver.key, 3000)
            received.append((number, length))
        if opcode in (Opcode.WRITE, Opcode.WRITE_IMM):
            far[at : at + length] = near[at : at + length]
        elif opcode is Opcode.READ:
            near[at : at + length] = far[at : at + length]
        elif opcode is Opcode.ATOMIC_ADD:
            # The result goes where nothing else is; only the target's change is followed.
            fields |= {
                "local_address": 3,
                "result_address": a.driver.virtual(a.window - 8),
                "result_lkey": a.driver.key,
            }
            total = (int.from_bytes(far[at : at + 8], "little") + 3) % (1 << 64)
            far[at : at + 8] = total.to_bytes(8, "little")
        # Without the fence a write may send what an earlier READ is still to change.
        fields["flags"] = WqeFlags.FENCE
        a.qp.post(opcode, **fields)
        if number % burst == burst - 1:
            a.qp.ring(settle=False)
    b.qp.ring_receive()
    if a.qp.index != a.machine.nic.qps.items[a.qp.number].doorbell:
        a.qp.ring(settle=False)
    pair.run(30 * SECOND)
    cqes = a.cq.poll()
    assert [cqe.status for cqe in cqes] == [Status.SUCCESS] * len(operations)
    assert [cqe.index for cqe in cqes] == [(0xFFFFFFF0 + n) & 0xFFFFFFFF for n in range(len(operations))]
    assert b.machine.load(b.window, WINDOW) == far
    assert a.machine.load(a.window, WINDOW) == near
    arrivals = b.cq.poll()
    assert [cqe.length for cqe in arrivals] == [length for _, length in received]
    assert a.machine.nic.counters.check_violations == b.machine.nic.counters.check_violations == 0


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("wqe"), st.integers(0, 31), st.binary(min_size=64, max_size=64)),
            st.tuples(st.just("valid"), st.sampled_from(Opcode), st.integers(0, 0xFFFFFFFF)),
            st.tuples(st.just("ring"), st.integers(-2, 4), st.just(0)),
            st.tuples(st.just("receive"), st.integers(0, 4096), st.integers(0, 0xFFFF)),
            st.tuples(st.just("state"), st.integers(0, 6), st.just(0)),
            st.tuples(st.just("unmap"), st.just(0), st.just(0)),
        ),
        max_size=25,
    )
)
def test_nothing_a_guest_does_hurts_its_peer_or_the_server(steps: list[tuple[Any, ...]]) -> None:
    # With 7 a message without a receive element is tried 100,000 times a second for ever, as it must be.
    pair = Pair(0.0, 0, rnr_retry=6)
    a, b = pair.a, pair.b
    for what, first, second in steps:
        if what == "wqe":
            a.machine.store(a.qp.slot(first), second)
        elif what == "valid":
            a.qp.post(
                first,
                length=second % 9000,
                remote_address=b.driver.virtual(b.window) + second % 77,
                rkey=b.driver.key + second % 2,
                local_address=a.driver.virtual(a.window),
                lkey=a.driver.key,
                result_lkey=second,
            )
        elif what == "ring":
            a.qp.ring((a.qp.index + first) & 0xFFFFFFFF)
        elif what == "receive":
            b.qp.post_receive(second, b.driver.key, first)
            b.qp.ring_receive()
        elif what == "state":
            a.driver.submit(a.driver.build(AdminOpcode.MODIFY_QP, qpn=a.qp.number, mask=1, state=first))
        elif a.machine.ram_base in a.machine.bus.pieces:
            a.machine.bus.unmap(a.machine.ram_base)
        pair.run(MS)
    pair.run(100 * SECOND)
    a.machine.bus.pieces[a.machine.ram_base] = a.machine.ram
    for side in pair.sides:
        side.driver.set_reg("CONTROL", 1)
        assert set(side.machine.nic.objects().to_json().values()) == {0}
        side.driver.up()
        side.driver.create_cq().doorbell(DoorbellType.CQ_ARM)
