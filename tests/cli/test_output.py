# SPDX-License-Identifier: Apache-2.0
"""What commands print is what they were given: brackets of paths, registers and compilers are no markup."""

from __future__ import annotations

import pytest
import typer

from emu.cli.output import fail, guarded, print_table

BRACKETS = "make[2]: *** [/usr/src/Makefile.build:234: main.o] Error 1 [bold]"


def test_an_error_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail(BRACKETS, BRACKETS).exit_code == 1
    assert capsys.readouterr().err == f"error: {BRACKETS}\n  {BRACKETS}\n"


def test_a_cell_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("[t]", ("[c]",), [("EQ_CONSUMER[n] [/x]",)])
    shown = capsys.readouterr().out
    assert "[t]" in shown and "[c]" in shown and "EQ_CONSUMER[n] [/x]" in shown


def test_a_full_disk_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    @guarded
    def write() -> None:
        raise OSError(28, "No space left on device", "/a/[file]")

    with pytest.raises(typer.Exit) as caught:
        write()
    assert caught.value.exit_code == 1
    assert capsys.readouterr().err == "error: /a/[file]: No space left on device\n"
