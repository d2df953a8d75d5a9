# SPDX-License-Identifier: Apache-2.0
"""Builds the guest's initial RAM file system, which is all the guest's storage but for shared folders.

It holds a static busybox, ``guest/init``, the agent, the drivers, test programs, and modules of the kernel.
It is not compressed: the host hands it over from memory, and unpacking under TCG costs more than reading.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from emu.lab.cpio import CpioArchive
from emu.lab.failure import LabFailure

__all__ = ["SHARE_MODULES", "GuestImage", "build_image", "module_closure"]

SHARE_MODULES = ("9p", "9pnet_virtio")
"""Modules a guest needs to mount a shared folder."""

_DIRECTORIES = (
    "/dev",
    "/proc",
    "/sys",
    "/tmp",
    "/root",
    "/run",
    "/etc",
    "/modules",
    "/usr",
    "/lib",
    "/lib64",
    "/sbin",
)

_MOTD = """
A vrnic guest. NICs: /dev/vrnic*  vGPUs: /dev/vgpu*  counters: /sys/kernel/debug/vrnic
  reload-driver    load the drivers again (after `vrnic driver build` on the host)
  vrnic-kernels    the test kernels; /project is the host's checkout, read-only
  vrnic-simt       kernels of many lanes, and mistakes on purpose
  lspci, ethtool, python3 and all else of the set-up's Debian tree are here too, read-only
  poweroff         leave (or Ctrl-A X)

"""

_PROFILE = """export PS1='\\h:\\w# '
# A serial line tells no window size; 80 columns break long commands.
[ -t 0 ] && stty cols 160 rows 48 2>/dev/null
"""


@dataclass(frozen=True)
class GuestImage:
    """What goes into an image, as paths on the host.

    ``init`` is the folder ``guest/init``; ``modules`` are kernel modules the init script loads first,
    dependencies before dependents; ``drivers`` go to ``/modules`` and wait for ``reload-driver``;
    ``programs`` go to ``/bin``.
    """

    busybox: Path
    agent: Path
    init: Path
    modules: Sequence[Path] = ()
    drivers: Sequence[Path] = ()
    programs: Sequence[Path] = ()

    def archive(self) -> bytes:
        """The image's bytes: equal inputs give equal bytes.

        :raises LabFailure: an input cannot be read.
        """
        archive = CpioArchive()
        for directory in _DIRECTORIES:
            archive.add_directory(directory)
        archive.add_directory("/tmp", 0o1777)
        # The kernel opens it for the first process before devtmpfs is mounted.
        archive.add_character_device("/dev/console", 5, 1)
        archive.add_file("/bin/busybox", _read(self.busybox), 0o755)
        for applet in _applets(self.busybox):
            archive.add_symlink(f"/bin/{applet}", "busybox")
        archive.add_file("/init", _read(self.init / "init"), 0o755)
        archive.add_file("/bin/reload-driver", _read(self.init / "reload-driver"), 0o755)
        archive.add_file("/bin/agent", _read(self.agent), 0o755)
        archive.add_file("/etc/motd", _MOTD.encode())
        archive.add_file("/etc/profile", _PROFILE.encode())
        archive.add_file("/etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        archive.add_file("/etc/group", b"root:x:0:\n")
        for path in self.drivers:
            archive.add_file(f"/modules/{path.name}", _read(path))
        order = []
        for path in self.modules:
            data = _read(path)
            name = path.name
            if path.suffix == ".xz":
                data, name = lzma.decompress(data), path.stem
            archive.add_file(f"/modules/stock/{name}", data)
            order.append(f"/modules/stock/{name}\n")
        archive.add_file("/etc/vrnic/modules", "".join(order).encode())
        for path in self.programs:
            archive.add_file(f"/bin/{path.name}", _read(path), 0o755)
        return archive.to_bytes()


def build_image(image: GuestImage, directory: Path) -> Path:
    """Write ``image`` into ``directory``, named by its content, unless it is there already; return its path.

    Other images there are removed when they have not been used for a day.

    :raises LabFailure: an input cannot be read, or ``directory`` not written.
    """
    data = image.archive()
    path = directory / f"{hashlib.sha256(data).hexdigest()[:16]}.cpio"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if path.is_file() and path.stat().st_size == len(data):
            os.utime(path)
            return path
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".new-", delete=False) as file:
            file.write(data)
        os.replace(file.name, path)
        for other in directory.glob("*.cpio"):
            if path.stat().st_mtime - other.stat().st_mtime > 86_400:
                other.unlink(missing_ok=True)
    except OSError as error:
        raise LabFailure(
            f"cannot write the guest image {path}: {error.strerror}",
            "free some space, or set VRNIC_CACHE to a folder elsewhere",
        ) from error
    return path


def module_closure(folder: Path, names: Iterable[str]) -> tuple[Path, ...]:
    """Files of the kernel modules ``names`` and of what they need, in loading order.

    ``folder`` is a kernel's module folder (``/lib/modules/<release>``) with the ``modules.dep`` depmod
    wrote; a name that is not there is taken for built into the kernel.

    :raises LabFailure: there is no ``modules.dep``.
    """
    needs: dict[str, tuple[str, list[str]]] = {}
    for line in _read(folder / "modules.dep").decode().splitlines():
        path, _, rest = line.partition(":")
        # modules.dep lists the direct dependency first and the deepest last.
        needs[_module_name(path)] = (path, rest.split()[::-1])
    order: dict[Path, None] = {}
    for name in names:
        entry = needs.get(_module_name(name))
        if entry is not None:
            file, dependencies = entry
            for each in (*dependencies, file):
                order.setdefault(folder / each)
    return tuple(order)


def _module_name(path: str) -> str:
    return path.rsplit("/", 1)[-1].split(".ko")[0].replace("-", "_")


def _applets(busybox: Path) -> list[str]:
    try:
        listing = subprocess.run(
            [str(busybox), "--list"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LabFailure(f"{busybox} does not run: {error}", "run scripts/setup again") from error
    return [name for name in listing.stdout.split() if name != "busybox"]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LabFailure(f"{path}: {error.strerror}", "run scripts/setup again") from error
