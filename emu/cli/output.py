# SPDX-License-Identifier: Apache-2.0
"""How every command prints: tables for people, one JSON document for programs, an error as one sentence."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from emu.control.client import ControlClient
from emu.control.locate import find_socket
from emu.control.server import ControlError
from emu.lab.failure import LabFailure
from emu.lab.file import LabFileError
from emu.lab.topology import LabError
from emu.setup.error import SetupError
from emu.transport.context import EndpointError
from emu.transport.library import LibraryError

__all__ = [
    "JsonFlag",
    "LabOption",
    "SocketOption",
    "connect",
    "console",
    "fail",
    "guarded",
    "print_json",
    "print_table",
]

# Paths, compiler output and register names hold square brackets: none of them is markup.
console = Console(markup=False)
errors = Console(stderr=True, markup=False)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
LabOption = Annotated[str | None, typer.Option("--lab", help="Name of the running lab, when several run.")]
SocketOption = Annotated[Path | None, typer.Option("--socket", help="Control socket of the server.")]

EXPLAINED = (ControlError, SetupError, LabFailure, LabError, LabFileError, EndpointError, LibraryError)
"""Errors that already are a sentence for a person."""

P = ParamSpec("P")
R = TypeVar("R")


def print_json(value: object) -> None:
    """Print ``value`` as one indented JSON document."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; numbers are aligned right."""
    table = Table(title=title, title_justify="left", header_style="bold")
    materialised = [list(row) for row in rows]
    for position, column in enumerate(columns):
        numeric = bool(materialised) and all(isinstance(row[position], int | float) for row in materialised)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in materialised:
        table.add_row(*(str(cell) for cell in row))
    console.print(table)


def fail(message: str, hint: str = "", code: int = 1) -> typer.Exit:
    """Print one sentence and what to do on standard error; raise the result to leave."""
    errors.print(Text.assemble(("error:", "red"), f" {message}"), soft_wrap=True)
    if hint:
        errors.print(f"  {hint}", highlight=False, soft_wrap=True)
    return typer.Exit(code)


def connect(socket: Path | None, lab: str | None) -> ControlClient:
    """A client of the server the options mean. :raises ControlError: there is none."""
    return ControlClient(find_socket(socket, lab))


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Turn the project's own errors, and what the system says of a file, into one sentence and exit code 1.

    Ctrl-C becomes exit code 130.
    """

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except EXPLAINED as error:
            raise fail(str(getattr(error, "message", error)), getattr(error, "hint", "")) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except BrokenPipeError:
            raise typer.Exit(0) from None
        except OSError as error:
            # A full disk, a folder without permission: the file and the reason are what helps.
            if error.filename is None or logging.getLogger().isEnabledFor(logging.DEBUG):
                raise
            raise fail(f"{error.filename}: {error.strerror}") from None

    return run
