# SPDX-License-Identifier: Apache-2.0
"""The steps of the set-up as the user sees them: a spinner on a terminal, plain lines elsewhere.

Everything goes to standard error: standard output belongs to what a caller asked to have printed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console

__all__ = ["step"]

_WORTH_SAYING = 0.5
_console = Console(stderr=True, highlight=False)


@contextlib.contextmanager
def step(what: str, expectation: str = "") -> Iterator[None]:
    """Show that ``what`` is under way and how long it took; a step that took no time leaves no line.

    :param expectation: how long the user has to wait ("about a minute"); announced beforehand.
    """
    note = f" ({expectation})" if expectation else ""
    start = time.monotonic()
    if _console.is_terminal:
        with _console.status(f"{what}{note} ..."):
            yield
    else:
        if expectation:
            _console.print(f"{what}{note} ...", markup=False, soft_wrap=True)
        yield
    seconds = time.monotonic() - start
    if seconds >= _WORTH_SAYING:
        _console.print(f"{what}: done in {seconds:.1f} s", markup=False, soft_wrap=True)
