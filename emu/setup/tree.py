# SPDX-License-Identifier: Apache-2.0
"""A private Debian tree: where its things are and how its programs are run, whatever the host is.

Two ways to run a program:

:meth:`Tree.host_command`
    The tree's program under the tree's dynamic loader, in the host's file system. For programs that work on
    the host's files and sockets (QEMU, tshark).
:meth:`Tree.command`
    Inside the tree as root directory. For programs that look for other programs and data at fixed places
    (compiler, make, perl). Root uses chroot, everybody else bubblewrap.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emu.setup.cache import Cache, content_key
from emu.setup.error import SetupError
from emu.setup.suite import MAIN, Suite

__all__ = ["MINIMUM_QEMU", "Bind", "Kernel", "Tree"]

MINIMUM_QEMU = (10, 1, 1)
"""First QEMU whose vfio-user-pci device works with this project."""

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_INSIDE_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LC_ALL": "C.UTF-8"}

# Programs that search data at places compiled into them; each variable moves one such place into the tree.
_PROGRAM_ENV: dict[str, dict[str, str]] = {
    "qemu": {"QEMU_MODULE_DIR": f"{_LIBRARIES}/qemu"},
    "tshark": {
        "WIRESHARK_DATA_DIR": "usr/share/wireshark",
        "WIRESHARK_PLUGIN_DIR": f"{_LIBRARIES}/wireshark/plugins",
        "WIRESHARK_EXTCAP_DIR": f"{_LIBRARIES}/wireshark/extcap",
    },
}


@dataclass(frozen=True)
class Bind:
    """A host directory made visible inside the tree.

    :param source: the directory on the host.
    :param inside: absolute path inside the tree.
    :param writable: whether the program may change it.
    """

    source: Path
    inside: str
    writable: bool = False


@dataclass(frozen=True)
class Kernel:
    """One kernel of the tree.

    :param flavour: ``cloud`` (small, virtual machines only) or ``full``.
    :param release: what ``uname -r`` prints when it runs.
    :param image: bzImage on the host's file system; absent from a tree that only has headers.
    :param modules: directory of its loadable modules, on the host's file system.
    :param headers: its build directory *inside* the tree, for ``make -C``.
    """

    flavour: str
    release: str
    image: Path
    modules: Path
    headers: str


@dataclass(frozen=True)
class Tree:
    """A finished private Debian tree.

    :param path: its root directory on the host.
    :param suite: the recipe it was made from.
    """

    path: Path
    suite: Suite = MAIN

    @classmethod
    def find(cls, suite: Suite = MAIN, cache: Cache | None = None) -> Tree | None:
        """The tree in the cache; None when it is absent, half made or damaged."""
        chosen = cache or Cache.default()
        path = chosen.entry(suite.name, content_key(suite.inputs()))
        return cls(path, suite) if chosen.stamp(path) is not None and is_intact(path, suite) else None

    @classmethod
    def require(cls, suite: Suite = MAIN, cache: Cache | None = None) -> Tree:
        """The tree in the cache.

        :raises SetupError: there is none.
        """
        tree = cls.find(suite, cache)
        if tree is None:
            option = "" if suite is MAIN else " --kernels"
            raise SetupError(
                f"The private Debian tree ({suite.name}) is missing or damaged.",
                f"Run scripts/setup{option}.",
            )
        return tree

    def inside(self, path: Path) -> str:
        """The name that ``path``, a host path below the tree, has for programs run by :meth:`command`."""
        return "/" + path.relative_to(self.path).as_posix()

    def kernel(self, flavour: str = "cloud") -> Kernel:
        """The newest kernel of a flavour.

        :raises SetupError: the tree has none, or the flavour is unknown.
        """
        if flavour not in ("cloud", "full"):
            raise SetupError(f"There is no kernel flavour {flavour!r}.", "The flavours are cloud and full.")
        found = []
        for headers in (self.path / "usr/src").glob("linux-headers-*-amd64"):
            release = headers.name.removeprefix("linux-headers-")
            if release.endswith("-cloud-amd64") == (flavour == "cloud"):
                found.append((_version_key(release), release))
        if not found:
            raise SetupError(
                f"The Debian tree {self.path} has no {flavour} kernel.",
                f"Remove that directory and run scripts/setup{'' if self.suite is MAIN else ' --kernels'}.",
            )
        release = max(found)[1]
        return Kernel(
            flavour=flavour,
            release=release,
            image=self.path / f"boot/vmlinuz-{release}",
            modules=self.path / f"usr/lib/modules/{release}",
            headers=f"/usr/src/linux-headers-{release}",
        )

    def headers(self, flavour: str = "cloud") -> str:
        """Build directory of a kernel inside the tree (see :class:`Kernel`)."""
        return self.kernel(flavour).headers

    def host_command(self, program: str, *arguments: str) -> list[str]:
        """Argument vector that runs a program of the tree in the host's file system.

        :param program: path below the tree, or a bare name looked for in ``usr/bin`` and ``usr/sbin``.
        :raises SetupError: the tree has no such program.
        """
        candidates = [program] if "/" in program else [f"usr/bin/{program}", f"usr/sbin/{program}"]
        for candidate in candidates:
            if (self.path / candidate).is_file():
                break
        else:
            raise SetupError(
                f"The Debian tree {self.path} has no program {program}.", "Run scripts/setup again."
            )
        name = Path(candidate).name
        moved = next((env for prefix, env in _PROGRAM_ENV.items() if name.startswith(prefix)), {})
        assignments = [f"{variable}={self.path / place}" for variable, place in moved.items()]
        loader = [
            str(self.path / "lib64/ld-linux-x86-64.so.2"),
            "--inhibit-cache",
            "--library-path",
            str(self.path / _LIBRARIES),
            "--argv0",
            name,
            str(self.path / candidate),
        ]
        return [*(["env", *assignments] if assignments else []), *loader, *arguments]

    def qemu_command(self) -> list[str]:
        """QEMU of the tree with its own libraries, modules and firmware; machine options follow."""
        firmware = ("usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu")
        paths = [word for place in firmware for word in ("-L", str(self.path / place))]
        return self.host_command("qemu-system-x86_64", *paths)

    def tshark_command(self) -> list[str]:
        """tshark of the tree; its options and host file names follow."""
        return self.host_command("tshark")

    def command(self, argv: Sequence[str], *, cwd: str = "/", binds: Sequence[Bind] = ()) -> list[str]:
        """Argument vector that runs ``argv`` with the tree as root directory and a clean environment.

        :param cwd: working directory inside the tree.
        :param binds: host directories the program shall see.
        :raises SetupError: this user cannot run it (root that may not mount, with binds).
        """
        inner = ["env", "-i", *(f"{name}={value}" for name, value in _INSIDE_ENV.items()), *argv]
        if os.geteuid() != 0:
            return self._bubblewrap(inner, cwd, binds)
        rooted = ["chroot", str(self.path), "env", f"--chdir={cwd}", *inner[1:]]
        if not may_mount():
            if not binds:
                return rooted
            raise SetupError(
                "This container may not mount, so host directories cannot be shown to the tree's programs.",
                "Give the container CAP_SYS_ADMIN, or run as an ordinary user with bubblewrap.",
            )
        # objtool of the 7.x headers refuses to work without /proc.
        lines = ["set -e", f"mount --rbind /proc {shlex.quote(str(self.path / 'proc'))}"]
        for bind in binds:
            place = shlex.quote(str(self.path / bind.inside.lstrip("/")))
            lines.append(f"mkdir -p {place}; mount --bind {shlex.quote(str(bind.source))} {place}")
            if not bind.writable:
                lines.append(f"mount -o remount,bind,ro {place}")
        lines.append('exec "$@"')
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(lines), "sh", *rooted]

    def _bubblewrap(self, inner: list[str], cwd: str, binds: Sequence[Bind]) -> list[str]:
        words = [
            "bwrap",
            "--bind",
            str(self.path),
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--uid",
            "0",
            "--gid",
            "0",
        ]
        words += ["--unshare-user", "--die-with-parent", "--chdir", cwd]
        for bind in binds:
            words += ["--bind" if bind.writable else "--ro-bind", str(bind.source), bind.inside]
        return [*words, *inner]

    def package_version(self, package: str) -> str | None:
        """Installed version of a Debian package of the tree; None when it is not installed."""
        try:
            status = (self.path / "var/lib/dpkg/status").read_text(errors="replace")
        except OSError:
            return None
        found = re.search(rf"^Package: {re.escape(package)}\n(?:.+\n)*?Version: (\S+)$", status, re.MULTILINE)
        return found[1] if found else None

    def check_qemu(self) -> str:
        """Version of the tree's QEMU, as Debian writes it.

        :raises SetupError: it is missing or older than :data:`MINIMUM_QEMU`.
        """
        needed = ".".join(map(str, MINIMUM_QEMU))
        version = self.package_version("qemu-system-x86")
        if version is None or qemu_version(version) < MINIMUM_QEMU:
            raise SetupError(
                f"The Debian tree has QEMU {version or '(none)'}, but {needed} or newer is needed.",
                "The mirror lacks the release's backports suite: name one that has it with "
                "VRNIC_DEBIAN_MIRROR=URL, and run scripts/setup again.",
            )
        return version


def qemu_version(debian: str) -> tuple[int, ...]:
    """The upstream version in a Debian one (``1:11.1.3+ds-1~bpo13+1``) as numbers; empty without any."""
    found = re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", debian)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def is_intact(path: Path, suite: Suite) -> bool:
    """Whether everything that ``suite`` cannot do without is there."""
    return all(any(path.glob(pattern)) for pattern in suite.needs)


@functools.cache
def may_mount() -> bool:
    """Whether root may mount in a namespace of its own; not so in many containers and in a bare chroot."""
    trial = ["unshare", "--mount", "--propagation", "private", "true"]
    try:
        return subprocess.run(trial, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _version_key(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release))
