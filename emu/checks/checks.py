# SPDX-License-Identifier: Apache-2.0
"""The rules of one NIC: what is on, what was broken, and what follows from that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from emu.checks.catalogue import CHECKS
from emu.checks.recorder import LAST, Recorder, Violation
from emu.checks.rule import Action, Rule
from emu.checks.watch import WATCHED, Watch
from emu.events import Kind

if TYPE_CHECKING:
    from emu.nic.counters import Counters
    from emu.nic.device import Nic
    from emu.nic.trace import Trace

__all__ = ["Checks"]

_CHECK = Kind.CHECK.bit


class Checks:
    """Takes reports of broken rules, and acts on them as each rule's action says.

    ``watch`` is what the data path tells of its steps; None while no rule needs it, so that rules which are
    off cost one test. ``stopped`` is what made the NIC stand still, ``violations`` the last ones.
    """

    __slots__ = (
        "_counters",
        "_nic",
        "_start",
        "_trace",
        "_watch",
        "actions",
        "counts",
        "last_index",
        "last_qpn",
        "last_rule",
        "on_stop",
        "selected",
        "stopped",
        "violations",
        "watch",
    )

    def __init__(self, counters: Counters, trace: Trace) -> None:
        self._counters = counters
        self._trace = trace
        self._nic: Nic | None = None
        self._watch: Watch | None = None
        self.watch: Watch | None = None
        self.actions = {rule: CHECKS[rule].default for rule in CHECKS}
        self._start = dict(self.actions)
        self.counts = dict.fromkeys(CHECKS, 0)
        self.violations: deque[Violation] = deque(maxlen=LAST)
        self.stopped: Violation | None = None
        self.on_stop: Callable[[Violation], None] | None = None
        """Told when a rule made the NIC stand still."""
        self.selected = Rule.NONE
        """The rule that the guest's check-control registers are about."""
        self.last_rule = Rule.NONE
        self.last_qpn = 0
        self.last_index = 0

    def attach(self, nic: Nic) -> None:
        """Look at ``nic``, whose rules these are."""
        self._nic = nic
        self._watch = Watch(nic, self)
        self._refresh()

    def join(self, neighbours: Sequence[Nic]) -> None:
        """Say which NICs, this one among them, can be at the other end of a connection."""
        if self._watch is not None:
            self._watch.path.neighbours = neighbours

    def configure(self, actions: Mapping[Rule, Action]) -> None:
        """Set actions that a reset comes back to."""
        self._start.update(actions)
        self.actions.update(actions)
        self._refresh()

    def set(self, rule: Rule, action: Action) -> None:
        """Set one rule's action until the next reset."""
        self.actions[rule] = action
        self._refresh()

    @property
    def recorder(self) -> Recorder | None:
        """What was done last, as long as anything is watched."""
        return None if self.watch is None else self.watch.recorder

    def on(self, rule: Rule) -> bool:
        """Whether anybody wants to know of ``rule``."""
        return self.actions[rule] is not Action.OFF

    def report(
        self,
        rule: Rule,
        text: str,
        *,
        qpn: int | None = None,
        index: int | None = None,
        address: int | None = None,
        writers: tuple[str, ...] = (),
    ) -> None:
        """A rule was broken. ``text`` names the object, what is wrong and what to do about it.

        ``address`` and ``writers`` are evidence as in :class:`Violation`.
        """
        action = self.actions[rule]
        if action is Action.OFF:
            return
        self._counters.check_violations += 1
        self.counts[rule] += 1
        self.last_rule = rule
        self.last_qpn = qpn or 0
        self.last_index = index or 0
        if writers:
            text = f"{text} (last written by {', '.join(writers)})"
        violation = Violation(
            self._trace.scheduler.now(), rule, action, text, qpn, index, address, tuple(writers)
        )
        self.violations.append(violation)
        if action is Action.COUNT:
            return
        if self._trace.bus.mask & _CHECK:
            self._trace.emit(
                Kind.CHECK, f"{rule.code}: {text}", qpn=qpn, index=index, address=address, value=int(rule)
            )
        if action is Action.ERROR and qpn is not None and self._nic is not None:
            # The engine may be in the middle of a call.
            self._trace.scheduler.call_soon(partial(self._condemn, qpn, rule))
        elif action is Action.STOP and self.stopped is None:
            self._stop(violation)

    def resume(self) -> bool:
        """Let the NIC go on. False when it was not standing still."""
        if self.stopped is None:
            return False
        self.stopped = None
        if self._nic is not None:
            self._nic.submission.resume()
        return True

    def clear(self) -> None:
        """Forget what was broken, and go on; actions are those of the start."""
        self.last_rule = Rule.NONE
        self.last_qpn = 0
        self.last_index = 0
        self.selected = Rule.NONE
        self.stopped = None
        self.violations.clear()
        self.counts = dict.fromkeys(CHECKS, 0)
        self.actions = dict(self._start)
        if self._watch is not None:
            self._watch.clear()
        self._refresh()

    def snapshot(self) -> list[dict[str, object]]:
        """Each rule with its action and how often it was broken."""
        return [
            {
                "rule": rule.code,
                "name": rule.name[4:],
                "action": action.name.lower(),
                "count": self.counts[rule],
            }
            for rule, action in self.actions.items()
        ]

    def _refresh(self) -> None:
        wanted = any(self.actions[rule] is not Action.OFF for rule in WATCHED)
        watch = self._watch
        if watch is not None:
            if wanted and self.watch is None:
                watch.clear()
            watch.refresh()
        self.watch = watch if wanted else None

    def _condemn(self, qpn: int, rule: Rule) -> None:
        qp = None if self._nic is None else self._nic.qps.items.get(qpn)
        if qp is not None:
            qp.condemn(rule)

    def _stop(self, violation: Violation) -> None:
        self.stopped = violation
        if self._trace.bus.mask & _CHECK:
            self._trace.emit(
                Kind.CHECK,
                f"stopped by {violation.rule.code}; `vrnic checks dump` shows what led there, "
                "`vrnic checks resume` goes on",
                qpn=violation.qpn,
                index=violation.index,
                value=int(violation.rule),
            )
        if self.on_stop is not None:
            self.on_stop(violation)
