# SPDX-License-Identifier: Apache-2.0
"""Two NICs with real RoCEv2 engines in virtual time, each with one connected queue pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from emu.checks.recorder import Violation
from emu.checks.rule import Rule
from emu.clock import MS, VirtualScheduler
from emu.events import EventBus
from emu.fabric.switch import Switch
from emu.nic.work import Opcode
from emu.personality.vrnic.contract.codes import DbrPolicy
from emu.roce import create_engine, parse
from tests.personality.bare_machine import BareMachine
from tests.personality.driver import Cq, Driver, Qp

WINDOW = 0x4000


@dataclass
class Side:
    """One NIC, its driver, a CQ, a queue pair and a window of memory."""

    machine: BareMachine
    driver: Driver
    cq: Cq
    qp: Qp
    window: int

    def rules(self) -> list[Rule]:
        """Rules that were broken, in order."""
        return [violation.rule for violation in self.violations()]

    def violations(self) -> list[Violation]:
        return list(self.machine.nic.checks.violations)


class Pair:
    """Both sides, connected unless told otherwise."""

    def __init__(self, *, connect: bool = True, loss: float = 0.0, **values: Any) -> None:
        self.clock = VirtualScheduler()
        self.events = EventBus()
        self.switch = Switch(self.clock, self.events)
        self.a, self.b = (self._side(number, loss, values) for number in (1, 2))
        nics = (self.a.machine.nic, self.b.machine.nic)
        for nic in nics:
            nic.checks.join(nics)
        if connect:
            self.a.driver.connect(self.a.qp, self.b.driver, self.b.qp)
            self.b.driver.connect(self.b.qp, self.a.driver, self.a.qp)

    def _side(self, number: int, loss: float, values: dict[str, Any]) -> Side:
        machine = BareMachine(
            mac=bytes((2, 0, 0, 0, 0, number)),
            gid=bytes(10) + b"\xff\xff" + bytes((10, 77, 0, number)),
            clock=self.clock,
            port=self.switch.port(f"nic{number}", loss=loss, seed=1, delay_ns=1000),
            create_engine=create_engine,
            parse=parse,
        )
        driver = Driver(machine)
        driver.up()
        cq = driver.create_cq(log_size=7)
        qp = driver.create_qp(cq, **{"sq_log_size": 4, "policy": DbrPolicy.RECOVERY, "phase": True} | values)
        return Side(machine, driver, cq, qp, driver.allocate(WINDOW))

    def post(self, length: int = 64, *, ring: bool = True, **values: Any) -> int:
        """A WRITE from a's window to b's; its index."""
        a, b = self.a, self.b
        fields = {
            "opcode": Opcode.WRITE,
            "remote_address": b.driver.virtual(b.window),
            "rkey": b.driver.key,
            "length": length,
            "local_address": a.driver.virtual(a.window),
            "lkey": a.driver.key,
        }
        index = a.qp.post(**(fields | values))
        if ring:
            a.qp.record(send=a.qp.index)
            a.qp.ring(settle=False)
        return index

    def run(self, span: int = 5 * MS) -> None:
        """Let virtual time pass."""
        self.clock.run(until=self.clock.now() + span)
