# SPDX-License-Identifier: Apache-2.0
"""BAR0: the initialization segment, and behind it the user access regions with their doorbells.

::

    0x0000 firmware version          0x0010 command queue address, sizes   0x0018 command doorbell
    0x01fc initializing              0x0200 health buffer                  0x1000 internal timer
    0x1010 health counter            from region 16 (0x10000) on: pages of 4 KiB each with

    0x20 CQ arm    0x40 EQ update and arm    0x48 EQ update    0x800..0xfff send doorbells

All registers are big-endian. Source: ``struct mlx5_init_seg`` in ``include/linux/mlx5/device.h``;
doorbells as the kernel and rdma-core ring them.
"""

from __future__ import annotations

from emu.checks.rule import Rule
from emu.clock import Scheduler
from emu.nic.cq import Arm
from emu.personality.mlx5.commandqueue import LOG_ENTRIES, LOG_STRIDE, CommandQueue
from emu.personality.mlx5.device import Mlx5Device
from emu.personality.mlx5.doorbells import FIRST_REGISTER, SendDoorbells, queue_number
from emu.personality.mlx5.formats.record import CONSUMER_BITS, extend
from emu.personality.mlx5.identity import COMMAND_INTERFACE, FIRMWARE, FIRST_UAR, UAR_SIZE

__all__ = ["Registers", "doorbell_queue"]

FW_REVISION, INTERFACE = 0x000, 0x004
QUEUE_HIGH, QUEUE_LOW, QUEUE_DOORBELL = 0x010, 0x014, 0x018
INITIALIZING = 0x1FC
HEALTH = range(0x200, 0x240)
TIMER_HIGH, TIMER_LOW = 0x1000, 0x1004
HEALTH_COUNTER = 0x1010
FIRST_DOORBELL = FIRST_UAR * UAR_SIZE

_INTERFACE_SHIFT = 8
_FULL, _DISABLED = 0, 1
"""State of the NIC's interface, bits 10:8 behind the command queue's address (``nic_interface``)."""

_UAR_SHIFT = UAR_SIZE.bit_length() - 1
_UAR_MASK = UAR_SIZE - 1
_CQ_ARM, _EQ_ARM, _EQ_UPDATE = 0x20, 0x40, 0x48
_ANY_COMPLETION = 1 << 24
"""Command bit of a CQ doorbell: without it any completion counts, with it solicited ones only."""
_INDEX_MASK = (1 << CONSUMER_BITS) - 1

_NAMES = (
    (FW_REVISION, "fw_rev", "firmware version: minor << 16 | major"),
    (INTERFACE, "cmdif_rev_fw_sub", "command interface revision << 16 | firmware sub-minor"),
    (QUEUE_HIGH, "cmdq_addr_h", "command queue address, high half"),
    (QUEUE_LOW, "cmdq_addr_l_sz", "interface state << 8 | log2 of its entries << 4 | log2 of their size"),
    (INITIALIZING, "initializing", "0: the device is ready"),
    (HEALTH_COUNTER, "health_counter", "advances with every read"),
)


def doorbell_queue(offset: int, data: bytes) -> int | None:
    """A number for the queue that a store rings, by region and queue number; None for no send doorbell."""
    place = offset & _UAR_MASK
    number = queue_number(place, data) if offset >= FIRST_DOORBELL and place >= FIRST_REGISTER else None
    return None if number is None else offset >> _UAR_SHIFT << 24 | number


class Registers:
    """Handler of BAR0; implements :class:`emu.pcie.bar.BarHandler`."""

    def __init__(self, device: Mlx5Device, commands: CommandQueue, scheduler: Scheduler) -> None:
        self._device = device
        self._commands = commands
        self._scheduler = scheduler
        self._doorbells = SendDoorbells(device)
        self._health = 0
        self._queue_high = 0
        self._interface = _FULL
        self._configured = False

    def clear(self) -> None:
        """Power-on state.

        A driver that had set up its command queue finds the interface disabled until it sets one up again:
        that is how it learns of a reset that it did not ask for, and recovers from it.
        """
        self._queue_high = 0
        if self._configured:
            self._interface = _DISABLED
        self._configured = False
        self._doorbells.clear()

    def read(self, offset: int, size: int) -> bytes:
        """A register; zero where there is none."""
        self._device.nic.counters.mmio_reads += 1
        word = offset & ~3
        data = self._word(word).to_bytes(4, "big") + self._word(word + 4).to_bytes(4, "big")
        part = data[offset - word : offset - word + size].ljust(size, b"\0")
        watch = self._device.nic.checks.watch
        if watch is not None:
            still = offset in (FW_REVISION, INTERFACE, QUEUE_HIGH, QUEUE_LOW, INITIALIZING)
            watch.registers.read(offset, int.from_bytes(part, "big"), f"register {offset:#x}", not still)
        return part

    def write(self, offset: int, data: bytes) -> None:
        """A register or a doorbell."""
        if offset < FIRST_DOORBELL:
            self._device.nic.counters.mmio_writes += 1
            self._write_register(offset, data)
            return
        place = offset & _UAR_MASK
        if place >= FIRST_REGISTER:
            self._doorbells.store(offset >> _UAR_SHIFT, place, data)
        elif place == _CQ_ARM:
            self._arm_cq(offset >> _UAR_SHIFT, data)
        elif place in (_EQ_ARM, _EQ_UPDATE):
            self._update_eq(place, data)
        else:
            self._ignore(Rule.C29_UNSUPPORTED, f"no doorbell at {place:#x} of region {offset >> _UAR_SHIFT}")

    def snapshot(self) -> list[dict[str, object]]:
        """Every named register with its value, read without counting or advancing anything."""
        return [
            {
                "offset": offset,
                "name": name,
                "value": self._health if offset == HEALTH_COUNTER else self._word(offset),
                "meaning": meaning,
            }
            for offset, name, meaning in _NAMES
        ]

    def _word(self, offset: int) -> int:
        """The 32-bit register at ``offset``."""
        if offset == FW_REVISION:
            return FIRMWARE[1] << 16 | FIRMWARE[0]
        if offset == INTERFACE:
            return COMMAND_INTERFACE << 16 | FIRMWARE[2]
        if offset == QUEUE_HIGH:
            return self._queue_high
        if offset == QUEUE_LOW:
            return self._interface << _INTERFACE_SHIFT | LOG_ENTRIES << 4 | LOG_STRIDE
        if offset == HEALTH_COUNTER:
            # A counter that stands still tells the driver that the device is dead.
            self._health = (self._health + 1) & 0xFFFFFF
            return self._health
        if offset in (TIMER_HIGH, TIMER_LOW):
            now = self._scheduler.now()
            return now >> 32 & 0xFFFFFFFF if offset == TIMER_HIGH else now & 0xFFFFFFFF
        return 0

    def _write_register(self, offset: int, data: bytes) -> None:
        value = int.from_bytes(data, "big")
        watch = self._device.nic.checks.watch
        if watch is not None:
            watch.registers.wrote()
        if len(data) != 4:
            self._refuse(offset, len(data), "registers are 4 bytes wide")
        elif offset == QUEUE_HIGH:
            self._queue_high = value
        elif offset == QUEUE_LOW:
            self._commands.base = self._queue_high << 32 | value & ~0xFFF
            self._interface, self._configured = _FULL, True
        elif offset == QUEUE_DOORBELL:
            self._commands.ring(value)
        else:
            self._refuse(offset, len(data), "no such register, or it is read only")

    def _refuse(self, offset: int, size: int, why: str) -> None:
        nic = self._device.nic
        nic.counters.bad_mmio += 1
        if nic.checks.watch is not None:
            nic.checks.watch.registers.missing(offset, size, why)

    def _arm_cq(self, uar: int, data: bytes) -> None:
        if len(data) != 8:
            self._ignore(Rule.C12_WIDTH, f"{len(data)}-byte store to the CQ doorbell of region {uar}")
            return
        word, number = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:], "big") & 0xFFFFFF
        cq = self._device.nic.cqs.items.get(number)
        if cq is None:
            self._ignore(Rule.C02_OWNER, f"doorbell in region {uar} for CQ {number}, which does not exist")
            return
        self._device.nic.counters.doorbells += 1
        kind = Arm.SOLICITED if word & _ANY_COMPLETION else Arm.NEXT
        # Programs ask for the next event before they read the entry the last one was about. The context's
        # last_notified_index is why that entry raises no second event, which would find nothing to read.
        cq.arm(extend(word & _INDEX_MASK, CONSUMER_BITS, cq.consumer), kind, again=False)

    def _update_eq(self, place: int, data: bytes) -> None:
        value = int.from_bytes(data[:4], "big")
        eq = self._device.nic.eqs.items.get(value >> 24)
        if len(data) != 4 or eq is None:
            self._ignore(Rule.C02_OWNER, f"doorbell for event queue {value >> 24}, which does not exist")
            return
        index = extend(value & _INDEX_MASK, CONSUMER_BITS, eq.consumer)
        eq.consume(index, arm=place == _EQ_ARM)

    def _ignore(self, rule: Rule, text: str, qpn: int | None = None) -> None:
        self._device.nic.counters.doorbells_ignored += 1
        self._device.nic.checks.report(rule, f"{text}; doorbell ignored", qpn=qpn)
