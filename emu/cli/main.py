# SPDX-License-Identifier: Apache-2.0
"""The ``vrnic`` command: one module per noun, assembled here."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

import emu
from emu.cli import (
    bench,
    boot,
    chaos,
    checks,
    compare,
    demo,
    doctor,
    driver,
    inspect,
    lab,
    link,
    pcap,
    serve,
    trace,
    wireshark,
)

__all__ = ["app", "main"]

app = typer.Typer(
    name="vrnic",
    help="A virtual RDMA NIC for QEMU. Start with `vrnic demo`; look inside with `qp`, `counters`, `trace`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo.demo)
app.command()(boot.boot)
app.command()(serve.serve)
app.command()(inspect.qp)
app.command()(inspect.counters)
app.command()(inspect.regs)
app.command()(trace.trace)
app.command()(doctor.doctor)
app.add_typer(lab.app, name="lab")
app.add_typer(link.app, name="link")
app.add_typer(driver.app, name="driver")
app.add_typer(pcap.app, name="pcap")
app.add_typer(wireshark.app, name="wireshark")
app.add_typer(bench.app, name="bench")
app.add_typer(compare.app, name="compare")
app.add_typer(chaos.app, name="chaos")
app.add_typer(checks.app, name="checks")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"vrnic {emu.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the log.")] = False,
) -> None:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )


def main() -> None:
    """Entry point of the console script."""
    app()
