# SPDX-License-Identifier: Apache-2.0
"""How a driver learns of a reset that it did not ask for: the state of the interface."""

from __future__ import annotations

from emu.personality.mlx5.registers import QUEUE_LOW
from tests.personality.mlx5.machine import Machine

FULL, DISABLED = 0, 1


def state(machine: Machine) -> int:
    """``nic_interface``: bits 10:8 behind the command queue's address."""
    return int.from_bytes(machine.registers.read(QUEUE_LOW, 4), "big") >> 8 & 7


def sizes(machine: Machine) -> int:
    """What a driver reads about the queue before it has one."""
    return int.from_bytes(machine.registers.read(QUEUE_LOW, 4), "big") & 0xFF


def test_the_interface_is_disabled_from_a_reset_to_the_next_command_queue() -> None:
    machine = Machine()
    before = sizes(machine)
    assert state(machine) == FULL
    for _ in range(2):
        machine.registers.clear()
        assert state(machine) == DISABLED
    assert sizes(machine) == before
    machine.registers.write(QUEUE_LOW, (0x1000).to_bytes(4, "big"))
    assert state(machine) == FULL


def test_a_driver_that_comes_first_finds_it_enabled() -> None:
    machine = Machine()
    fresh = type(machine.registers)(machine.device, machine.queue, machine.clock)
    fresh.clear()
    assert int.from_bytes(fresh.read(QUEUE_LOW, 4), "big") >> 8 == FULL
