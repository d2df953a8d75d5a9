# SPDX-License-Identifier: Apache-2.0
"""Builds the extension module that holds libvfio-user and our C half of the transport.

    python -m emu.transport.build_ffi --include DIR (--sources DIR | --library NAME) [--api N] --out DIR

``--include`` is the folder with ``libvfio-user.h``. With ``--sources`` the library's own C files are compiled
into the module, together with the guards the library lacks; with ``--library`` a shared library of that name
is linked. ``--api`` is the generation of the interface: 1 for the one of 2022 (three arguments to
``vfu_setup_device_dma``), 2 for the later one (a region limit as well); by default the header tells.

Needs a C compiler (``$CC``, else ``cc``), the headers of this Python and, for ``--sources``, json-c.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from cffi import FFI

__all__ = ["MODULE", "BuildError", "build", "detect_api"]

MODULE = "_vfu"
"""Name of the extension module."""

_HERE = Path(__file__).parent
_WRAPPED = ("accept", "recv", "malloc", "handle_device_set_irqs", "dma_controller_add_region")
_PRIVATE_HEADERS = ("dma.h", "irq.h", "private.h")


class BuildError(Exception):
    """The extension cannot be built: which step failed, and what the compiler said."""


def detect_api(include: Path) -> int:
    """The generation of the interface in ``include/libvfio-user.h``: 1 or 2.

    :raises BuildError: there is no such header, or it declares neither form.
    """
    header = include / "libvfio-user.h"
    try:
        text = header.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BuildError(f"no libvfio-user header: {error}") from None
    declaration = re.search(r"\bvfu_setup_device_dma\s*\(([^)]*)\)\s*;", text)
    if declaration is None:
        raise BuildError(f"{header} does not declare vfu_setup_device_dma")
    arguments = declaration[1].count(",") + 1
    if arguments not in (3, 4):
        raise BuildError(f"{header}: vfu_setup_device_dma takes {arguments} arguments, known are 3 and 4")
    return arguments - 2


def build(include: Path, out: Path, *, sources: Path | None, library: str | None, api: int | None) -> Path:
    """Compile the module into ``out`` and return its path; what stood there is replaced in one step.

    ``sources`` is the folder with the library's C files, ``library`` the name to link instead.

    :raises BuildError: a file is missing or the compiler failed.
    """
    if (sources is None) == (library is None):
        raise BuildError("give the library's sources or the name of a built library, one of the two")
    if api is None:
        api = detect_api(include)
    out.mkdir(parents=True, exist_ok=True)
    target = out / (MODULE + str(sysconfig.get_config_var("EXT_SUFFIX")))
    with tempfile.TemporaryDirectory(dir=out, prefix="build-") as scratch:
        glue = Path(scratch) / f"{MODULE}.c"
        _write_glue(glue)
        result = Path(scratch) / target.name
        command = [
            *shlex.split(os.environ.get("CC", "cc")),
            *("-shared", "-fPIC", "-O2", "-fvisibility=hidden", "-fno-strict-aliasing", "-U_FORTIFY_SOURCE"),
            *("-D_GNU_SOURCE", f"-DVRNIC_VFU_API={api}", f"-I{sysconfig.get_paths()['include']}"),
            *(f"-I{_HERE}", f"-I{include}"),
            *(str(glue), str(_HERE / "native.c")),
        ]
        if sources is not None:
            command += _from_source(sources)
        else:
            command += [f"-l{library}"]
        _run([*command, "-o", str(result)])
        result.replace(target)
    return target


def _from_source(sources: Path) -> list[str]:
    """Compiler arguments that build the library in."""
    files = sorted(path for path in sources.glob("*.c") if path.name != "tran_pipe.c")
    if not files:
        raise BuildError(f"no C files in {sources}")
    missing = [name for name in _PRIVATE_HEADERS if not (sources / name).is_file()]
    if missing:
        raise BuildError(f"{sources} lacks {', '.join(missing)}")
    return [
        f"-I{sources}",
        str(_HERE / "guards.c"),
        *map(str, files),
        *(f"-Wl,--wrap={name}" for name in _WRAPPED),
        *_json_c(),
    ]


def _json_c() -> list[str]:
    """Flags for json-c, from pkg-config where there is one."""
    try:
        answer = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "json-c"], capture_output=True, text=True
        )
    except FileNotFoundError:
        return ["-I/usr/include/json-c", "-ljson-c"]
    if answer.returncode != 0:
        raise BuildError("json-c is missing: install its development package (libjson-c-dev)")
    return shlex.split(answer.stdout)


def _write_glue(path: Path) -> None:
    """Write the C file that joins native.h to Python; the declarations come from the header itself."""
    header = (_HERE / "native.h").read_text(encoding="utf-8")
    body = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    queue = re.search(r"#define (VRNIC_QUEUE) (\d+)", body)
    assert queue is not None
    lines = [line for line in body.splitlines() if not line.startswith(("#", "extern"))]
    ours: list[str] = []
    callbacks: list[str] = []
    for statement in "\n".join(lines).split(";\n"):
        (callbacks if "vrnic_py_" in statement else ours).append(statement)
    ffi = FFI()
    ffi.cdef(f"#define {queue[1]} {queue[2]}\n" + ";\n".join(ours))
    ffi.cdef('extern "Python+C" {\n' + ";\n".join(callbacks) + ";\n}")
    ffi.set_source(MODULE, '#include "native.h"')
    with contextlib.redirect_stdout(io.StringIO()):
        ffi.emit_c_code(str(path))


def _run(command: list[str]) -> None:
    try:
        answer = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise BuildError(f"no C compiler: {command[0]} not found") from None
    if answer.returncode != 0:
        raise BuildError(f"{command[0]} failed:\n{answer.stderr.strip()[:4000]}")


def main() -> int:
    """Command line of this module; see its documentation."""
    parser = argparse.ArgumentParser(prog="python -m emu.transport.build_ffi")
    parser.add_argument("--include", type=Path, required=True, help="folder of libvfio-user.h")
    parser.add_argument("--sources", type=Path, help="folder of the library's C files")
    parser.add_argument("--library", help="name of a built library, as for the linker's -l")
    parser.add_argument(
        "--api", type=int, choices=(1, 2), help="interface generation (default: ask the header)"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the module")
    options = parser.parse_args()
    try:
        print(
            build(
                options.include,
                options.out,
                sources=options.sources,
                library=options.library,
                api=options.api,
            )
        )
    except (BuildError, OSError) as error:
        print(f"build_ffi: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
