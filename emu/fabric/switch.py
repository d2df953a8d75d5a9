# SPDX-License-Identifier: Apache-2.0
"""A learning Ethernet switch that joins the NICs of a lab.

It forwards as an IEEE 802.1D bridge does: it learns which port a source address was last seen on, sends a
known unicast frame out of that port alone, floods everything else, and keeps link-local control frames
(01:80:C2:00:00:0x) to itself. All queues are those of the links, so a frame is never delivered from inside
the sender's call.

It loses nothing to congestion: while many frames wait for one port it pauses all the others, as Ethernet with
priority flow control does and as RoCE likes it. Only the impairments of a link lose, trim or mark frames.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from emu.clock import Scheduler
from emu.events import EventBus
from emu.fabric.impairments import Impairments
from emu.fabric.lane import QUEUE_FRAMES
from emu.fabric.link import Link, LinkEnd

__all__ = ["MAX_ADDRESSES", "Switch", "SwitchCounters", "SwitchPort"]

MAX_ADDRESSES = 8192
"""Size of the address table. Once a guest has filled it with invented ones, others are flooded."""

CROWD_FRAMES = 256
"""Frames waiting for one port from which on the others pause; at most a quarter of what its queue holds."""

_LINK_LOCAL = bytes.fromhex("0180c20000")


@dataclass(slots=True)
class SwitchCounters:
    """Frames by what the switch did, ``learned``: table writes, moves included, and ``pauses`` of a port."""

    forwarded: int = 0
    flooded: int = 0
    filtered: int = 0
    learned: int = 0
    pauses: int = 0


class SwitchPort:
    """The switch's side of one link; ``crowd`` is how many frames may wait for it before others pause."""

    def __init__(self, switch: Switch, link: Link, crowd: int) -> None:
        self.link = link
        self.crowd = crowd
        self._switch = switch
        link.forward.paused = switch.crowded
        link.far.attach(self._arrived)
        link.far.watch(self._link_changed)

    @property
    def name(self) -> str:
        """Name of the device at the other end."""
        return self.link.name

    def _arrived(self, frame: bytes) -> None:
        self._switch.forward(self, frame)

    def _link_changed(self, up: bool) -> None:
        if not up:
            self._switch.forget(self)


class Switch:
    """Ports by name; :meth:`port` makes one and returns the end a NIC plugs into."""

    def __init__(self, scheduler: Scheduler, events: EventBus, *, name: str = "switch") -> None:
        self.name = name
        self.counters = SwitchCounters()
        self._scheduler = scheduler
        self._events = events
        self._ports: dict[str, SwitchPort] = {}
        self._table: dict[bytes, SwitchPort] = {}

    def port(
        self,
        name: str,
        *,
        loss: float = 0.0,
        trim: float = 0.0,
        mark: float = 0.0,
        llr: bool = False,
        symbol_errors: float = 0.0,
        seed: int = 0,
        delay_ns: int = 0,
        queue_frames: int = QUEUE_FRAMES,
    ) -> LinkEnd:
        """Add a port with a link of its own and return the link's near end.

        The impairments apply to each direction of this link; a frame from NIC to NIC crosses two links.

        :param name: the device at the near end ("node0.nic0"); drops are reported under it.
        :raises ValueError: the name is taken, or an impairment is out of range.
        """
        if name in self._ports:
            raise ValueError(f"{self.name} has a port {name!r} already")
        there = Impairments(
            loss=loss,
            delay_ns=delay_ns,
            seed=seed,
            trim=trim,
            mark=mark,
            llr=llr,
            symbol_errors=symbol_errors,
        )
        link = Link(
            self._scheduler,
            self._events,
            name,
            there,
            replace(there, last_hop=True),
            far_name=self.name,
            queue_frames=queue_frames,
        )
        self._ports[name] = SwitchPort(self, link, min(CROWD_FRAMES, max(1, queue_frames // 4)))
        return link.near

    def link(self, name: str) -> Link:
        """The link of port ``name``, to take it up or down or read its counters.

        :raises KeyError: no such port.
        """
        return self._ports[name].link

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the ports, in the order they were added."""
        return tuple(self._ports)

    def addresses(self) -> dict[str, str]:
        """The address table: MAC address as text to port name."""
        return {mac.hex(":"): port.name for mac, port in self._table.items()}

    def snapshot(self) -> dict[str, dict[str, int]]:
        """Counters of the switch (under its own name) and of each link."""
        own = {**asdict(self.counters), "addresses": len(self._table)}
        return {self.name: own, **{name: port.link.counters() for name, port in self._ports.items()}}

    def forward(self, source: SwitchPort, frame: bytes) -> None:
        """Learn from and send on a frame that arrived on ``source``."""
        destination, origin = frame[0:6], frame[6:12]
        self._learn(origin, source)
        if destination[:5] == _LINK_LOCAL and destination[5] < 0x10:
            self.counters.filtered += 1
            return
        known = None if destination[0] & 1 else self._table.get(destination)
        if known is source:
            self.counters.filtered += 1
        elif known is not None:
            self.counters.forwarded += 1
            known.link.far.send(frame)
        else:
            self.counters.flooded += 1
            for port in self._ports.values():
                if port is not source and port.link.up:
                    port.link.far.send(frame)

    def crowded(self) -> bool:
        """True while some port has too many frames waiting for it."""
        if any(port.link.far.backlog >= port.crowd for port in self._ports.values()):
            self.counters.pauses += 1
            return True
        return False

    def forget(self, port: SwitchPort) -> None:
        """Drop what was learned on ``port``."""
        self._table = {mac: owner for mac, owner in self._table.items() if owner is not port}

    def _learn(self, origin: bytes, source: SwitchPort) -> None:
        if self._table.get(origin) is source:
            return
        # A group address is never a valid source.
        if origin[0] & 1 or (origin not in self._table and len(self._table) >= MAX_ADDRESSES):
            return
        self._table[origin] = source
        self.counters.learned += 1
