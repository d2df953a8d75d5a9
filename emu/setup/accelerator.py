# SPDX-License-Identifier: Apache-2.0
"""Whether KVM works here, found out by booting the tree's kernel under it.

The device node proves nothing: on some cloud machines ``/dev/kvm`` opens, and a guest hangs or dies with an
internal error at its first instructions. The answer is remembered for this boot of this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import selectors
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from emu.setup.cache import Cache, content_key, disk_errors
from emu.setup.tree import Tree

__all__ = ["Accelerator", "boot_to_marker", "choose_accelerator", "probe_command"]

PROBE_SECONDS = 6.0
"""A guest under working KVM reaches the end of the probe in about one second."""

# Without a root file system the kernel has run through all of its start-up when it gives up.
_MARKER = b"Unable to mount root fs"
_REFUSALS = (b"KVM internal error", b"failed to initialize kvm", b"Could not access KVM")


@dataclass(frozen=True)
class Accelerator:
    """The accelerator to give QEMU, and why.

    :param name: ``kvm`` or ``tcg``.
    :param reason: one sentence for people.
    :param seconds: how long the probe took; 0 when none was needed.
    """

    name: str
    reason: str
    seconds: float = 0.0


def choose_accelerator(
    tree: Tree, cache: Cache | None = None, *, device: Path = Path("/dev/kvm")
) -> Accelerator:
    """``kvm`` when a real guest boots with it, else ``tcg``.

    :param device: the KVM device node.
    :raises SetupError: the tree has no QEMU or kernel, or the cache cannot be written.
    """
    if not device.exists():
        return Accelerator("tcg", f"there is no {device}")
    if not os.access(device, os.R_OK | os.W_OK):
        return Accelerator("tcg", f"{device} is not open to this user (group kvm)")
    chosen = cache or Cache.default()
    record = chosen.root / "accelerator" / f"{content_key(machine_identity(tree))}.json"
    remembered = _recall(record)
    if remembered is not None:
        return remembered
    with chosen.lock("accelerator"):
        remembered = _recall(record)
        if remembered is None:
            remembered = _probe(tree)
            with disk_errors(chosen.root):
                record.parent.mkdir(parents=True, exist_ok=True)
                fresh = record.with_suffix(f".{os.getpid()}")
                fresh.write_text(json.dumps(asdict(remembered)) + "\n")
                fresh.rename(record)
    return remembered


def machine_identity(tree: Tree) -> dict[str, object]:
    """What the answer of a probe holds for: this boot, this processor, this host kernel, this tree."""
    model = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return {"boot": boot, "processor": model, "kernel": platform.release(), "tree": tree.path.name}


def probe_command(tree: Tree, accelerator: str) -> list[str]:
    """QEMU line of the probe: the tree's cloud kernel, nothing else, console on standard output."""
    return [
        *tree.qemu_command(),
        *("-machine", "q35", "-accel", accelerator, "-m", "128M", "-nodefaults", "-display", "none"),
        *("-no-reboot", "-serial", "stdio", "-kernel", str(tree.kernel("cloud").image)),
        *("-append", "console=ttyS0 panic=-1"),
    ]


def boot_to_marker(
    argv: Sequence[str], seconds: float = PROBE_SECONDS, *, marker: bytes = _MARKER
) -> tuple[bool, str, float]:
    """Run a guest until it prints ``marker``, gives up, or the time is over; then end it.

    :return: whether the marker came; what happened instead; seconds it took.
    """
    start = time.monotonic()
    seen = b""
    outcome = f"a guest did not come up within {seconds:.0f} s"
    process = subprocess.Popen(
        list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while (left := start + seconds - time.monotonic()) > 0:
                if not selector.select(left):
                    break
                piece = os.read(process.stdout.fileno(), 65536)
                seen += piece
                if marker in seen:
                    return True, "", time.monotonic() - start
                refusal = next((text for text in _REFUSALS if text in seen), None)
                if refusal is not None:
                    outcome = f"QEMU reports {refusal.decode()!r}"
                    break
                if not piece:
                    outcome = "QEMU ended before the guest came up"
                    break
    finally:
        process.kill()
        # A virtual processor stuck in the host kernel may not die at once; the answer does not wait for it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        process.stdout.close()
    return False, outcome, time.monotonic() - start


def _probe(tree: Tree) -> Accelerator:
    booted, outcome, seconds = boot_to_marker(probe_command(tree, "kvm"))
    if booted:
        return Accelerator("kvm", "a guest boots under KVM", seconds)
    return Accelerator("tcg", f"/dev/kvm opens, but {outcome}", seconds)


def _recall(record: Path) -> Accelerator | None:
    try:
        loaded = json.loads(record.read_text())
        return Accelerator(str(loaded["name"]), str(loaded["reason"]), float(loaded["seconds"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
