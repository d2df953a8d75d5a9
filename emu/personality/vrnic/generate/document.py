# SPDX-License-Identifier: Apache-2.0
"""The register document: registers, commands, descriptors, doorbells and rules as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from construct import Struct

from emu.checks import hint
from emu.checks.catalogue import CHECKS
from emu.nic.work import CompletionOpcode, ModifyMask, Opcode, QpState, Status, Transport
from emu.personality.vrnic.contract import (
    ABI_MAJOR,
    ABI_MINOR,
    codes,
    commands,
    descriptors,
    hints,
    identity,
    registers,
)
from emu.personality.vrnic.generate import prose
from emu.personality.vrnic.generate.layout import ENUMS, EnumEntry, fields_of, notes_of, struct_of

__all__ = ["render_document"]

DOORBELL_MAP = """\
     63     62..60     59..56      55..........32   31..............0
    +-------+----------+-----------+----------------+------------------+
    | valid | reserved | queue type| QPN or CQN     | next running     |
    | 1     | 0        |           |                | index            |
    +-------+----------+-----------+----------------+------------------+"""


def render_document() -> str:
    """The whole document, ending in one newline."""
    sections = [
        "# `vrnic`: registers, commands, descriptors",
        f"ABI version {ABI_MAJOR}.{ABI_MINOR}. {prose.INTRODUCTION}",
        "## The PCI functions",
        _functions(),
        prose.FUNCTIONS,
        "## NIC registers (BAR0)",
        prose.REGISTER_RULES,
        _registers(registers.NIC_REGISTERS),
        _arrays(),
        _numbers(registers.ControlBits),
        _numbers(registers.StatusBits),
        _numbers(codes.FatalCause),
        "### Counters",
        "`COUNTER[i]` is at 0x400 + 8 *i*, 64 bits, zero after a reset.",
        _table(
            ("i", "Counter", "Counts"),
            ((str(i), f"`{name}`", note) for i, (name, note) in enumerate(registers.COUNTERS)),
        ),
        "## Bring-up",
        prose.BRING_UP,
        "## Admin queue",
        prose.ADMIN_QUEUE,
        _numbers(codes.AdminStatus),
        "## Admin commands",
        *_commands(),
        _numbers(codes.MrKind),
        _numbers(codes.MrFlags),
        _numbers(codes.CqMode),
        _numbers(codes.CqOverrun),
        _numbers(codes.DbrPolicy),
        _numbers(codes.QpFlags),
        _numbers(Transport),
        _numbers(QpState),
        _numbers(ModifyMask),
        "## Submission",
        prose.SUBMISSION,
        *_layout(descriptors.SendWqe),
        f"With INLINE, the last {descriptors.MAX_INLINE} bytes are the payload.",
        _numbers(Opcode),
        _numbers(descriptors.WqeFlags),
        *_layout(descriptors.RecvWqe),
        "## Doorbells (BAR2)",
        f"Page *p*, at {identity.DOORBELL_PAGE_SIZE:#x} *p*, belongs to context *p*. Offsets in a page:",
        _numbers(descriptors.DoorbellOffset),
        f"From {identity.DOORBELL_BLOCK_BASE:#x} on come blocks of {identity.DOORBELL_BLOCK_SIZE} bytes with "
        "the same registers. Each belongs to one queue pair: CREATE_QP's reply says which; its CQs may be "
        "rung there as well. Where DOORBELL_MODE is 1 a page is memory and the device looks at the blocks "
        "from time to time: it sees the last value of each word, in no order between words. Indices are "
        "cumulative, so that is enough; to arm a CQ again takes a new value.",
        DOORBELL_MAP,
        prose.DOORBELL_RULES,
        _numbers(descriptors.DoorbellType),
        "## Doorbell record",
        prose.DOORBELL_RECORD,
        *_layout(descriptors.DoorbellRecord),
        "## Completions",
        prose.COMPLETION,
        *_layout(descriptors.Cqe),
        _numbers(descriptors.CqeFlags),
        _numbers(CompletionOpcode),
        _numbers(Status),
        _numbers(codes.VendorCause),
        "## Events",
        prose.EVENTS,
        *_layout(descriptors.Eqe),
        _numbers(codes.EventType),
        "## Hints",
        prose.HINTS,
        *_layout(hints.HintHeader),
        *_layout(hints.HintEntry),
        _numbers(hint.HintKind),
        _numbers(hint.Part),
        _numbers(hint.Wait),
        _numbers(hint.SignalOp),
        "## Rules the device checks",
        prose.CHECKS,
        _checks(),
        _numbers(codes.CheckAction),
        "## vGPU",
        prose.VGPU,
        _registers(registers.GPU_REGISTERS),
    ]
    return "\n\n".join(sections) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines.extend("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows)
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def _functions() -> str:
    doorbells = identity.DOORBELL_PAGES * identity.DOORBELL_PAGE_SIZE
    return _table(
        ("Function", "Vendor:device", "Class", "BAR", "Size", "Content"),
        [
            (
                "NIC",
                f"{identity.VENDOR_ID:04x}:{identity.NIC_DEVICE_ID:04x}",
                f"{identity.NIC_CLASS:06x} Ethernet controller",
                f"{identity.NIC_REGISTER_BAR}",
                f"{identity.NIC_REGISTER_SIZE:#x}",
                "registers",
            ),
            ("", "", "", f"{identity.NIC_DOORBELL_BAR}", f"{doorbells:#x}", "doorbell pages"),
            (
                "",
                "",
                "",
                f"{identity.NIC_MSIX_BAR}",
                f"{identity.NIC_MSIX_SIZE:#x}",
                f"MSI-X table of {identity.NIC_VECTORS} vectors, pending bits",
            ),
            (
                "vGPU",
                f"{identity.VENDOR_ID:04x}:{identity.GPU_DEVICE_ID:04x}",
                f"{identity.GPU_CLASS:06x} 3D controller",
                f"{identity.GPU_REGISTER_BAR}",
                f"{identity.GPU_REGISTER_SIZE:#x}",
                "registers",
            ),
            ("", "", "", f"{identity.GPU_VRAM_BAR}", "a power of two", "memory, 64 bits, prefetchable"),
        ],
    )


def _registers(table: Sequence[registers.Register]) -> str:
    return _table(
        ("Offset", "Width", "Access", "Register", "Meaning", "Misuse"),
        (
            (
                f"{register.offset:#05x}",
                str(register.width),
                register.access.value,
                f"`{register.name}`",
                register.meaning,
                register.misuse,
            )
            for register in table
        ),
    )


def _arrays() -> str:
    return _table(
        ("Offset", "Width", "Access", "Register", "Meaning", "Misuse"),
        [
            (
                f"{registers.EQ_CONSUMER_OFFSET:#05x} + 8 *n*",
                "4",
                registers.RegisterAccess.WO.value,
                "`EQ_CONSUMER[n]`",
                "running index of the next event of EQ *n* the driver will read; arms the vector again",
                "C19 when it is ahead of the device; ignored",
            ),
            (
                f"{registers.COUNTER_OFFSET:#05x} + 8 *i*",
                "8",
                registers.RegisterAccess.RO.value,
                "`COUNTER[i]`",
                "see Counters",
                "",
            ),
        ],
    )


def _numbers(numbers: type[object]) -> str:
    """A set of numbers as a table; the third column only where the contract says something."""
    entry = _entry(numbers)
    notes = notes_of(entry.numbers)
    title = f"**{entry.title[0].upper()}{entry.title[1:]}**"
    rows = [
        (_value(entry, int(member.value)), f"`{member.name}`", notes.get(str(member.name), ""))
        for member in entry.members()
    ]
    if not notes:
        return title + "\n\n" + _table(("Value", "Name"), (row[:2] for row in rows))
    return title + "\n\n" + _table(("Value", "Name", "Meaning"), rows)


def _entry(numbers: type[object]) -> EnumEntry:
    return next(entry for entry in ENUMS if entry.numbers is numbers)


def _value(entry: EnumEntry, value: int) -> str:
    return str(value) if entry.c_name is not None else f"{value:#x}"


def _layout(layout: Struct) -> list[str]:
    entry = struct_of(layout)
    title = f"**{entry.title[0].upper()}{entry.title[1:]}, {entry.size} bytes** (`struct {entry.c_name}`)"
    return [title, _fields(layout, 0)]


def _fields(layout: Struct, first: int) -> str:
    return _table(
        ("Offset", "Size", "Field", "Meaning"),
        (
            (str(field.offset), str(field.size), f"`{field.name}`", field.note or "0")
            for field in fields_of(layout)
            if field.offset >= first
        ),
    )


def _commands() -> list[str]:
    """Header and reply header once, then each command with the fields that are its own."""
    header = fields_of(commands.Command)[-1].offset
    parts = ["Every command begins with this header:", _fields(Struct(*commands.HEADER), 0)]
    parts += ["and every reply with this one:", _fields(Struct(*commands.REPLY_HEADER), 0)]
    for opcode, (command, reply) in commands.COMMANDS.items():
        parts.append(f"### `{opcode.name}` ({opcode.value:#04x})")
        parts.append(prose.COMMAND_NOTES[opcode])
        if command is not commands.Command:
            parts += [f"Command (`struct {struct_of(command).c_name}`):", _fields(command, header)]
        if reply is not commands.Reply:
            parts += [f"Reply (`struct {struct_of(reply).c_name}`):", _fields(reply, header)]
    return parts


def _checks() -> str:
    return _table(
        ("Number", "Rule", "What must hold", "What happens"),
        [
            (str(int(rule)), f"`{rule.name}`", check.sentence, check.happens)
            for rule, check in CHECKS.items()
            if "vrnic" in check.personalities
        ],
    )
