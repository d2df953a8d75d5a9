# SPDX-License-Identifier: Apache-2.0
"""K13: the same kernels through a CPU that takes commands from a ring; the counts tell the two apart."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.simt.harness import run_kernel
from tests.simt.test_kernels import assert_silent

FORMS = [
    "single",
    "shared",
    "coalesced --ring host --data host",
    "verbs",
    "verbs --transport uet-rud --qps 2",
    "moe",
    "moe --routing hot --ring host",
    "wrap",
]


@pytest.mark.parametrize("engine", ["direct", "weak"])
@pytest.mark.parametrize("form", FORMS)
def test_a_kernel_gives_the_same_bytes_through_a_cpu(simt: Path, form: str, engine: str) -> None:
    for seed in (1, 2):
        outcome = run_kernel(simt, f"{form} --submit proxy --engine {engine}", seed=seed)
        assert_silent(outcome)
        # The CPU takes every command and rings for each: no doorbell is saved.
        assert outcome.counter("doorbells") == outcome.counter("wqes") == outcome.counter("cqes")
        wqes = [record["doorbells"] for record in outcome.records]
        touches = [record["cpu_touches"] for record in outcome.records]
        assert all(2 * count < touched <= 3 * count for count, touched in zip(wqes, touches, strict=True))


def test_direct_submission_touches_no_cpu_and_saves_doorbells(simt: Path) -> None:
    direct = run_kernel(simt, "coalesced")
    proxy = run_kernel(simt, "coalesced --submit proxy")
    assert [record["cpu_touches"] for record in direct.records] == [0, 0]
    assert direct.counter("wqes") == proxy.counter("wqes")
    assert 8 * direct.counter("doorbells") < proxy.counter("doorbells")


def test_a_full_ring_waits_for_the_cpu(simt: Path) -> None:
    """1,024 entries are 256 transfers; 512 lanes have more to say."""
    assert_silent(run_kernel(simt, "shared --submit proxy --messages 4096 --ctas 4 --warps 4"))


def test_what_a_cpu_cannot_do_is_refused(simt: Path) -> None:
    for option in ("--device mlx5", "--cq ring", "--mutation masked-index"):
        refused = subprocess.run(
            [simt, "shared", "--role", "a", "--submit", "proxy", *option.split()],
            capture_output=True,
            text=True,
            check=False,
        )
        assert refused.returncode == 2
        assert "--submit proxy" in refused.stderr
