# SPDX-License-Identifier: Apache-2.0
"""The device side of a lab: every function of every node, their network, the capture, the control socket.

One process, one thread, one loop. It knows nothing of guests: any vfio-user client may take a function's
socket.
"""

from __future__ import annotations

import dataclasses
import logging
from functools import partial
from pathlib import Path

from emu.capture.capture import Capture
from emu.chaos import NicChaos, find_profile
from emu.control.locate import CONTROL_SOCKET
from emu.control.server import ControlError, ControlServer, Stream
from emu.events import Event, EventBus, Kind
from emu.fabric.dgram import DatagramDevice
from emu.fabric.port import Port
from emu.fabric.switch import Switch
from emu.gpu.function import Gpu, build_gpu
from emu.lab.carrier import Carrier, uet_parameters
from emu.lab.checks import LabChecks
from emu.lab.collector import QuietCollector
from emu.lab.devices import NicDevice, builder_of
from emu.lab.links import Links
from emu.lab.runner import network_paths, socket_path
from emu.lab.topology import Lab
from emu.nic.interference import NO_INTERFERENCE, Interference
from emu.pcie.function import Function
from emu.pcie.hierarchy import Hierarchy
from emu.roce.packet import parse
from emu.transport.context import Endpoint
from emu.transport.loop import Loop
from emu.transport.model import ResetKind

__all__ = ["LabServer"]

log = logging.getLogger(__name__)

_GPU_SERIAL = 0x7672_0000_0000_0000
"""Serial numbers of vGPUs: this plus their place in the lab."""


class LabServer:
    """Serves ``lab`` on sockets in ``directory`` until :meth:`close`.

    :param capture: the capture file, None for none
    :raises OSError: the capture or a socket cannot be made
    :raises emu.transport.context.EndpointError: a function cannot be served
    :raises emu.transport.library.LibraryError: set-up is missing
    """

    def __init__(self, lab: Lab, directory: Path, *, capture: Path | None = None) -> None:
        self.lab = lab
        self.directory = directory
        self.loop = Loop()
        self.events = EventBus()
        self.capture: Capture | None = None
        self.nics: dict[str, NicDevice] = {}
        self.gpus: dict[str, Gpu] = {}
        self.chaos: dict[str, NicChaos] = {}
        self.endpoints: dict[str, Endpoint] = {}
        self.networks: dict[str, DatagramDevice] = {}
        self.switch = Switch(self.loop, self.events)
        self._control: ControlServer | None = None
        try:
            self._build()
            self.checks = LabChecks(self.nics, lab.checks, directory)
            self._control = self._open_control()
            # After the sockets, as it empties the file: a server that runs here already keeps its capture.
            if capture is not None:
                ports = [nic.name for nic in lab.nics]
                notes = (f"Chaos profile {lab.chaos}, seed {lab.seed}.",) if lab.chaos else ()
                self.capture = Capture(capture, self.loop, self.events, ports=ports, notes=notes)
        except BaseException:
            self.close()
            raise

    def run(self) -> None:
        """Serve until SIGINT, SIGTERM or a ``stop`` on the control socket. Main thread only."""
        QuietCollector(self.loop, self._count_objects).start()
        with self.loop.signals():
            self.loop.run()

    def close(self) -> None:
        """Drop every client, remove the sockets, finish the capture. Safe to repeat."""
        if self._control is not None:
            self._control.close()
            self._control = None
        for endpoint in self.endpoints.values():
            endpoint.close()
        for network in self.networks.values():
            network.close()
        if self.capture is not None:
            self.capture.close()
        self.loop.close()

    def _count_objects(self) -> int:
        """Objects that guests made, of all NICs."""
        return sum(sum(dataclasses.astuple(device.nic.objects())) for device in self.nics.values())

    def _build(self) -> None:
        hierarchies = {node.name: Hierarchy() for node in self.lab.nodes}
        for nic in self.lab.nics:
            end = self.switch.port(
                nic.name,
                loss=nic.loss,
                trim=nic.trim,
                mark=nic.mark,
                llr=nic.llr,
                symbol_errors=nic.symbol_errors,
                seed=nic.seed,
                delay_ns=nic.delay_ns,
                queueing=nic.queueing,
                pause=self.lab.pause is not False,
                pfc=nic.pfc,
            )
            port: Port = self.switch.obeying(nic.name) if nic.pfc else end
            if nic.device == "virtio":
                self.directory.mkdir(parents=True, exist_ok=True)
                local, remote = network_paths(self.directory, nic.name)
                self.networks[nic.name] = DatagramDevice(port, self.loop, local, remote)
                continue
            interference: Interference = NO_INTERFERENCE
            chaos: NicChaos | None = None
            if self.lab.chaos:
                profile = find_profile(self.lab.chaos)
                chaos = NicChaos(profile, nic.seed, nic.name, self.loop, self.events)
                interference, self.chaos[nic.name] = chaos, chaos
            # A `vrnic` queue pair names its transport itself.
            carry = "roce" if nic.device == "vrnic" else self.lab.carry
            carrier = Carrier(carry, nic.seed, uet_parameters(self.lab, nic))
            device = builder_of(nic)(
                nic.name,
                hierarchies[nic.node],
                port=port if chaos is None else chaos.port(port),
                scheduler=self.loop,
                events=self.events,
                create_engine=carrier.create_engine,
                parse=parse,
                mac=nic.mac,
                gids=nic.gids,
                create_endpoint=carrier.create_endpoint,
                interference=interference,
            )
            if chaos is not None:
                chaos.reset_with(partial(device.function.reset, ResetKind.FLR))
            self.nics[nic.name] = device
            self._serve(device.function)
        for place, gpu in enumerate(self.lab.gpus, 1):
            built = build_gpu(gpu.name, hierarchies[gpu.node], serial=_GPU_SERIAL + place, vram_size=gpu.vram)
            self.gpus[gpu.name] = built
            self._serve(built.function)

    def _serve(self, function: Function) -> None:
        path = socket_path(self.directory, function.name)
        endpoint = Endpoint(function, str(path), self.loop, self.events)
        function.connect(endpoint)
        self.endpoints[function.name] = endpoint

    def _open_control(self) -> ControlServer:
        control = ControlServer(str(self.directory / CONTROL_SOCKET), self.loop)
        control.method("info", self._info)
        control.method("counters", self._counters)
        control.method("qps", lambda _: {name: self._qps(nic) for name, nic in self.nics.items()})
        control.method("regs", self._registers)
        links = Links(self.lab, self.switch)
        control.method("links", links.show)
        control.method("link", links.set)
        control.method("flush", self._flush)
        control.method("stop", lambda _: self.loop.stop())
        control.stream("trace", self._trace)
        self.checks.serve(control)
        return control

    def _info(self, _: dict[str, object]) -> object:
        return {
            "lab": self.lab.name,
            "transport": self.lab.transport,
            "carry": self.lab.carry,
            "loss": self.lab.loss,
            "seed": self.lab.seed,
            "chaos": self.lab.chaos,
            "capture": None if self.capture is None else self.capture.path,
            "functions": {
                name: {"socket": endpoint.path, "attached": endpoint.attached}
                for name, endpoint in self.endpoints.items()
            },
        }

    def _counters(self, _: dict[str, object]) -> object:
        links = self.switch.snapshot()
        return {
            name: {
                "objects": dataclasses.asdict(device.nic.objects()),
                "nic": device.nic.counters.snapshot(),
                "ethernet": device.ethernet_counters(),
                "link": {"up": int(self.switch.link(name).up), **links[name]},
                "endpoint": dataclasses.asdict(self.endpoints[name].counters),
                **({"chaos": {"acts": self.chaos[name].acts}} if name in self.chaos else {}),
            }
            for name, device in self.nics.items()
        }

    @staticmethod
    def _qps(device: NicDevice) -> list[dict[str, object]]:
        return [snapshot.to_json() for snapshot in device.nic.qp_snapshots()]

    def _registers(self, _: dict[str, object]) -> object:
        values = {name: device.registers.snapshot() for name, device in self.nics.items()}
        return values | {name: gpu.registers.snapshot() for name, gpu in self.gpus.items()}

    def _flush(self, _: dict[str, object]) -> object:
        if self.capture is None:
            return None
        self.capture.flush()
        return {**self.capture.snapshot(), "reason": self.capture.stopped}

    def _trace(self, params: dict[str, object], stream: Stream) -> object:
        names = params.get("kinds") or []
        function, qpn = params.get("function"), params.get("qpn")
        if not isinstance(names, list) or any(name not in list(Kind.__members__) for name in names):
            raise ControlError(f"unknown event kind in {names!r}", "kinds: " + ", ".join(Kind.__members__))
        if function is not None and function not in list(self.endpoints):
            raise ControlError(f"no function {function!r}", "functions: " + ", ".join(self.endpoints))
        if qpn is not None and not isinstance(qpn, int):
            raise ControlError(f"QP number {qpn!r} is not a number")

        def push(event: Event) -> None:
            if function is not None and event.function != function:
                return
            if qpn is not None and event.qpn != qpn:
                return
            item: dict[str, object] = {
                "kind": event.kind.name,
                "time": event.time,
                "function": event.function,
                "qpn": event.qpn,
                "index": event.index,
                "address": event.address,
                "length": event.length,
                "value": event.value,
                "text": event.text,
            }
            if stream.lost:
                item["lost"] = stream.lost
            stream.push(item)

        kinds = [Kind[name] for name in names] or list(Kind)
        stream.on_close = self.events.subscribe(push, kinds)
        return {"kinds": names}
