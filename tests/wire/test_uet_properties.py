# SPDX-License-Identifier: Apache-2.0
"""What holds for any UET header: layers and tables agree, bytes survive, nothing raises."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from scapy.packet import Packet, Raw

from emu.wire import uet, uet_pds, uet_ses
from emu.wire.uet_format import Truncated, when
from emu.wire.uet_layer import Layer, fitting

LAYERS: list[type[Layer]] = [
    uet.Request,
    uet.Rudi,
    uet.Uud,
    uet.Ack,
    uet.Nack,
    uet.Control,
    uet.Entropy,
    uet.StdRequest,
    uet.MediumRequest,
    uet.SmallRequest,
    uet.Response,
    uet.ResponseData,
    uet.ResponseDataSmall,
    uet.Rendezvous,
    uet.Atomic,
    uet.CompareSwap,
]


@given(st.sampled_from(LAYERS), st.data())
def test_a_layer_built_from_values_has_them_in_the_table(layer: type[Layer], data: st.DataObject) -> None:
    header = layer.header
    values: dict[str, Any] = {}
    for item in header.fields:
        if all(condition.holds(values) for condition in item.conditions):
            low, high = (-1 << item.bits - 1, 1 << item.bits - 1) if item.signed else (0, 1 << item.bits)
            values[item.name] = data.draw(st.integers(low, high - 1), item.name)
    octets = bytes(layer(**values))
    assert header.decode(octets) == values
    assert header.size(octets) == len(octets)
    assert layer(octets).values() == values


@given(st.binary(min_size=1, max_size=120))
def test_any_bytes_dissect_build_again_and_summarise(octets: bytes) -> None:
    packet: Packet = uet.UET(octets)
    assert bytes(packet) == octets
    assert packet.summary()
    for layer in packet.iterpayloads():
        if isinstance(layer, Layer):
            assert layer.header.decode(bytes(layer)) == layer.values()
            assert isinstance(layer.complaints(), list)


@given(st.sampled_from(LAYERS), st.binary(min_size=64, max_size=64), st.integers(0, 63))
def test_a_header_is_whole_from_its_size_on(layer: type[Layer], octets: bytes, length: int) -> None:
    size = layer.header.size(octets)
    assert fitting(layer, octets[:length]) is (layer if length >= size else Raw)


@given(st.integers(0, 63), st.binary(max_size=4))
def test_extensions_are_those_of_the_table(opcode: int, following: bytes) -> None:
    found = uet_ses.extension_format(opcode, following)
    octets = following[:1] + bytes(63)
    guessed = uet.StdRequest(opcode=opcode).guess_payload_class(octets)
    assert (found.name if found else "Raw") == guessed.__name__


def test_conditions_hold_only_on_their_values() -> None:
    assert when("a", 1, 2).holds({"a": 2})
    assert not when("a", 1).holds({})
    try:
        uet_pds.UUD.decode(b"\x30")
    except Truncated as error:
        assert "needs 2 bytes and more, has 1" in str(error)
    else:
        raise AssertionError("half a prologue decoded")
