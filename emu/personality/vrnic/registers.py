# SPDX-License-Identifier: Apache-2.0
"""BAR0: the registers, as the contract's table lays them out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from emu.checks.rule import Action, Rule
from emu.events import Kind
from emu.nic.device import Nic
from emu.personality.vrnic.admin import AdminQueue
from emu.personality.vrnic.contract import ABI_VERSION
from emu.personality.vrnic.contract.codes import FatalCause
from emu.personality.vrnic.contract.registers import (
    COUNTER_OFFSET,
    COUNTERS,
    EQ_CONSUMER_OFFSET,
    NIC_MAGIC,
    NIC_REGISTERS,
    ControlBits,
    Register,
    RegisterAccess,
    StatusBits,
)

__all__ = ["NicRegisters"]

PORT_DOWN, PORT_ACTIVE = 1, 4
"""``enum ibv_port_state``."""
COUNTER_END = COUNTER_OFFSET + 8 * len(COUNTERS)
_READ = Kind.MMIO_READ.bit
_WRITE = Kind.MMIO_WRITE.bit
_MASK32 = 0xFFFFFFFF
_RULES = frozenset(int(rule) for rule in Rule)
_ACTIONS = frozenset(int(action) for action in Action)
_STILL = frozenset(
    register.name
    for register in NIC_REGISTERS
    if not register.name.startswith("CHECK_") and register.name != "PORT_STATE"
)
"""Registers that change only by a write, or by a command that is under way."""
_CONTROL_BITS = int(ControlBits.RESET | ControlBits.ENABLE)


class NicRegisters:
    """Handler of BAR0; implements :class:`emu.pcie.bar.BarHandler`.

    An access is 4 or 8 bytes wide and aligned to its width. A 4-byte access may take either half of an 8-byte
    register; an 8-byte access takes an 8-byte register only. Anything else is ignored, reads as zero, and is
    counted.
    """

    def __init__(
        self,
        nic: Nic,
        admin: AdminQueue,
        reset: Callable[[], None],
        doorbell_pages: int,
        *,
        mapped_doorbells: bool = False,
    ) -> None:
        """``reset`` is called for CONTROL.RESET; ``mapped_doorbells`` is what DOORBELL_MODE says."""
        self._nic = nic
        self._admin = admin
        self._reset = reset
        self._consumer_end = EQ_CONSUMER_OFFSET + 8 * nic.limits.eqs
        self._registers = {register.offset: register for register in NIC_REGISTERS}
        limits, mac = nic.limits, nic.gids.mac
        constants = {
            "MAGIC": NIC_MAGIC,
            "ABI_VERSION": ABI_VERSION,
            "VECTORS": limits.vectors,
            "DOORBELL_PAGES": doorbell_pages,
            "MAX_PD": limits.pds,
            "MAX_MR": limits.mrs,
            "MAX_EQ": limits.eqs,
            "MAX_CQ": limits.cqs,
            "MAX_QP": limits.qps,
            "MAX_LOG_RING": limits.max_log_ring,
            "MAX_INLINE": limits.max_inline,
            "MAX_MESSAGE": limits.max_message,
            "PORT_MTU": limits.port_mtu,
            "PORT_SPEED": limits.port_speed,
            "DOORBELL_MODE": int(mapped_doorbells),
            "MAC_LOW": int.from_bytes(mac[:4], "little"),
            "MAC_HIGH": int.from_bytes(mac[4:], "little"),
            "ADMIN_DOORBELL": 0,
        }
        checks, counters = nic.checks, nic.counters
        self._values: dict[str, Callable[[], int]] = {
            **{name: partial(int, value) for name, value in constants.items()},
            "PORT_STATE": lambda: PORT_ACTIVE if nic.port_up else PORT_DOWN,
            "CONTROL": lambda: int(ControlBits.ENABLE) if admin.enabled else 0,
            "STATUS": self._status,
            "FATAL_CAUSE": lambda: int(admin.cause),
            "ADMIN_SQ_BASE": lambda: admin.command_base,
            "ADMIN_RQ_BASE": lambda: admin.reply_base,
            "ADMIN_LOG_SIZE": lambda: admin.log_size,
            "ADMIN_HEAD": lambda: admin.head,
            "CHECK_COUNT": lambda: counters.check_violations,
            "CHECK_ID": lambda: int(checks.last_rule),
            "CHECK_QPN": lambda: checks.last_qpn,
            "CHECK_INDEX": lambda: checks.last_index,
            "CHECK_SELECT": lambda: int(checks.selected),
            "CHECK_ACTION": lambda: int(checks.actions.get(checks.selected, Action.OFF)),
            "CHECK_SELECTED": lambda: checks.counts.get(checks.selected, 0),
        }

    def read(self, offset: int, size: int) -> bytes:
        """Read a register, or half of one."""
        counters = self._nic.counters
        counters.mmio_reads += 1
        found = self._locate(offset, size)
        if found is None:
            counters.bad_mmio += 1
            self._trace(Kind.MMIO_READ, offset, size, 0, "no such register or width; reads 0")
            self._missing(offset, size, "no such register or width")
            return bytes(size)
        name, shift, value = found
        part = (value() >> shift) & ((1 << 8 * size) - 1)
        watch = self._nic.checks.watch
        if watch is not None:
            watch.registers.read(offset, part, name, name not in _STILL or self._admin.busy)
        if self._nic.platform.events.mask & _READ:
            self._trace(Kind.MMIO_READ, offset, size, part, f"{name} is {part:#x}")
        return part.to_bytes(size, "little")

    def write(self, offset: int, data: bytes) -> None:
        """Write a register, or half of one."""
        size, value = len(data), int.from_bytes(data, "little")
        counters = self._nic.counters
        counters.mmio_writes += 1
        if self._nic.platform.events.mask & _WRITE:
            found = self._locate(offset, size)
            self._trace(Kind.MMIO_WRITE, offset, size, value, f"{found[0] if found else '?'} = {value:#x}")
        watch = self._nic.checks.watch
        if watch is not None:
            watch.registers.wrote()
        refusal = self._store(offset, size, value)
        if refusal:
            counters.bad_mmio += 1
            self._missing(offset, size, refusal)
            self._trace(Kind.MMIO_WRITE, offset, size, value, f"ignored: {refusal}")

    def _missing(self, offset: int, size: int, why: str) -> None:
        watch = self._nic.checks.watch
        if watch is not None:
            near = min(NIC_REGISTERS, key=lambda register: abs(register.offset - offset))
            watch.registers.missing(offset, size, f"{why}; near it is {near.name} at {near.offset:#x}")

    def snapshot(self) -> list[dict[str, object]]:
        """Every named register with its value, read without counting or tracing."""
        return [
            {
                "offset": register.offset,
                "name": register.name,
                "value": self._values[register.name](),
                "meaning": register.meaning,
            }
            for register in NIC_REGISTERS
        ]

    def _status(self) -> int:
        status = StatusBits.READY
        if self._admin.enabled:
            status |= StatusBits.ENABLED
        if self._admin.cause is not FatalCause.NONE:
            status |= StatusBits.FATAL
        return int(status)

    def _locate(self, offset: int, size: int) -> tuple[str, int, Callable[[], int]] | None:
        """Name of the register at ``offset``, how far to shift its value right, and the value."""
        if size not in (4, 8) or offset % size:
            return None
        base = offset & ~7
        if COUNTER_OFFSET <= offset < COUNTER_END:
            name = COUNTERS[(base - COUNTER_OFFSET) // 8][0]
            return f"COUNTER {name}", 8 * (offset - base), lambda: getattr(self._nic.counters, name)
        if EQ_CONSUMER_OFFSET <= offset < self._consumer_end:
            return f"EQ_CONSUMER[{(base - EQ_CONSUMER_OFFSET) // 8}]", 0, lambda: 0
        register = self._registers.get(offset)
        if register is not None and size <= register.width:
            return register.name, 0, self._values[register.name]
        register = self._registers.get(base)
        if register is not None and register.width == 8 and size == 4:
            return f"{register.name} high half", 32, self._values[register.name]
        return None

    def _store(self, offset: int, size: int, value: int) -> str:
        """Carry out a write; why not, when it is refused."""
        if size not in (4, 8) or offset % size:
            return "not an aligned 4- or 8-byte access"
        if EQ_CONSUMER_OFFSET <= offset < self._consumer_end:
            return self._consume(offset, value)
        register = self._registers.get(offset) or self._registers.get(offset & ~7)
        if register is None or offset - register.offset + size > register.width:
            return "no such register, or it is read only" if register is None else "wrong width"
        if register.access is RegisterAccess.RO:
            return f"{register.name} is read only"
        return self._assign(register, offset - register.offset, size, value)

    def _consume(self, offset: int, value: int) -> str:
        if offset & 7:
            return ""  # the high half of an index is always zero, so a driver may write it in two stores
        number = (offset - EQ_CONSUMER_OFFSET) // 8
        eq = self._nic.eqs.items.get(number)
        if eq is None:
            return f"there is no EQ {number}"
        eq.consume(value & _MASK32)
        return ""

    def _assign(self, register: Register, at: int, size: int, value: int) -> str:
        admin, name = self._admin, register.name
        if name == "CONTROL":
            return self._control(value)
        if name == "ADMIN_DOORBELL":
            return "" if admin.ring(value) else "the admin queue is not enabled"
        if name in ("CHECK_SELECT", "CHECK_ACTION"):
            return self._choose(name, value)
        if admin.enabled:
            return f"{name} is latched while CONTROL.ENABLE is 1"
        if name == "ADMIN_LOG_SIZE":
            admin.log_size = value
        elif name == "ADMIN_SQ_BASE":
            admin.command_base = _merge(admin.command_base, at, size, value)
        else:
            admin.reply_base = _merge(admin.reply_base, at, size, value)
        return ""

    def _choose(self, name: str, value: int) -> str:
        """Select a rule, or set the selected one's action."""
        checks = self._nic.checks
        if name == "CHECK_SELECT":
            if value not in _RULES:
                return f"there is no rule {value}"
            checks.selected = Rule(value)
        elif checks.selected not in checks.actions or value not in _ACTIONS:
            return f"rule {int(checks.selected)} has no action {value}"
        else:
            checks.set(checks.selected, Action(value))
        return ""

    def _control(self, value: int) -> str:
        if value & ~_CONTROL_BITS:
            return f"CONTROL {value:#x} has unknown bits"
        if value & ControlBits.RESET:
            self._reset()
        elif value & ControlBits.ENABLE:
            self._admin.enable()
        else:
            self._admin.disable()
        return ""

    def _trace(self, kind: Kind, offset: int, size: int, value: int, text: str) -> None:
        trace = self._nic.platform.trace
        if trace.wants(kind):
            trace.emit(kind, f"BAR0 {offset:#05x}: {text}", address=offset, length=size, value=value)


def _merge(old: int, at: int, size: int, value: int) -> int:
    """``old`` with ``size`` bytes at byte ``at`` replaced."""
    mask = ((1 << 8 * size) - 1) << 8 * at
    return old & ~mask | value << 8 * at
