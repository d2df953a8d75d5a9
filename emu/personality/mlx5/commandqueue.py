# SPDX-License-Identifier: Apache-2.0
"""The command queue: entries of 64 bytes in guest memory, inputs and outputs in chains of mailboxes.

Entry, all big-endian::

    0x00 type (0x07 in the first byte)      0x20 first 16 bytes of the output
    0x04 input length                       0x30 output mailbox address
    0x08 input mailbox address              0x38 output length
    0x10 first 16 bytes of the input        0x3c token, signature, reserved, status and ownership

A mailbox is 576 bytes: 512 of data, 48 reserved, address of the next one, block number, token, signatures
(which drivers leave unused). The device owns an entry while bit 0 of its last byte is set.

Source: ``struct mlx5_cmd_layout`` and ``struct mlx5_cmd_prot_block`` in ``include/linux/mlx5``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from emu.events import Kind
from emu.nic.errors import ErrorKind, NicError
from emu.pcie.bus import BusError
from emu.personality.mlx5.codes import CommandOpcode, CommandStatus, DeliveryStatus
from emu.personality.mlx5.commands import COMMANDS
from emu.personality.mlx5.commands.command import COMMAND, REPLY, Request
from emu.personality.mlx5.device import Mlx5Device
from emu.personality.mlx5.formats.eqe import command_entry

__all__ = ["LOG_ENTRIES", "LOG_STRIDE", "CommandQueue"]

LOG_ENTRIES = 5
LOG_STRIDE = 6
ENTRY = struct.Struct(">B3xIQ16s16sQIBBxB")
INLINE = 16
BLOCK_DATA = 512
NEXT = 560
MAX_LENGTH = 1 << 20
"""Longest input or output: a page list of a region of 512 MiB in 4 KiB pages."""

PCI_TRANSPORT = 0x07
OWNED = 0x01
_COMMAND = Kind.COMMAND.bit
_STATUS = {
    ErrorKind.BAD_FIELD: CommandStatus.BAD_PARAM,
    ErrorKind.BAD_OBJECT: CommandStatus.BAD_RESOURCE,
    ErrorKind.NOT_OWNER: CommandStatus.BAD_RESOURCE,
    ErrorKind.BUSY: CommandStatus.RESOURCE_BUSY,
    ErrorKind.NO_RESOURCE: CommandStatus.NO_RESOURCES,
    ErrorKind.BAD_STATE: CommandStatus.BAD_QP_STATE,
    ErrorKind.DMA_ERROR: CommandStatus.BAD_PARAM,
    ErrorKind.UNSUPPORTED: CommandStatus.BAD_PARAM,
}


class _Delivery(Exception):
    """An entry that cannot be taken at all."""

    def __init__(self, status: DeliveryStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class CommandQueue:
    """The queue of one function. ``base`` is its bus address, 0 until the driver wrote one.

    Commands run in the next turn of the loop, not inside the register write: a command may destroy the very
    object that a device write to its own doorbell came from.
    """

    def __init__(self, device: Mlx5Device) -> None:
        self._device = device
        self._turn = 0
        self.clear()

    def clear(self) -> None:
        """Power-on state; commands that were waiting are dropped."""
        self._turn += 1
        self.base = 0
        self._waiting = 0

    def ring(self, slots: int) -> None:
        """The driver handed over the entries whose bits are set in ``slots``."""
        if not self.base:
            self._device.nic.counters.doorbells_ignored += 1
            return
        fresh = not self._waiting
        self._waiting |= slots
        if fresh and self._waiting:
            turn = self._turn
            self._device.nic.platform.scheduler.call_soon(lambda: self._run(turn))

    def _run(self, turn: int) -> None:
        if turn != self._turn:
            return
        waiting, self._waiting = self._waiting, 0
        for slot in range(1 << LOG_ENTRIES):
            if waiting >> slot & 1 and turn == self._turn:
                try:
                    self._take(slot)
                except BusError as error:
                    self._refuse(slot, f"entry cannot be reached: {error}")

    def _take(self, slot: int) -> None:
        """Carry out one entry. :raises BusError: the entry itself, or a mailbox of its output."""
        device = self._device
        dma = device.nic.platform.dma
        at = self.base + (slot << LOG_STRIDE)
        kind, size, inbox, head, _, outbox, room, _, _, owner = ENTRY.unpack(dma.read(at, ENTRY.size))
        if not owner & OWNED:
            self._refuse(slot, "doorbell for an entry that software owns; set its ownership bit first")
            return
        delivery = DeliveryStatus.OK
        event_queue = device.command_eq
        try:
            if kind != PCI_TRANSPORT:
                raise _Delivery(DeliveryStatus.BAD_DESCRIPTOR, f"transport type {kind:#x}")
            if not INLINE <= room <= MAX_LENGTH:
                room = min(max(room, 0), MAX_LENGTH)
            data = self._input(size, head, inbox)
        except _Delivery as refusal:
            delivery = refusal.status
            self._refuse(slot, str(refusal))
        else:
            output = self._execute(data, room)
            dma.write(at + 0x20, bytes(output[:INLINE]).ljust(INLINE, b"\0"))
            self._output(output[INLINE:room], outbox)
        dma.write(at + ENTRY.size - 1, bytes([delivery << 1]))
        # The driver polls until it has told its command event queue to take over.
        if event_queue is not None and event_queue is device.command_eq:
            body, commit = command_entry(1 << slot, event_queue)
            event_queue.post_entry(body, commit, slot, f"command in slot {slot} is done")

    def _input(self, size: int, head: bytes, address: int) -> bytes:
        """The whole input. :raises _Delivery: its length or a mailbox is wrong."""
        if not INLINE <= size <= MAX_LENGTH:
            raise _Delivery(DeliveryStatus.BAD_INPUT_LENGTH, f"input of {size} bytes")
        dma = self._device.nic.platform.dma
        parts, have, block = [head], INLINE, 0
        while have < size:
            if not address or address % BLOCK_DATA:
                raise _Delivery(DeliveryStatus.BAD_INPUT_POINTER, f"input mailbox {block} at {address:#x}")
            try:
                box = dma.read(address, NEXT + 12)
            except BusError as error:
                raise _Delivery(DeliveryStatus.BAD_INPUT_POINTER, f"input mailbox {block}: {error}") from None
            number = int.from_bytes(box[NEXT + 8 : NEXT + 12], "big")
            if number != block:
                reason = f"input mailbox {block} carries number {number}"
                raise _Delivery(DeliveryStatus.BAD_BLOCK_NUMBER, reason)
            parts.append(box[:BLOCK_DATA])
            have += BLOCK_DATA
            address = int.from_bytes(box[NEXT : NEXT + 8], "big")
            block += 1
        return b"".join(parts)[:size]

    def _output(self, rest: bytes | bytearray, address: int) -> None:
        dma = self._device.nic.platform.dma
        for start in range(0, len(rest), BLOCK_DATA):
            if not address:
                return
            dma.write(address, rest[start : start + BLOCK_DATA])
            address = int.from_bytes(dma.read(address + NEXT, 8), "big")

    def _execute(self, data: bytes, room: int) -> bytearray:
        """Carry out one command; its output."""
        nic = self._device.nic
        header = COMMAND.unpack(data)
        number = header["opcode"]
        command = COMMANDS.get(number)
        status, outcome = CommandStatus.OK, ""
        values: Mapping[str, int] = {}
        if command is None:
            status, outcome = CommandStatus.BAD_OP, "this device has no such command"
        elif len(data) < command.takes.size:
            status = CommandStatus.BAD_INPUT_LEN
            outcome = f"{len(data)} bytes, takes at least {command.takes.size}"
        elif room < REPLY.size // 2:
            status, outcome = CommandStatus.BAD_OUTPUT_LEN, f"room for {room} bytes of output"
        else:
            fields = command.takes.unpack(data)
            try:
                request = Request(command.opcode, header["op_mod"], data, room, fields, header["uid"])
                values = command.run(self._device, request) or {}
            except NicError as error:
                status = _STATUS[error.kind]
                outcome = error.message if error.field is None else f"{error.field}: {error.message}"
        if status is CommandStatus.OK:
            nic.counters.admin_commands += 1
        else:
            nic.counters.admin_errors += 1
        if nic.platform.events.mask & _COMMAND:
            self._trace(number, header["op_mod"], status, outcome, values)
        output = bytearray(max(room, REPLY.size))
        if status is CommandStatus.OK and command is not None:
            packed = command.gives.pack(values)
            output[: len(packed)] = packed
        else:
            # A number for bug reports; drivers print it and nothing else.
            REPLY.write(output, {"status": status, "syndrome": number << 8 | status})
        return output[:room]

    def _trace(
        self, number: int, op_mod: int, status: CommandStatus, outcome: str, values: Mapping[str, int]
    ) -> None:
        name = CommandOpcode(number).name if number in COMMANDS else f"opcode {number:#x}"
        made = ", ".join(f"{field} {value:#x}" for field, value in values.items() if len(values) == 1)
        more = f": {outcome}" if outcome else f": {made[:60]}" if made else ""
        mod = f" mod {op_mod:#x}" if op_mod else ""
        self._device.nic.platform.trace.emit(Kind.COMMAND, f"{name}{mod} {status.name}{more}", value=status)

    def _refuse(self, slot: int, reason: str) -> None:
        platform = self._device.nic.platform
        platform.counters.admin_errors += 1
        if platform.events.mask & _COMMAND:
            platform.trace.emit(Kind.COMMAND, f"command slot {slot}: {reason}", value=slot)
