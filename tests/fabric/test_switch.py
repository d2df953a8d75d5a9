# SPDX-License-Identifier: Apache-2.0
"""The switch learns, floods what it does not know, and keeps ports apart."""

from __future__ import annotations

import pytest

from emu.clock import US, VirtualScheduler
from emu.events import EventBus
from emu.fabric.link import LinkEnd
from emu.fabric.port import Port
from emu.fabric.switch import MAX_ADDRESSES, Switch

BROADCAST = b"\xff" * 6


def mac(number: int) -> bytes:
    return bytes.fromhex("027672") + number.to_bytes(3, "big")


def frame(destination: bytes, source: bytes, body: bytes = b"payload") -> bytes:
    return destination + source + b"\x08\x00" + body


class Network:
    """A switch with three stations; station k has address ``mac(k)``."""

    def __init__(self, **options: float) -> None:
        self.scheduler = VirtualScheduler()
        self.switch = Switch(self.scheduler, EventBus())
        self.arrived: dict[int, list[bytes]] = {}
        self.ports: dict[int, LinkEnd] = {}
        for number in (1, 2, 3):
            self.arrived[number] = []
            self.ports[number] = self.switch.port(f"node{number}.nic0", **options)  # type: ignore[arg-type]
            self.ports[number].attach(self.arrived[number].append)

    def send(self, station: int, data: bytes) -> None:
        self.ports[station].send(data)
        self.scheduler.run()

    def counts(self) -> list[int]:
        return [len(self.arrived[number]) for number in (1, 2, 3)]


def test_a_link_end_is_a_port() -> None:
    port: Port = Network().ports[1]
    assert port.name == "node1.nic0"
    assert port.up


def test_unknown_unicast_is_flooded_to_the_others_only() -> None:
    network = Network()
    network.send(1, frame(mac(2), mac(1)))
    assert network.counts() == [0, 1, 1]


def test_a_learned_address_gets_its_frames_alone() -> None:
    network = Network()
    network.send(2, frame(BROADCAST, mac(2)))
    network.send(1, frame(mac(2), mac(1)))
    assert network.counts() == [1, 1, 1]
    assert network.arrived[2] == [frame(mac(2), mac(1))]
    assert network.switch.addresses() == {
        "02:76:72:00:00:02": "node2.nic0",
        "02:76:72:00:00:01": "node1.nic0",
    }


@pytest.mark.parametrize("group", [BROADCAST, bytes.fromhex("333300000001"), bytes.fromhex("01005e000001")])
def test_group_frames_always_flood(group: bytes) -> None:
    network = Network()
    network.send(2, frame(group, mac(2)))
    network.send(1, frame(group, mac(1)))
    assert network.counts() == [1, 1, 2]


def test_an_address_that_moves_is_followed() -> None:
    network = Network()
    network.send(2, frame(BROADCAST, mac(9)))
    network.send(3, frame(BROADCAST, mac(9)))
    before = network.counts()
    network.send(1, frame(mac(9), mac(1)))
    assert network.counts() == [before[0], before[1], before[2] + 1]


def test_a_frame_to_its_own_port_goes_nowhere() -> None:
    network = Network()
    network.send(1, frame(mac(1), mac(1)))
    network.send(1, frame(mac(1), mac(1)))
    assert network.arrived[1] == []
    assert network.switch.counters.filtered == 2


def test_link_local_control_frames_stop_at_the_switch() -> None:
    network = Network()
    network.send(1, frame(bytes.fromhex("0180c2000001"), mac(1)))
    network.send(1, frame(bytes.fromhex("0180c200000e"), mac(1)))
    assert network.counts() == [0, 0, 0]
    network.send(1, frame(bytes.fromhex("0180c2000010"), mac(1)))
    assert network.counts() == [0, 1, 1]


def test_group_addresses_are_not_learned() -> None:
    network = Network()
    network.send(1, frame(mac(2), BROADCAST))
    assert network.switch.addresses() == {}


def test_the_address_table_is_bounded_and_overflow_floods() -> None:
    network = Network()
    for number in range(MAX_ADDRESSES + 10):
        network.ports[1].send(frame(mac(2), mac(0x10000 + number)))
        if number % 1000 == 0:
            network.scheduler.run()
    network.scheduler.run()
    assert len(network.switch.addresses()) == MAX_ADDRESSES
    before = network.counts()
    network.send(2, frame(mac(0x10000 + MAX_ADDRESSES + 5), mac(2)))
    assert network.counts() == [before[0] + 1, before[1], before[2] + 1]


def test_a_port_that_goes_down_is_forgotten_and_left_out() -> None:
    network = Network()
    network.send(2, frame(BROADCAST, mac(2)))
    network.switch.link("node2.nic0").set_up(False)
    assert network.switch.addresses() == {}
    network.send(1, frame(mac(2), mac(1)))
    assert network.counts() == [1, 0, 2]


def test_nothing_arrives_inside_send() -> None:
    network = Network()
    network.ports[1].send(frame(BROADCAST, mac(1)))
    assert network.counts() == [0, 0, 0]


def test_stations_that_answer_each_frame_do_not_recurse() -> None:
    network = Network()
    rounds = 0

    def answer(data: bytes) -> None:
        nonlocal rounds
        rounds += 1
        if rounds < 3000:
            network.ports[2].send(frame(mac(1), mac(2)))

    network.ports[2].attach(answer)
    network.ports[1].attach(lambda data: network.ports[1].send(frame(mac(2), mac(1))))
    network.send(1, frame(mac(2), mac(1)))
    assert rounds == 3000


def test_delay_counts_on_both_links() -> None:
    network = Network(delay_ns=700)
    arrivals: list[int] = []
    network.ports[2].attach(lambda data: arrivals.append(network.scheduler.now()))
    network.send(1, frame(mac(2), mac(1)))
    assert arrivals == [1400]


def test_counters_tell_the_story() -> None:
    network = Network()
    network.send(1, frame(BROADCAST, mac(1)))
    network.send(2, frame(mac(1), mac(2)))
    snapshot = network.switch.snapshot()
    assert snapshot["switch"] == {
        "forwarded": 1,
        "flooded": 1,
        "filtered": 0,
        "learned": 2,
        "pauses": 0,
        "addresses": 2,
    }
    assert snapshot["node1.nic0"]["out.frames"] == 1
    assert snapshot["node1.nic0"]["in.delivered"] == 1
    assert list(snapshot) == ["switch", *network.switch.names]


@pytest.mark.parametrize("delay_ns", [0, 3 * US])
def test_two_stations_that_send_to_a_third_lose_nothing(delay_ns: int) -> None:
    network = Network(queue_frames=1024, delay_ns=delay_ns)
    network.send(3, frame(BROADCAST, mac(3)))
    for number in range(1000):
        for station in (1, 2):
            network.ports[station].send(frame(mac(3), mac(station), number.to_bytes(2, "big")))
    network.scheduler.run()
    assert network.switch.counters.pauses > 0
    for station in (1, 2):
        bodies = [data[14:] for data in network.arrived[3] if data[6:12] == mac(station)]
        assert bodies == [number.to_bytes(2, "big") for number in range(1000)]


def test_a_link_that_goes_down_while_its_port_is_paused_drops_what_waited() -> None:
    network = Network(queue_frames=1024)
    network.send(3, frame(BROADCAST, mac(3)))
    link = network.switch.link("node1.nic0")
    link.forward.paused = lambda: True
    network.ports[1].send(frame(mac(3), mac(1)))
    network.scheduler.run(until=5 * US)
    link.set_up(False)
    network.scheduler.run()
    assert network.arrived[3] == []
    assert link.forward.counters.down == 1


def test_a_name_is_taken_once() -> None:
    network = Network()
    with pytest.raises(ValueError, match=r"node1\.nic0"):
        network.switch.port("node1.nic0")


def test_an_unknown_port_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        Network().switch.link("node9.nic0")
