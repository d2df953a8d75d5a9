# SPDX-License-Identifier: Apache-2.0
"""A learning Ethernet switch that joins the NICs of a lab.

It forwards as an IEEE 802.1D bridge does: it learns which port a source address was last seen on, sends a
known unicast frame out of that port alone, floods everything else, and keeps link-local control frames
(01:80:C2:00:00:0x) to itself. All queues are those of the links, so a frame is never delivered from inside
the sender's call.

Where nothing is said of a port's speed, the switch loses nothing: while many frames wait for one port it
pauses all the others, as Ethernet with priority flow control does and as RoCE likes it. A port with a speed
has queues (:mod:`emu.fabric.egress`) that mark, trim and drop, and pauses senders only if told so. A port
with ``pfc`` is paused by frames of priority flow control, and only in the priority that is crowded
(:mod:`emu.fabric.pfc`); without, all of its frames wait.

Two switches may be joined by a trunk of several links, of which a flow takes one, as with link aggregation
(IEEE 802.1AX): packets with different UDP source ports may take different ones and overtake each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from emu.clock import Scheduler
from emu.events import Event, EventBus, Kind
from emu.fabric.egress import UNLIMITED, Egress, Queueing
from emu.fabric.flow import flow_hash
from emu.fabric.impairments import Impairments
from emu.fabric.lane import QUEUE_FRAMES
from emu.fabric.link import Link, LinkEnd
from emu.fabric.pfc import PauseSource, PfcPort
from emu.fabric.run import FrameRun
from emu.wire.pause import priority_of

__all__ = ["MAX_ADDRESSES", "Switch", "SwitchCounters", "SwitchPort", "Trunk"]

MAX_ADDRESSES = 8192
"""Size of the address table. Once a guest has filled it with invented ones, others are flooded."""

CROWD_FRAMES = 256
"""Frames waiting for one port from which on the others pause; at most a quarter of what its queue holds."""

_LINK_LOCAL = bytes.fromhex("0180c20000")
_PAUSE_MAC = bytes.fromhex("027672ffffff")
"""Source of the switch's own frames of MAC control."""


@dataclass(slots=True)
class SwitchCounters:
    """Frames by what the switch did, ``learned``: table writes, moves included, and ``pauses`` of a port."""

    forwarded: int = 0
    flooded: int = 0
    filtered: int = 0
    learned: int = 0
    pauses: int = 0


class SwitchPort:
    """The switch's side of one link, whose end ``end`` it is.

    ``crowd`` is how many frames may wait for it before others pause, None to drop rather than pause.
    ``trunk`` is what it is a member of, ``pauses`` how it holds back the device at the other end, where that
    takes frames of priority flow control.
    """

    def __init__(
        self,
        switch: Switch,
        link: Link,
        end: LinkEnd,
        *,
        crowd: int | None = None,
        egress: Egress | None = None,
        trunk: Trunk | None = None,
        pauses: PauseSource | None = None,
    ) -> None:
        self.pauses = pauses
        self.link = link
        self.crowd = crowd
        self.egress = egress
        self._switch = switch
        self._origin: SwitchPort | Trunk = trunk or self
        self._end = end
        self.send = end.send if egress is None else egress.send
        if (trunk is None or egress is None) and pauses is None:
            # Else the queue at the other end of the trunk asks, and fills meanwhile.
            inbound = link.forward if end is link.far else link.backward
            inbound.paused = switch.crowded
        # Where the switch queues or pauses, it looks at every frame.
        self.send_run = end.send_run if egress is None and trunk is None and pauses is None else None
        end.attach(self._arrived)
        if self.send_run is not None:
            end.attach_runs(self._arrived_run)
        end.watch(self._link_changed)

    @property
    def name(self) -> str:
        """Name of the link, which is that of the device at the other end."""
        return self.link.name

    @property
    def up(self) -> bool:
        """Link state."""
        return self.link.up

    @property
    def crowded(self) -> bool:
        """True when senders should pause."""
        if self.egress is not None:
            return self.egress.crowded
        return self.crowd is not None and self._end.backlog >= self.crowd

    def _arrived(self, frame: bytes) -> None:
        self._switch.forward(self._origin, frame)

    def _arrived_run(self, run: FrameRun) -> None:
        self._switch.forward_run(self, run)

    def _link_changed(self, up: bool) -> None:
        if not up:
            if self.egress is not None:
                self.egress.clear()
            if not self._origin.up:
                self._switch.forget(self._origin)


class Trunk:
    """One side of several links to another switch; a flow takes one of those that are up."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: list[SwitchPort] = []

    @property
    def up(self) -> bool:
        """True while one of the links is up."""
        return any(member.up for member in self.members)

    @property
    def crowded(self) -> bool:
        """True when senders should pause."""
        return any(member.crowded for member in self.members)

    def send(self, frame: bytes) -> None:
        """Send ``frame`` over the link that its flow takes."""
        members = self.members
        member = members[flow_hash(frame) % len(members)]
        if not member.up:
            members = [other for other in members if other.up] or members
            member = members[flow_hash(frame) % len(members)]
        member.send(frame)


class Switch:
    """Ports by name; :meth:`port` makes one and returns the end a NIC plugs into."""

    def __init__(self, scheduler: Scheduler, events: EventBus, *, name: str = "switch") -> None:
        self.name = name
        self.counters = SwitchCounters()
        self._scheduler = scheduler
        self._events = events
        self._ports: dict[str, SwitchPort | Trunk] = {}
        self._table: dict[bytes, SwitchPort | Trunk] = {}
        self._obeying: dict[str, PfcPort] = {}

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
        jitter_ns: int = 0,
        queue_frames: int = QUEUE_FRAMES,
        queueing: Queueing = UNLIMITED,
        pause: bool = True,
        pfc: bool = False,
    ) -> LinkEnd:
        """Add a port with a link of its own and return the link's near end.

        The impairments apply to each direction of this link; a frame from NIC to NIC crosses two links.

        :param name: the device at the near end ("node0.nic0"); drops are reported under it.
        :param queueing: the link's speed, in both directions, and what happens before it at the switch.
        :param pause: without a speed: hold all senders back while many frames wait, rather than drop.
        :param pfc: pause single priorities of this port by frames of priority flow control; see
            :meth:`obeying`.
        :raises ValueError: the name is taken, or an impairment is out of range.
        """
        self._check_free(name)
        there = Impairments(
            loss=loss,
            delay_ns=delay_ns,
            jitter_ns=jitter_ns,
            seed=seed,
            trim=trim,
            mark=mark,
            llr=llr,
            symbol_errors=symbol_errors,
            rate=queueing.rate,
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
        crowd = min(CROWD_FRAMES, max(1, queue_frames // 4)) if pause else None
        egress = self._egress(name, queueing, link.far, seed=seed)
        pauses = PauseSource(self._scheduler, link.far.send, _PAUSE_MAC) if pfc else None
        self._ports[name] = SwitchPort(self, link, link.far, crowd=crowd, egress=egress, pauses=pauses)
        return link.near

    def obeying(self, name: str) -> PfcPort:
        """What a device plugs into instead of the end that :meth:`port` returned, to obey pauses.

        :raises KeyError: no such port, or it has no priority flow control.
        """
        port = self._ports[name]
        if isinstance(port, Trunk) or port.pauses is None:
            raise KeyError(f"port {name} has no priority flow control")
        link = port.link
        obeying = PfcPort(link.near, self._scheduler, link.forward.impairments.rate, self._observer(name))
        self._obeying[name] = obeying
        return obeying

    def join(
        self,
        other: Switch,
        links: int = 1,
        *,
        loss: float = 0.0,
        seed: int = 0,
        delay_ns: int = 0,
        step_ns: int = 0,
        queueing: Queueing = UNLIMITED,
    ) -> list[Link]:
        """Join this switch and ``other`` by a trunk of ``links`` links and return these.

        Their near ends are this switch's. Each further link takes ``step_ns`` longer than the one before, so
        that packets on different ones overtake each other; ``loss`` and ``queueing`` are of each link.

        :raises ValueError: the switches are joined already or have the same name, or a value is out of range.
        """
        if other.name == self.name or links < 1:
            raise ValueError(f"cannot join {self.name} to {other.name} by {links} links")
        self._check_free(other.name)
        other._check_free(self.name)
        here, there = Trunk(other.name), Trunk(self.name)
        joined = []
        for number in range(links):
            link = Link(
                self._scheduler,
                self._events,
                f"{self.name}-{other.name}.{number}",
                Impairments(loss=loss, seed=seed, delay_ns=delay_ns + number * step_ns, rate=queueing.rate),
                far_name=other.name,
            )
            joined.append(link)
            for switch, end, trunk, held in (
                (self, link.near, here, other.crowded),
                (other, link.far, there, self.crowded),
            ):
                name = f"{link.name} to {trunk.name}"
                egress = switch._egress(name, queueing, end, held=held, seed=seed)
                trunk.members.append(
                    SwitchPort(switch, link, end, crowd=CROWD_FRAMES, egress=egress, trunk=trunk)
                )
        self._ports[other.name] = here
        other._ports[self.name] = there
        return joined

    def link(self, name: str) -> Link:
        """The link of port ``name``, to take it up or down or read its counters.

        :raises KeyError: no such port, or it is a trunk.
        """
        port = self._ports[name]
        if isinstance(port, Trunk):
            raise KeyError(f"{name} is a trunk of {len(port.members)} links")
        return port.link

    def egresses(self, name: str) -> list[Egress]:
        """The queues before the link of port ``name``, or before each link of a trunk; none without a speed.

        :raises KeyError: no such port.
        """
        port = self._ports[name]
        members = port.members if isinstance(port, Trunk) else [port]
        return [member.egress for member in members if member.egress is not None]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the ports, in the order they were added."""
        return tuple(self._ports)

    def addresses(self) -> dict[str, str]:
        """The address table: MAC address as text to port name."""
        return {mac.hex(":"): port.name for mac, port in self._table.items()}

    def snapshot(self) -> dict[str, dict[str, int]]:
        """Counters of the switch (under its own name) and of each link.

        ``queue.*`` are those of the queues before a link with a speed, ``queue.depth`` bytes at this moment.
        """
        found = {self.name: {**asdict(self.counters), "addresses": len(self._table)}}
        for port in self._ports.values():
            for member in port.members if isinstance(port, Trunk) else (port,):
                queue = {} if member.egress is None else member.egress.snapshot()
                found[member.name] = {
                    **member.link.counters(),
                    **{f"queue.{name}": value for name, value in queue.items()},
                }
        for name, pausing in self._obeying.items():
            found[name] |= pausing.counters.snapshot()
        return found

    def forward(self, source: SwitchPort | Trunk, frame: bytes) -> None:
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
            known.send(frame)
            self._hold_back(source, known, frame)
        else:
            self.counters.flooded += 1
            for port in self._ports.values():
                if port is not source and port.up:
                    port.send(frame)
                    self._hold_back(source, port, frame)

    def forward_run(self, source: SwitchPort, run: FrameRun) -> None:
        """As :meth:`forward`, together where a known port takes them so."""
        self._learn(run.source_mac, source)
        known = self._table.get(run.dest_mac)
        other = known if isinstance(known, SwitchPort) and known is not source else None
        if other is not None and other.send_run is not None and other.send_run(run):
            self.counters.forwarded += run.count
            return
        for frame in run.frames():
            self.forward(source, frame)

    def _hold_back(self, source: SwitchPort | Trunk, target: SwitchPort | Trunk, frame: bytes) -> None:
        """Pause the sender's priority while too much waits for ``target``, where it takes such frames."""
        if isinstance(source, SwitchPort) and source.pauses is not None and target.crowded:
            before = source.pauses.pauses
            source.pauses.pause(priority_of(frame), lambda: target.crowded)
            self.counters.pauses += source.pauses.pauses - before

    def _observer(self, name: str) -> Callable[[bytes], None]:
        """Puts frames of MAC control that reach port ``name`` on the stream of events."""

        def observe(frame: bytes) -> None:
            if self._events.mask & Kind.FRAME_IN.bit:
                text = f"{len(frame)} bytes of priority flow control"
                event = Event(
                    Kind.FRAME_IN, self._scheduler.now(), name, length=len(frame), text=text, frame=frame
                )
                self._events.emit(event)

        return observe

    def crowded(self) -> bool:
        """True while some port has too many frames waiting for it."""
        if any(port.crowded for port in self._ports.values()):
            self.counters.pauses += 1
            return True
        return False

    def forget(self, port: SwitchPort | Trunk) -> None:
        """Drop what was learned on ``port``."""
        self._table = {mac: owner for mac, owner in self._table.items() if owner is not port}

    def _check_free(self, name: str) -> None:
        if name in self._ports:
            raise ValueError(f"{self.name} has a port {name!r} already")

    def _egress(
        self,
        name: str,
        queueing: Queueing,
        end: LinkEnd,
        *,
        held: Callable[[], bool] | None = None,
        seed: int,
    ) -> Egress | None:
        """Queues before ``end``, if its link has a speed; ``held`` where another switch is at the far end."""
        if not queueing.rate:
            return None
        return Egress(
            self._scheduler,
            self._events,
            name,
            queueing,
            end.send,
            last_hop=held is None,
            held=held,
            seed=seed,
        )

    def _learn(self, origin: bytes, source: SwitchPort | Trunk) -> None:
        if self._table.get(origin) is source:
            return
        # A group address is never a valid source.
        if origin[0] & 1 or (origin not in self._table and len(self._table) >= MAX_ADDRESSES):
            return
        self._table[origin] = source
        self.counters.learned += 1
