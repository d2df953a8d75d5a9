# SPDX-License-Identifier: Apache-2.0
"""Any work over any link, in virtual time: loss, reorder between and within paths, duplication, trimming and
damage.

What must hold whatever happens: every element completes once and in order, every byte is where it belongs,
each packet reaches semantics at most once, and the initiator ends without a PDC. A failure prints the seed
with which ``pytest --hypothesis-seed=N`` plays it again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.clock import MS
from emu.nic.engine import Drop
from emu.nic.work import CompletionOpcode, Opcode, Sge, Status, Transport
from emu.uet import Parameters
from emu.uet.headers import RequestHeader
from emu.uet.outgoing import Verdict
from emu.uet.packet import UetPacket
from emu.uet.pdc import Pdc
from emu.uet.psn import distance
from emu.uet.tss_keys import SecureDomain
from emu.wire.congestion import trim
from emu.wire.uet_names import AckFlag, CtlType, PdsType
from emu.wire.uet_profile import Profile, Trailer
from tests.roce.bench import BASE, LKEY, RKEY
from tests.uet.bench import LATENCY, Impairment, Nic, decode, pair

COUNTER = 0xFFF8
MP_RANGE = 128
"""What a peer grants here: the least there is."""
ACK_P = int(AckFlag.P)
RESULTS = 0xF000
WORK = st.tuples(
    st.sampled_from(
        [Opcode.WRITE, Opcode.WRITE, Opcode.WRITE_IMM, Opcode.SEND, Opcode.READ, Opcode.ATOMIC_ADD]
    ),
    st.sampled_from([0, 1, 8, 16, 17, 1024, 1025, 5000]),
    st.integers(0, 3),
)


@dataclass
class Weather:
    """A link that loses, repeats, trims, damages and delays at random; paths differ by ``step`` ns."""

    seed: int
    loss: float
    repeat: float
    trim: float
    damage: float
    jitter: int
    step: int

    def impairment(self, parameters: Parameters) -> Impairment:
        """As the bench wants it. Damage needs something by which it is noticed."""
        draw = random.Random(self.seed)
        protected = parameters.security is not None or parameters.wire.trailer is Trailer.CRC

        def change(frame: bytes) -> bytes:
            cut = trim(frame, draw.random() < 0.5) if draw.random() < self.trim else None
            if cut is not None:
                # Its trailer is gone: nothing could show that it was damaged too.
                return cut
            if protected and draw.random() < self.damage:
                # Not the Ethernet header: its checksum is the link's business.
                at = draw.randrange(14, len(frame))
                return frame[:at] + bytes((frame[at] ^ 1 << draw.randrange(8),)) + frame[at + 1 :]
            return frame

        def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
            copies = 0 if draw.random() < self.loss else 1
            copies += draw.random() < self.repeat
            path = frame[35] % 8 * self.step
            return [(LATENCY + path + draw.randrange(self.jitter + 1), change(frame)) for _ in range(copies)]

        return impair


WEATHER = st.builds(
    Weather,
    seed=st.integers(0, 1 << 32),
    loss=st.sampled_from([0.0, 0.02, 0.1, 0.2]),
    repeat=st.sampled_from([0.0, 0.1]),
    trim=st.sampled_from([0.0, 0.05, 0.2]),
    damage=st.sampled_from([0.0, 0.05]),
    jitter=st.sampled_from([0, 5000, 3 * MS]),
    step=st.sampled_from([0, 300, 20_000]),
)
# Of four packets the worst weather leaves two: retries must not run out, which is not what is asked here.
PATIENT = Parameters(wire=Profile(mpr=1), mpr_before_ack=1, max_rto=15)
PARAMETERS = {
    "plain": PATIENT,
    "crc": replace(PATIENT, wire=Profile(mpr=1, trailer=Trailer.CRC)),
    "tss": replace(PATIENT, security=SecureDomain((bytes(range(32)),))),
}


def latest(first: int, second: int) -> int:
    """The later of two PSNs."""
    return second if distance(second, first) > 0 else first


class Watch:
    """Sees every packet that an endpoint takes and sends, in the clear, and checks what must never happen.

    It stands in the place of the endpoint's host.
    """

    def __init__(self, nic: Nic) -> None:
        fep = nic.fep
        self._host, self._parse, self._request = fep.host, fep._parser.parse, fep.request
        self._parameters = nic.parameters
        self._semantic: dict[int, set[int]] = {}
        self._evs: set[int] = set()
        self._highest: dict[int, int] = {}
        self._acked: dict[int, int] = {}
        self._clear: dict[int, int] = {}
        self._cack: dict[int, int] = {}
        self._answered: dict[int, int] = {}
        self.closes: dict[int, set[int]] = {}
        self._fep = fep
        self.kinds: set[int] = set()
        fep.host = self
        fep.request = self.request  # type: ignore[method-assign]
        fep._parser.parse = self.parse  # type: ignore[method-assign]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def request(self, packet: UetPacket, header: RequestHeader, pdc: Pdc | None) -> Verdict:
        """No PSN twice, and in order where that is promised. Without a PDC there are no promises."""
        if pdc is not None:
            seen = self._semantic.setdefault(id(pdc), set())
            assert packet.psn not in seen, "a packet reached semantics twice"
            if pdc.rod:
                assert distance(packet.psn, pdc.start_psn) == len(seen), "out of order on ROD"
            seen.add(packet.psn)
        return self._request(packet, header, pdc)

    def parse(self, frame: bytes) -> UetPacket | Drop:
        """What arrives tells what may be sent."""
        packet = self._parse(frame)
        if isinstance(packet, UetPacket):
            self._evs.add(packet.ev)
            if packet.is_ack and not packet.flags & ACK_P:
                known = self._acked.get(packet.dpdcid, packet.psn)
                self._acked[packet.dpdcid] = latest(known, packet.psn)
                told = latest(packet.psn, packet.psn + packet.offset & 0xFFFFFFFF)
                self._answered[packet.dpdcid] = latest(self._answered.get(packet.dpdcid, told), told)
        return packet

    def send(self, frame: bytes, qpn: int | None) -> None:
        """Judge a packet before it goes out."""
        packet = decode(frame, self._parameters.wire)
        self.kinds.add(packet.kind)
        if packet.is_request:
            self._sends(packet)
        elif packet.kind == PdsType.CP and packet.following == CtlType.CLOSE_CMD:
            self.closes.setdefault(packet.spdcid, set()).add(packet.psn)
        elif packet.is_ack:
            assert packet.spdcid and packet.dpdcid
            if not packet.flags & ACK_P:
                last = self._cack.get(packet.spdcid, packet.psn)
                assert distance(packet.psn, last) >= 0, "CACK went back"
                self._cack[packet.spdcid] = packet.psn
                pdc = self._fep.pdcs.get(packet.spdcid)
                waiting = [] if pdc is None else list(pdc.destination.stored)
                assert all(distance(psn, packet.psn) > 0 for psn in waiting), "CACK passed a stored answer"
        if packet.is_ack or packet.is_nack or packet.kind == PdsType.RUDI_RESP:
            assert packet.ev in self._evs, "an answer goes the way of what it answers"
        self._host.send(frame, qpn)

    def _sends(self, packet: UetPacket) -> None:
        number = packet.spdcid
        assert number and (packet.syn or packet.dpdcid)
        assert packet.offset < 0, "CLEAR_PSN stays behind the packet that tells it"
        clear = packet.psn + packet.offset & 0xFFFFFFFF
        assert distance(clear, self._clear.get(number, clear)) >= 0, "CLEAR_PSN went back"
        self._clear[number] = clear
        if number in self._answered:
            assert distance(clear, self._answered[number]) <= 0, "cleared what nobody answered"
        highest = self._highest.get(number)
        if highest is None or distance(packet.psn, highest) > 0:
            self._highest[number] = packet.psn
            start = packet.psn - 1 if highest is None else highest
            acked = self._acked.get(number)
            if acked is not None and highest is not None:
                assert distance(packet.psn, acked) <= MP_RANGE, "beyond the range that the peer granted"
            assert distance(packet.psn, start) == 1, "a PSN was left out"


def play(
    transport: Transport,
    weather: Weather,
    work: list[tuple[Opcode, int, int]],
    protection: str = "plain",
    mtu: int = 1024,
) -> set[int]:
    """Post ``work`` at one end while the weather rages, and check everything; the types of packets sent."""
    parameters = PARAMETERS[protection]
    net, a, b = pair(transport, weather.impairment(parameters), parameters, path_mtu=mtu)
    watches = Watch(a.nic), Watch(b.nic)
    outbox, inbox = a.host.regions[LKEY].data, b.host.regions[RKEY].data
    a.host.memory(LKEY, 1 << 17)
    outbox = a.host.regions[LKEY].data
    outbox[: 1 << 16] = random.Random(weather.seed).randbytes(1 << 16)
    written: dict[int, bytes] = {}
    taken: list[tuple[int, CompletionOpcode, int, int | None]] = []
    adds = 0
    for index, (opcode, length, pause) in enumerate(work):
        if transport is Transport.UET_RUDI and opcode is not Opcode.READ:
            opcode = Opcode.WRITE
        at = index * 0x1400
        piece = [Sge(BASE + at, length, LKEY)] if length else []
        if opcode is Opcode.ATOMIC_ADD:
            result = [Sge(BASE + 0x10000 + 8 * index, 8, LKEY)]
            a.post(opcode, 8, sges=result, remote_address=BASE + COUNTER, swap_add=1)
            adds += 1
        elif opcode is Opcode.READ:
            result = [Sge(BASE + 0x11000, length, LKEY)] if length else []
            a.post(opcode, length, sges=result, remote_address=BASE)
        else:
            if opcode is not Opcode.WRITE:
                kind = CompletionOpcode.RECV if opcode is Opcode.SEND else CompletionOpcode.RECV_WRITE_IMM
                immediate = None if opcode is Opcode.SEND else index
                taken.append((len(taken), kind, length, immediate))
                b.post_receive(len(taken) - 1, length, BASE + at, RKEY)
            a.post(opcode, length, sges=piece, remote_address=BASE + at, immediate=index)
            written[at] = bytes(outbox[at : at + length])
        net.scheduler.run(until=net.scheduler.now() + pause * MS)
    net.scheduler.run(until=net.scheduler.now() + 300_000 * MS)
    assert a.host.statuses == [(index, Status.SUCCESS) for index in range(len(work))]
    done = [(found.index, found.opcode, found.length, found.immediate) for found in b.host.completions]
    assert done == taken
    for at, octets in written.items():
        assert inbox[at : at + len(octets)] == octets
    assert b.host.atomics == adds
    assert not a.nic.fep.pdcs
    # What is written after a long silence may find the context closed, and opens another.
    assert all(len(psns) == 1 for psns in watches[0].closes.values()), "a context closes once"
    assert len(watches[0].closes) >= bool(work and transport is not Transport.UET_RUDI)
    # A close command that is lost for good leaves the target's end; it goes when its room is needed.
    assert len(b.nic.fep.pdcs) <= 1
    net.scheduler.run()
    return watches[0].kinds


SCHEDULES = 2000


@pytest.mark.timeout(600)
@settings(max_examples=SCHEDULES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([Transport.UET_RUD, Transport.UET_ROD, Transport.UET_RUDI]),
    WEATHER,
    st.lists(WORK, max_size=10),
    st.sampled_from(sorted(PARAMETERS)),
    st.sampled_from([256, 1024, 4096]),
)
def test_every_schedule_ends_right(
    transport: Transport, weather: Weather, work: list[tuple[Opcode, int, int]], protection: str, mtu: int
) -> None:
    play(transport, weather, work, protection, mtu)


def test_the_watch_is_no_ornament() -> None:
    """A sender that breaks a rule is caught."""
    weather = Weather(1, 0.0, 0.0, 0.0, 0.0, 0, 0)
    kinds = play(Transport.UET_RUD, weather, [(Opcode.WRITE, 5000, 0)])
    assert {PdsType.RUD_REQ, PdsType.CP} <= kinds
    net, a, _ = pair(Transport.UET_RUD, weather.impairment(Parameters()))
    watch = Watch(a.nic)
    a.post(Opcode.WRITE, 5000)
    net.scheduler.run(until=MS)
    last = next(frame for frame in reversed(a.nic.sent) if decode(frame).is_request)
    psn, offset = 46, 44
    skipping, going_back = bytearray(last), bytearray(last)
    skipping[psn : psn + 4] = (int.from_bytes(last[psn : psn + 4], "big") + 2).to_bytes(4, "big")
    going_back[offset : offset + 2] = b"\x80\0"
    for frame, rule in ((skipping, "left out"), (going_back, "went back")):
        with pytest.raises(AssertionError, match=rule):
            watch.send(bytes(frame), None)


def test_only_what_was_lost_is_sent_again_and_every_path_is_used() -> None:
    """With 2 % loss on paths of different delay, at most 1.2 times the lost bytes go out again."""
    draw = random.Random(3)
    lost = []

    def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        if draw.random() < 0.02:
            lost.append(frame)
            return []
        return [(LATENCY + 500 * (decode(frame).ev % 8), frame)]

    net, a, b = pair(Transport.UET_RUD, impair)
    for host, key in ((a.host, LKEY), (b.host, RKEY)):
        host.memory(key, 1 << 20)
    payload = random.Random(1).randbytes(1 << 20)
    a.host.regions[LKEY].data[:] = payload
    a.post(Opcode.WRITE, 1 << 20)
    net.scheduler.run(until=20_000 * MS)
    assert a.host.statuses == [(0, Status.SUCCESS)]
    assert b.host.regions[RKEY].data == payload
    missing = sum(len(frame) for frame in lost if decode(frame).kind == PdsType.RUD_REQ)
    again = sum(len(frame) for frame in a.nic.sent if decode(frame).is_request and decode(frame).flags & 0x10)
    assert 0 < missing <= again <= 1.2 * missing
    paths: dict[int, int] = {}
    for packet in a.nic.packets():
        if packet.is_request:
            paths[packet.ev] = paths.get(packet.ev, 0) + 1
    assert len(paths) == 8
    fair = sum(paths.values()) / 8
    assert all(0.8 * fair <= count <= 1.2 * fair for count in paths.values())
