# SPDX-License-Identifier: Apache-2.0
"""Nothing a peer sends or a guest posts makes an engine raise, answer without end, or write where it must
not.
"""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from emu.nic.atomics import AtomicMasks
from emu.nic.work import AddressHandle, Opcode, QpState, SendRequest, Sge, Transport
from emu.wire.icrc import icrc
from emu.wire.opcodes import BY_OPCODE
from tests.roce.bench import BASE, LKEY, RKEY, Pair, silence

_HANDLE = AddressHandle(bytes(6), bytes(6), bytes(16), bytes(16))
_WORDS = st.sampled_from([0, 1, 7, 8, 1024, 1 << 16, 1 << 31, (1 << 31) + 1, 0xFFFFFFFF])
_PSNS = st.integers(96, 140)


@st.composite
def _frames(draw: st.DrawFn) -> tuple[int, int, bytes, bytes, bool, bytes]:
    """A well-formed packet of any opcode with extension headers that mean something now and then."""
    opcode = draw(st.sampled_from(sorted(BY_OPCODE)))
    size = BY_OPCODE[opcode].extension_size
    address = BASE + draw(_WORDS)
    meant = address.to_bytes(8, "big") + RKEY.to_bytes(4, "big") + draw(_WORDS).to_bytes(4, "big") + bytes(16)
    extension = draw(st.one_of(st.just(meant[:size]), st.binary(min_size=size, max_size=size)))
    payload = bytes(draw(st.sampled_from([0, 1, 4, 8, 16, 255, 256, 257])))
    return opcode, draw(_PSNS), extension, payload, draw(st.booleans()), draw(st.binary(max_size=3))


@st.composite
def _posts(draw: st.DrawFn) -> SendRequest:
    length = draw(st.sampled_from([0, 1, 4, 8, 300, 5000, 1 << 31, 1 << 40, -1]))
    return SendRequest(
        0,
        draw(st.one_of(st.sampled_from(list(Opcode)), st.just(77))),  # type: ignore[arg-type]
        length=length,
        sges=[Sge(BASE, max(0, min(length, 1 << 17)), draw(st.sampled_from([LKEY, 0x999])))],
        remote_address=draw(st.sampled_from([BASE, (1 << 64) - 1, 0])),
        rkey=draw(st.sampled_from([RKEY, 0xFFFFFFFF])),
        swap_add=draw(st.sampled_from([0, (1 << 64) - 1, 1 << 70, -1])),
        compare=draw(st.sampled_from([0, (1 << 64) - 1, -5])),
        immediate=draw(st.sampled_from([0, 0xFFFFFFFF, 1 << 40])),
        fence=draw(st.booleans()),
        masks=draw(st.sampled_from([None, AtomicMasks(), AtomicMasks(-1, 1 << 70, 1 << 63)])),
        handle=draw(st.sampled_from([None, _HANDLE])),
        dest_qpn=draw(st.sampled_from([1, 0x11, 0xFFFFFF])),
        qkey=draw(st.sampled_from([0, 0x80000000, 0xFFFFFFFF])),
    )


_ACTIONS = st.lists(
    st.one_of(_frames(), _posts(), st.sampled_from(["time", "receive", QpState.SQD, QpState.RTS])),
    max_size=30,
)


_SERVICES = st.sampled_from([Transport.ROCE_RC, Transport.ROCE_UC, Transport.ROCE_UD, Transport.ROCE_XRC])


@settings(max_examples=600, deadline=None)
@given(_ACTIONS, _SERVICES)
def test_no_sequence_of_packets_and_posts_raises(actions: list[object], service: Transport) -> None:
    pair = Pair(silence, path_mtu=256, transport=service)
    b, scheduler = pair.b, pair.scheduler
    for action in actions:
        if isinstance(action, SendRequest):
            action.index, b.next_index = b.next_index, b.next_index + 1
            b.engine.post(action)
            b.service()
        elif isinstance(action, QpState):
            if b.host.moves == [] or b.host.moves[-1][0] is not QpState.ERR:
                b.modify(action)
        elif action == "time":
            scheduler.run(until=scheduler.now() + 100_000_000)
        elif action == "receive":
            b.post_receive(0, 512, shared=len(b.host.sent) % 2 == 1)
        elif isinstance(action, tuple):
            opcode, psn, extension, payload, ask, _ = action
            before = len(b.host.sent)
            b.deliver(pair.a.frame(opcode, psn, extension, payload, ack_request=ask))
            # A READ of 64 KiB at 256 bytes a packet is the most that one packet can ask for here.
            assert len(b.host.sent) - before <= 256 + 128 + 2
    assert len(b.packets()) == len(b.host.sent)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(_frames(), st.lists(st.tuples(st.integers(14, 200), st.integers(0, 7)), max_size=4)),
        max_size=12,
    ),
    _SERVICES,
)
def test_bit_flips_under_a_right_icrc_do_not_raise(
    frames: list[tuple[tuple[int, int, bytes, bytes, bool, bytes], list[tuple[int, int]]]],
    service: Transport,
) -> None:
    pair = Pair(silence, path_mtu=256, transport=service)
    for _ in range(4):
        pair.a.post(Opcode.READ, 600)
    for (opcode, psn, extension, payload, ask, tail), flips in frames:
        for target, sender in ((pair.a, pair.b), (pair.b, pair.a)):
            frame = bytearray(sender.frame(opcode, psn, extension, payload, ack_request=ask))
            for offset, bit in flips:
                frame[offset % len(frame)] ^= 1 << bit
            with suppress(ValueError):
                frame[-4:] = icrc(bytes(frame[14:-4]))
            target.deliver(bytes(frame))
            target.deliver(bytes(frame) + tail)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=120), max_size=10))
def test_random_bytes_are_dropped_in_the_parser(frames: list[bytes]) -> None:
    pair = Pair(silence)
    for frame in frames:
        pair.b.deliver(frame)
    assert len(pair.b.dropped) == len(frames)
    assert pair.b.engine.expected_psn == 100
