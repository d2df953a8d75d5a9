# SPDX-License-Identifier: Apache-2.0
"""The admin queue: takes commands out of guest memory and puts replies there."""

from __future__ import annotations

from emu.clock import MS
from emu.events import Kind
from emu.nic.device import Nic
from emu.nic.errors import NicError
from emu.nic.serial import MASK
from emu.pcie.bus import BusError, Interrupts
from emu.personality.vrnic.blocks import DoorbellBlocks
from emu.personality.vrnic.codec import codec_of
from emu.personality.vrnic.commands import Commands, Values
from emu.personality.vrnic.contract.codes import AdminOpcode, AdminStatus, FatalCause
from emu.personality.vrnic.contract.commands import ADMIN_ENTRY_SIZE, COMMANDS, Command, Reply

__all__ = ["AdminQueue"]

COMMIT = 8
"""Bytes of a reply's commit word, at its start."""
ADMIN_VECTOR = 0
MIN_LOG_SIZE, MAX_LOG_SIZE = 1, 8
SLICE = 2 * MS
"""Time after which the rest of a burst waits for the next turn: long page lists must not stall the lab."""

_OPCODES = {int(opcode): opcode for opcode in AdminOpcode}
_COMMAND = Kind.COMMAND.bit
_MSIX = Kind.MSIX.bit


class _Refusal(Exception):
    """A command that was refused: status, and the byte offset of the field to blame."""

    def __init__(self, status: AdminStatus, offset: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.offset = offset


class AdminQueue:
    """The rings and their state.

    ``head`` is the running index of the next command to take, ``cause`` why the device gave up (NONE while it
    has not). Base addresses and size are the registers; they are latched while ``enabled``.

    Commands run in the next turn of the loop, not inside the register write: a command may end the very queue
    pair whose write reached the doorbell.
    """

    def __init__(self, nic: Nic, interrupts: Interrupts, blocks: DoorbellBlocks) -> None:
        self._nic = nic
        self._interrupts = interrupts
        self._commands = Commands(nic, blocks)
        self._codec = codec_of(Command)
        self._turn = 0
        self.clear()

    def clear(self) -> None:
        """Power-on state. Commands that were waiting are dropped."""
        self._turn += 1
        self.command_base = 0
        self.reply_base = 0
        self.log_size = 0
        self.enabled = False
        self.cause = FatalCause.NONE
        self.head = 0
        self._tail = 0
        self._scheduled = False

    def enable(self) -> None:
        """Start at index 0 with the addresses in the registers. Wrong ones are fatal."""
        if self.enabled or self.cause is not FatalCause.NONE:
            return
        if not MIN_LOG_SIZE <= self.log_size <= MAX_LOG_SIZE:
            self._give_up(FatalCause.ADMIN_LOG_SIZE, f"ADMIN_LOG_SIZE {self.log_size} is not in 1..8")
        elif any(base == 0 or base % ADMIN_ENTRY_SIZE for base in (self.command_base, self.reply_base)):
            self._give_up(
                FatalCause.ADMIN_BASE,
                f"admin ring bases {self.command_base:#x} and {self.reply_base:#x} are not both "
                "64-byte aligned addresses",
            )
        else:
            self.enabled = True
            self.head = self._tail = 0

    def disable(self) -> None:
        """Stop; commands not taken yet are dropped."""
        self.enabled = False
        self._tail = self.head

    def ring(self, index: int) -> bool:
        """The driver wrote every command before ``index``. False when the queue does not run."""
        if not self.enabled:
            return False
        if (index - self.head) & MASK > 1 << self.log_size:
            self._give_up(
                FatalCause.ADMIN_DOORBELL,
                f"ADMIN_DOORBELL {index} is more than {1 << self.log_size} ahead of ADMIN_HEAD {self.head}",
            )
            return True
        self._tail = index
        self._schedule()
        return True

    @property
    def busy(self) -> bool:
        """Whether commands wait to be carried out."""
        return self.head != self._tail

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            turn = self._turn
            self._nic.platform.scheduler.call_soon(lambda: self._run(turn))

    def _run(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._scheduled = False
        count = (self._tail - self.head) & MASK
        if not self.enabled or not count:
            return
        scheduler = self._nic.platform.scheduler
        deadline = scheduler.now() + SLICE
        try:
            burst = self._read(count)
            for number in range(count):
                at = number * ADMIN_ENTRY_SIZE
                reply = self._execute(burst[at : at + ADMIN_ENTRY_SIZE], (self.head + 1) & MASK)
                address = self.reply_base + self._slot(self.head) * ADMIN_ENTRY_SIZE
                self._nic.platform.dma.write(address + COMMIT, reply[COMMIT:])
                self._nic.platform.dma.write(address, reply[:COMMIT])
                self.head = (self.head + 1) & MASK
                if scheduler.now() > deadline:
                    break
        except BusError as error:
            self._give_up(FatalCause.ADMIN_DMA, f"admin ring: {error}")
            return
        self._interrupt()
        if self.head != self._tail:
            self._schedule()

    def _slot(self, index: int) -> int:
        return index & ((1 << self.log_size) - 1)

    def _read(self, count: int) -> bytes:
        """``count`` commands from the head on, in one bus read or two."""
        dma = self._nic.platform.dma
        slot = self._slot(self.head)
        straight = min(count, (1 << self.log_size) - slot)
        data = dma.read(self.command_base + slot * ADMIN_ENTRY_SIZE, straight * ADMIN_ENTRY_SIZE)
        if straight < count:
            data += dma.read(self.command_base, (count - straight) * ADMIN_ENTRY_SIZE)
        return data

    def _execute(self, command: bytes, sequence: int) -> bytes:
        """Carry out one command; its reply."""
        header = self._codec.unpack(command)
        opcode = _OPCODES.get(header["opcode"])
        layout, values = Reply, Values()
        status, refused, outcome = AdminStatus.OK, 0, ""
        try:
            if opcode is None:
                raise _Refusal(AdminStatus.BAD_OPCODE, 0, "no such command")
            values = self._carry_out(opcode, command)
            layout = COMMANDS[opcode][1]
        except _Refusal as refusal:
            status, refused, outcome = refusal.status, refusal.offset, f": {refusal}"
            self._nic.counters.admin_errors += 1
        else:
            self._nic.counters.admin_commands += 1
        if self._nic.platform.events.mask & _COMMAND:
            name = f"opcode {header['opcode']:#x}" if opcode is None else opcode.name
            made = values.get("object", values.get("ctx"))
            more = f": object {made:#x}" if isinstance(made, int) else outcome
            self._nic.platform.trace.emit(
                Kind.COMMAND, f"{name} tag {header['tag']:#x} {status.name}{more}", value=int(status)
            )
        return codec_of(layout).pack({"status": status, "refused": refused, "sequence": sequence, **values})

    def _carry_out(self, opcode: AdminOpcode, command: bytes) -> Values:
        """The fields of the reply. :raises _Refusal: the command was refused."""
        codec = codec_of(COMMANDS[opcode][0])
        fields = codec.unpack(command)
        if fields["command_flags"]:
            offset = codec.offsets["command_flags"]
            raise _Refusal(AdminStatus.BAD_FIELD, offset, "command flags must be 0")
        stray = codec.stray(command)
        if stray is not None:
            raise _Refusal(AdminStatus.BAD_FIELD, stray, f"reserved bytes at {stray} must be 0")
        try:
            return self._commands.run(opcode, fields)
        except NicError as error:
            offset = codec.offsets.get(error.field, 0) if error.field is not None else 0
            raise _Refusal(AdminStatus[error.kind.name], offset, error.message) from None

    def _interrupt(self) -> None:
        platform = self._nic.platform
        platform.counters.msix += 1
        if platform.events.mask & _MSIX:
            platform.trace.emit(
                Kind.MSIX, f"vector {ADMIN_VECTOR} for the admin queue, head {self.head}", value=ADMIN_VECTOR
            )
        self._interrupts.trigger(ADMIN_VECTOR)

    def _give_up(self, cause: FatalCause, reason: str) -> None:
        self.enabled = False
        self.cause = cause
        if self._nic.platform.events.mask & _COMMAND:
            self._nic.platform.trace.emit(Kind.COMMAND, f"FATAL {cause.name}: {reason}; reset the device")
        self._nic.fatal(f"{cause.name}: {reason}")
