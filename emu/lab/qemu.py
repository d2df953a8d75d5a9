# SPDX-License-Identifier: Apache-2.0
"""The QEMU command line of one guest."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emu.lab.failure import LabFailure
from emu.lab.topology import MIB

__all__ = ["CONTROL_PORT", "JoinedNetwork", "PluggedFunction", "QemuCommand", "Share"]

CONTROL_PORT = "vrnic.control"
"""Name of the virtio-serial port the guest's agent opens."""

_SOCKET_PATH_MAX = 107
"""``sun_path`` holds 108 bytes with the closing NUL (unix(7))."""

_RESERVED = "128M"
"""Address space kept for prefetchable BARs of a function that is plugged in later."""

_MESSAGE_TIMEOUT_MS = 24 * 3600 * 1000
"""QEMU gives a device up for good when one reply is late; a server in a debugger is late."""


@dataclass(frozen=True, slots=True)
class PluggedFunction:
    """A vfio-user function: ``name`` ("node0.nic0") and the socket its server listens on.

    Without ``present`` the guest starts with its root port alone, for :meth:`emu.lab.guest.Guest.plug`.
    """

    name: str
    socket: Path
    present: bool = True

    @property
    def device_id(self) -> str:
        """QEMU's id of the device: the name's last part ("nic0")."""
        return self.name.rsplit(".", 1)[-1]

    @property
    def port_id(self) -> str:
        """QEMU's id of the root port above it."""
        return f"port-{self.device_id}"

    def device(self) -> dict[str, object]:
        """The device's properties, for ``-device`` and for QMP's ``device_add``."""
        return {
            "driver": "vfio-user-pci",
            "id": self.device_id,
            "bus": self.port_id,
            "socket": {"type": "unix", "path": str(self.socket)},
            "x-msg-timeout": _MESSAGE_TIMEOUT_MS,
        }


@dataclass(frozen=True, slots=True)
class JoinedNetwork:
    """A virtio network device ``name`` ("node0.nic0") between the server's socket and QEMU's, ``remote``."""

    name: str
    mac: str
    local: Path
    remote: Path

    @property
    def device_id(self) -> str:
        """QEMU's id of the device: the name's last part ("nic0")."""
        return self.name.rsplit(".", 1)[-1]

    def arguments(self) -> list[str]:
        """Backend and device. QEMU's end of the wire is the one it calls local."""
        netdev = f"dgram,id=net-{self.device_id},local.type=unix,local.path={_comma(self.remote)}"
        netdev += f",remote.type=unix,remote.path={_comma(self.local)}"
        device = f"virtio-net-pci,id={self.device_id},netdev=net-{self.device_id},mac={self.mac},romfile="
        return ["-netdev", netdev, "-device", device]


@dataclass(frozen=True, slots=True)
class Share:
    """A host folder the guest mounts read-only over 9p at ``mount``.

    ``steady``: nobody changes it while guests run, so that a guest may keep what it has read.
    """

    tag: str
    folder: Path
    mount: str
    steady: bool = False

    def word(self) -> str:
        """What ``guest/init/init`` reads of it."""
        return f"{self.tag}:{self.mount}" + (":steady" if self.steady else "")


@dataclass(frozen=True)
class QemuCommand:
    """One guest. Its sockets and logs lie in ``directory``:

    ``qmp.sock`` QMP, ``agent.sock`` the control port, ``console.sock`` the serial console (absent when it
    is the terminal), ``console.log`` everything the console said, ``qemu.log`` what QEMU itself said.

    ``executable`` is QEMU with its data path; ``accelerator`` is "tcg" or "kvm"; ``memory`` is in bytes.
    ``addresses`` are MAC and IPv4 address of network devices that the guest brings up.
    """

    executable: Sequence[str]
    kernel: Path
    image: Path
    directory: Path
    node: str
    functions: Sequence[PluggedFunction] = ()
    shares: Sequence[Share] = ()
    memory: int = 512 * MIB
    cpus: int = 1
    accelerator: str = "tcg"
    interactive: bool = False
    addresses: Sequence[tuple[str, str]] = ()
    networks: Sequence[JoinedNetwork] = ()

    @property
    def qmp_socket(self) -> Path:
        """QEMU's machine protocol."""
        return self.directory / "qmp.sock"

    @property
    def agent_socket(self) -> Path:
        """The host's end of the control port."""
        return self.directory / "agent.sock"

    @property
    def console_log(self) -> Path:
        """What the guest's serial console said."""
        return self.directory / "console.log"

    @property
    def qemu_log(self) -> Path:
        """QEMU's own standard output and error."""
        return self.directory / "qemu.log"

    def argv(self) -> list[str]:
        """The command line.

        :raises LabFailure: a socket's path is longer than the system allows.
        """
        sockets = [self.qmp_socket, self.agent_socket, *(function.socket for function in self.functions)]
        sockets += [path for network in self.networks for path in (network.local, network.remote)]
        for path in sockets:
            size = len(str(path).encode())
            if size > _SOCKET_PATH_MAX:
                raise LabFailure(
                    f"{path}: {size} bytes are too long for a socket's path (limit {_SOCKET_PATH_MAX})",
                    "set VRNIC_RUN to a folder with a shorter path",
                )
        argv = [*self.executable, "-nodefaults", "-no-user-config", "-display", "none"]
        if not self.interactive:
            # A kernel that panics while it boots ends QEMU; once it is up, its runner allows it to restart.
            argv.append("-no-reboot")
        # Whoever ends the runner with SIGKILL does not leave guests behind.
        argv += ["-run-with", "exit-with-parent=on"]
        argv += ["-name", f"{self.node},process=vrnic-{self.node}"]
        argv += ["-machine", "q35,memory-backend=ram,vmport=off,hpet=off"]
        # The server reaches guest memory through the memfd; without share=on it would get a private copy.
        argv += ["-object", f"memory-backend-memfd,id=ram,size={self.memory},share=on"]
        argv += ["-m", f"{self.memory // MIB}M", "-smp", str(self.cpus)]
        if self.accelerator == "tcg":
            # The default processor: richer ones cost a quarter more boot time in emulation.
            argv += ["-accel", "tcg,thread=multi"]
        else:
            argv += ["-accel", self.accelerator, "-cpu", "host"]
        argv += ["-kernel", str(self.kernel), "-initrd", str(self.image), "-append", self.kernel_arguments()]
        argv += ["-qmp", f"unix:{_comma(self.qmp_socket)},server=on,wait=off"]
        argv += self._console()
        argv += ["-device", "virtio-serial-pci,id=serial"]
        argv += ["-chardev", f"socket,id=agent,path={_comma(self.agent_socket)},server=on,wait=off"]
        argv += ["-device", f"virtserialport,chardev=agent,name={CONTROL_PORT}"]
        for share in self.shares:
            folder = f"path={_comma(share.folder)},mount_tag={share.tag}"
            argv += ["-virtfs", f"local,{folder},security_model=none,readonly=on"]
        for network in self.networks:
            argv += network.arguments()
        for slot, function in enumerate(self.functions, start=1):
            port = f"pcie-root-port,id={function.port_id},bus=pcie.0,chassis={slot},slot={slot}"
            if not function.present:
                # The firmware gives an empty port no room for the BARs of a NIC.
                port += f",pref64-reserve={_RESERVED}"
            argv += ["-device", port]
            if function.present:
                argv += ["-device", json.dumps(function.device())]
        return argv

    def text(self) -> str:
        """The command line as a shell would take it, one option per line."""
        words = [shlex.quote(word) for word in self.argv()]
        text = words[0]
        for word in words[1:]:
            text += (" \\\n    " if word.startswith("-") else " ") + word
        return text

    def kernel_arguments(self) -> str:
        """The kernel command line; ``guest/init/init`` reads the ``vrnic.`` words."""
        # A person wants to read a panic, a runner to hear of it.
        panic = "panic=0" if self.interactive else "panic=-1"
        words = ["console=ttyS0", "quiet", panic, f"vrnic.node={self.node}"]
        if self.accelerator == "tcg":
            # On a busy host the emulated timer misses the few ticks the kernel waits for, and it panics.
            words.append("no_timer_check")
        words.append(f"vrnic.mode={'shell' if self.interactive else 'agent'}")
        words += [f"vrnic.net={mac}/{address}" for mac, address in self.addresses]
        if self.shares:
            words.append("vrnic.share=" + ",".join(share.word() for share in self.shares))
        return " ".join(words)

    def _console(self) -> list[str]:
        log = f"logfile={_comma(self.console_log)},logappend=off"
        if self.interactive:
            # mux gives Ctrl-A X; signal=off hands Ctrl-C to the guest.
            chardev = f"stdio,id=console,mux=on,signal=off,{log}"
        else:
            path = _comma(self.directory / "console.sock")
            chardev = f"socket,id=console,path={path},server=on,wait=off,{log}"
        return ["-chardev", chardev, "-serial", "chardev:console"]


def _comma(path: Path) -> str:
    """QEMU's option syntax doubles a comma inside a value."""
    return str(path).replace(",", ",,")
