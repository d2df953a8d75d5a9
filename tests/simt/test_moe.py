# SPDX-License-Identifier: Apache-2.0
"""Mixture-of-experts dispatch and combine give what a computation on one machine gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.simt.harness import Outcome, run_kernel
from tests.simt.moe_reference import Moe
from tests.simt.test_kernels import assert_silent


def run(simt: Path, moe: Moe, more: str = "", loss: float = 0.0) -> Outcome:
    """Run the kernel with the options of ``moe``."""
    arguments = (
        f"moe --tokens {moe.tokens} --experts {moe.experts} --topk {moe.topk} --hidden {moe.hidden} "
        f"--steps {moe.steps} --routing {moe.routing} {more}"
    )
    return run_kernel(simt, arguments, ranks=moe.ranks, seed=moe.seed, loss=loss)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    ("options", "more", "loss"),
    [
        ({}, "", 0.0),
        ({}, "--engine weak --qps 4", 0.0),
        ({"routing": "hot"}, "--engine weak --ring host --data host", 0.0),
        ({"routing": "idle", "tokens": 5}, "--ctas 3 --warps 1", 0.0),
        ({"topk": 4, "experts": 12, "hidden": 256}, "--start 0xfffffff8", 0.0),
        ({"steps": 5}, "--engine weak", 0.01),
        ({"steps": 5, "routing": "hot"}, "--engine weak --transport uet-rud", 0.01),
        ({}, "--transport uet-rod --cq ring", 0.01),
    ],
)
def test_the_result_is_that_of_one_machine(
    simt: Path, ranks: int, options: dict[str, Any], more: str, loss: float
) -> None:
    moe = Moe(seed=11, ranks=ranks, **options)
    outcome = run(simt, moe, more, loss)
    assert_silent(outcome)
    for pe, record in enumerate(outcome.records):
        expected = moe.output(pe)
        heap = outcome.memories[pe][1]
        assert heap[record["output"] : record["output"] + len(expected)] == expected
    work = moe.work()
    assert sum(record["messages"] for record in outcome.records) == work["writes"]
    assert outcome.counter("wqes") == work["writes"] + work["atomics"]


def test_an_expert_nobody_chooses_still_says_so(simt: Path) -> None:
    moe = Moe(seed=3, ranks=2, routing="idle")
    assert all(7 not in moe.experts_of(step, pe, t) for step in range(3) for pe in range(2) for t in range(8))
    outcome = run(simt, moe)
    assert_silent(outcome)
    assert outcome.counter("wqes") == sum(moe.work().values())


def test_a_late_flag_of_an_expert_nobody_chose_does_not_stand_for_a_later_step(simt: Path) -> None:
    # Few tokens leave most experts out; loss delays their flags past the clearing of the set.
    for seed in range(1, 13):
        assert_silent(run(simt, Moe(seed=seed, ranks=2, tokens=2, steps=6), loss=0.05))
