# SPDX-License-Identifier: Apache-2.0
"""Descriptor bytes: the fast codecs against the contract's layouts, phases, and what a malformed WQE gets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from construct import Struct
from hypothesis import given
from hypothesis import strategies as st

from emu.nic.cq import CompletionQueue, CqMode
from emu.nic.engine import AsyncEvent
from emu.nic.eq import EventQueue
from emu.nic.formats import WqeFault
from emu.nic.limits import NicLimits
from emu.nic.qp import QueuePair
from emu.nic.work import (
    Cause,
    Completion,
    CompletionOpcode,
    Opcode,
    ReceiveRequest,
    SendRequest,
    Sge,
    Status,
    Transport,
)
from emu.personality.vrnic.codec import codec_of
from emu.personality.vrnic.contract.codes import CheckId
from emu.personality.vrnic.contract.commands import COMMANDS
from emu.personality.vrnic.contract.descriptors import (
    Cqe,
    CqeFlags,
    DoorbellRecord,
    Eqe,
    RecvWqe,
    SendWqe,
    WqeFlags,
)
from emu.personality.vrnic.formats import vrnic_formats

FORMATS = vrnic_formats(NicLimits())
U8, U16, U24 = st.integers(0, 0xFF), st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFF)
U32, U64 = st.integers(0, 0xFFFFFFFF), st.integers(0, (1 << 64) - 1)
LAYOUTS = [layout for pair in COMMANDS.values() for layout in pair]


def queue_pair(
    *, phase: bool = False, start: int = 0, log_size: int = 4, signal_all: bool = False
) -> QueuePair:
    """As much of a queue pair as the formats look at."""
    ring = SimpleNamespace(log_size=log_size)
    made = SimpleNamespace(
        number=0x101,
        phase=phase,
        start_index=start,
        signal_all=signal_all,
        sq=ring,
        receive=ring,
        transport=Transport.ROCE_RC,
        pd=SimpleNamespace(number=1, handles={}),
    )
    return cast(QueuePair, made)


def wqe(index: int = 0, **values: Any) -> bytes:
    """A send WQE of QP 0x101."""
    fields = dict(SendWqe.parse(bytes(64))) | {"index": index, "qpn": 0x101} | values
    return bytes(SendWqe.build(fields))


def decode(data: bytes, qp: QueuePair | None = None, first: int = 0) -> SendRequest | WqeFault:
    """The one descriptor in ``data``."""
    (result,) = FORMATS.wqe.decode(data, first, 1, qp or queue_pair())
    return result


def request(data: bytes, qp: QueuePair | None = None, first: int = 0) -> SendRequest:
    """As :func:`decode`, and it is good."""
    result = decode(data, qp, first)
    assert isinstance(result, SendRequest), result
    return result


def fault(data: bytes, qp: QueuePair | None = None, first: int = 0) -> WqeFault:
    """As :func:`decode`, and it is bad."""
    result = decode(data, qp, first)
    assert isinstance(result, WqeFault), result
    return result


@pytest.mark.parametrize("layout", [SendWqe, RecvWqe, Cqe, Eqe, DoorbellRecord, *LAYOUTS])
def test_codecs_read_and_write_what_the_layouts_say(layout: Struct) -> None:
    data = bytes((7 * position + 1) & 0xFF for position in range(layout.sizeof()))
    codec = codec_of(layout)
    assert codec.size == layout.sizeof()
    parsed, fields = layout.parse(data), codec.unpack(data)
    for name, value in fields.numbers.items():
        assert parsed[name] == value
    for name, blob in fields.blobs.items():
        if isinstance(parsed[name], bytes):
            assert parsed[name] == blob
    assert codec.pack({**fields.numbers, **fields.blobs}) == data


@given(remote=U64, rkey=U32, length=st.integers(1, 1 << 31), local=U64, lkey=U32, immediate=U32)
def test_a_write_with_immediate(
    remote: int, rkey: int, length: int, local: int, lkey: int, immediate: int
) -> None:
    got = request(
        wqe(
            opcode=Opcode.WRITE_IMM,
            remote_address=remote,
            rkey=rkey,
            length=length,
            local_address=local,
            lkey=lkey,
            immediate=immediate,
        )
    )
    assert got.opcode is Opcode.WRITE_IMM
    assert (got.remote_address, got.rkey, got.length, got.immediate) == (remote, rkey, length, immediate)
    assert got.sges == [Sge(local, length, lkey)]
    assert not got.signaled


@given(addend=U64, result=U64, key=U32)
def test_a_fetch_and_add(addend: int, result: int, key: int) -> None:
    got = request(
        wqe(opcode=Opcode.ATOMIC_ADD, length=8, local_address=addend, result_address=result, result_lkey=key)
    )
    assert got.swap_add == addend
    assert got.sges == [Sge(result, 8, key)]


@given(swap=U64, compare=U64)
def test_a_compare_and_swap(swap: int, compare: int) -> None:
    got = request(
        wqe(
            opcode=Opcode.ATOMIC_CAS,
            length=8,
            local_address=swap,
            lkey=compare & 0xFFFFFFFF,
            compare_high=compare >> 32,
        )
    )
    assert (got.swap_add, got.compare) == (swap, compare)


@given(st.binary(max_size=32))
def test_inline_payload_is_in_the_wqe(payload: bytes) -> None:
    data = wqe(opcode=Opcode.SEND, flags=WqeFlags.INLINE, length=len(payload))
    data = data[:32] + payload + b"\xee" * (32 - len(payload))
    got = request(data)
    assert (got.inline, got.length, got.sges) == (payload, len(payload), [])


def test_inline_payloads_of_a_burst_do_not_mix() -> None:
    burst = b"".join(
        wqe(index, opcode=Opcode.SEND, flags=WqeFlags.INLINE, length=1)[:32] + bytes([index]) * 32
        for index in range(4)
    )
    results = FORMATS.wqe.decode(burst, 0, 4, queue_pair())
    assert [result.inline for result in results if isinstance(result, SendRequest)] == [
        b"\0",
        b"\1",
        b"\2",
        b"\3",
    ]


@pytest.mark.parametrize(
    ("flag", "attribute"),
    [(WqeFlags.SIGNAL, "signaled"), (WqeFlags.SOLICITED, "solicited"), (WqeFlags.FENCE, "fence")],
)
def test_flags(flag: WqeFlags, attribute: str) -> None:
    assert getattr(request(wqe(opcode=Opcode.SEND, flags=flag)), attribute)
    assert not getattr(request(wqe(opcode=Opcode.SEND)), attribute)


def test_signal_all_signals_all() -> None:
    assert request(wqe(opcode=Opcode.WRITE), queue_pair(signal_all=True)).signaled


def test_a_zero_length_message_has_no_scatter_list() -> None:
    assert request(wqe(opcode=Opcode.WRITE, local_address=5, lkey=5)).sges == []


@pytest.mark.parametrize("blocks", [0, 1])
def test_one_block_may_be_left_out(blocks: int) -> None:
    assert request(wqe(opcode=Opcode.NOP, blocks=blocks)).slots == 1


@pytest.mark.parametrize(
    ("values", "rule", "cause", "status"),
    [
        ({"index": 1}, CheckId.C01_INDEX, Cause.INDEX_MISMATCH, Status.LOC_QP_OP_ERR),
        ({"qpn": 0x102}, CheckId.C02_OWNER, Cause.QPN_MISMATCH, Status.LOC_QP_OP_ERR),
        ({"opcode": 9}, CheckId.C29_UNSUPPORTED, Cause.BAD_OPCODE, Status.LOC_QP_OP_ERR),
        ({"opcode": 255}, CheckId.C29_UNSUPPORTED, Cause.BAD_OPCODE, Status.LOC_QP_OP_ERR),
        ({"flags": 1 << 3}, CheckId.C29_UNSUPPORTED, Cause.BAD_FLAGS, Status.LOC_QP_OP_ERR),
        ({"flags": 1 << 6}, CheckId.C29_UNSUPPORTED, Cause.BAD_FLAGS, Status.LOC_QP_OP_ERR),
        ({"flags": WqeFlags.OPERAND_4B}, CheckId.C29_UNSUPPORTED, Cause.BAD_FLAGS, Status.LOC_QP_OP_ERR),
        (
            {"opcode": Opcode.READ, "flags": WqeFlags.INLINE},
            CheckId.C29_UNSUPPORTED,
            Cause.BAD_FLAGS,
            Status.LOC_QP_OP_ERR,
        ),
        ({"blocks": 2}, CheckId.C29_UNSUPPORTED, Cause.BAD_LENGTH, Status.LOC_QP_OP_ERR),
        (
            {"opcode": Opcode.SEND, "flags": WqeFlags.INLINE, "length": 33},
            CheckId.C29_UNSUPPORTED,
            Cause.BAD_LENGTH,
            Status.LOC_QP_OP_ERR,
        ),
        (
            {"opcode": Opcode.ATOMIC_ADD, "length": 4},
            CheckId.C29_UNSUPPORTED,
            Cause.BAD_LENGTH,
            Status.LOC_QP_OP_ERR,
        ),
        (
            {"opcode": Opcode.ATOMIC_CAS, "length": 8, "flags": WqeFlags.OPERAND_4B},
            CheckId.C29_UNSUPPORTED,
            Cause.BAD_LENGTH,
            Status.LOC_QP_OP_ERR,
        ),
        (
            {"opcode": Opcode.WRITE, "length": (1 << 31) + 1},
            CheckId.NONE,
            Cause.BAD_LENGTH,
            Status.LOC_LEN_ERR,
        ),
    ],
)
def test_a_malformed_wqe_names_its_rule(
    values: dict[str, int], rule: CheckId, cause: Cause, status: Status
) -> None:
    got = fault(wqe(**values))
    assert (int(got.rule), got.cause, got.status) == (rule, cause, status)
    assert got.index == 0
    assert "index 0" in got.text


def test_a_fault_does_not_stop_the_burst() -> None:
    burst = wqe(0) + wqe(7) + wqe(2)
    kinds = [type(result) for result in FORMATS.wqe.decode(burst, 0, 3, queue_pair())]
    assert kinds == [SendRequest, WqeFault, SendRequest]


@pytest.mark.parametrize("start", [0, 3, 0xFFFFFFFA])
def test_the_phase_flips_each_pass_from_the_first_index_on(start: int) -> None:
    qp = queue_pair(phase=True, start=start, log_size=2)
    for distance in range(16):
        index = (start + distance) & 0xFFFFFFFF
        right = WqeFlags.PHASE if distance // 4 % 2 == 0 else WqeFlags(0)
        assert request(wqe(index, flags=right), qp, index).index == index
        stale = fault(wqe(index, flags=right ^ WqeFlags.PHASE), qp, index)
        assert (stale.cause, int(stale.rule)) == (Cause.PHASE_STALE, CheckId.C18_WRAP)


@given(st.binary(min_size=64 * 3, max_size=64 * 3), st.booleans(), U32)
def test_any_bytes_decode_to_one_result_a_slot(data: bytes, phase: bool, first: int) -> None:
    results = FORMATS.wqe.decode(data, first, 3, queue_pair(phase=phase))
    assert [result.index for result in results] == [(first + n) & 0xFFFFFFFF for n in range(3)]


@given(st.binary(min_size=32 * 3, max_size=32 * 3), U32)
def test_any_bytes_decode_to_one_receive_a_slot(data: bytes, first: int) -> None:
    results = FORMATS.receive.decode(data, first, 3, queue_pair())
    assert [result.index for result in results] == [(first + n) & 0xFFFFFFFF for n in range(3)]


def test_a_receive_wqe() -> None:
    fields = dict(RecvWqe.parse(bytes(32))) | {"index": 9, "qpn": 0x101, "address": 1 << 40, "lkey": 5}
    (got,) = FORMATS.receive.decode(RecvWqe.build(fields | {"length": 100}), 9, 1, queue_pair())
    assert got == ReceiveRequest(9, [Sge(1 << 40, 100, 5)])
    (empty,) = FORMATS.receive.decode(RecvWqe.build(fields), 9, 1, queue_pair())
    assert empty == ReceiveRequest(9, [])
    (wrong,) = FORMATS.receive.decode(RecvWqe.build(fields | {"qpn": 3}), 9, 1, queue_pair())
    assert isinstance(wrong, WqeFault)
    assert wrong.cause is Cause.QPN_MISMATCH


@given(
    index=U32,
    qpn=U24,
    length=U32,
    immediate=st.none() | U32,
    solicited=st.booleans(),
    opcode=st.sampled_from(CompletionOpcode),
    status=st.sampled_from(Status),
    cause=st.sampled_from(Cause),
    producer=U32,
    timestamp=U64,
    log_size=st.integers(0, 16),
)
def test_a_cqe_has_every_field_in_its_place(
    index: int,
    qpn: int,
    length: int,
    immediate: int | None,
    solicited: bool,
    opcode: CompletionOpcode,
    status: Status,
    cause: Cause,
    producer: int,
    timestamp: int,
    log_size: int,
) -> None:
    cq = cast(
        CompletionQueue,
        SimpleNamespace(producer=producer, mode=CqMode.RING, ring=SimpleNamespace(log_size=log_size)),
    )
    completion = Completion(qpn, index, opcode, status, length, immediate, solicited, cause)
    body, commit = FORMATS.cqe.encode(completion, cq, timestamp)
    assert (len(body), len(commit)) == (56, 8)
    seen = Cqe.parse(body + commit)
    assert (seen.index, seen.qpn, seen.length, seen.immediate) == (index, qpn, length, immediate or 0)
    assert (seen.timestamp, seen.cause, seen.producer) == (timestamp, cause, producer)
    assert seen.flags == (CqeFlags.WITH_IMM if immediate is not None else 0) | (
        CqeFlags.SOLICITED if solicited else 0
    )
    assert (seen.index16, seen.status, seen.opcode_phase >> 4) == (index & 0xFFFF, status, opcode)
    assert seen.opcode_phase & 1 == (1 if (producer // (1 << log_size)) % 2 == 0 else 0)
    assert seen.source_qpn == 0
    assert list(seen.reserved) == [0] * 5


@pytest.mark.parametrize("producer", [0, 1, 2, 0xFFFFFFFF])
def test_a_collapsed_cqe_always_has_phase_1(producer: int) -> None:
    cq = cast(
        CompletionQueue,
        SimpleNamespace(producer=producer, mode=CqMode.COLLAPSED, ring=SimpleNamespace(log_size=0)),
    )
    _, commit = FORMATS.cqe.encode(Completion(1, 2, CompletionOpcode.NOP, Status.SUCCESS), cq, 0)
    assert commit[7] & 1 == 1


@pytest.mark.parametrize("event", [None, *AsyncEvent])
def test_an_event_entry(event: AsyncEvent | None) -> None:
    eq = cast(EventQueue, SimpleNamespace(producer=5, ring=SimpleNamespace(log_size=2)))
    body, commit = FORMATS.eqe.encode(event, 0x1234, eq, 99)
    assert (len(body), len(commit)) == (24, 8)
    seen = Eqe.parse(body + commit)
    assert (seen.object, seen.timestamp, seen.index) == (0x1234, 99, 5)
    assert seen.type == (32 if event is None else event)
    assert seen.phase == 0


@given(receive=U32, send=U32)
def test_a_doorbell_record(receive: int, send: int) -> None:
    record = DoorbellRecord.build({"receive": receive, "send": send})
    assert FORMATS.record.send(record, 0) == send
    assert FORMATS.record.receive(record, 0) == receive


def test_a_counter_is_a_little_endian_u64() -> None:
    assert FORMATS.cqe.counter(0x0102030405060708) == bytes((8, 7, 6, 5, 4, 3, 2, 1))
