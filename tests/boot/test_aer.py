# SPDX-License-Identifier: Apache-2.0
"""The guest kernel's own error injector reports PCIe errors of the NIC: the driver recovers and says so."""

from __future__ import annotations

import base64
import lzma
import shlex
import struct
from collections.abc import Iterator

import pytest

from emu.control.locate import lab_directory
from emu.lab.guest import Guest
from emu.lab.installation import Installation
from emu.lab.relay import run_pair
from emu.lab.runner import LabRunner
from emu.lab.topology import default_lab

pytestmark = pytest.mark.timeout(240)

COMPLETION_TIMEOUT = 1 << 14
"""A non-fatal uncorrectable error (PCI_ERR_UNC_COMP_TIME in linux/pci_regs.h)."""
_CHUNK = 3000


def load_injector(guest: Guest, installation: Installation) -> None:
    """Carry the kernel's aer_inject module into the guest, which has no disk, and load it."""
    module = next(installation.kernel.modules.rglob("aer_inject.ko*"))
    octets = module.read_bytes()
    text = base64.b64encode(lzma.decompress(octets) if module.suffix == ".xz" else octets).decode()
    for start in range(0, len(text), _CHUNK):
        guest.run(f"echo {text[start : start + _CHUNK]} >> /aer_inject.b64").check()
    guest.run("base64 -d /aer_inject.b64 > /aer_inject.ko && insmod /aer_inject.ko", 20).check()


def inject(guest: Guest, uncorrectable: int) -> None:
    """Report an error of 0000:01:00.0, in the record /dev/aer_inject takes."""
    record = struct.pack("<4B7I", 1, 0, 0, 0, uncorrectable, 0, 0, 0, 0, 0, 0)
    escapes = "".join(f"\\{octet:03o}" for octet in record)
    guest.run(f"printf {shlex.quote(escapes)} > /dev/aer_inject", 20).check()


@pytest.fixture
def lab(installation: Installation) -> Iterator[LabRunner]:
    """Two guests of their own: an injected error taints the kernel's view of the port."""
    lab = default_lab()
    with LabRunner(lab, installation, lab_directory("test-aer"), None) as running:
        running.start()
        for guest in running.guests:
            guest.run("reload-driver", 30).check()
        yield running


def test_a_non_fatal_error_is_recovered_and_the_nic_works_on(
    lab: LabRunner, installation: Installation
) -> None:
    left, right = lab.guests
    load_injector(left, installation)
    inject(left, COMPLETION_TIMEOUT)
    found = left.run(
        "for i in $(seq 50); do dmesg | grep 'AER: device recovery' && break; sleep 0.2; done", 30
    )
    assert any("device recovery successful" in line for line in found.out), found
    command = "vrnic-kernels put --messages 2 --role "
    sides = run_pair((left, command + "a"), (right, command + "b"), 30)
    assert all(side.status == 0 for side in sides)
