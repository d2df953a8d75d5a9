# SPDX-License-Identifier: Apache-2.0
"""The guest's C header, for kernel modules and user programs alike."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

from emu.personality.vrnic.contract import (
    ABI_MAJOR,
    ABI_MINOR,
    commands,
    descriptors,
    hints,
    identity,
    registers,
)
from emu.personality.vrnic.generate.layout import (
    ENUMS,
    STRUCTS,
    EnumEntry,
    Field,
    StructEntry,
    fields_of,
    notes_of,
)

__all__ = ["render_header"]

VALUE_COLUMN = 48
TAB = 8
C_TYPES = {1: "__u8", 2: "__le16", 4: "__le32", 8: "__le64"}

PREAMBLE = """\
/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a guest may rely on: registers, admin commands, descriptors, doorbells.
 *
 * Generated from emu/personality/vrnic/contract; do not edit. Write it anew with
 *	python -m emu.personality.vrnic.generate
 * Meaning and misuse of everything here: emu/personality/vrnic/REGISTERS.md.
 */

#ifndef VRNIC_CONTRACT_H
#define VRNIC_CONTRACT_H

#ifdef __KERNEL__
#include <linux/build_bug.h>
#include <linux/stddef.h>
#else
#include <assert.h>
#include <stddef.h>
#endif
#include <linux/types.h>

/* What the small functions below are: a compiler for other processors may need more words. */
#ifndef VRNIC_INLINE
#define VRNIC_INLINE static inline
#endif
"""

HELPERS = """\
/*
 * Doorbell, one aligned 64-bit store of the little-endian value:
 *
 *   63    62..60    59..56      55........32   31..............0
 *   valid reserved  queue type  QPN or CQN     next running index
 */
VRNIC_INLINE __u64 vrnic_doorbell(enum vrnic_doorbell_type type, __u32 number, __u32 index)
{
	__u64 owner = (__u64)type << VRNIC_DB_TYPE_SHIFT;

	owner |= (__u64)(number & VRNIC_DB_QPN_MASK) << VRNIC_DB_QPN_SHIFT;
	return VRNIC_DB_VALID | owner | index;
}

/* Commit word of a send WQE (its first 8 bytes, little-endian): store it last, with release. */
VRNIC_INLINE __u64 vrnic_wqe_commit(enum vrnic_opcode opcode, __u8 flags, __u32 index)
{
	return (__u64)index << 32 | (__u64)1 << 16 | (__u64)flags << 8 | (__u64)opcode;
}

/* remote_address of a datagram: address handle @ahn, QP @qpn at the peer. */
VRNIC_INLINE __u64 vrnic_datagram_address(__u32 ahn, __u32 qpn)
{
	return (__u64)qpn << 32 | ahn;
}

/*
 * Phase bit of an entry in a ring of 1 << @log_size slots: 1 in the first pass. @distance is the
 * entry's running index less the ring's first one (CREATE_QP start_index; 0 for CQ and EQ).
 */
VRNIC_INLINE __u8 vrnic_phase(__u32 distance, __u8 log_size)
{
	return !((distance >> log_size) & 1);
}

/* Inline payload of a send WQE, VRNIC_MAX_INLINE bytes. */
VRNIC_INLINE __u8 *vrnic_wqe_inline(struct vrnic_wqe *wqe)
{
	return (__u8 *)wqe + VRNIC_WQE_INLINE_OFFSET;
}

VRNIC_INLINE enum vrnic_wc_opcode vrnic_cqe_opcode(const struct vrnic_cqe *cqe)
{
	return (enum vrnic_wc_opcode)(cqe->opcode_phase >> 4);
}

VRNIC_INLINE __u8 vrnic_cqe_phase(const struct vrnic_cqe *cqe)
{
	return cqe->opcode_phase & 1;
}

VRNIC_INLINE __u8 vrnic_eqe_phase(const struct vrnic_eqe *eqe)
{
	return eqe->phase & 1;
}
"""


def render_header() -> str:
    """The whole header."""
    parts = [PREAMBLE]
    parts.append(
        _section(
            "identity and BAR layout",
            [
                ("VRNIC_ABI_MAJOR", f"{ABI_MAJOR}"),
                ("VRNIC_ABI_MINOR", f"{ABI_MINOR}"),
                ("VRNIC_VENDOR_ID", f"{identity.VENDOR_ID:#06x}"),
                ("VRNIC_DEVICE_ID", f"{identity.NIC_DEVICE_ID:#06x}"),
                ("VGPU_DEVICE_ID", f"{identity.GPU_DEVICE_ID:#06x}"),
                ("VRNIC_REGISTER_BAR", f"{identity.NIC_REGISTER_BAR}"),
                ("VRNIC_REGISTER_SIZE", f"{identity.NIC_REGISTER_SIZE:#x}"),
                ("VRNIC_DOORBELL_BAR", f"{identity.NIC_DOORBELL_BAR}"),
                ("VRNIC_DOORBELL_PAGE_SIZE", f"{identity.DOORBELL_PAGE_SIZE:#x}"),
                ("VRNIC_DOORBELL_BLOCK_BASE", f"{identity.DOORBELL_BLOCK_BASE:#x}"),
                ("VRNIC_DOORBELL_BLOCK_SIZE", f"{identity.DOORBELL_BLOCK_SIZE}"),
                ("VRNIC_MSIX_BAR", f"{identity.NIC_MSIX_BAR}"),
                ("VGPU_REGISTER_BAR", f"{identity.GPU_REGISTER_BAR}"),
                ("VGPU_REGISTER_SIZE", f"{identity.GPU_REGISTER_SIZE:#x}"),
                ("VGPU_VRAM_BAR", f"{identity.GPU_VRAM_BAR}"),
            ],
        )
    )
    parts.append(
        _section(
            "NIC registers: byte offsets in BAR0",
            [
                (f"VRNIC_REG_{register.name}", f"{register.offset:#05x}")
                for register in registers.NIC_REGISTERS
            ]
            + [
                ("VRNIC_REG_EQ_CONSUMER", f"{registers.EQ_CONSUMER_OFFSET:#05x}"),
                ("VRNIC_REG_EQ_CONSUMER_STRIDE", "8"),
                ("VRNIC_REG_COUNTER", f"{registers.COUNTER_OFFSET:#05x}"),
                ("VRNIC_REG_COUNTER_STRIDE", "8"),
                ("VRNIC_MAGIC", f"{registers.NIC_MAGIC:#010x}"),
            ],
        )
    )
    parts.append(
        _section(
            "vGPU registers: byte offsets in BAR0",
            [
                (f"VGPU_REG_{register.name.removeprefix('GPU_')}", f"{register.offset:#05x}")
                for register in registers.GPU_REGISTERS
            ]
            + [("VGPU_MAGIC", f"{registers.GPU_MAGIC:#010x}")],
        )
    )
    parts.append(
        _section(
            "sizes and positions",
            [
                ("VRNIC_ADMIN_ENTRY_SIZE", f"{commands.ADMIN_ENTRY_SIZE}"),
                ("VRNIC_GID_TABLE_SIZE", f"{commands.GID_TABLE_SIZE}"),
                ("VRNIC_WQE_SIZE", f"{descriptors.WQE_SIZE}"),
                ("VRNIC_RECV_WQE_SIZE", f"{descriptors.RECV_WQE_SIZE}"),
                ("VRNIC_CQE_SIZE", f"{descriptors.CQE_SIZE}"),
                ("VRNIC_EQE_SIZE", f"{descriptors.EQE_SIZE}"),
                ("VRNIC_MAX_INLINE", f"{descriptors.MAX_INLINE}"),
                ("VRNIC_WQE_INLINE_OFFSET", f"{descriptors.WQE_SIZE - descriptors.MAX_INLINE}"),
                ("VRNIC_HINT_SIZE", f"{hints.HINT_SIZE}"),
                ("VRNIC_HINT_HEADER_SIZE", f"{hints.HINT_HEADER_SIZE}"),
                ("VRNIC_NO_HINTS", f"{hints.NO_HINTS}"),
                ("VRNIC_NO_EQ", f"{commands.NO_EQ:#x}"),
                ("VRNIC_NO_RECV_RING", f"{commands.NO_RECEIVE_RING}"),
                ("VRNIC_DB_QPN_SHIFT", f"{descriptors.DOORBELL_QPN_SHIFT}"),
                ("VRNIC_DB_QPN_MASK", f"{descriptors.DOORBELL_QPN_MASK:#x}"),
                ("VRNIC_DB_TYPE_SHIFT", f"{descriptors.DOORBELL_TYPE_SHIFT}"),
                ("VRNIC_DB_VALID", f"{descriptors.DOORBELL_VALID:#018x}ULL"),
            ],
        )
    )
    parts.extend(_numbers(entry) for entry in ENUMS)
    parts.append(_counters())
    parts.extend(_struct(entry) for entry in STRUCTS)
    parts.append(HELPERS)
    parts.extend(_name_function(entry) for entry in ENUMS if entry.named)
    parts.append(_counter_name_function())
    parts.append("#endif /* VRNIC_CONTRACT_H */\n")
    return "\n".join(parts)


def _define(name: str, value: str) -> str:
    """``#define`` with the value in a common column, by tabs."""
    left = f"#define {name}"
    tabs = max(1, (VALUE_COLUMN - len(left) + TAB - 1) // TAB)
    return f"{left}{chr(9) * tabs}{value}"


def _section(title: str, defines: Iterable[tuple[str, str]]) -> str:
    return "\n".join([f"/* {_capital(title)}. */", *(_define(name, value) for name, value in defines), ""])


def _capital(text: str) -> str:
    return text if text.startswith("vGPU") else text[0].upper() + text[1:]


def _plain(text: str) -> str:
    """A note of the contract as C reads it: the C name of each enum, no markup."""
    for entry in ENUMS:
        name = f"enum {entry.c_name}" if entry.c_name else f"{entry.prefix}_*"
        text = re.sub(rf"\b{entry.numbers.__name__}\b", name, text)
    return text.replace("``", "")


def _comment(text: str, indent: str = "") -> Iterator[str]:
    """A C comment, in one line if it fits."""
    text = _plain(text)
    columns = 96 - len(indent.expandtabs(TAB))
    if len(text) + 6 <= columns:
        yield f"{indent}/* {text} */"
        return
    yield f"{indent}/*"
    for line in textwrap.wrap(text, columns - 3, break_long_words=False):
        yield f"{indent} * {line}"
    yield f"{indent} */"


def _numbers(entry: EnumEntry) -> str:
    notes = notes_of(entry.numbers)
    lines = list(_comment(f"{_capital(entry.title)}."))
    if entry.c_name is None:
        for member in entry.members():
            if member.name in notes:
                lines.extend(_comment(notes[member.name]))
            lines.append(_define(entry.constant(member), f"{member.value:#x}"))
        return "\n".join([*lines, ""])
    lines.append(f"enum {entry.c_name} {{")
    for member in entry.members():
        if member.name in notes:
            lines.extend(_comment(notes[member.name], "\t"))
        lines.append(f"\t{entry.constant(member)} = {member.value},")
    return "\n".join([*lines, "};", ""])


def _counters() -> str:
    lines = [
        "/* Index of each counter: its register is VRNIC_REG_COUNTER + 8 * index. */",
        "enum vrnic_counter {",
    ]
    for name, note in registers.COUNTERS:
        lines.extend(_comment(note, "\t"))
        lines.append(f"\tVRNIC_COUNTER_{name.upper()},")
    return "\n".join([*lines, "\tVRNIC_COUNTERS", "};", ""])


def _declaration(field: Field) -> str:
    """C declaration of a field. :raises ValueError: a field with a meaning is not naturally aligned."""
    if field.aligned:
        suffix = f"[{field.count}]" if field.count else ""
        return f"{C_TYPES[field.width]} {field.name}{suffix};"
    if not field.name.startswith("reserved"):
        raise ValueError(f"{field.name} at byte {field.offset} is not aligned to its {field.width} bytes")
    return f"__u8 {field.name}[{field.size}];"


def _struct(entry: StructEntry) -> str:
    fields = fields_of(entry.layout)
    lines = ["/**", f" * struct {entry.c_name} - {_capital(entry.title)}, {entry.size} bytes"]
    for field in fields:
        note = _plain(field.note) or "0"
        lines.extend(
            f" * {line}" for line in textwrap.wrap(f"@{field.name}: {note}", 92, subsequent_indent="   ")
        )
    lines.extend([" */", f"struct {entry.c_name} {{"])
    lines.extend(f"\t{_declaration(field)}" for field in fields)
    lines.extend(["};", ""])
    lines.append(f'static_assert(sizeof(struct {entry.c_name}) == {entry.size}, "{entry.c_name}");')
    for field in fields:
        if not field.name.startswith("reserved") and field.offset:
            lines.append(_offset_assert(entry.c_name, field))
    return "\n".join([*lines, ""])


def _offset_assert(structure: str, field: Field) -> str:
    condition = f"offsetof(struct {structure}, {field.name}) == {field.offset}"
    line = f'static_assert({condition}, "{field.name}");'
    return line if len(line) <= 100 else f'static_assert({condition},\n\t      "{field.name}");'


def _name_function(entry: EnumEntry) -> str:
    """A function from value to name."""
    assert entry.c_name is not None
    lines = [
        f"/* Name of a value of enum {entry.c_name}. */",
        f"VRNIC_INLINE const char *{entry.c_name}_name(__u32 value)",
        "{",
        "\tswitch (value) {",
    ]
    for member in entry.members():
        lines.extend([f"\tcase {entry.constant(member)}:", f'\t\treturn "{member.name}";'])
    lines.extend(["\tdefault:", '\t\treturn "unknown";', "\t}", "}", ""])
    return "\n".join(lines)


def _counter_name_function() -> str:
    lines = [
        "/* Name of a counter, as every view of the device prints it. */",
        "VRNIC_INLINE const char *vrnic_counter_name(__u32 index)",
        "{",
        "\tstatic const char * const names[VRNIC_COUNTERS] = {",
        *(f'\t\t"{name}",' for name, _ in registers.COUNTERS),
        "\t};",
        "",
        '\treturn index < VRNIC_COUNTERS ? names[index] : "unknown";',
        "}",
        "",
    ]
    return "\n".join(lines)
