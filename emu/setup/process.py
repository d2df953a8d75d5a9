# SPDX-License-Identifier: Apache-2.0
"""One external program run by the set-up, with its failures put into words."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from emu.setup.error import SetupError

__all__ = ["explain", "run"]

# Wording of apt, dpkg, tar, mmdebstrap, bubblewrap and newuidmap; the first match wins.
_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"No space left on device|enough (?:free )?(?:disk )?space|Disk quota exceeded",
        "the disk is full",
        "Free some space (the set-up needs about 2 GB in the cache and as much in TMPDIR), "
        "or put the cache elsewhere with VRNIC_CACHE=DIR.",
    ),
    (
        r"Temporary failure resolving|Could not resolve|Could not connect|Connection timed out|"
        r"Network is unreachable|Cannot initiate the connection|Connection refused",
        "the package mirror cannot be reached",
        "Check the network and the proxy (apt's configuration and http_proxy are honoured), then run "
        "scripts/setup again; finished parts are kept. VRNIC_DEBIAN_MIRROR=URL chooses another mirror.",
    ),
    (
        r"NO_PUBKEY|not signed|signatures? couldn't be verified",
        "the mirror's signature cannot be verified",
        "Install or update the package debian-archive-keyring, then run scripts/setup again.",
    ),
    (
        r"newuidmap|newgidmap|/etc/subuid|user namespaces?|setting up uid map|unshare failed|"
        r"No permissions to create new namespace",
        "this system does not let you create user namespaces",
        "Install uidmap and bubblewrap, give yourself a range in /etc/subuid and /etc/subgid "
        "(usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER), allow user namespaces, "
        "or run scripts/setup as root.",
    ),
    (
        r"Unable to locate package|Release file for .* expired|404 +Not Found|unmet dependencies|"
        r"held broken packages",
        "the mirror does not offer the packages in a consistent state",
        "Mirrors change under way: run scripts/setup again in a few minutes, or name another one with "
        "VRNIC_DEBIAN_MIRROR=URL.",
    ),
)


def explain(what: str, output: str, log: Path | None = None) -> SetupError:
    """The error that a failed step deserves.

    :param what: the step as a noun phrase ("the Debian tree").
    :param output: what its programs printed.
    :param log: where that output is kept for the user.
    """
    where = f" The full output is in {log}." if log else ""
    for pattern, cause, hint in _CAUSES:
        if re.search(pattern, output, re.IGNORECASE):
            return SetupError(f"Making {what} failed: {cause}.{where}", hint)
    lines = [line for line in output.splitlines() if line.strip()]
    return SetupError(f"Making {what} failed.{where}", "\n".join(lines[-8:]))


def run(
    argv: Sequence[str],
    *,
    what: str,
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Run a program to its end and return what it printed, both streams merged.

    :param what: the step as a noun phrase, for the error.
    :param log: file that receives the output, kept when the step fails.
    :param env: variables added to this process's own.
    :raises SetupError: the program is not installed or exits non-zero.
    """
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C", **(env or {})},
            cwd=cwd,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise SetupError(
            f"Making {what} needs the program {argv[0]!r}, which is not installed.",
            "scripts/setup installs it (as root), or says which package to install.",
        ) from error
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"$ {' '.join(argv)}\n{done.stdout}")
    if done.returncode != 0:
        raise explain(what, done.stdout, log)
    return done.stdout
