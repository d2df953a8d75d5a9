# SPDX-License-Identifier: Apache-2.0
"""What follows a broken rule: off, count, log, error, stop; and the guest's own registers for it."""

from __future__ import annotations

import json

import pytest

from emu.checks.catalogue import CHECKS, find_rule, parse_choice
from emu.checks.dump import dump_nic, render_dump
from emu.checks.recorder import Violation
from emu.checks.rule import Action, Rule
from emu.clock import MS
from emu.events import Event, Kind
from emu.nic.work import Cause, QpState, Status
from tests.checks.pair import Pair, Side
from tests.personality.bare_machine import BareMachine
from tests.personality.driver import Driver


def break_c04(pair: Pair) -> int:
    """Change a WQE after its doorbell; its index."""
    index = pair.post()
    pair.a.machine.settle()
    pair.a.machine.store(pair.a.qp.slot(index) + 12, b"\xaa")
    pair.run()
    return index


def events_of(side: Side) -> list[Event]:
    seen: list[Event] = []
    side.machine.event_bus.subscribe(seen.append, [Kind.CHECK])
    return seen


@pytest.mark.parametrize(
    ("action", "counted", "logged"),
    [(Action.OFF, 0, 0), (Action.COUNT, 1, 0), (Action.LOG, 1, 1), (Action.ERROR, 1, 1), (Action.STOP, 1, 2)],
)
def test_each_action_includes_those_before_it(action: Action, counted: int, logged: int) -> None:
    pair = Pair()
    seen = events_of(pair.a)
    checks = pair.a.machine.nic.checks
    checks.set(Rule.C04_CHANGED, action)
    break_c04(pair)
    assert checks.counts[Rule.C04_CHANGED] == counted
    assert pair.a.machine.nic.counters.check_violations == counted
    assert len(seen) == logged


def test_error_ends_the_queue_pair_with_one_completion_that_says_so() -> None:
    pair = Pair()
    pair.a.machine.nic.checks.set(Rule.C04_CHANGED, Action.ERROR)
    break_c04(pair)
    pair.post()
    pair.post()
    pair.run()
    done, failed, *flushed = pair.a.cq.poll()
    assert done.status == Status.SUCCESS
    assert (failed.status, failed.cause) == (Status.LOC_QP_OP_ERR, Cause.RULE_BROKEN)
    assert [cqe.status for cqe in flushed] == [Status.WR_FLUSH_ERR]
    assert pair.a.qp.query().state == QpState.ERR
    assert pair.a.qp.query().first_error_cause == Cause.RULE_BROKEN
    assert pair.b.qp.query().state == QpState.RTS


def test_stop_makes_the_nic_stand_still_until_it_is_told_to_go_on() -> None:
    pair = Pair()
    checks = pair.a.machine.nic.checks
    checks.set(Rule.C04_CHANGED, Action.STOP)
    told: list[Violation] = []
    checks.on_stop = told.append
    index = break_c04(pair)
    pair.a.cq.poll()
    assert [violation.index for violation in told] == [index]
    sent = pair.a.machine.nic.counters.tx_packets
    pair.post()
    pair.run()
    assert pair.a.machine.nic.counters.tx_packets == sent
    assert pair.a.cq.poll() == []
    dump = json.loads(json.dumps(dump_nic(pair.a.machine.nic)))
    (queue,) = dump["queue_pairs"]
    assert [entry["state"] for entry in queue["pending"]] == ["rung"]
    assert checks.resume()
    pair.run(100 * MS)
    assert [cqe.status for cqe in pair.a.cq.poll()] == [Status.SUCCESS]
    assert not checks.resume()


def test_a_stopped_nic_answers_registers_and_commands_and_a_reset_frees_it() -> None:
    pair = Pair()
    pair.a.machine.nic.checks.set(Rule.C04_CHANGED, Action.STOP)
    break_c04(pair)
    assert pair.a.driver.reg("CHECK_ID") == Rule.C04_CHANGED
    assert pair.a.qp.query().state == QpState.RTS
    pair.a.driver.set_reg("CONTROL", 1)
    checks = pair.a.machine.nic.checks
    assert checks.stopped is None
    assert checks.actions[Rule.C04_CHANGED] is Action.LOG


def test_a_reset_brings_back_what_the_lab_chose() -> None:
    machine = BareMachine()
    checks = machine.nic.checks
    checks.configure(parse_choice([("C08", "stop"), ("all", "count")]))
    checks.set(Rule.C08_DBR, Action.OFF)
    machine.reset()
    assert checks.actions[Rule.C08_DBR] is Action.STOP
    assert checks.actions[Rule.C01_INDEX] is Action.COUNT


def test_a_guest_reads_and_sets_actions() -> None:
    machine = BareMachine()
    driver = Driver(machine)
    driver.set_reg("CHECK_SELECT", Rule.C32_REGISTER)
    assert driver.reg("CHECK_ACTION") == Action.LOG
    driver.set_reg("CHECK_ACTION", Action.COUNT)
    assert machine.nic.checks.actions[Rule.C32_REGISTER] is Action.COUNT
    machine.read(0, 0x30, 4)
    assert driver.reg("CHECK_SELECTED") == 1
    driver.set_reg("CHECK_ACTION", 9)
    assert driver.reg("CHECK_ACTION") == Action.COUNT
    assert driver.counter("bad_mmio") == 2


def test_with_everything_off_nothing_is_told_or_kept() -> None:
    pair = Pair()
    checks = pair.a.machine.nic.checks
    for rule in CHECKS:
        checks.set(rule, Action.OFF)
    assert checks.watch is None
    break_c04(pair)
    assert checks.violations == type(checks.violations)(maxlen=checks.violations.maxlen)
    assert pair.a.machine.nic.counters.check_violations == 0


def test_looking_leaves_no_marks() -> None:
    counted = []
    for action in (Action.LOG, Action.OFF):
        pair = Pair()
        for rule in CHECKS:
            pair.a.machine.nic.checks.set(rule, action)
        for _ in range(8):
            pair.post(256)
            pair.run()
        counters = pair.a.machine.nic.counters.snapshot()
        counted.append((counters["dma_read_bytes"], counters["dma_write_bytes"], counters["wqe_fetches"]))
    assert counted[0] == counted[1]


def test_the_dump_tells_the_story_and_is_json() -> None:
    pair = Pair()
    for _ in range(70):
        pair.post()
        pair.run(MS)
    pair.post(ring=False)
    nic = pair.a.machine.nic
    dump = json.loads(json.dumps(dump_nic(nic, pair.a.qp.number)))
    assert [entry["index"] for entry in dump["doorbells"]] == list(range(7, 71))
    assert [entry["index"] for entry in dump["fetches"]] == list(range(6, 70))
    (queue,) = dump["queue_pairs"]
    assert queue["indices"]["doorbell"] == queue["indices"]["completed"] == 70
    assert queue["indices"]["record send"] == 70
    assert [(entry["state"], entry["index"]) for entry in queue["pending"]] == [("not rung", 70)]
    text = render_dump(dump)
    assert "WRITE, 64 bytes" in text and "last doorbells (64)" in text
    with pytest.raises(KeyError):
        dump_nic(nic, 0x777777)


@pytest.mark.parametrize(
    ("pairs", "complaint"),
    [
        ([("C99", "stop")], "there is no rule 'C99'"),
        ([("DBR", "stop")], "there is no rule 'DBR'"),
        ([("C08", "explode")], "'explode' is no action"),
    ],
)
def test_a_wrong_choice_is_refused_in_words(pairs: list[tuple[str, str]], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_choice(pairs)


def test_a_rule_goes_by_its_number() -> None:
    assert find_rule("C08") is find_rule("c8") is find_rule("8") is Rule.C08_DBR
