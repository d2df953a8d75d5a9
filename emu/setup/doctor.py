# SPDX-License-Identifier: Apache-2.0
"""What is present, missing or broken on this machine, part by part.

Nothing is made or changed here, except that the accelerator is probed once when its answer is not known yet.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emu.setup.accelerator import choose_accelerator
from emu.setup.cache import CHECKOUT, EXTENSION, Cache, content_key
from emu.setup.error import SetupError
from emu.setup.modules import current_modules
from emu.setup.programs import current_programs
from emu.setup.suite import TREES
from emu.setup.tree import Tree, may_mount

__all__ = ["Finding", "run_doctor"]

_LEAST_PYTHON = (3, 11)
_GUEST_BYTES = 1 << 30
_LOW_DISK = 1 << 30
# sun_path of unix(7) holds 108 bytes with the final zero; the lab's socket names take about 40.
_LONGEST_RUN_DIRECTORY = 60


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    :param check: what was looked at.
    :param status: ``ok``, ``warn`` (works, with a drawback) or ``fail`` (something will not work).
    :param what: what was found.
    :param remedy: what to do about it; empty when there is nothing to do.
    """

    check: str
    status: str
    what: str
    remedy: str = ""


def run_doctor(cache: Cache | None = None) -> list[Finding]:
    """Check everything; findings in the order a user would repair them. Up to 8 s the first time."""
    chosen = cache or Cache.default()
    checks: list[tuple[str, Callable[[Cache], Finding]]] = [
        ("python", _python),
        ("packages", _packages),
        ("cache", _cache),
        ("memory", _memory),
        ("run directory", _run_directory),
        ("debian tree", _tree),
        ("qemu", _qemu),
        ("kernels", _kernels),
        ("tree programs", _sandbox),
        ("libvfio-user", _library),
        ("guest modules", _modules),
        ("guest programs", _programs),
        ("accelerator", _accelerator),
        ("leftovers", _leftovers),
    ]
    findings = []
    for name, check in checks:
        try:
            findings.append(check(chosen))
        except SetupError as error:
            findings.append(Finding(name, "fail", error.message, error.hint))
    return findings


def _python(cache: Cache) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _LEAST_PYTHON:
        return Finding("python", "fail", f"Python {version} is too old", "Install Python 3.11 or newer.")
    return Finding("python", "ok", f"{version}, {sys.prefix}")


def _packages(cache: Cache) -> Finding:
    missing = [
        name
        for name in ("construct", "isal", "rich", "scapy", "typer")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        return Finding(
            "packages", "fail", f"missing Python packages: {', '.join(missing)}", "Run scripts/setup."
        )
    return Finding("packages", "ok", "the Python packages are installed")


def _cache(cache: Cache) -> Finding:
    place = next(path for path in (cache.root, *cache.root.parents) if path.exists())
    if not os.access(place, os.W_OK):
        return Finding(
            "cache", "fail", f"{place} is not writable", "Make it writable, or set VRNIC_CACHE=DIR."
        )
    free = shutil.disk_usage(place).free
    what = f"{cache.root}, {free / 1e9:.1f} GB free"
    if free < _LOW_DISK:
        return Finding("cache", "warn", what, "Free some space: captures and builds grow here and in /tmp.")
    return Finding("cache", "ok", what)


def _memory(cache: Cache) -> Finding:
    facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line)
    available = int(facts["MemAvailable"].split()[0]) * 1024
    what = f"{available / 1e9:.1f} GB available"
    if available < 2 * _GUEST_BYTES:
        return Finding(
            "memory", "warn", what, "Two guests want about 2 GB: close something, or use one guest."
        )
    return Finding("memory", "ok", what)


def _run_directory(cache: Cache) -> Finding:
    place = os.environ.get("VRNIC_RUN") or os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    if not os.access(place, os.W_OK):
        return Finding("run directory", "fail", f"{place} is not writable", "Set VRNIC_RUN=DIR.")
    if len(os.fsencode(place)) > _LONGEST_RUN_DIRECTORY:
        return Finding(
            "run directory",
            "fail",
            f"{place} is too long for socket names",
            "Set VRNIC_RUN to a shorter path.",
        )
    return Finding("run directory", "ok", place)


def _tree(cache: Cache) -> Finding:
    tree = Tree.require(cache=cache)
    return Finding("debian tree", "ok", str(tree.path))


def _qemu(cache: Cache) -> Finding:
    tree = Tree.require(cache=cache)
    tree.check_qemu()
    answer = subprocess.run([*tree.qemu_command(), "-version"], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        return Finding(
            "qemu",
            "fail",
            f"the tree's QEMU does not run: {answer.stderr.strip()[:200]}",
            f"Remove {tree.path} and run scripts/setup.",
        )
    return Finding("qemu", "ok", answer.stdout.splitlines()[0])


def _kernels(cache: Cache) -> Finding:
    tree = Tree.require(cache=cache)
    kernels = [tree.kernel(flavour) for flavour in ("cloud", "full")]
    for kernel in kernels:
        if not kernel.image.is_file() or not kernel.modules.is_dir():
            return Finding(
                "kernels",
                "fail",
                f"the image or the modules of {kernel.release} are missing",
                f"Remove {tree.path} and run scripts/setup.",
            )
    return Finding("kernels", "ok", ", ".join(kernel.release for kernel in kernels))


def _sandbox(cache: Cache) -> Finding:
    tree = Tree.require(cache=cache)
    how = "chroot" if os.geteuid() == 0 else "bubblewrap"
    try:
        answer = subprocess.run(
            tree.command(["gcc", "--version"]), capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return Finding("tree programs", "fail", f"{how} is not installed", f"Install the package {how}.")
    if answer.returncode != 0:
        return Finding(
            "tree programs",
            "fail",
            f"{how} cannot run the tree's compiler: {answer.stderr.strip()[:200]}",
            "Allow user namespaces for bubblewrap, or run as root.",
        )
    if os.geteuid() == 0 and not may_mount():
        return Finding("tree programs", "warn", "this container may not mount", "Give it CAP_SYS_ADMIN.")
    return Finding("tree programs", "ok", f"{answer.stdout.splitlines()[0]}, by {how}")


def _library(cache: Cache) -> Finding:
    entry = cache.current(EXTENSION)
    if entry is None:
        return Finding(
            "libvfio-user", "fail", "not built for this checkout and this Python", "Run scripts/setup."
        )
    module = entry / f"_vfu{sysconfig.get_config_var('EXT_SUFFIX')}"
    answer = subprocess.run(
        [sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(module)!r})"],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        reason = answer.stderr.strip().splitlines()[-1]
        return Finding("libvfio-user", "fail", reason, f"Remove {entry} and run scripts/setup.")
    origin = (cache.stamp(entry) or {}).get("origin", "")
    return Finding("libvfio-user", "ok", str(origin))


def _modules(cache: Cache) -> Finding:
    tree = Tree.require(cache=cache)
    for flavour in ("cloud", "full"):
        if current_modules(tree, flavour, cache=cache) is None:
            return Finding(
                "guest modules",
                "warn",
                f"not built from the present sources for the {flavour} kernel",
                "Run `vrnic driver build` or scripts/setup.",
            )
    return Finding("guest modules", "ok", "built from the present sources of guest/driver")


def _programs(cache: Cache) -> Finding:
    entry = current_programs(Tree.require(cache=cache), cache=cache)
    if entry is None:
        return Finding("guest programs", "warn", "not built from the present sources", "Run scripts/setup.")
    names = sorted(path.name for path in entry.iterdir() if not path.name.startswith("."))
    return Finding("guest programs", "ok", ", ".join(names))


def _accelerator(cache: Cache) -> Finding:
    answer = choose_accelerator(Tree.require(cache=cache), cache)
    what = f"{answer.name}: {answer.reason}"
    if answer.name == "kvm":
        return Finding("accelerator", "ok", what)
    return Finding(
        "accelerator", "warn", what, "Guests run emulated, some 10 times slower; nothing else differs."
    )


def _leftovers(cache: Cache) -> Finding:
    wanted = {cache.entry(suite.name, content_key(suite.inputs())) for suite in TREES.values()}
    found = [path for name in TREES for path in sorted((cache.root / name).glob("*")) if path not in wanted]
    found += [path for path in sorted((cache.root / "venv").glob("*")) if _is_stale_environment(path)]
    if found:
        return Finding(
            "leftovers",
            "warn",
            f"{len(found)} trees or Python environments that this checkout ({CHECKOUT}) no longer uses",
            f"When no other checkout uses them: rm -rf {' '.join(map(str, found))}",
        )
    return Finding("leftovers", "ok", "none")


def _is_stale_environment(path: Path) -> bool:
    """Whether a Python environment was made for this checkout earlier on, or for one that is gone."""
    try:
        checkout = Path((path / ".complete").read_text().strip())
    except OSError:
        return False
    if checkout == CHECKOUT:
        return path.resolve() != Path(sys.prefix).resolve()
    return not checkout.is_dir()
