# SPDX-License-Identifier: Apache-2.0
"""What MMIO costs: our Python server against a minimal C server, both in one guest, in turns.

Absolute times on a shared machine mean little, so what counts are the ratios. A round measures one device and
then the other. Whatever else runs on the machine only ever adds time, so of many short rounds the best one of
each device is taken, and the ratio is that of the best ones.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from emu.bench.mmio_server import C_DEVICE_ID, DEVICE_ID
from emu.lab.failure import LabFailure
from emu.lab.guest import Guest
from emu.lab.image import GuestImage, build_image
from emu.lab.installation import Installation
from emu.lab.qemu import PluggedFunction, QemuCommand
from emu.setup.cache import CHECKOUT
from emu.setup.library import Library, obtain_library
from emu.transport.build_ffi import detect_api

__all__ = ["READ_TARGET", "SUSTAINED_TARGET", "MmioCost", "MmioReport", "parse_rounds", "run_mmio_bench"]

SUSTAINED_TARGET = 1.6
"""How much more than the C server a sustained posted doorbell may cost."""
READ_TARGET = 1.2
"""How much more than the C server a read may cost."""

_SOURCES = CHECKOUT / "tests/bench"


@dataclass(frozen=True, slots=True)
class MmioCost:
    """Nanoseconds per 8-byte operation, as the guest sees them.

    ``posted`` is a store until it returns, ``sustained`` a store until the server has taken it, averaged over
    a long burst, ``read`` a round trip.
    """

    posted: float
    sustained: float
    read: float


@dataclass(frozen=True, slots=True)
class MmioReport:
    """Result: the cost with each server in its best round, and ours as a multiple of the C server's."""

    python: MmioCost
    c: MmioCost
    ratio: MmioCost
    rounds: int
    stores: int
    accelerator: str

    @property
    def met(self) -> bool:
        """Whether both targets are met."""
        return self.ratio.sustained <= SUSTAINED_TARGET and self.ratio.read <= READ_TARGET

    def to_json(self) -> dict[str, object]:
        """The same as plain values, times in nanoseconds."""
        return {
            **asdict(self),
            "targets": {"sustained": SUSTAINED_TARGET, "read": READ_TARGET},
            "met": self.met,
        }


def run_mmio_bench(
    *,
    stores: int = 10_000,
    reads: int = 500,
    rounds: int = 21,
    accelerator: str = "auto",
    progress: Callable[[str], None] = lambda _: None,
) -> MmioReport:
    """Boot one guest with both devices and measure. Takes about half a minute under TCG.

    ``stores`` is the length of a burst, ``reads`` the number of reads and ``rounds`` the number of turns each
    device gets; ``progress`` is told what happens.

    :raises LabFailure: a server, the compiler or the guest fails, or a doorbell got lost.
    :raises emu.setup.error.SetupError: the set-up is incomplete.
    """
    progress("preparing")
    installation = Installation.require(accelerator)
    library = obtain_library(installation.tree)
    with tempfile.TemporaryDirectory(prefix="vrnic-bench-") as folder, ExitStack() as stack:
        directory = Path(folder)
        server = _compile_server(library, directory)
        program = _compile(["-static", str(_SOURCES / "mmio_guest.c")], directory / "mmio_guest")
        sockets = {"bench.python": directory / "python.sock", "bench.c": directory / "c.sock"}
        _start([sys.executable, "-m", "emu.bench.mmio_server", str(sockets["bench.python"])], stack)
        _start([str(server), str(sockets["bench.c"])], stack)
        progress("booting a guest")
        command = QemuCommand(
            executable=installation.qemu,
            kernel=installation.kernel.image,
            image=_image(installation, program, directory),
            directory=directory / "guest",
            node="bench",
            functions=[PluggedFunction(name, path) for name, path in sockets.items()],
            accelerator=installation.accelerator,
        )
        guest = stack.enter_context(Guest(command))
        guest.start()
        guest.wait_ready()
        progress(f"measuring, {rounds} rounds of {stores} doorbells")
        line = f"mmio_guest {stores} {reads} {rounds} {DEVICE_ID:x} {C_DEVICE_ID:x}"
        # A burst of stores costs at most a few microseconds each, a read a fraction of a millisecond.
        seconds = 30 + 2 * rounds * (stores * 50e-6 + reads * 2e-3)
        result = guest.run(line, timeout=seconds).check()
        return parse_rounds(result.out, stores=stores, accelerator=installation.accelerator)


def parse_rounds(lines: Sequence[str], *, stores: int, accelerator: str) -> MmioReport:
    """Turn the guest program's lines (see ``tests/bench/mmio_guest.c``) into a report.

    :raises LabFailure: a line is not one, or a device has no rounds.
    """
    rounds: dict[int, list[MmioCost]] = {DEVICE_ID: [], C_DEVICE_ID: []}
    for line in lines:
        try:
            device, posted, sustained, read, _ = line.split()
            rounds[int(device, 16)].append(MmioCost(float(posted), float(sustained), float(read)))
        except (ValueError, KeyError):
            raise LabFailure(f"the benchmark in the guest said {line!r}") from None
    ours, theirs = rounds[DEVICE_ID], rounds[C_DEVICE_ID]
    if not ours or len(ours) != len(theirs):
        raise LabFailure(f"the benchmark measured {len(ours)} and {len(theirs)} rounds")
    python, c = _best(ours), _best(theirs)
    return MmioReport(
        python=python,
        c=c,
        ratio=MmioCost(python.posted / c.posted, python.sustained / c.sustained, python.read / c.read),
        rounds=len(ours),
        stores=stores,
        accelerator=accelerator,
    )


def _best(costs: Sequence[MmioCost]) -> MmioCost:
    return MmioCost(
        posted=min(cost.posted for cost in costs),
        sustained=min(cost.sustained for cost in costs),
        read=min(cost.read for cost in costs),
    )


def _image(installation: Installation, program: Path, directory: Path) -> Path:
    return build_image(
        GuestImage(
            busybox=installation.tree.path / "usr/bin/busybox",
            agent=installation.programs / "agent",
            init=CHECKOUT / "guest/init",
            programs=(program,),
        ),
        directory,
    )


def _compile_server(library: Library, directory: Path) -> Path:
    """The C server, compiled like our own extension: the same library, the same optimization."""
    words = ["-D_GNU_SOURCE", f"-DVRNIC_VFU_API={detect_api(library.include)}", f"-I{library.include}"]
    words.append(str(_SOURCES / "mmio_server.c"))
    if library.sources is None:
        words.append("-lvfio-user")
    else:
        folder = library.sources / "lib"
        words += [f"-I{folder}", "-I/usr/include/json-c"]
        words += [str(path) for path in sorted(folder.glob("*.c")) if path.name != "tran_pipe.c"]
        words.append("-ljson-c")
    return _compile(words, directory / "mmio_server")


def _compile(words: Sequence[str], output: Path) -> Path:
    compiler = shlex.split(os.environ.get("CC", "cc"))
    try:
        answer = subprocess.run(
            [*compiler, "-O2", *words, "-o", str(output)], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise LabFailure(f"no C compiler: {compiler[0]} not found", "install gcc and libc6-dev") from None
    if answer.returncode != 0:
        raise LabFailure(f"{output.name} does not compile", answer.stderr.strip()[:4000])
    return output


def _start(argv: Sequence[str], stack: ExitStack) -> None:
    """Start a server, wait until it is ready, end it with the stack."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT)
    stack.callback(_stop, process)
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise LabFailure(f"the benchmark's server did not start: {shlex.join(argv)}")


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait(10)
    if process.stdout is not None:
        process.stdout.close()
