# SPDX-License-Identifier: Apache-2.0
"""The QEMU line: what every guest must have, and that it survives being printed."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from emu.lab.failure import LabFailure
from emu.lab.qemu import JoinedNetwork, PluggedFunction, QemuCommand, Share

COMMAND = QemuCommand(
    executable=("qemu-system-x86_64", "-L", "/firmware"),
    kernel=Path("/boot/vmlinuz"),
    image=Path("/images/guest.cpio"),
    directory=Path("/run/lab/node0"),
    node="node0",
    functions=(
        PluggedFunction("node0.nic0", Path("/run/lab/node0.nic0.sock")),
        PluggedFunction("node0.gpu0", Path("/run/lab/node0.gpu0.sock")),
    ),
    memory=768 << 20,
    cpus=2,
)


def values(argv: list[str], option: str) -> list[str]:
    return [argv[place + 1] for place, word in enumerate(argv[:-1]) if word == option]


def test_guest_memory_is_a_shared_memfd_of_the_machines_size() -> None:
    argv = COMMAND.argv()
    assert values(argv, "-object") == [f"memory-backend-memfd,id=ram,size={768 << 20},share=on"]
    assert "memory-backend=ram" in values(argv, "-machine")[0]
    assert values(argv, "-m") == ["768M"]


def test_every_function_sits_below_a_root_port_of_its_own() -> None:
    devices = values(COMMAND.argv(), "-device")
    ports = [device for device in devices if device.startswith("pcie-root-port")]
    functions = [json.loads(device) for device in devices if device.startswith("{")]
    assert [function["bus"] for function in functions] == ["port-nic0", "port-gpu0"]
    for number, (port, function) in enumerate(zip(ports, functions, strict=True), start=1):
        assert f"id={function['bus']}," in port and f"chassis={number},slot={number}" in port
    assert [function["socket"]["path"] for function in functions] == [
        "/run/lab/node0.nic0.sock",
        "/run/lab/node0.gpu0.sock",
    ]


def test_a_function_for_later_leaves_its_port() -> None:
    later = replace(COMMAND, functions=(replace(COMMAND.functions[0], present=False), COMMAND.functions[1]))
    devices = values(later.argv(), "-device")
    assert [json.loads(device)["id"] for device in devices if device.startswith("{")] == ["gpu0"]
    assert any(device.startswith("pcie-root-port,id=port-nic0,") for device in devices)


def test_a_person_reads_a_panic_and_a_runner_hears_of_it() -> None:
    watched = replace(COMMAND, interactive=True)
    assert "-no-reboot" in COMMAND.argv() and "panic=-1" in COMMAND.kernel_arguments().split()
    assert "-no-reboot" not in watched.argv() and "panic=0" in watched.kernel_arguments().split()


def test_a_slow_server_does_not_lose_its_device() -> None:
    assert int(str(COMMAND.functions[0].device()["x-msg-timeout"])) >= 3_600_000


def test_the_accelerator_is_chosen() -> None:
    assert values(COMMAND.argv(), "-accel") == ["tcg,thread=multi"]
    assert "-cpu" not in COMMAND.argv()
    accelerated = replace(COMMAND, accelerator="kvm").argv()
    assert values(accelerated, "-accel") == ["kvm"] and values(accelerated, "-cpu") == ["host"]


def test_the_console_is_a_socket_and_a_log() -> None:
    chardevs = values(COMMAND.argv(), "-chardev")
    console = next(chardev for chardev in chardevs if "id=console" in chardev)
    assert console.startswith("socket,") and "logfile=/run/lab/node0/console.log" in console


def test_an_interactive_console_is_the_terminal_and_leaves_by_ctrl_a_x() -> None:
    command = replace(COMMAND, interactive=True)
    console = next(chardev for chardev in values(command.argv(), "-chardev") if "id=console" in chardev)
    assert console.startswith("stdio,") and "mux=on" in console and "signal=off" in console
    assert "vrnic.mode=shell" in command.kernel_arguments()


def test_shared_folders_are_read_only_and_announced_to_init() -> None:
    command = replace(COMMAND, shares=(Share("project", Path("/home/me/a,b"), "/project"),))
    (share,) = values(command.argv(), "-virtfs")
    assert "path=/home/me/a,,b,mount_tag=project" in share and share.endswith("readonly=on")
    assert "vrnic.share=project:/project" in command.kernel_arguments().split()


def test_init_hears_which_shares_never_change() -> None:
    shares = (Share("project", Path("/a"), "/project"), Share("tree", Path("/b"), "/tree", steady=True))
    words = replace(COMMAND, shares=shares).kernel_arguments().split()
    assert "vrnic.share=project:/project,tree:/tree:steady" in words


def test_the_printed_line_is_the_line() -> None:
    printed = replace(COMMAND, shares=(Share("p", Path("/it's here"), "/p"),))
    shell = subprocess.run(["sh", "-c", f"printf '%s\\0' {printed.text()}"], capture_output=True, check=True)
    assert shell.stdout.decode().split("\0")[:-1] == printed.argv()


def test_a_socket_path_the_system_cannot_hold_is_refused() -> None:
    with pytest.raises(LabFailure, match="too long for a socket") as caught:
        replace(COMMAND, directory=Path("/" + "d" * 100)).argv()
    assert "VRNIC_RUN" in caught.value.hint


def test_a_virtio_network_device_talks_to_the_servers_socket() -> None:
    network = JoinedNetwork(
        "node0.nic1", "02:76:72:00:00:02", Path("/run/lab/a,b.net"), Path("/run/lab/node0.nic1.qemu")
    )
    argv = replace(COMMAND, networks=(network,)).argv()
    assert values(argv, "-netdev") == [
        "dgram,id=net-nic1,local.type=unix,local.path=/run/lab/node0.nic1.qemu,"
        "remote.type=unix,remote.path=/run/lab/a,,b.net"
    ]
    assert any(
        device.startswith("virtio-net-pci,id=nic1,netdev=net-nic1,mac=02:76:72:00:00:02")
        for device in values(argv, "-device")
    )


def test_the_socket_of_a_network_device_has_a_bounded_path() -> None:
    network = JoinedNetwork("node0.nic1", "02:76:72:00:00:02", Path("/" + "x" * 120), Path("/run/b"))
    with pytest.raises(LabFailure, match="too long"):
        replace(COMMAND, networks=(network,)).argv()


@pytest.mark.parametrize(("accelerator", "there"), [("tcg", True), ("kvm", False)])
def test_an_emulated_guest_does_not_test_its_timer(accelerator: str, there: bool) -> None:
    words = replace(COMMAND, accelerator=accelerator).kernel_arguments().split()
    assert ("no_timer_check" in words) is there
