# SPDX-License-Identifier: Apache-2.0
"""Event records round-trip, and one line tells an event."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.capture.events_format import FIELDS, HEADER, PHRASES, FormatError, decode, describe, encode
from emu.events import Event, Kind

NUMBER = st.none() | st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
EVENTS = st.builds(
    Event,
    kind=st.sampled_from(Kind),
    time=st.integers(0, 2**62),
    function=st.text(st.characters(exclude_categories=["Cs"]), max_size=16),
    qpn=st.none() | st.integers(0, 0xFFFFFF),
    index=NUMBER,
    address=NUMBER,
    length=NUMBER,
    value=NUMBER,
    text=TEXT,
)


@given(EVENTS)
def test_events_come_back_as_they_were(event: Event) -> None:
    assert decode(encode(event), event.time) == event


@given(EVENTS)
def test_every_event_has_a_line(event: Event) -> None:
    line = describe(event)
    assert line.startswith(f"{event.function}: ")
    assert PHRASES[event.kind].label in line


def test_every_kind_has_a_phrase() -> None:
    assert set(PHRASES) == set(Kind)


def test_the_field_table_agrees_with_the_record() -> None:
    event = Event(Kind.CQE, 0, "f", qpn=1, index=2, address=3, length=4, value=5)
    record = encode(event)
    for f in FIELDS:
        number = int.from_bytes(record[f.offset : f.offset + f.size])
        assert number == getattr(event, f.name)
        assert int.from_bytes(record[2:4]) >> f.bit & 1


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Event(Kind.DOORBELL, 0, "n0", qpn=0x101, index=7), "n0: QP 0x101 doorbell index 7"),
        (
            Event(Kind.DMA_READ, 0, "n0", qpn=0x101, address=0x1000, length=64),
            "n0: QP 0x101 DMA read at 0x1000 64 bytes",
        ),
        (Event(Kind.MSIX, 0, "n0", value=3), "n0: MSI-X vector 0x3"),
        (Event(Kind.MSIX, 0, "n0", value=3, text="vector 3 for EQ 1"), "n0: MSI-X: vector 3 for EQ 1"),
        (Event(Kind.CHECK, 0, "n0", qpn=5, text="C03: stale"), "n0: QP 0x5 check violated: C03: stale"),
        (Event(Kind.CQE, 0, "n0", qpn=5, text="QP 0x5 SUCCESS"), "n0: CQE: QP 0x5 SUCCESS"),
    ],
)
def test_lines(event: Event, line: str) -> None:
    assert describe(event) == line


def test_numbers_and_texts_too_big_are_cut() -> None:
    event = Event(Kind.STATE, 0, "é" * 100, qpn=1 << 40, index=-1, value=1 << 70, text="é" * 5000)
    back = decode(encode(event))
    assert (back.qpn, back.index, back.value) == (0, 2**64 - 1, 0)
    assert back.function == "é" * 32
    assert back.text == "é" * 1024


def test_lone_surrogates_do_not_raise() -> None:
    assert decode(encode(Event(Kind.STATE, 0, "f", text="a\udc80b"))).text == "a?b"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", "too few"),
        (bytes(HEADER.size), "version 0"),
        (HEADER.pack(1, 250, 0, 0, 0, 0, 0, 0, 0, 0), "kind 250"),
        (HEADER.pack(1, 1, 0, 0, 0, 0, 0, 0, 3, 3) + b"abcde", "longer than the record"),
    ],
)
def test_bad_records_are_refused(record: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        decode(record)


@given(st.binary(max_size=120))
def test_garbage_is_refused_or_decoded(data: bytes) -> None:
    for record in (data, struct.pack(">BB", 1, 3) + data):
        try:
            describe(decode(record))
        except FormatError as error:
            assert str(error)
