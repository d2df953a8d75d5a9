# SPDX-License-Identifier: Apache-2.0
"""The making of a private Debian tree with mmdebstrap."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from emu.setup.cache import Cache, content_key
from emu.setup.error import SetupError
from emu.setup.process import run
from emu.setup.suite import MAIN, Suite
from emu.setup.tree import Tree, is_intact

__all__ = ["allow_scripts", "debian_keyring", "mmdebstrap_command", "obtain_tree"]

# Documentation is not read out of the tree; the postinst hook would make an initramfs that nobody boots.
_EXCLUDED = (
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/etc/kernel/postinst.d/initramfs-tools",
)
_KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
)
_NEEDED_BYTES = 2 << 30
_SCRIPT_FOLDERS = ("usr/lib/x86_64-linux-gnu/plugins", "usr/lib/x86_64-linux-gnu/wireshark/plugins")

# The backports line is the tree's own first line with another suite name, so that whatever mirror serves one
# serves the other. Both spellings of apt's sources are handled.
_BACKPORTS_HOOK = """set -e
cd "$1/etc/apt"
mkdir -p sources.list.d preferences.d
if [ -s sources.list ]; then
    sed -n 's/ @R@ main/ @R@-backports main/p' sources.list | head -n 1 > sources.list.d/backports.list
fi
if [ ! -s sources.list.d/backports.list ]; then
    rm -f sources.list.d/backports.list
    first=$(grep -l '^Suites:.*@R@' sources.list.d/*.sources | head -n 1)
    sed -e '/^$/q' -e 's/^Suites:.*/Suites: @R@-backports/' "$first" > sources.list.d/backports.sources
fi
printf 'Package: %s\\nPin: release n=@R@-backports\\nPin-Priority: 600\\n' '@P@' > preferences.d/backports
"""


def obtain_tree(suite: Suite = MAIN, cache: Cache | None = None) -> Tree:
    """The tree of a suite, bootstrapped now when the cache has none.

    :raises SetupError: the host is not supported, the network or the disk fails, or the mirror has no usable
        QEMU.
    """
    chosen = cache or Cache.default()

    def make(fresh: Path) -> Mapping[str, object]:
        _check_host(chosen.root)
        log = chosen.root / "logs" / f"{suite.name}.log"
        if os.geteuid() == 0:
            run(mmdebstrap_command(suite, str(fresh), mode="root"), what="the Debian tree", log=log)
        else:
            _unpack_as_user(suite, fresh, log)
        tree = Tree(fresh, suite)
        if not is_intact(fresh, suite):
            raise SetupError(
                f"The Debian tree ({suite.name}) came out incomplete.",
                f"The log is {log}. Run scripts/setup again.",
            )
        facts: dict[str, object] = {"inputs": suite.inputs(), "kernel": tree.kernel("cloud").release}
        if "qemu-system-x86" in suite.packages:
            facts["qemu"] = tree.check_qemu()
        return facts

    path = chosen.obtain(
        suite.name, content_key(suite.inputs()), make, intact=lambda entry: is_intact(entry, suite)
    )
    tree = Tree(path, suite)
    allow_scripts(tree)
    return tree


def allow_scripts(tree: Tree) -> None:
    """Let the tree's tshark load the event dissector also when root runs it; repeated calls change nothing.

    Wireshark heeds neither scripts nor the variables that move its folders when root starts it, and then
    looks for its global ``init.lua`` below the directory of the program, which for :meth:`Tree.host_command`
    is the dynamic loader's. The second place is for :meth:`Tree.command`.
    """
    if not (tree.path / "usr/bin/tshark").is_file():
        return
    for place in _SCRIPT_FOLDERS:
        init = tree.path / place / "init.lua"
        if not init.is_file():
            init.parent.mkdir(parents=True, exist_ok=True)
            init.write_text("run_user_scripts_when_superuser = true\n")


def debian_keyring() -> Path:
    """The keys of the Debian archive on this host.

    :raises SetupError: they are not installed.
    """
    for path in _KEYRINGS:
        if path.is_file():
            return path
    raise SetupError(
        "The keys of the Debian archive are not installed.", "Install the package debian-archive-keyring."
    )


def mmdebstrap_command(suite: Suite, target: str, *, mode: str) -> list[str]:
    """Argument vector that bootstraps ``suite``.

    :param target: directory to fill, or a name that ends in ``.tar`` for an archive.
    :param mode: ``root`` or ``unshare``, see mmdebstrap(1).
    """
    words = ["mmdebstrap", f"--mode={mode}", "--variant=apt", f"--include={','.join(suite.packages)}"]
    # Named, because apt on other distributions trusts their own keys only.
    words.append(f"--keyring={debian_keyring()}")
    words += [f"--dpkgopt={line}" for line in _EXCLUDED]
    if suite.backported:
        pattern = " ".join(f"src:{source}" for source in suite.backported)
        words.append(f"--setup-hook={_BACKPORTS_HOOK.replace('@R@', suite.release).replace('@P@', pattern)}")
    words += [suite.release, target]
    mirror = os.environ.get("VRNIC_DEBIAN_MIRROR")
    return [*words, mirror] if mirror else words


def _unpack_as_user(suite: Suite, fresh: Path, log: Path) -> None:
    """Bootstrap in a user namespace, then unpack so that every file belongs to the user."""
    scratch = _roomy_scratch()
    with tempfile.TemporaryDirectory(prefix="vrnic-", dir=scratch) as folder:
        archive = Path(folder) / "tree.tar"
        Path(folder).chmod(0o755)
        command = mmdebstrap_command(suite, str(archive), mode="unshare")
        run(command, what="the Debian tree", log=log, env={"TMPDIR": str(scratch)})
        # /dev is supplied by bubblewrap; only root could make its nodes.
        unpack = ["tar", "--extract", "--file", str(archive), "--directory", str(fresh)]
        unpack += ["--no-same-owner", "--exclude=./dev/*"]
        run(unpack, what="the Debian tree")


def _roomy_scratch() -> Path:
    """A directory with room for a tree that the user's namespaces can enter (not a private home)."""
    candidates = [Path(tempfile.gettempdir()), Path("/var/tmp")]
    return max(candidates, key=lambda place: shutil.disk_usage(place).free if place.is_dir() else 0)


def _check_host(root: Path) -> None:
    if platform.machine() != "x86_64":
        raise SetupError(
            f"This machine is {platform.machine()}; the guests and the tree they run from are x86_64.",
            "Use an x86_64 machine.",
        )
    root.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(root).free
    if free < _NEEDED_BYTES:
        raise SetupError(
            f"{root} has {free / 1e9:.1f} GB free; making a Debian tree needs {_NEEDED_BYTES / 1e9:.0f} GB.",
            "Free some space, or put the cache elsewhere with VRNIC_CACHE=DIR.",
        )
