# SPDX-License-Identifier: Apache-2.0
"""The MMIO benchmark: its device counts, its report adds up, and the whole of it runs in a real guest."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from emu.bench.mmio import MmioCost, parse_rounds, run_mmio_bench
from emu.bench.mmio_server import BAR_SIZE, build_function
from emu.lab.failure import LabFailure
from tests.conftest import Connect

HERE = Path(__file__).parent


def test_the_python_device_counts_every_posted_write(vfio_client: Connect) -> None:
    client = vfio_client(build_function())
    client.config_write(0x04, 2, 0x2)  # memory decoding
    assert client.region_info(2).size == BAR_SIZE
    for number in range(1000):
        client.write_posted(2, 8 + 8 * (number % 8), number.to_bytes(8, "little"))
    assert client.read_int(2, 0, 8) == 1000
    assert client.read_int(2, 0, 4) == 1000


LINES = [
    "6eb0 100 300 4000 20000",
    "6eb1 100 200 2000 20000",
    "6eb0 90 500 3000 20000",
    "6eb1 100 250 3000 20000",
    "6eb0 100 400 9000 20000",
    "6eb1 50 900 3000 20000",
]


def test_the_best_rounds_are_compared() -> None:
    report = parse_rounds(LINES, stores=20000, accelerator="tcg")
    assert report.python == MmioCost(90, 300, 3000)
    assert report.c == MmioCost(50, 200, 2000)
    assert report.ratio == MmioCost(1.8, 1.5, 1.5)
    assert report.rounds == 3
    assert not report.met
    document = report.to_json()
    assert document["ratio"] == {"posted": 1.8, "sustained": 1.5, "read": 1.5}
    assert document["met"] is False


@pytest.mark.parametrize("lines", [["hello"], ["6eb9 1 1 1 1"], [], LINES[:3], ["6eb0 a b c d"]])
def test_anything_else_from_the_guest_is_a_failure(lines: list[str]) -> None:
    with pytest.raises(LabFailure, match="benchmark"):
        parse_rounds(lines, stores=1, accelerator="tcg")


def test_the_guest_program_compiles_without_warnings_and_refuses_bad_arguments(tmp_path: Path) -> None:
    program = tmp_path / "mmio_guest"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *flags, str(HERE / "mmio_guest.c"), "-o", str(program)], check=True)
    for arguments in ([], ["1", "1", "1"], ["0", "1", "1", "6eb0"], ["1", "x", "1", "6eb0"]):
        answer = subprocess.run([str(program), *arguments], capture_output=True, text=True)
        assert answer.returncode == 2
        assert answer.stderr


@pytest.mark.guest
def test_the_benchmark_runs_in_a_guest_and_no_doorbell_is_lost() -> None:
    said: list[str] = []
    report = run_mmio_bench(stores=2000, reads=50, rounds=2, progress=said.append)
    assert report.rounds == 2 and report.stores == 2000
    for cost in (report.python, report.c):
        assert 0 < cost.posted <= cost.sustained < cost.read
    # Generous: a shared machine is noisy. The targets are for `vrnic bench mmio`, with more rounds.
    assert report.ratio.read < 10
    assert said[-1].startswith("measuring")
