# SPDX-License-Identifier: Apache-2.0
"""The device library and the kernels' lanes are CUDA C++ as well."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "guest/kernels"


@pytest.mark.timeout(300)
def test_the_kernels_compile_and_link_for_a_gpu(tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed: the CUDA toolkit compiles the kernels for a GPU")
    made = subprocess.run(
        ["make", "-C", str(KERNELS), "cuda", f"OUT={tmp_path}"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-4000:]
    assert (tmp_path / "cuda.o").stat().st_size > 0
    objects = {path.name for path in tmp_path.glob("cuda_*.o")}
    assert {f"cuda_{name}.o" for name in ("qp", "shmem", "puts", "verbs", "moe", "eager")} <= objects
    # Each kernel is there to be launched.
    launched = (tmp_path / "cuda_puts.o").read_bytes()
    assert all(f"{name}_grid".encode() in launched for name in ("single", "coalesced", "shared", "exclusive"))
