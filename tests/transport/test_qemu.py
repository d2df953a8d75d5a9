# SPDX-License-Identifier: Apache-2.0
"""What a real QEMU and a stock kernel make of a served function, with no driver in the guest."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from emu.bench.mmio_server import DEVICE_ID, build_function
from emu.lab.guest import Guest
from emu.lab.image import GuestImage, build_image
from emu.lab.installation import Installation
from emu.lab.qemu import PluggedFunction, QemuCommand
from emu.pcie.function import Function
from emu.personality.vrnic.contract.identity import VENDOR_ID
from emu.setup.cache import CHECKOUT
from emu.transport.context import Endpoint
from emu.transport.loop import Loop
from emu.transport.model import ResetKind

pytestmark = pytest.mark.guest

T = TypeVar("T")


class Served:
    """A function served from a loop in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self.loop = Loop()
        self.resets: queue.Queue[ResetKind] = queue.Queue()
        self.function: Function = build_function()
        self.function.on_reset(self.resets.put)
        self.endpoint = Endpoint(self.function, str(path), self.loop)
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()

    def ask(self, question: Callable[[], T]) -> T:
        """Evaluate ``question`` on the loop's thread."""
        answers: queue.Queue[T] = queue.Queue()
        self.loop.post(lambda: answers.put(question()))
        return answers.get(timeout=30)

    def reset(self, kind: ResetKind) -> None:
        """Wait for a reset of this kind; others before it are skipped."""
        while self.resets.get(timeout=30) is not kind:
            pass

    def close(self) -> None:
        """Stop the thread and the endpoint; the model must not have raised."""
        self.loop.stop()
        self._thread.join(30)
        assert self.endpoint.counters.faults == 0
        assert self.loop.faults == 0
        self.endpoint.close()
        self.loop.close()


@pytest.fixture
def installation() -> Installation:
    """What the set-up left."""
    return Installation.require()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """The served function; its socket is ``nic.sock`` in ``tmp_path``."""
    made = Served(tmp_path / "nic.sock")
    yield made
    made.close()


@pytest.fixture
def command(installation: Installation, tmp_path: Path) -> QemuCommand:
    """A small guest with the function."""
    image = GuestImage(
        busybox=installation.tree.path / "usr/bin/busybox",
        agent=installation.programs / "agent",
        init=CHECKOUT / "guest/init",
    )
    return QemuCommand(
        executable=installation.qemu,
        kernel=installation.kernel.image,
        image=build_image(image, tmp_path / "images"),
        directory=tmp_path / "guest",
        node="guest",
        functions=[PluggedFunction("guest.nic0", tmp_path / "nic.sock")],
        accelerator=installation.accelerator,
    )


DEVICES = "/sys/bus/pci/devices/*/device"
SLOT = f"$(dirname $(grep -il 0x{DEVICE_ID:04x} {DEVICES}))"


def test_a_guest_sees_our_configuration_space_and_its_resets_arrive(
    served: Served, command: QemuCommand
) -> None:
    with Guest(command) as guest:
        guest.start()
        guest.wait_ready()
        (text,) = guest.run(f"hexdump -v -n 64 -e '1/1 \"%02x\"' {SLOT}/config").check().out
        seen = bytes.fromhex(text)
        assert int.from_bytes(seen[0:2], "little") == VENDOR_ID
        ours = served.ask(lambda: b"".join(served.function.config.read(i, 4) for i in range(0, 4096, 4)))
        # QEMU keeps the command, BAR, interrupt and link registers of its own machine; the rest is ours.
        for start, end in ((0x00, 0x04), (0x08, 0x0C), (0x2C, 0x30)):
            assert seen[start:end] == ours[start:end]
        assert "flr" in guest.run(f"cat {SLOT}/reset_method").check().out[0]
        ram = served.ask(lambda: served.endpoint.dma)
        assert ram is not None
        assert sum(entry.size for entry in ram if entry.memory is not None) >= command.memory - (1 << 20)
        guest.run(f"echo 1 > {SLOT}/reset").check()
        served.reset(ResetKind.FLR)

        guest.unplug("guest.nic0")
        served.reset(ResetKind.LOST)
        guest.plug("guest.nic0")
        # The guest's hot-plug driver takes its time.
        guest.run(f"until grep -qi 0x{DEVICE_ID:04x} {DEVICES}; do sleep 0.1; done", timeout=20).check()
        assert served.ask(lambda: served.endpoint.attached)

        guest.kill()
        served.reset(ResetKind.LOST)
    assert not served.ask(lambda: served.endpoint.attached)
    with Guest(command) as guest:
        guest.start()
        guest.wait_ready()
        guest.run(f"echo 1 > {SLOT}/reset").check()
        served.reset(ResetKind.FLR)
    assert served.ask(lambda: served.endpoint.counters).attached == 3


def test_a_guest_without_shared_memory_ends_with_an_error_and_the_remedy_is_logged(
    served: Served, installation: Installation, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = {"driver": "vfio-user-pci", "socket": {"type": "unix", "path": str(tmp_path / "nic.sock")}}
    argv = [*installation.qemu, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35"]
    answer = subprocess.run(
        [*argv, "-device", json.dumps(device)], capture_output=True, text=True, timeout=60, check=False
    )
    assert answer.returncode == 1, answer.stderr
    served.reset(ResetKind.LOST)
    assert "memory-backend-memfd,id=ram,size=SIZE,share=on" in caplog.text
