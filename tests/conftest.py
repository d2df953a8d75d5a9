# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of whole devices."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis.core
import pytest
from hypothesis import settings

from emu.transport.context import Endpoint
from emu.transport.loop import Loop
from emu.transport.model import DeviceModel
from tests.vfio_user import Client

# An example takes as long as the machine is busy; only what it finds counts.
settings.register_profile("vrnic", deadline=None, print_blob=True)
settings.load_profile("vrnic")

_SEED_BITS = 32


def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed of all property tests, unless ``--hypothesis-seed`` gives it, to be able to tell it."""
    if hypothesis.core.global_force_seed is None:
        hypothesis.core.global_force_seed = random.getrandbits(_SEED_BITS)  # type: ignore[assignment]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """With a failure, say how to draw the same examples again."""
    if terminalreporter.stats.get("failed"):
        seed = hypothesis.core.global_force_seed
        terminalreporter.write_line(f"random draws of this run: --hypothesis-seed={seed} repeats them")


Connect = Callable[[DeviceModel], Client]
Serve = Callable[[DeviceModel], Endpoint]


@pytest.fixture
def loop() -> Iterator[Loop]:
    """An owner loop; a callback that raised in it fails the test."""
    made = Loop()
    yield made
    assert made.faults == 0, "a callback of the loop raised, see the log"
    made.close()


@pytest.fixture
def serve(loop: Loop, tmp_path: Path) -> Iterator[Serve]:
    """Serve device models, each on its own socket; all are closed at the end."""
    endpoints: list[Endpoint] = []

    def make(model: DeviceModel) -> Endpoint:
        endpoints.append(Endpoint(model, str(tmp_path / f"{len(endpoints)}.sock"), loop))
        return endpoints[-1]

    yield make
    for endpoint in endpoints:
        endpoint.close()
    loop.step(0)


@pytest.fixture
def vfio_client(serve: Serve, loop: Loop) -> Iterator[Connect]:
    """``vfio_client(model)`` serves a model and returns a client attached to it.

    Several calls give several functions in one server, as a guest with a NIC and a GPU has them. An exception
    that left the model fails the test.
    """
    made: list[tuple[Client, Endpoint]] = []

    def connect(model: DeviceModel) -> Client:
        endpoint = serve(model)
        client = Client(endpoint.path, loop)
        made.append((client, endpoint))
        return client

    yield connect
    for client, endpoint in made:
        client.close()
        assert endpoint.counters.faults == 0, f"{endpoint.model.name} raised, see the log"
