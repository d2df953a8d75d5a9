# SPDX-License-Identifier: Apache-2.0
"""Sequence arithmetic, timer codes and source ports have the values of the wire reference."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.nic.work import Cause, QpAttributes, Transport
from emu.personality.vrnic.contract.codes import VendorCause
from emu.roce import create_engine
from emu.roce.path import frame_path, source_port
from emu.roce.psn import cmp24, packets_of
from emu.roce.resource import ring_size
from emu.roce.timers import RNR_DELAYS, ack_timeout
from tests.roce.bench import Host

_PSNS = st.integers(0, 0xFFFFFF)


@pytest.mark.parametrize(
    ("a", "b", "order"),
    [
        (5, 5, 0),
        (6, 5, 1),
        (4, 5, -1),
        (0, 0xFFFFFF, 1),
        (0xFFFFFF, 0, -1),
        (0x7FFFFF, 0, 1),
        (0x800000, 0, -1),
        (0, 0x800000, -1),
    ],
)
def test_cmp24(a: int, b: int, order: int) -> None:
    assert cmp24(a, b) == order


@given(_PSNS, st.integers(1, 0x7FFFFF))
def test_cmp24_orders_across_the_wrap(psn: int, distance: int) -> None:
    later = (psn + distance) & 0xFFFFFF
    assert (cmp24(later, psn), cmp24(psn, later)) == (1, -1)


@pytest.mark.parametrize(("length", "packets"), [(0, 1), (1, 1), (1024, 1), (1025, 2), (2048, 2), (3000, 3)])
def test_packets_of(length: int, packets: int) -> None:
    assert packets_of(length, 1024) == packets


@pytest.mark.parametrize(("exponent", "nanoseconds"), [(1, 8_192), (8, 1_048_576), (14, 67_108_864)])
def test_ack_timeout(exponent: int, nanoseconds: int) -> None:
    assert ack_timeout(exponent) == nanoseconds


def test_ack_timeout_zero_waits_for_ever() -> None:
    assert ack_timeout(0) is None


@pytest.mark.parametrize(
    ("code", "milliseconds"), [(0, 655.36), (1, 0.01), (12, 0.64), (25, 61.44), (31, 491.52)]
)
def test_rnr_delays(code: int, milliseconds: float) -> None:
    assert RNR_DELAYS[code] == round(milliseconds * 1_000_000)


def test_rnr_codes_are_ascending_but_for_zero() -> None:
    assert len(RNR_DELAYS) == 32
    assert list(RNR_DELAYS[1:]) == sorted(RNR_DELAYS[1:])
    assert RNR_DELAYS[0] == max(RNR_DELAYS)


@pytest.mark.parametrize(
    ("local", "remote", "port"),
    [
        (0x11, 0x12, 0xC132),
        (0x1234, 0xABCDEF, 0xE1FB),
        (0xABCDEF, 0x1234, 0xE1FB),
        (0xFFFFFF, 0xFFFFFF, 0xFF21),
    ],
)
def test_source_port(local: int, remote: int, port: int) -> None:
    assert source_port(local, remote) == port


def test_gids_become_addresses() -> None:
    v4 = bytes(10) + b"\xff\xff" + bytes([10, 77, 0, 1])
    v6 = bytes.fromhex("fe80000000000000007672fffe000001")
    assert frame_path(QpAttributes(source_gid=v4, dest_gid=v4), 1).source_ip == bytes([10, 77, 0, 1])
    assert frame_path(QpAttributes(source_gid=v6, dest_gid=v6), 1).dest_ip == v6
    mixed = frame_path(QpAttributes(source_gid=v4, dest_gid=v6), 1)
    assert (mixed.version, mixed.source_ip) == (6, v4)


def test_a_zero_hop_limit_is_never_sent() -> None:
    assert frame_path(QpAttributes(hop_limit=0), 1).hop_limit == 64


def test_a_given_source_port_wins() -> None:
    assert frame_path(QpAttributes(udp_source_port=0xC123), 1).source_port == 0xC123


@pytest.mark.parametrize(("limit", "entries"), [(0, 0), (1, 1), (2, 2), (3, 4), (4, 4), (16, 16), (17, 32)])
def test_the_resource_ring_is_a_power_of_two(limit: int, entries: int) -> None:
    assert ring_size(limit) == entries


def test_causes_are_the_contracts() -> None:
    for cause in Cause:
        assert VendorCause[cause.name].value == cause.value


@pytest.mark.parametrize(
    "transport", [transport for transport in Transport if not transport.name.startswith("ROCE")]
)
def test_other_transports_are_refused_by_name(transport: Transport) -> None:
    with pytest.raises(ValueError, match=transport.name):
        create_engine(transport, Host("x", 1))
