# SPDX-License-Identifier: Apache-2.0
"""The device side of a lab: what it leaves alone, and what its control socket answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from emu.control.client import ControlClient
from emu.control.locate import CONTROL_SOCKET
from emu.control.server import ControlError
from emu.events import Kind
from emu.lab.runner import network_paths
from emu.lab.server import LabServer
from emu.lab.topology import Lab, Nic, Node, default_lab
from emu.transport.context import EndpointError
from emu.uet.path import PeerPath
from emu.uet.tss import Tss
from emu.uet.tss_keys import SecureDomain


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ControlClient]:
    """The control socket of a lab that is served."""
    server = LabServer(default_lab(), tmp_path)
    thread = threading.Thread(target=server.loop.run)
    thread.start()
    with ControlClient(tmp_path / CONTROL_SOCKET) as made:
        yield made
    with ControlClient(tmp_path / CONTROL_SOCKET) as last:
        last.call("stop")
    thread.join(10)
    assert not thread.is_alive()
    assert server.loop.faults == 0
    server.close()
    assert not list(tmp_path.glob("*.sock"))


def test_a_second_server_leaves_the_first_ones_capture_alone(tmp_path: Path) -> None:
    capture = tmp_path / "capture.pcapng"
    first = LabServer(default_lab(), tmp_path, capture=capture)
    try:
        assert first.capture is not None
        first.capture.flush()
        before = capture.read_bytes()
        assert before
        with pytest.raises(EndpointError, match="another server listens"):
            LabServer(default_lab(), tmp_path, capture=capture)
        assert capture.read_bytes() == before
    finally:
        first.close()


@pytest.mark.parametrize(("capture", "reason"), [("/dev/full", "No space left on device"), ("x.pcapng", "")])
def test_flush_tells_why_a_capture_stopped(tmp_path: Path, capture: str, reason: str) -> None:
    server = LabServer(default_lab(), tmp_path, capture=tmp_path / capture)
    thread = threading.Thread(target=server.loop.run)
    thread.start()
    with ControlClient(tmp_path / CONTROL_SOCKET) as client:
        found = client.call("flush")
        client.call("stop")
    thread.join(10)
    server.close()
    assert reason in found["reason"]
    assert bool(found["reason"]) == bool(found["stopped"]) == bool(reason)


def test_a_capture_that_cannot_be_written_leaves_no_socket_behind(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        LabServer(default_lab(), tmp_path, capture=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_link_goes_down_and_up_and_the_registers_show_it(client: ControlClient) -> None:
    def port_state() -> int:
        rows = client.call("regs")["node1.nic0"]
        return next(int(row["value"]) for row in rows if row["name"] == "PORT_STATE")

    assert port_state() == 4
    answer = client.call("link", function="node1.nic0", up=False)
    assert (answer["function"], answer["up"], answer["changed"]) == ("node1.nic0", False, True)
    assert client.call("link", function="node1.nic0", up=False)["changed"] is False
    links = client.call("links")
    assert {name: link["up"] for name, link in links.items()} == {"node0.nic0": True, "node1.nic0": False}
    assert client.call("counters")["node1.nic0"]["link"]["up"] == 0
    assert port_state() == 1
    client.call("link", function="node1.nic0", up=True)
    assert port_state() == 4


@pytest.mark.parametrize(
    ("method", "params", "sentence"),
    [
        ("link", {"function": "node9.nic0", "up": True}, "no NIC 'node9.nic0'"),
        ("link", {"function": ["node0.nic0"], "up": True}, "no NIC"),
        ("link", {"function": "node0.nic0"}, "link state None of node0.nic0"),
        ("trace", {"kinds": ["NOISE"]}, "unknown event kind"),
        ("trace", {"kinds": [["CQE"]]}, "unknown event kind"),
        ("trace", {"function": "node9.nic0"}, "no function 'node9.nic0'"),
        ("trace", {"function": {}}, "no function"),
        ("trace", {"qpn": "0x100"}, "QP number '0x100' is not a number"),
    ],
)
def test_wrong_parameters_are_refused_by_name(
    client: ControlClient, method: str, params: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ControlError, match=sentence):
        client.call(method, **params)


def test_a_trace_shows_what_was_asked_for_only(client: ControlClient, tmp_path: Path) -> None:
    with ControlClient(tmp_path / CONTROL_SOCKET) as other:
        stream = client.stream("trace", kinds=[Kind.LINK.name], function="node1.nic0")
        first: list[dict[str, object]] = []
        # The reply to the request must be out before the links move.
        reader = threading.Thread(target=lambda: first.append(next(stream)))
        reader.start()
        while reader.is_alive():
            for name in ("node0.nic0", "node1.nic0"):
                other.call("link", function=name, up=False)
                other.call("link", function=name, up=True)
            reader.join(0.01)
    assert first[0]["kind"] == "LINK"
    assert first[0]["function"] == "node1.nic0"


def test_a_virtio_network_device_hangs_on_the_switch(tmp_path: Path) -> None:
    lab = Lab(nodes=(Node("ours"), Node("soft", (Nic(device="virtio"),), ())))
    server = LabServer(lab, tmp_path)
    try:
        assert list(server.nics) == ["ours.nic0"]
        assert lab.functions("soft") == ()
        local, remote = network_paths(tmp_path, "soft.nic0")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as guest:
            guest.bind(str(remote))
            guest.settimeout(5)
            # A broadcast from the guest reaches the other ports, not itself; what it sent was learned.
            guest.sendto(b"\xff" * 6 + b"\x02\0\0\0\0\x09" + bytes(48), str(local))
            _turn(server)
            assert server.nics["ours.nic0"].nic.counters.rx_dropped == 1
            server.switch.forward(server.switch._ports["ours.nic0"], b"\x02\0\0\0\0\x09" + bytes(54))
            _turn(server)
            assert guest.recv(2048) == b"\x02\0\0\0\0\x09" + bytes(54)
    finally:
        server.close()
    assert not local.exists()


def _turn(server: LabServer) -> None:
    """A few turns of the loop, none of which waits."""
    for _ in range(5):
        server.loop.post(lambda: None)
        server.loop.step()


def test_a_secret_and_a_speed_reach_the_nic_and_its_link(tmp_path: Path) -> None:
    """What is not secured is counted where that is asked for, what is secured where there is no key."""
    nics = (Nic(), Nic(secret="0f" * 32), Nic(secret="f0" * 32))
    lab = Lab(tuple(Node(f"node{number}", (nic,)) for number, nic in enumerate(nics)), speed_mbps=8)
    server = LabServer(lab, tmp_path)
    try:
        stranger = bytes((2, 0, 0, 0, 0, 99)), bytes((10, 77, 0, 99))
        plain = [
            PeerPath(stranger[0], nic.mac, stranger[1], nic.gids[1][12:]).frame(2, 1, b"\x5b" * 16)
            for nic in lab.nics
        ]
        for device in server.nics.values():
            # As a driver would: the NIC may reach memory.
            device.function.bus.mastering = True
        secured = [Tss(SecureDomain((b"\x0f" * 32,))).seal(frame) for frame in plain]
        for number, frames in (
            (0, [secured[0]]),
            (1, [plain[1], secured[1], secured[1]]),
            (2, [secured[2]]),
        ):
            for frame in frames:
                server.switch.link(f"node{number}.nic0").far.send(frame)
        while any(server.switch.link(nic.name).far.backlog for nic in lab.nics):
            server.loop.step(0.01)
        found = [
            {name: count for name, count in server.nics[nic.name].nic.counters.snapshot().items() if count}
            for nic in lab.nics
        ]
        assert found[0]["tss_unknown_domain"] == 1
        assert (found[1]["tss_unsecured"], found[1]["tss_replays"]) == (1, 1)
        assert found[2]["tss_auth_failures"] == 1
        assert [egress.queueing.rate for egress in server.switch.egresses("node0.nic0")] == [1_000_000]
    finally:
        server.close()
