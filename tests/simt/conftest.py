# SPDX-License-Identifier: Apache-2.0
"""The program of the guest, which runs on the host as well: it is linked statically."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.setup.programs import build_programs
from emu.setup.suite import MAIN
from tests.guest_sources.conftest import require_tree


@pytest.fixture(scope="session")
def simt() -> Path:
    """``vrnic-simt``, built when its sources changed; skips when the machine is not set up."""
    return build_programs(require_tree(MAIN)) / "vrnic-simt"
