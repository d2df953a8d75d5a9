# SPDX-License-Identifier: Apache-2.0
"""apt with package lists of its own, so that the host's are neither needed nor changed."""

from __future__ import annotations

import re
from pathlib import Path

from emu.setup.error import SetupError
from emu.setup.process import run
from emu.setup.tree import Tree

__all__ = ["private_apt", "source_line", "tree_sources"]


def tree_sources(tree: Tree) -> str:
    """Text of a tree's apt sources."""
    apt = tree.path / "etc/apt"
    return "\n".join(
        path.read_text()
        for path in [apt / "sources.list", *apt.glob("sources.list.d/*.sources")]
        if path.is_file()
    )


def source_line(sources: str, release: str, suite: str, keyring: Path, *, kind: str = "deb-src") -> str:
    """The ``deb-src`` (or ``deb``) line of ``suite`` on the mirror that a tree's own sources name.

    :param sources: text of the tree's ``sources.list`` (one-line style) or of its deb822 file.
    :param release: the suite those sources speak of.
    :raises SetupError: no mirror can be read out of them.
    """
    one_line = re.search(rf"^deb (?:\[[^\]]*\] )?(\S+) {re.escape(release)} ", sources, re.MULTILINE)
    deb822 = re.search(r"^URIs: *(\S+)", sources, re.MULTILINE)
    mirror = one_line or deb822
    if mirror is None:
        raise SetupError(
            "The Debian tree's apt sources name no mirror.",
            "Remove the tree from the cache and run scripts/setup.",
        )
    return f"{kind} [signed-by={keyring}] {mirror[1]} {suite} main\n"


def private_apt(folder: Path, line: str, what: str, log: Path) -> list[str]:
    """Fetch the package lists that ``line`` offers into ``folder``; the ``apt-get`` that uses them.

    :raises SetupError: they cannot be fetched; ``what`` is what they were wanted for.
    """
    (folder / "sources.list").write_text(line)
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    options = {
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        # apt's own unprivileged user could not enter this directory.
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        # Without this an unreachable mirror is only a warning.
        "APT::Update::Error-Mode": "any",
    }
    apt = ["apt-get", "-q", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    run([*apt, "update"], what=what, log=log)
    return apt
