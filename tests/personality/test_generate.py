# SPDX-License-Identifier: Apache-2.0
"""What is generated from the contract is current, and means in C what the contract says."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from construct import Byte, Struct

from emu.checks.catalogue import CHECKS
from emu.nic.work import Opcode
from emu.personality.vrnic.contract import codes, commands, descriptors, registers
from emu.personality.vrnic.generate import DOCUMENT, HEADER, PROJECT, outputs, stale
from emu.personality.vrnic.generate.layout import ENUMS, STRUCTS, fields_of, notes_of, struct_of

COMPILER = shutil.which("gcc") or shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler on this machine")
FLAGS = ["-Wall", "-Wextra", "-Werror", f"-I{PROJECT / HEADER.parent}"]


def compile_c(source: Path, *arguments: str) -> None:
    assert COMPILER is not None
    done = subprocess.run(
        [COMPILER, *FLAGS, *arguments, str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_generated_files_are_current() -> None:
    assert stale() == [], "run python -m emu.personality.vrnic.generate"


def test_a_missing_or_edited_file_is_stale(tmp_path: Path) -> None:
    assert stale(tmp_path) == [HEADER, DOCUMENT]
    for path, text in outputs().items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    assert stale(tmp_path) == []
    (tmp_path / HEADER).write_text(outputs()[HEADER].replace("0x7672", "0x7673"))
    assert stale(tmp_path) == [HEADER]


@needs_compiler
@pytest.mark.parametrize("option", ["-std=gnu11", "-std=gnu17"])
def test_the_header_compiles_without_a_warning(tmp_path: Path, option: str) -> None:
    source = tmp_path / "user.c"
    source.write_text('#include "vrnic_contract.h"\n')
    compile_c(source, "-fsyntax-only", option)


@needs_compiler
def test_c_computes_what_the_contract_says(tmp_path: Path) -> None:
    """Sizes, offsets, numbers and helpers, printed by a C program as JSON."""
    lines = []
    for entry in STRUCTS:
        lines.append(f'show("{entry.c_name}", sizeof(struct {entry.c_name}));')
        for field in fields_of(entry.layout):
            lines.append(
                f'show("{entry.c_name}.{field.name}", offsetof(struct {entry.c_name}, {field.name}));'
            )
    for numbers in ENUMS:
        for member in numbers.numbers:
            if member.value or numbers.c_name:
                lines.append(f'show("{numbers.constant(member)}", {numbers.constant(member)});')
    for register in registers.NIC_REGISTERS:
        lines.append(f'show("{register.name}", VRNIC_REG_{register.name});')
    lines.append('show("counters", VRNIC_COUNTERS);')
    lines.append('show("doorbell", vrnic_doorbell(VRNIC_DB_TYPE_CQ_ARM, 0xff123456, 0xfffffff0));')
    lines.append('show("commit", vrnic_wqe_commit(VRNIC_OP_READ, VRNIC_WQE_PHASE | VRNIC_WQE_SIGNAL, 7));')
    lines.append('show("phases", vrnic_phase(0, 2) | vrnic_phase(3, 2) << 1 | vrnic_phase(4, 2) << 2);')
    source = tmp_path / "show.c"
    source.write_text(
        '#include <stdio.h>\n#include "vrnic_contract.h"\n'
        'static const char *separator = "{";\n'
        "static void show(const char *name, unsigned long long value)\n"
        '{\n\tprintf("%s\\"%s\\": %llu", separator, name, value);\n\tseparator = ",\\n";\n}\n'
        "int main(void)\n{\n\t" + "\n\t".join(lines) + '\n\tputs("}");\n\treturn 0;\n}\n'
    )
    compile_c(source, "-std=gnu11", "-o", str(tmp_path / "show"))
    shown = json.loads(subprocess.run([tmp_path / "show"], capture_output=True, check=True).stdout)

    for entry in STRUCTS:
        assert shown[entry.c_name] == entry.layout.sizeof()
        for field in fields_of(entry.layout):
            assert shown[f"{entry.c_name}.{field.name}"] == field.offset
    for numbers in ENUMS:
        for member in numbers.numbers:
            if member.value or numbers.c_name:
                assert shown[numbers.constant(member)] == member.value
    for register in registers.NIC_REGISTERS:
        assert shown[register.name] == register.offset
    assert shown["counters"] == len(registers.COUNTERS)
    assert shown["doorbell"] == (
        descriptors.DOORBELL_VALID
        | descriptors.DoorbellType.CQ_ARM << descriptors.DOORBELL_TYPE_SHIFT
        | 0x123456 << descriptors.DOORBELL_QPN_SHIFT
        | 0xFFFFFFF0
    )
    flags = descriptors.WqeFlags.PHASE | descriptors.WqeFlags.SIGNAL
    commit = bytes([Opcode.READ, flags]) + b"\x01\x00" + (7).to_bytes(4, "little")
    assert shown["commit"] == int.from_bytes(commit, "little")
    assert shown["phases"] == 0b011


def test_every_command_and_reply_has_a_c_name_and_64_bytes() -> None:
    for command, reply in commands.COMMANDS.values():
        for layout in (command, reply):
            assert struct_of(layout).size == commands.ADMIN_ENTRY_SIZE
    with pytest.raises(KeyError, match="add it to STRUCTS"):
        struct_of(Struct("stray" / Byte))


def test_registers_do_not_overlap_and_are_aligned() -> None:
    for table in (registers.NIC_REGISTERS, registers.GPU_REGISTERS):
        end = 0
        for register in table:
            assert register.offset >= end
            assert register.offset % register.width == 0
            end = register.offset + register.width


def test_notes_are_the_strings_after_the_members() -> None:
    notes = notes_of(codes.AdminStatus)
    assert notes["BAD_OPCODE"] == "No such command."
    assert "OK" not in notes


def test_the_document_names_everything_a_guest_can_use() -> None:
    text = outputs()[DOCUMENT]
    for register in (*registers.NIC_REGISTERS, *registers.GPU_REGISTERS):
        assert f"`{register.name}`" in text
    for opcode in codes.AdminOpcode:
        assert f"### `{opcode.name}`" in text
    for rule, check in CHECKS.items():
        assert (f"`{rule.name}`" in text) == ("vrnic" in check.personalities)
    for name, _ in registers.COUNTERS:
        assert f"`{name}`" in text
