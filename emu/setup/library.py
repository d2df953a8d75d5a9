# SPDX-License-Identifier: Apache-2.0
"""libvfio-user: found on the system or taken out of Debian's QEMU source package, and compiled for Python.

How it is compiled, and how the generations of its interface differ, is in :mod:`emu.transport.build_ffi`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emu.setup.apt import private_apt, source_line, tree_sources
from emu.setup.bootstrap import debian_keyring
from emu.setup.cache import CHECKOUT, EXTENSION, Cache, content_key, file_digest, tree_digest
from emu.setup.error import SetupError
from emu.setup.process import run
from emu.setup.tree import Tree

__all__ = ["DMA_REGIONS", "Library", "extension_directory", "obtain_extension", "obtain_library"]

DMA_REGIONS = 128
"""DMA regions a function can have when the library is built from source (a guest with 3 functions uses 9)."""

_SUITES = ("trixie", "bookworm")
_PART = "subprojects/libvfio-user"


@dataclass(frozen=True)
class Library:
    """A libvfio-user to compile against.

    :param include: directory that holds ``libvfio-user.h``.
    :param sources: root of its source tree; None for the system's, which is linked as ``vfio-user``.
    :param origin: for people: where it came from.
    :param identity: changes whenever the compiled result would.
    """

    include: Path
    sources: Path | None
    origin: str
    identity: str


def extension_directory(cache: Cache | None = None) -> Path | None:
    """Where this checkout's compiled ``_vfu`` module for this Python is; None when it is not built."""
    return (cache or Cache.default()).current(EXTENSION)


def obtain_library(tree: Tree, cache: Cache | None = None) -> Library:
    """The system's libvfio-user when it has one that links, otherwise the copy in Debian's QEMU sources.

    :param tree: its apt sources say which mirror to ask.
    :raises SetupError: no suite's source package can be had.
    """
    system = _system_library()
    if system is not None:
        return system
    chosen = cache or Cache.default()
    inputs: dict[str, object] = {"suites": _SUITES, "regions": DMA_REGIONS, "recipe": 1}
    sources = chosen.obtain("libvfio-user", content_key(inputs), lambda fresh: _download(tree, chosen, fresh))
    include = sources / "include"
    facts = chosen.stamp(sources) or {}
    return Library(
        include=include,
        sources=sources,
        origin=f"Debian source package qemu {facts.get('version', '')}".strip(),
        identity=f"source-{sources.name}",
    )


def obtain_extension(tree: Tree, cache: Cache | None = None) -> Path:
    """Directory of the compiled ``_vfu`` module for this checkout and this Python, built now when needed.

    :raises SetupError: the compiler or a header is missing, or the build fails.
    """
    chosen = cache or Cache.default()
    library = obtain_library(tree, chosen)
    transport = CHECKOUT / "emu/transport"
    inputs: dict[str, object] = {
        "library": library.identity,
        "builder": tree_digest([transport / "build_ffi.py", *sorted(transport.glob("*.[ch]"))]),
        "python": sysconfig.get_config_var("SOABI"),
    }

    def make(fresh: Path) -> Mapping[str, object]:
        where = ["--sources", str(library.sources / "lib")] if library.sources else ["--library", "vfio-user"]
        run(
            [
                *(sys.executable, "-m", "emu.transport.build_ffi"),
                *("--include", str(library.include), *where, "--out", str(fresh)),
            ],
            what="the libvfio-user extension",
            log=chosen.root / "logs/extension.log",
            cwd=CHECKOUT,
        )
        if not any(fresh.glob("_vfu*.so")):
            raise SetupError("The libvfio-user extension was built without leaving a _vfu module.", "")
        return {"inputs": inputs, "origin": library.origin}

    entry = chosen.obtain(
        "extension", content_key(inputs), make, intact=lambda path: any(path.glob("_vfu*.so"))
    )
    chosen.point(EXTENSION, entry)
    chosen.prune("extension", keep=6)
    return entry


def _system_library() -> Library | None:
    places = [Path("/usr/local/include"), Path("/usr/include")]
    if shutil.which("pkg-config"):
        flags = subprocess.run(
            ["pkg-config", "--cflags-only-I", "libvfio-user"], capture_output=True, text=True, check=False
        )
        places = [Path(word[2:]) for word in flags.stdout.split() if word.startswith("-I")] + places
    for place in places:
        header = place / "libvfio-user.h"
        if header.is_file() and _links(place):
            return Library(
                include=place,
                sources=None,
                origin=f"the system's, {header}",
                identity=f"system-{file_digest(header)[:16]}",
            )
    return None


def _links(include: Path) -> bool:
    program = (
        "#include <stddef.h>\n#include <libvfio-user.h>\nint main(void) { return vfu_run_ctx(NULL) == 1; }\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        words = ["gcc", "-x", "c", "-", f"-I{include}", "-o", f"{folder}/probe", "-lvfio-user"]
        try:
            return (
                subprocess.run(words, input=program, text=True, capture_output=True, check=False).returncode
                == 0
            )
        except FileNotFoundError:
            return False


def _download(tree: Tree, cache: Cache, fresh: Path) -> Mapping[str, object]:
    text = tree_sources(tree)
    keyring = debian_keyring()
    failure: SetupError | None = None
    for suite in _SUITES:
        with tempfile.TemporaryDirectory(prefix="vrnic-") as folder:
            try:
                line = source_line(text, tree.suite.release, suite, keyring)
                version = _unpack(Path(folder), line, fresh, cache.root / f"logs/libvfio-user-{suite}.log")
            except SetupError as error:
                failure = error
                continue
        return {"version": version, "suite": suite, "regions": DMA_REGIONS}
    assert failure is not None
    raise failure


def _unpack(folder: Path, line: str, fresh: Path, log: Path) -> str:
    """Fetch the package that ``line`` offers, leave the patched library in ``fresh``, return its version."""
    what = "the libvfio-user sources"
    apt = private_apt(folder, line, what, log)
    (folder / "source").mkdir()
    run([*apt, "source", "--download-only", "qemu"], what=what, log=log, cwd=folder / "source")
    archive = next(iter((folder / "source").glob("qemu_*.orig.tar.*")), None)
    if archive is None:
        raise SetupError("Debian's QEMU source package came without its upstream archive.", f"See {log}.")
    strip = [
        "--wildcards",
        "--strip-components=3",
        f"*/{_PART}/include",
        f"*/{_PART}/lib",
        f"*/{_PART}/LICENSE",
    ]
    run(["tar", "--extract", "--file", str(archive), "--directory", str(fresh), *strip], what=what, log=log)
    raise_region_limit(fresh / "lib/private.h")
    return archive.name.removeprefix("qemu_").partition(".orig.")[0]


def raise_region_limit(header: Path) -> None:
    """Set the library's region limit to :data:`DMA_REGIONS`; a copy without a limit stays as it is."""
    text = header.read_text()
    header.write_text(
        re.sub(r"^(#define\s+MAX_DMA_REGIONS\s+)\d+", rf"\g<1>{DMA_REGIONS}", text, flags=re.MULTILINE)
    )
