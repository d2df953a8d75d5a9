# SPDX-License-Identifier: Apache-2.0
"""The trees guest sources are built in."""

from __future__ import annotations

import pytest

from emu.setup.error import SetupError
from emu.setup.suite import MAIN, Suite
from emu.setup.tree import Tree


def require_tree(suite: Suite) -> Tree:
    """The tree of ``suite``; skips the test when the machine is not set up with it."""
    try:
        return Tree.require(suite)
    except SetupError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def tree() -> Tree:
    """The main tree: the compiler, make and sparse that the guest's sources are for."""
    return require_tree(MAIN)
