# SPDX-License-Identifier: Apache-2.0
"""Every command this device carries out, one module per family."""

from __future__ import annotations

from emu.personality.mlx5.commands import (
    counters,
    devx,
    ethernet,
    general,
    memory,
    ports,
    queuepairs,
    queues,
    shared,
    steering,
)
from emu.personality.mlx5.commands.command import Command

__all__ = ["COMMANDS"]

COMMANDS: dict[int, Command] = {
    int(command.opcode): command
    for family in (general, memory, queues, queuepairs, shared, devx, ports, counters, ethernet, steering)
    for command in family.COMMANDS
}
"""By opcode. Anything else is answered BAD_OP, which drivers take for "not offered"."""
