# SPDX-License-Identifier: Apache-2.0
"""Tagged sends, rendezvous and deferrable sends: what matches, waits, is fetched, is refused."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scapy.layers.l2 import Ether

from emu.clock import MS
from emu.nic.work import Cause, Completion, Opcode, QpState, ReceiveRequest, SendMode, Sge, Status, Transport
from emu.uet import Parameters
from emu.uet.headers import RequestHeader, parse_request, parse_response
from emu.wire import uet
from emu.wire.uet_names import RequestOpcode, ResponseList, ResponseOpcode, ReturnCode
from tests.roce.bench import BASE, LKEY, RKEY, Region
from tests.uet.bench import LATENCY, Impairment, Nic, pair

BOTH = pytest.mark.parametrize("transport", [Transport.UET_RUD, Transport.UET_ROD])
MODES = pytest.mark.parametrize("mode", list(SendMode))
PATTERN = bytes(range(251)) * 40


class Tags:
    """A pair of queue pairs with a pattern to send."""

    def __init__(
        self, transport: Transport = Transport.UET_ROD, parameters: Parameters | None = None, **changes: Any
    ) -> None:
        self.net, self.a, self.b = pair(transport, parameters=parameters, **changes)
        self.a.host.regions[LKEY].data[: len(PATTERN)] = PATTERN

    def send(
        self, tag: int | None, length: int = 100, mode: SendMode = SendMode.EAGER, **fields: Any
    ) -> None:
        """Post a SEND and let what can happen at once happen."""
        self.a.post(Opcode.SEND, length, tag=tag, mode=mode, **fields)
        self.settle(5)

    def receive(self, tag: int | None, ignore: int = 0, length: int = 8192, index: int = 0) -> None:
        """Post a receive element with a place of its own."""
        sges = [Sge(BASE + 0x2000 * index, length, RKEY)]
        self.b.host.receives.append(ReceiveRequest(index, sges, tag=tag, ignore=ignore))
        self.b.engine.receive_posted(self.net.scheduler.now())
        self.b.service()
        self.settle(5)

    def settle(self, milliseconds: int = 2_000) -> None:
        """Let everything happen."""
        self.net.scheduler.run(until=self.net.scheduler.now() + milliseconds * MS)

    @property
    def received(self) -> list[Completion]:
        """What b completed."""
        return self.b.host.completions

    def at(self, index: int, length: int) -> bytes:
        """Bytes in the place of receive element ``index``."""
        data = self.b.host.regions[RKEY].data
        return bytes(data[0x2000 * index : 0x2000 * index + length])


def requests(nic: Nic) -> list[RequestHeader]:
    """SES requests that a NIC sent, first transmissions and others."""
    found = []
    for packet in nic.packets():
        if packet.is_request:
            header = parse_request(packet.frame, packet.ses, packet.end, packet.following)
            if header is not None:
                found.append(header)
    return found


def responses(nic: Nic) -> list[tuple[int, int, int]]:
    """(list, opcode, return code) of the SES responses in its ACKs."""
    found = []
    for packet in nic.packets():
        if packet.is_ack:
            header = parse_response(packet.frame, packet.ses, packet.end, packet.following)
            if header is not None:
                found.append((header.listed, header.opcode, header.code))
    return found


@BOTH
@MODES
@pytest.mark.parametrize("length", [0, 100, 5000])
@pytest.mark.parametrize("early", [True, False])
def test_a_message_meets_its_element_whichever_comes_first(
    transport: Transport, mode: SendMode, length: int, early: bool
) -> None:
    tags = Tags(transport)
    if early:
        tags.receive(0x1234)
    tags.send(0x1234, length, mode, solicited=True)
    if not early:
        assert not tags.received
        tags.receive(0x1234)
    tags.settle()
    (completion,) = tags.received
    assert (completion.index, completion.length, completion.tag) == (0, length, 0x1234)
    assert completion.solicited
    assert tags.at(0, length) == PATTERN[:length]
    assert tags.a.host.statuses == [(0, Status.SUCCESS)]


def test_the_wire_says_what_the_operation_is() -> None:
    opcodes = {
        (SendMode.EAGER, False): RequestOpcode.SEND,
        (SendMode.EAGER, True): RequestOpcode.TAGGED_SEND,
        (SendMode.RENDEZVOUS, False): RequestOpcode.RENDEZVOUS_SEND,
        (SendMode.RENDEZVOUS, True): RequestOpcode.RENDEZVOUS_TSEND,
        (SendMode.DEFERRABLE, False): RequestOpcode.DEFERRABLE_SEND,
        (SendMode.DEFERRABLE, True): RequestOpcode.DEFERRABLE_TSEND,
    }
    for (mode, tagged), opcode in opcodes.items():
        tags = Tags()
        tags.receive(7 if tagged else None)
        tags.send(7 if tagged else None, 4000, mode)
        tags.settle()
        found = {header.opcode for header in requests(tags.a.nic)}
        assert found == {opcode}
        first = Ether(tags.a.nic.sent[0])[uet.StdRequest]
        assert first.memory_key == (7 if tagged else 1)
        assert tags.at(0, 4000) == PATTERN[:4000]
        if mode is SendMode.RENDEZVOUS:
            extension = first[uet.Rendezvous]
            assert (extension.eager_length, extension.read_offset) == (1024, 1024)
            assert extension.read_pid_on_fep << 12 | extension.read_resource_index == tags.a.host.qpn
            reads = [header for header in requests(tags.b.nic) if header.opcode == RequestOpcode.READ]
            assert {header.key for header in reads} == {extension.read_memory_key}
            assert sum(1 for _ in reads) == 3 and {header.request_length for header in reads} == {2976}


MATCHES = [
    (0x0, 0x0, 0x0, True),
    (0x1, 0x1, 0x0, True),
    (0x1, 0x3, 0x0, False),
    (0x1, 0x3, 0x2, True),
    (0xFFFFFFFFFFFFFFFF, 0x0, 0xFFFFFFFFFFFFFFFF, True),
    (0x8000000000000000, 0x0, 0x0, False),
    (0x8000000000000000, 0x0, 0x8000000000000000, True),
]


@pytest.mark.parametrize(("sent", "posted", "ignore", "matches"), MATCHES)
def test_bits_that_are_not_ignored_must_agree(sent: int, posted: int, ignore: int, matches: bool) -> None:
    tags = Tags()
    tags.receive(posted, ignore)
    tags.send(sent)
    assert [completion.tag for completion in tags.received] == ([sent] if matches else [])


def test_the_oldest_element_that_matches_takes_the_message_and_completions_need_no_order() -> None:
    tags = Tags()
    tags.receive(5, index=0)
    tags.receive(6, index=1)
    tags.receive(0, ~0 & 0xFFFFFFFFFFFFFFFF, index=2)
    tags.receive(6, index=3)
    for tag in (6, 9, 6, 5):
        tags.send(tag)
    assert [(found.index, found.tag) for found in tags.received] == [(1, 6), (2, 9), (3, 6), (0, 5)]


def test_waiting_messages_are_taken_oldest_first() -> None:
    tags = Tags()
    for position, tag in enumerate((1, 2, 1)):
        tags.send(tag, 10 + position)
    tags.receive(1, index=0)
    tags.receive(0, ~0 & 0xFFFFFFFFFFFFFFFF, index=1)
    tags.receive(1, index=2)
    assert [(found.tag, found.length) for found in tags.received] == [(1, 10), (2, 11), (1, 12)]


def test_tagged_and_plain_messages_do_not_meet() -> None:
    tags = Tags(rnr_retry=1)
    tags.receive(3)
    tags.send(None)
    tags.settle()
    assert tags.a.host.statuses == [(0, Status.RNR_RETRY_EXC_ERR)]
    tags = Tags()
    tags.receive(None, index=0)
    tags.receive(3, index=1)
    tags.send(3)
    tags.send(None)
    assert [(found.index, found.tag) for found in tags.received] == [(1, 3), (0, None)]


def test_a_buffered_message_is_done_for_its_sender_who_hears_of_the_overflow_list() -> None:
    tags = Tags()
    tags.send(1, 3000)
    assert tags.a.host.statuses == [(0, Status.SUCCESS)]
    overflow = (ResponseList.OVERFLOW, ResponseOpcode.RESPONSE, ReturnCode.OK)
    assert responses(tags.b.nic).count(overflow) == 1
    # Guaranteed: the target keeps the response until the source has cleared it.
    (pdc,) = tags.b.nic.fep.pdcs.values()
    assert not pdc.destination.stored


def test_room_for_waiting_messages_is_bounded_and_what_finds_none_is_tried_again() -> None:
    for parameters in (Parameters(max_unexpected=2), Parameters(unexpected_bytes=250)):
        tags = Tags(parameters=parameters)
        for _ in range(3):
            tags.send(1)
        waiting = tags.b.engine.target.waiting  # type: ignore[attr-defined]
        assert len(waiting.messages) == 2 and len(tags.a.host.completions) == 2
        assert (0, ResponseOpcode.RESPONSE, ReturnCode.NO_MATCH) in responses(tags.b.nic)
        for index in range(3):
            tags.receive(1, index=index)
        tags.settle()
        assert len(tags.received) == 3 and not waiting.messages
        assert tags.a.host.statuses == [(index, Status.SUCCESS) for index in range(3)]


def test_deferrals_are_bounded_too() -> None:
    tags = Tags(parameters=Parameters(max_unexpected=1), rnr_retry=0)
    tags.a.post(Opcode.SEND, 100, tag=1, mode=SendMode.DEFERRABLE)
    tags.a.post(Opcode.SEND, 100, tag=2, mode=SendMode.DEFERRABLE)
    tags.settle(5)
    assert (0, 1, ReturnCode.NO_MATCH) in responses(tags.b.nic)
    tags.receive(1)
    tags.settle()
    assert tags.a.host.statuses == [(0, Status.SUCCESS), (1, Status.RNR_RETRY_EXC_ERR)]


@BOTH
@pytest.mark.parametrize("tagged", [True, False])
def test_a_deferred_message_stops_and_starts_over_when_it_is_asked_for(
    transport: Transport, tagged: bool
) -> None:
    tags = Tags(transport, path_mtu=256)
    tag = 9 if tagged else None
    tags.send(tag, 8000, SendMode.DEFERRABLE)
    deferred = tags.a.nic.parameters.wire.deferred_return_code
    assert (0, ResponseOpcode.RESPONSE, deferred) in responses(tags.b.nic)
    assert not tags.a.host.completions
    sent = len(requests(tags.a.nic))
    tags.settle(100)
    assert len(requests(tags.a.nic)) == sent, "nothing goes on until it is asked for"
    tags.receive(tag)
    tags.settle()
    (ask,) = [header for header in requests(tags.b.nic) if header.opcode == RequestOpcode.DEFERRABLE_RTR]
    again = [header for header in requests(tags.a.nic)[sent:] if header.message_offset == 0]
    # Both tokens come back.
    assert ask.key == again[0].buffer_offset and ask.key >> 32 and ask.key & 0xFFFFFFFF
    assert tags.at(0, 8000) == PATTERN[:8000]
    assert tags.a.host.statuses == [(0, Status.SUCCESS)]
    (pdc,) = [pdc for pdc in tags.b.nic.fep.pdcs.values() if pdc.role.value == "target"]
    assert not pdc.inbound


def test_a_deferred_message_that_nobody_asks_for_is_tried_again() -> None:
    tags = Tags(parameters=Parameters(deferral_ns=100 * MS))
    tags.send(9, 100, SendMode.DEFERRABLE)
    for _ in range(3):
        tags.settle(100)
    waiting = tags.b.engine.target.waiting.messages  # type: ignore[attr-defined]
    assert len(waiting) == 1, "the same message waits once"
    assert len(requests(tags.a.nic)) >= 3
    tags.receive(9)
    tags.settle(50)
    assert tags.a.host.statuses == [(0, Status.SUCCESS)] and len(tags.received) == 1


def test_the_peer_of_a_deferred_message_that_is_gone_gives_its_element_to_another() -> None:
    tags = Tags()
    tags.send(9, 100, SendMode.DEFERRABLE)
    tags.a.modify(QpState.ERR)
    tags.a.modify(QpState.RESET)
    tags.a.next_index = 0
    tags.a.host.retired = 0
    for state in (QpState.INIT, QpState.RTR, QpState.RTS):
        tags.a.modify(state)
    tags.receive(9)
    assert (0, ResponseOpcode.RESPONSE, ReturnCode.CANCELLED) in responses(tags.a.nic)
    assert not tags.received
    tags.send(9, 50)
    assert [found.length for found in tags.received] == [50]


def test_a_token_that_nobody_gave_is_as_none() -> None:
    tags = Tags()
    tags.a.post(Opcode.SEND, 100, tag=1, mode=SendMode.DEFERRABLE)
    (message,) = tags.a.engine._flight  # type: ignore[attr-defined]
    message.peer_token = 77
    tags.settle(5)
    assert not tags.a.host.completions
    tags.receive(1)
    tags.settle()
    assert tags.a.host.statuses == [(0, Status.SUCCESS)] and len(tags.received) == 1


@BOTH
@pytest.mark.parametrize("early", [True, False])
def test_a_rendezvous_is_done_when_every_byte_was_fetched(transport: Transport, early: bool) -> None:
    tags = Tags(transport)
    if early:
        tags.receive(1)
    tags.a.post(Opcode.SEND, 8000, tag=1, mode=SendMode.RENDEZVOUS)
    tags.net.scheduler.run(until=tags.net.scheduler.now() + 5_000)
    assert not tags.a.host.completions
    if not early:
        tags.settle()
        assert not tags.a.host.completions, "its memory is still wanted"
        tags.receive(1)
    tags.settle()
    assert tags.a.host.statuses == [(0, Status.SUCCESS)]
    assert tags.at(0, 8000) == PATTERN[:8000]
    assert not tags.a.engine.offers  # type: ignore[attr-defined]
    wanted = (0, ResponseOpcode.NO_RESPONSE, ReturnCode.NULL)
    assert (wanted in responses(tags.b.nic)) == early


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("end", ["error", "reset", "destroyed"])
def test_a_target_that_forgets_a_rendezvous_fails_it(early: bool, end: str) -> None:
    tags = Tags(parameters=Parameters(deferral_ns=50 * MS))
    if early:
        tags.receive(1)
    tags.a.post(Opcode.SEND, 8000, tag=1, mode=SendMode.RENDEZVOUS)
    tags.net.scheduler.run(until=tags.net.scheduler.now() + 3_000)
    if not early:
        # It waits as long as it must, and only asks after it.
        tags.settle(1_000)
        assert not tags.a.host.completions
    if end == "destroyed":
        tags.b.nic.fep.forget_engine(tags.b.host.qpn)
    else:
        tags.b.modify(QpState.ERR)
    if end == "reset":
        for state in (QpState.RESET, QpState.INIT, QpState.RTR, QpState.RTS):
            tags.b.modify(state)
    tags.settle(20_000)
    (completion,) = tags.a.host.completions
    assert completion.status is Status.REM_OP_ERR
    assert not tags.a.engine.offers  # type: ignore[attr-defined]


def test_what_fits_a_packet_needs_no_rendezvous() -> None:
    tags = Tags()
    tags.receive(1)
    tags.send(1, 1024, SendMode.RENDEZVOUS)
    assert [header.opcode for header in requests(tags.a.nic)] == [RequestOpcode.TAGGED_SEND]


@pytest.mark.parametrize("early", [True, False])
@MODES
def test_a_message_longer_than_its_element_ends_both(mode: SendMode, early: bool) -> None:
    tags = Tags()
    if early:
        tags.receive(1, length=2000)
    tags.send(1, 4000, mode)
    if not early:
        tags.receive(1, length=2000)
    tags.settle()
    assert tags.b.host.statuses == [(0, Status.LOC_LEN_ERR)]
    assert tags.b.host.moves[0][0] is QpState.ERR
    if mode is SendMode.EAGER and not early:
        # It was taken, so its sender has its completion.
        assert tags.a.host.statuses == [(0, Status.SUCCESS)]
    else:
        status = Status.REM_INV_REQ_ERR if early else Status.REM_OP_ERR
        assert tags.a.host.statuses == [(0, status)]


def test_a_fetch_that_fails_ends_both() -> None:
    """The sender's memory goes away while it is on offer."""
    tags = Tags()
    tags.send(1, 4000, SendMode.RENDEZVOUS)
    del tags.a.host.regions[LKEY]
    tags.receive(1)
    tags.settle()
    (completion,) = tags.a.host.completions
    assert (completion.status, completion.cause) == (Status.LOC_PROT_ERR, 20)
    (failed,) = tags.b.host.completions
    assert (failed.status, failed.cause) == (Status.REM_ACCESS_ERR, Cause.REMOTE_NAK)


def test_an_element_that_cannot_be_written_ends_both() -> None:
    for mode in (SendMode.EAGER, SendMode.RENDEZVOUS):
        tags = Tags()
        tags.send(1, 4000, mode)
        tags.b.host.regions[RKEY] = Region(BASE, bytearray(10))
        tags.receive(1)
        tags.settle()
        assert tags.b.host.statuses == [(0, Status.LOC_PROT_ERR)]
        expected = Status.SUCCESS if mode is SendMode.EAGER else Status.REM_OP_ERR
        assert tags.a.host.statuses == [(0, expected)]


def test_only_the_peer_of_an_offer_may_read_it_and_only_what_is_offered() -> None:
    tags = Tags()
    tags.send(1, 4000, SendMode.RENDEZVOUS)
    (offer,) = requests(tags.a.nic)
    for fields, code in (
        ({"remote_address": 0, "length": 2000}, ReturnCode.BAD_ADDR),
        ({"remote_address": 3000, "length": 1001}, ReturnCode.BAD_ADDR),
    ):
        other = Tags()
        other.send(1, 4000, SendMode.RENDEZVOUS)
        reader = other.b
        request = reader.post(Opcode.READ, **fields)
        message = reader.engine._flight[-1]  # type: ignore[attr-defined]
        message.number = offer.read_key >> 32
        other.settle(5)
        assert (0, ResponseOpcode.RESPONSE, code) in responses(other.a.nic)
        assert reader.host.statuses[0] == (request.index, Status.REM_ACCESS_ERR)
    tags.b.post(Opcode.READ, 100, remote_address=2000)
    tags.b.engine._flight[-1].number = 55  # type: ignore[attr-defined]
    tags.settle(5)
    assert responses(tags.a.nic)[-1][2] == ReturnCode.BAD_MKEY


def test_fetches_at_a_time_are_bounded_and_the_rest_comes_later() -> None:
    tags = Tags(Transport.UET_RUD, Parameters(max_fetches=1))
    for index in range(3):
        tags.receive(1, index=index)
    for _ in range(3):
        tags.a.post(Opcode.SEND, 6000, tag=1, mode=SendMode.RENDEZVOUS)
    tags.settle()
    refused = [packet.word >> 8 for packet in tags.b.nic.packets() if packet.is_nack]
    assert refused and set(refused) == {0x0A}
    assert len(tags.received) == 3 and all(found.length == 6000 for found in tags.received)


@pytest.mark.parametrize("opcode", [Opcode.WRITE, Opcode.READ, Opcode.WRITE_IMM])
@pytest.mark.parametrize("fields", [{"tag": 1}, {"mode": SendMode.DEFERRABLE}])
def test_only_sends_have_tags_and_modes(opcode: Opcode, fields: dict[str, Any]) -> None:
    tags = Tags()
    tags.a.post(opcode, 8, **fields)
    tags.settle(5)
    (completion,) = tags.a.host.completions
    assert (completion.status, completion.cause) == (Status.LOC_QP_OP_ERR, Cause.BAD_FLAGS)


@MODES
def test_a_sender_in_error_is_forgotten_by_its_target(mode: SendMode) -> None:
    tags = Tags(path_mtu=256)
    tags.a.post(Opcode.SEND, 60_000, tag=1, mode=mode, sges=[Sge(BASE, 60_000, LKEY)])
    tags.net.scheduler.run(until=tags.net.scheduler.now() + 1_000)
    tags.a.modify(QpState.ERR)
    assert tags.a.host.statuses == [(0, Status.WR_FLUSH_ERR)]
    tags.settle()
    tags.receive(1)
    tags.settle()
    good = [found for found in tags.received if found.status is Status.SUCCESS]
    assert not good, "nothing half sent is delivered"


@MODES
def test_elements_are_flushed_in_the_order_of_the_ring(mode: SendMode) -> None:
    tags = Tags()
    for index, tag in enumerate((1, None, 2, None)):
        tags.receive(tag, index=index)
    tags.a.post(Opcode.SEND, 9000, tag=2, mode=mode, sges=[Sge(BASE, 9000, LKEY)])
    tags.net.scheduler.run(until=tags.net.scheduler.now() + 2_000)
    tags.b.modify(QpState.ERR)
    tags.settle()
    statuses = tags.b.host.statuses
    flushed = [index for index, status in statuses if status is Status.WR_FLUSH_ERR]
    assert flushed == [index for index in range(4) if (index, Status.LOC_LEN_ERR) not in statuses]
    assert len(statuses) == 4


@dataclass
class Weather:
    """A link that loses, repeats and delays at random."""

    seed: int
    loss: float
    repeat: float
    jitter: int

    def impairment(self) -> Impairment:
        """As the bench wants it."""
        draw = random.Random(self.seed)

        def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
            copies = (draw.random() >= self.loss) + (draw.random() < self.repeat)
            return [(LATENCY + draw.randrange(self.jitter + 1), frame) for _ in range(copies)]

        return impair


WEATHER = st.builds(
    Weather,
    seed=st.integers(0, 1 << 32),
    loss=st.sampled_from([0.0, 0.02, 0.1, 0.2]),
    repeat=st.sampled_from([0.0, 0.1]),
    jitter=st.sampled_from([0, 5000, 3 * MS]),
)
WORK = st.lists(
    st.tuples(
        st.sampled_from(list(SendMode)),
        st.sampled_from([None, 1, 2]),
        st.sampled_from([0, 1, 1024, 1025, 4000]),
    ),
    min_size=1,
    max_size=8,
)


def play(
    transport: Transport, weather: Weather, work: list[tuple[SendMode, int | None, int]], seed: int
) -> None:
    """Post sends and matching receives in any interleaving while the weather rages: all meet, once."""
    # A millisecond between tries without a receive element: microseconds would make a flood of frames.
    net, a, b = pair(transport, weather.impairment(), Parameters(max_unexpected=3), min_rnr_timer=14)
    draw = random.Random(seed)
    a.host.memory(LKEY, 1 << 16)[: 1 << 16] = draw.randbytes(1 << 16)
    b.host.memory(RKEY, 1 << 16)
    receives = list(enumerate(tag for _, tag, _ in work))
    sends = list(work)
    sent: list[tuple[int, int | None]] = []
    while sends or receives:
        if sends and (not receives or draw.random() < 0.5):
            mode, tag, length = sends.pop(0)
            at = BASE + 4096 * len(sent)
            a.post(Opcode.SEND, length, tag=tag, mode=mode, sges=[Sge(at, length, LKEY)] if length else [])
            sent.append((length, tag))
        else:
            index, tag = receives.pop(0)
            sges = [Sge(BASE + 4096 * index, 4096, RKEY)]
            b.host.receives.append(ReceiveRequest(index, sges, tag=tag))
            b.engine.receive_posted(net.scheduler.now())
            b.service()
        net.scheduler.run(until=net.scheduler.now() + draw.choice([0, 1, 20]) * MS)
    net.scheduler.run(until=net.scheduler.now() + 60_000 * MS)
    assert a.host.statuses == [(index, Status.SUCCESS) for index in range(len(work))]
    completions = b.host.completions
    assert sorted(found.index for found in completions) == list(range(len(work)))
    # Each message is delivered whole, once, to an element of its kind.
    outbox, inbox = a.host.regions[LKEY].data, b.host.regions[RKEY].data
    left = [
        (tag, length, bytes(outbox[4096 * at : 4096 * at + length])) for at, (length, tag) in enumerate(sent)
    ]
    for found in completions:
        at = 4096 * found.index
        left.remove((found.tag, found.length, bytes(inbox[at : at + found.length])))
    assert not left
    assert not a.engine.offers and a.engine.idle()  # type: ignore[attr-defined]
    waiting = b.engine.target.waiting  # type: ignore[attr-defined]
    assert not waiting.messages and not waiting.fetches
    assert not [pdc for pdc in a.nic.fep.pdcs.values() if pdc.inbound]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([Transport.UET_RUD, Transport.UET_ROD]), WEATHER, WORK, st.integers(0, 1 << 32))
def test_everything_meets_in_any_weather(
    transport: Transport, weather: Weather, work: list[tuple[SendMode, int | None, int]], seed: int
) -> None:
    play(transport, weather, work, seed)


@pytest.mark.full
@pytest.mark.timeout(1200)
@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([Transport.UET_RUD, Transport.UET_ROD]), WEATHER, WORK, st.integers(0, 1 << 32))
def test_everything_meets_in_any_weather_many_times(
    transport: Transport, weather: Weather, work: list[tuple[SendMode, int | None, int]], seed: int
) -> None:
    play(transport, weather, work, seed)
