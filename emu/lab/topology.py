# SPDX-License-Identifier: Apache-2.0
"""What a lab consists of: nodes, their NICs and vGPUs, and the network between them.

The same thing can be written as Python values (these classes) or as a TOML file
(:func:`emu.lab.file.load_lab`). How a lab is run is not said here.

NICs are numbered over the whole lab from 1 in the order they are written; NIC *k* gets the MAC
``02:76:72:00:00:k`` unless it names one, GID 0 is the link-local address of that MAC (EUI-64, RFC 4291
appendix A) and GID 1 the IPv4-mapped address of ``10.77.0.k``.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

from emu.chaos import find_profile
from emu.checks.catalogue import parse_choice
from emu.control.locate import LAB_NAME, LAB_NAME_RULE
from emu.fabric.egress import UNLIMITED, Queueing
from emu.lab.speed import DEFAULT_QUEUE_KIB, parse_secret, queueing

__all__ = [
    "CARRIES",
    "DEFAULT_MEMORY",
    "DEFAULT_VRAM",
    "DEVICES",
    "MIB",
    "TRANSPORTS",
    "Gpu",
    "GpuFunction",
    "Lab",
    "LabError",
    "Nic",
    "NicFunction",
    "Node",
    "default_lab",
    "link_local_gid",
    "mapped_gid",
    "parse_mac",
    "parse_size",
]

MIB = 1 << 20
DEFAULT_VRAM = 64 * MIB
DEFAULT_MEMORY = 512 * MIB

DEVICES = ("vrnic", "mlx5", "virtio")
"""Kinds of NIC: the project's own contract, an mlx5-compatible virtual function for unmodified drivers, or a
virtio network device of QEMU, which has no RDMA of its own but can carry a software stack (rdma_rxe).
"""

DOORBELLS = ("trapped", "mapped")
"""How a vrnic learns of doorbells."""

TRANSPORTS = ("roce-rc", "roce-ud", "uet-rod", "uet-rud", "uet-rudi", "uet-uud")
"""Transports a lab's queue pairs can be asked to use."""

CARRIES = ("roce", "uet-rod", "uet-rud")
"""What reliable connections of NICs that know only RoCE can be on the wire; with UET, datagrams are UUD."""

_NODE_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_NICS_MAX = 250
_PROBABILITIES = ("loss", "trim", "mark", "symbol_errors")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class LabError(ValueError):
    """A lab that cannot be built. ``where`` is the key it is about: keys and indices from the top."""

    def __init__(self, message: str, where: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.where = where


def parse_size(text: str | int) -> int:
    """Bytes of ``"64M"``, ``"512K"``, ``"1G"`` (powers of 1024) or of a plain number.

    :raises LabError: anything else.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    match = re.fullmatch(r"(\d{1,12})([KMG]?)", text) if isinstance(text, str) else None
    if match is None:
        raise LabError(f"{text!r} is not a size; write one like 64M, 512K or 1G")
    return int(match[1]) * _UNITS.get(match[2], 1)


def parse_mac(text: str) -> bytes:
    """The 6 bytes of ``02:76:72:00:00:01``.

    :raises LabError: not a unicast MAC address.
    """
    if not isinstance(text, str) or not re.fullmatch(r"([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}", text):
        raise LabError(f"{text!r} is not a MAC address; write one like 02:76:72:00:00:01")
    mac = bytes.fromhex(text.replace(":", ""))
    if mac[0] & 1:
        raise LabError(f"{text} is a multicast address; a NIC needs one with an even first byte")
    return mac


def link_local_gid(mac: bytes) -> bytes:
    """GID 0 of a port: ``fe80::`` with the modified EUI-64 of its MAC, 16 bytes in network order."""
    return bytes.fromhex("fe80000000000000") + bytes((mac[0] ^ 2, *mac[1:3], 0xFF, 0xFE, *mac[3:]))


def mapped_gid(address: str) -> bytes:
    """GID of an IPv4 address: ``::ffff:a.b.c.d``, 16 bytes in network order.

    :raises LabError: not an IPv4 address.
    """
    try:
        packed = ipaddress.IPv4Address(address).packed
    except ValueError as error:
        raise LabError(f"{address!r} is not an IPv4 address") from error
    return bytes(10) + b"\xff\xff" + packed


@dataclass(frozen=True, slots=True)
class Nic:
    """One NIC. ``None`` takes the lab's default. What a lab says of its links (``loss`` and so on) is here of
    its own link, in both directions.

    ``device`` is one of :data:`DEVICES`. ``doorbells`` of a vrnic are "trapped" (each store is seen, in
    order) or "mapped" (pages of memory that the NIC looks at). ``secret`` "" is none.
    """

    mac: str | None = None
    address: str | None = None
    loss: float | None = None
    delay_us: float | None = None
    device: str = "vrnic"
    trim: float | None = None
    mark: float | None = None
    llr: bool | None = None
    pfc: bool | None = None
    symbol_errors: float | None = None
    doorbells: str = "trapped"
    speed_mbps: float | None = None
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One vGPU with ``vram`` bytes (a power of two, or a size as text) of memory."""

    vram: int | str = DEFAULT_VRAM


@dataclass(frozen=True, slots=True)
class Node:
    """One guest. ``memory`` is its RAM in bytes or as text, ``cpus`` its number of processors.

    ``tools``: whether it sees the programs of the set-up's Debian tree. None: when one of its NICs has its
    driver in the distribution, where the tools for it are too.
    """

    name: str
    nics: tuple[Nic, ...] = (Nic(),)
    gpus: tuple[Gpu, ...] = (Gpu(),)
    memory: int | str = DEFAULT_MEMORY
    cpus: int = 1
    tools: bool | None = None

    @property
    def has_tools(self) -> bool:
        """``tools``, decided."""
        return any(nic.device != "vrnic" for nic in self.nics) if self.tools is None else self.tools


@dataclass(frozen=True, slots=True)
class NicFunction:
    """A NIC with everything decided. ``name`` is "node.nicN", ``number`` its place in the lab from 1.

    ``queueing`` has the speed of its link and what happens before it, ``secret`` 32 bytes or none.
    """

    name: str
    node: str
    number: int
    mac: bytes
    gids: tuple[bytes, ...]
    loss: float
    delay_ns: int
    seed: int
    device: str = "vrnic"
    trim: float = 0.0
    mark: float = 0.0
    llr: bool = False
    pfc: bool = False
    symbol_errors: float = 0.0
    doorbells: str = "trapped"
    queueing: Queueing = UNLIMITED
    secret: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class GpuFunction:
    """A vGPU with everything decided. ``name`` is "node.gpuN", ``vram`` bytes."""

    name: str
    node: str
    vram: int


@dataclass(frozen=True, slots=True)
class Lab:
    """Nodes whose NICs hang on one switch.

    ``loss`` is the probability (0 to below 1) that a frame vanishes on a link, ``trim`` that a link cuts the
    payload off a UET data packet and ``mark`` that it sets the ECN mark of a packet that allows it, both as a
    congested switch does. With ``llr`` links repeat by themselves what they lost, with ``pfc`` a crowded
    switch pauses single priorities of a NIC by frames of priority flow control; ``symbol_errors`` is the
    probability of an error that a link corrects, for its counters. ``delay_us`` is a link's one-way delay in
    microseconds, ``seed`` what every random decision of the lab derives from, ``transport`` what the traffic
    of `vrnic` NICs uses, ``carry`` what the reliable connections of mlx5-compatible ones are on the wire.
    ``chaos`` names the profile of :mod:`emu.chaos` that NICs are under, "" for none. ``checks`` are actions
    of rules, as pairs such as ("C08", "stop") or ("all", "count").

    ``speed_mbps`` is the speed of a link in Mb/s, both ways (0: no limit). Before a link with a speed the
    switch has a queue of ``queue_kib`` KiB and drops what does not fit; from ``ecn_min_kib`` on it sets ECN
    marks, which are certain from ``ecn_max_kib`` on, and above ``trim_kib`` it trims UET data. ``pause`` says
    whether it rather holds senders back than lets a queue fill; None: only where links have no speed.
    ``secret`` (64 hexadecimal digits) protects all UET packets.

    :raises LabError: from the constructor, for anything that contradicts these rules.
    """

    nodes: tuple[Node, ...]
    name: str = "lab"
    transport: str = "roce-rc"
    loss: float = 0.0
    delay_us: float = 0.0
    seed: int = 1
    trim: float = 0.0
    mark: float = 0.0
    llr: bool = False
    pfc: bool = False
    symbol_errors: float = 0.0
    carry: str = "roce"
    chaos: str = ""
    checks: tuple[tuple[str, str], ...] = ()
    speed_mbps: float = 0.0
    queue_kib: int = DEFAULT_QUEUE_KIB
    ecn_min_kib: int | None = None
    ecn_max_kib: int | None = None
    trim_kib: int | None = None
    pause: bool | None = None
    secret: str = field(default="", repr=False)
    nics: tuple[NicFunction, ...] = field(init=False, repr=False, compare=False)
    gpus: tuple[GpuFunction, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.transport not in TRANSPORTS:
            known = ", ".join(TRANSPORTS)
            raise LabError(f"unknown transport {self.transport!r} (known: {known})", ("transport",))
        if self.carry not in CARRIES:
            known = ", ".join(CARRIES)
            raise LabError(f"cannot carry connections on {self.carry!r} (known: {known})", ("carry",))
        try:
            parse_choice(self.checks)
        except ValueError as error:
            raise LabError(str(error), ("checks",)) from error
        if self.chaos:
            try:
                find_profile(self.chaos)
            except ValueError as error:
                raise LabError(str(error), ("chaos",)) from error
        for name in _PROBABILITIES:
            _check_probability(name, getattr(self, name), (name,))
        _check_delay(self.delay_us, ("delay_us",))
        self._queueing(self.speed_mbps, ())
        self._secret(self.secret, ("secret",))
        if not 0 <= self.seed < 1 << 32:
            raise LabError(f"seed {self.seed} is not in 0..2^32-1", ("seed",))
        if not LAB_NAME.fullmatch(self.name):
            raise LabError(f"{self.name!r} is no name for a lab: {LAB_NAME_RULE}", ("name",))
        if not self.nodes:
            raise LabError("a lab needs at least one node")
        names: set[str] = set()
        for index, node in enumerate(self.nodes):
            _check_node(node, ("node", index))
            if node.name in names:
                raise LabError(f"the name {node.name!r} is taken by an earlier node", ("node", index, "name"))
            names.add(node.name)
        # object.__setattr__ is how a frozen dataclass fills derived fields.
        object.__setattr__(self, "nics", self._resolve_nics())
        object.__setattr__(self, "gpus", self._resolve_gpus())

    def node(self, name: str) -> Node:
        """The node called ``name``.

        :raises LabError: there is none.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        raise LabError(f"no node {name!r} (known: {', '.join(node.name for node in self.nodes)})")

    def functions(self, node: str) -> tuple[str, ...]:
        """Names of the PCI functions served to ``node`` in the order they are plugged: NICs, then vGPUs."""
        return tuple(nic.name for nic in self.nics if nic.node == node and nic.device != "virtio") + tuple(
            gpu.name for gpu in self.gpus if gpu.node == node
        )

    def _resolve_nics(self) -> tuple[NicFunction, ...]:
        resolved: list[NicFunction] = []
        taken: dict[bytes, str] = {}
        for place, node in enumerate(self.nodes):
            for index, nic in enumerate(node.nics):
                number = len(resolved) + 1
                where = ("node", place, "nic", index)
                if number > _NICS_MAX:
                    raise LabError(f"a lab holds at most {_NICS_MAX} NICs", where)
                try:
                    mac = bytes((2, 0x76, 0x72, 0, 0, number)) if nic.mac is None else parse_mac(nic.mac)
                except LabError as error:
                    raise LabError(str(error), (*where, "mac")) from error
                try:
                    mapped = mapped_gid(f"10.77.0.{number}" if nic.address is None else nic.address)
                except LabError as error:
                    raise LabError(str(error), (*where, "address")) from error
                name = f"{node.name}.nic{index}"
                if mac in taken:
                    raise LabError(f"MAC {mac.hex(':')} is already that of {taken[mac]}", (*where, "mac"))
                if mapped in taken:
                    address = ipaddress.IPv4Address(mapped[12:])
                    raise LabError(
                        f"address {address} is already that of {taken[mapped]}", (*where, "address")
                    )
                taken[mac] = taken[mapped] = name
                loss = self.loss if nic.loss is None else nic.loss
                delay = self.delay_us if nic.delay_us is None else nic.delay_us
                resolved.append(
                    NicFunction(
                        name=name,
                        node=node.name,
                        number=number,
                        mac=mac,
                        gids=(link_local_gid(mac), mapped),
                        loss=loss,
                        delay_ns=round(delay * 1000),
                        seed=(self.seed << 8) + number,
                        device=nic.device,
                        trim=self.trim if nic.trim is None else nic.trim,
                        mark=self.mark if nic.mark is None else nic.mark,
                        llr=self.llr if nic.llr is None else nic.llr,
                        pfc=self.pfc if nic.pfc is None else nic.pfc,
                        symbol_errors=self.symbol_errors if nic.symbol_errors is None else nic.symbol_errors,
                        doorbells=nic.doorbells,
                        queueing=self._queueing(
                            self.speed_mbps if nic.speed_mbps is None else nic.speed_mbps,
                            (*where, "speed_mbps"),
                        ),
                        secret=self._secret(
                            self.secret if nic.secret is None else nic.secret, (*where, "secret")
                        ),
                    )
                )
        return tuple(resolved)

    def _queueing(self, speed_mbps: float, where: tuple[str | int, ...]) -> Queueing:
        try:
            return queueing(
                speed_mbps,
                queue_kib=self.queue_kib,
                ecn_min_kib=self.ecn_min_kib,
                ecn_max_kib=self.ecn_max_kib,
                trim_kib=self.trim_kib,
                pause=self.pause,
            )
        except ValueError as error:
            # Of the lab's own values the message begins with the one it is about.
            named = (str(error).split(maxsplit=1)[0],)
            raise LabError(str(error), where or (named if hasattr(self, named[0]) else ())) from error

    @staticmethod
    def _secret(text: str, where: tuple[str | int, ...]) -> bytes:
        try:
            return parse_secret(text)
        except ValueError as error:
            raise LabError(str(error), where) from error

    def _resolve_gpus(self) -> tuple[GpuFunction, ...]:
        return tuple(
            GpuFunction(f"{node.name}.gpu{index}", node.name, parse_size(gpu.vram))
            for node in self.nodes
            for index, gpu in enumerate(node.gpus)
        )


def _check_probability(name: str, value: float, where: tuple[str | int, ...]) -> None:
    if not 0 <= value < 1:
        raise LabError(f"{name} {value} is not a probability from 0 to below 1", where)


def _check_delay(delay: float, where: tuple[str | int, ...]) -> None:
    if not 0 <= delay <= 10_000_000:
        raise LabError(f"delay_us {delay} is not in 0..10000000 (10 s)", where)


def _check_node(node: Node, where: tuple[str | int, ...]) -> None:
    if not isinstance(node.name, str) or not _NODE_NAME.fullmatch(node.name):
        raise LabError(
            f"{node.name!r} is not a node name (a small letter, then small letters, digits, '-'; 32 at most)",
            (*where, "name"),
        )
    memory = _located(node.memory, (*where, "memory"))
    if not 128 * MIB <= memory <= 64 << 30 or memory % MIB:
        raise LabError("memory must be whole MiB from 128M to 64G", (*where, "memory"))
    if not 1 <= node.cpus <= 64:
        raise LabError(f"cpus {node.cpus} is not in 1..64", (*where, "cpus"))
    if len(node.nics) + len(node.gpus) > 16:
        raise LabError("a node holds at most 16 functions", where)
    for index, nic in enumerate(node.nics):
        for name in _PROBABILITIES:
            value = getattr(nic, name)
            if value is not None:
                _check_probability(name, value, (*where, "nic", index, name))
        if nic.device not in DEVICES:
            raise LabError(
                f"unknown device {nic.device!r} (known: {', '.join(DEVICES)})",
                (*where, "nic", index, "device"),
            )
        if nic.doorbells not in DOORBELLS or (nic.doorbells != "trapped" and nic.device != "vrnic"):
            raise LabError(
                f"doorbells of a {nic.device} cannot be {nic.doorbells!r}: trapped, or mapped with a vrnic",
                (*where, "nic", index, "doorbells"),
            )
        if nic.delay_us is not None:
            _check_delay(nic.delay_us, (*where, "nic", index, "delay_us"))
    for index, gpu in enumerate(node.gpus):
        place = (*where, "gpu", index, "vram")
        vram = _located(gpu.vram, place)
        if not MIB <= vram <= 16 << 30 or vram & (vram - 1):
            raise LabError("vram must be a power of two from 1M to 16G, as a BAR's size is", place)


def _located(size: int | str, where: tuple[str | int, ...]) -> int:
    try:
        return parse_size(size)
    except LabError as error:
        raise LabError(str(error), where) from error


def default_lab(
    nodes: int = 2, *, transport: str = "roce-rc", loss: float = 0.0, delay_us: float = 0.0, seed: int = 1
) -> Lab:
    """``nodes`` guests named node0, node1 ..., each with one NIC and one vGPU.

    :raises LabError: an argument out of its range.
    """
    return Lab(
        nodes=tuple(Node(f"node{index}") for index in range(nodes)),
        name="default",
        transport=transport,
        loss=loss,
        delay_us=delay_us,
        seed=seed,
    )
