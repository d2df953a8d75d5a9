# SPDX-License-Identifier: Apache-2.0
"""Priority flow control under RDMA: a slow receiver costs the other priority nothing, and nobody a resend."""

from __future__ import annotations

import pytest

from emu.clock import MS, VirtualScheduler
from emu.events import EventBus
from emu.fabric.egress import UNLIMITED, Queueing
from emu.fabric.switch import Switch
from emu.nic.work import Opcode, Status
from emu.roce import create_engine, parse
from tests.personality.bare_machine import BareMachine
from tests.personality.driver import Cq, Driver, Qp

SLOW = Queueing(rate=20_000_000, limit=160 << 10, pause=True)
BULK, BLOCKS, SMALL = 64 << 10, 6, 512
LOSSLESS_CLASS = 26 << 2
"""DSCP 26, which is priority 3."""


class World:
    """NIC 1 writes to NIC 2 on a slow link in priority 3, and to NIC 3 in priority 0 or 3."""

    def __init__(self, *, pfc: bool, other_class: int) -> None:
        self.clock = VirtualScheduler()
        self.switch = Switch(self.clock, EventBus())
        self.drivers = [self._driver(number, pfc=pfc) for number in (1, 2, 3)]
        self.bulk = self._connect(1, LOSSLESS_CLASS)
        self.small = self._connect(2, other_class)

    def _driver(self, number: int, *, pfc: bool) -> Driver:
        name = f"nic{number}"
        end = self.switch.port(name, pfc=pfc, queueing=SLOW if number == 2 else UNLIMITED)
        machine = BareMachine(
            mac=bytes((2, 0, 0, 0, 0, number)),
            gid=bytes(10) + b"\xff\xff" + bytes((10, 77, 0, number)),
            clock=self.clock,
            port=self.switch.obeying(name) if pfc else end,
            create_engine=create_engine,
            parse=parse,
        )
        driver = Driver(machine)
        driver.up()
        return driver

    def _connect(self, number: int, traffic_class: int) -> tuple[Qp, Cq]:
        """A queue pair from NIC 1 to NIC ``number + 1``; neither gives up for a second."""
        ends = []
        for driver in (self.drivers[0], self.drivers[number]):
            cq = driver.create_cq(log_size=6)
            ends.append((driver, driver.create_qp(cq), cq))
        for (driver, qp, _), (peer, other, _) in (ends, ends[::-1]):
            there = peer.gid(0)
            driver.to_init(qp)
            driver.to_rtr(
                qp,
                dest_qpn=other.number,
                dest_gid=there.gid,
                dest_mac=there.mac,
                traffic_class=traffic_class,
                path_mtu=3,
            )
            driver.to_rts(qp, timeout=18)
        return ends[0][1], ends[0][2]

    def run(self) -> tuple[int, int]:
        """Write much to NIC 2, then, while that is on its way, a little to NIC 3; when each was done (ns)."""
        sender, slow, fast = self.drivers
        source = sender.allocate(BULK)
        sender.machine.store(source, bytes(range(256)) * (BULK // 256))
        targets = [peer.allocate(BULK) for peer in (slow, fast)]
        (qp, cq), (other, other_cq) = self.bulk, self.small
        # The switch floods what is for an address it has not seen, and so would pause for the slow port too.
        self._write(other, source, fast, targets[1], SMALL)
        other.ring()
        self.clock.run(until=self.clock.now() + MS)
        assert [cqe.status for cqe in other_cq.poll()] == [Status.SUCCESS]
        for _ in range(BLOCKS):
            self._write(qp, source, slow, targets[0], BULK)
        qp.ring()
        self.clock.run(until=self.clock.now() + 5 * MS)
        self._write(other, source, fast, targets[1], SMALL)
        other.ring()
        started = self.clock.now()
        done: dict[str, int] = {}
        statuses: list[int] = []
        while len(statuses) < BLOCKS + 1 and self.clock.now() < started + 2000 * MS:
            self.clock.run(until=self.clock.now() + MS // 10)
            for name, queue in (("bulk", cq), ("small", other_cq)):
                found = [cqe.status for cqe in queue.poll()]
                statuses += found
                if found:
                    done[name] = self.clock.now() - started
        assert statuses == [Status.SUCCESS] * (BLOCKS + 1)
        assert slow.machine.load(targets[0], BULK) == sender.machine.load(source, BULK)
        assert sender.counter("retransmitted_packets") == 0
        assert self.switch.snapshot()["nic2"]["queue.dropped"] == 0
        return done["small"], done["bulk"]

    def _write(self, qp: Qp, source: int, peer: Driver, target: int, length: int) -> None:
        sender = self.drivers[0]
        qp.post(
            Opcode.WRITE,
            remote_address=peer.virtual(target),
            rkey=peer.key,
            length=length,
            local_address=sender.virtual(source),
            lkey=sender.key,
        )


def test_the_other_priority_is_not_held_up() -> None:
    world = World(pfc=True, other_class=0)
    small, bulk = world.run()
    counters = world.switch.snapshot()["nic1"]
    assert counters["rx_prio3_pause"] >= 1
    assert "rx_prio0_pause" not in counters
    assert small <= MS < 5 * MS < bulk


@pytest.mark.parametrize(("pfc", "other_class"), [(True, LOSSLESS_CLASS), (False, 0)])
def test_in_the_same_priority_or_without_it_everybody_waits(pfc: bool, other_class: int) -> None:
    small, bulk = World(pfc=pfc, other_class=other_class).run()
    assert small > MS
    assert bulk > 5 * MS
