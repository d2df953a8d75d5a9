# SPDX-License-Identifier: Apache-2.0
"""Two whole NICs without QEMU: vfio-user clients, PCIe functions, the contract, the core, RoCEv2 and a
switch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from emu.events import EventBus
from emu.fabric.switch import Switch
from emu.gpu.function import Gpu, build_gpu
from emu.nic.work import CompletionOpcode, Opcode, QpState, Status
from emu.pcie.hierarchy import Hierarchy
from emu.personality.vrnic.contract.codes import AdminOpcode, EventType, MrFlags, MrKind
from emu.personality.vrnic.contract.descriptors import CqeFlags, DoorbellType
from emu.personality.vrnic.function import VrnicFunction, build_nic_function
from emu.roce import create_engine, parse
from emu.transport.loop import Loop
from emu.transport.model import DeviceModel
from tests.personality.client_machine import BAR_BASE, ClientMachine
from tests.personality.driver import Cq, Driver, Qp
from tests.vfio_user import Client

NOTHING = {"contexts": 0, "pds": 0, "mrs": 0, "eqs": 0, "cqs": 0, "qps": 0, "ahs": 0}


@dataclass
class Node:
    """One guest: its NIC and vGPU, and the driver in it."""

    nic: VrnicFunction
    gpu: Gpu
    client: Client
    gpu_client: Client
    machine: ClientMachine
    driver: Driver


class Lab:
    """Two nodes on a switch."""

    def __init__(self, loop: Loop, connect: Callable[[DeviceModel], Client], loss: float = 0.0) -> None:
        self.loop = loop
        self.events = EventBus()
        self.switch = Switch(loop, self.events)
        self.nodes = [self._node(number, connect, loss) for number in (1, 2)]
        self.a, self.b = self.nodes

    def _node(self, number: int, connect: Callable[[DeviceModel], Client], loss: float) -> Node:
        hierarchy = Hierarchy()
        name = f"node{number}"
        nic = build_nic_function(
            f"{name}.nic0",
            hierarchy,
            port=self.switch.port(f"{name}.nic0", loss=loss, seed=number),
            scheduler=self.loop,
            events=self.events,
            create_engine=create_engine,
            parse=parse,
            mac=bytes((2, 0x76, 0x72, 0, 0, number)),
            gids=(_link_local(number), bytes(10) + b"\xff\xff" + bytes((10, 77, 0, number))),
        )
        gpu = build_gpu(f"{name}.gpu0", hierarchy, serial=number, vram_size=1 << 20)
        client = connect(nic.function)
        gpu_client = connect(gpu.function)
        gpu_client.config_write(0x18, 4, BAR_BASE)
        gpu_client.config_write(0x1C, 4, 0)
        gpu_client.config_write(0x04, 2, 0x2)
        machine = ClientMachine(client, 4)
        driver = Driver(machine)
        driver.up()
        return Node(nic, gpu, client, gpu_client, machine, driver)

    def pair(self, *, gid_index: int = 0, sq_log_size: int = 4, timeout: int = 12) -> tuple[Qp, Cq, Qp, Cq]:
        """A connected queue pair and its CQ on each node."""
        made = []
        for node in self.nodes:
            cq = node.driver.create_cq(log_size=6)
            made.append((node.driver.create_qp(cq, sq_log_size=sq_log_size), cq))
        (qp_a, cq_a), (qp_b, cq_b) = made
        self.a.driver.connect(qp_a, self.b.driver, qp_b, gid_index, timeout=timeout)
        self.b.driver.connect(qp_b, self.a.driver, qp_a, gid_index, timeout=timeout)
        return qp_a, cq_a, qp_b, cq_b

    def await_cqes(self, cq: Cq, count: int = 1) -> list[Any]:
        """Turn the loop until ``count`` completions are there."""
        found: list[Any] = []

        def enough() -> bool:
            found.extend(cq.poll())
            return len(found) >= count

        self.a.client.until(enough)
        return found


def _link_local(number: int) -> bytes:
    return bytes.fromhex("fe80000000000000") + bytes((0, 0x76, 0x72, 0xFF, 0xFE, 0, 0, number))


@pytest.fixture
def lab(loop: Loop, vfio_client: Callable[[DeviceModel], Client]) -> Lab:
    return Lab(loop, vfio_client)


def pattern(length: int, seed: int) -> bytes:
    return bytes((seed + 7 * position + (position >> 8)) & 0xFF for position in range(length))


@pytest.mark.parametrize("gid_index", [0, 1], ids=["ipv6", "ipv4"])
def test_write_puts_every_byte_at_the_peer(lab: Lab, gid_index: int) -> None:
    qp, cq, _, peer_cq = lab.pair(gid_index=gid_index)
    a, b = lab.a.driver, lab.b.driver
    data = pattern(10_000, 3)
    source, target = a.allocate(len(data)), b.allocate(len(data) + 2) + 1
    lab.a.machine.store(source, data)
    index = qp.post(
        Opcode.WRITE,
        remote_address=b.virtual(target),
        rkey=b.key,
        length=len(data),
        local_address=a.virtual(source),
        lkey=a.key,
    )
    qp.ring()
    (cqe,) = lab.await_cqes(cq)
    assert (cqe.index, cqe.status, cqe.opcode_phase >> 4) == (index, Status.SUCCESS, CompletionOpcode.WRITE)
    assert lab.b.machine.load(target - 1, len(data) + 2) == b"\0" + data + b"\0"
    assert peer_cq.poll() == []


def test_send_with_immediate_fills_the_receive_element(lab: Lab) -> None:
    qp, cq, peer, peer_cq = lab.pair()
    b = lab.b.driver
    target = b.allocate(64)
    receive_index = peer.post_receive(b.virtual(target), b.key, 64)
    peer.ring_receive()
    qp.post(Opcode.SEND_IMM, immediate=0xDEADBEEF, inline=b"hello, peer")
    qp.ring()
    (cqe,) = lab.await_cqes(peer_cq)
    assert cqe.index == receive_index
    assert cqe.length == 11
    assert cqe.immediate == 0xDEADBEEF
    assert cqe.flags & CqeFlags.WITH_IMM
    assert cqe.opcode_phase >> 4 == CompletionOpcode.RECV
    assert lab.b.machine.load(target, 12) == b"hello, peer\0"
    lab.await_cqes(cq)


def test_a_late_receive_element_lets_the_message_through(lab: Lab) -> None:
    qp, cq, peer, _ = lab.pair()
    b = lab.b.driver
    qp.post(Opcode.SEND, inline=b"early")
    qp.ring()
    lab.a.client.until(lambda: b.counter("send_rnr_err") > 0)
    target = b.allocate(64)
    peer.post_receive(b.virtual(target), b.key, 64)
    peer.ring_receive()
    (cqe,) = lab.await_cqes(cq)
    assert cqe.status == Status.SUCCESS
    assert lab.b.machine.load(target, 5) == b"early"


def test_read_brings_the_peers_bytes(lab: Lab) -> None:
    qp, cq, _, _ = lab.pair()
    a, b = lab.a.driver, lab.b.driver
    data = pattern(5_000, 9)
    source, target = b.allocate(len(data)), a.allocate(len(data))
    lab.b.machine.store(source, data)
    qp.post(
        Opcode.READ,
        remote_address=b.virtual(source),
        rkey=b.key,
        length=len(data),
        local_address=a.virtual(target),
        lkey=a.key,
    )
    qp.ring()
    (cqe,) = lab.await_cqes(cq)
    assert (cqe.status, cqe.opcode_phase >> 4) == (Status.SUCCESS, CompletionOpcode.READ)
    assert lab.a.machine.load(target, len(data)) == data


def test_atomics_change_memory_once_and_return_the_old_value(lab: Lab) -> None:
    qp, cq, _, _ = lab.pair()
    a, b = lab.a.driver, lab.b.driver
    word, results = b.allocate(8), a.allocate(32)
    lab.b.machine.store(word, (40).to_bytes(8, "little"))
    common: dict[str, Any] = {
        "remote_address": b.virtual(word),
        "rkey": b.key,
        "length": 8,
        "result_lkey": a.key,
    }
    qp.post(Opcode.ATOMIC_ADD, local_address=2, result_address=a.virtual(results), **common)
    qp.post(
        Opcode.ATOMIC_CAS, local_address=1 << 40, lkey=42, result_address=a.virtual(results + 8), **common
    )
    qp.post(Opcode.ATOMIC_CAS, local_address=7, lkey=42, result_address=a.virtual(results + 16), **common)
    qp.ring()
    cqes = lab.await_cqes(cq, 3)
    assert [cqe.status for cqe in cqes] == [Status.SUCCESS] * 3
    old = [int.from_bytes(lab.a.machine.load(results + 8 * n, 8), "little") for n in range(3)]
    assert old == [40, 42, 1 << 40]
    assert int.from_bytes(lab.b.machine.load(word, 8), "little") == 1 << 40


def test_a_ring_goes_round_many_times(lab: Lab) -> None:
    qp, cq, _, _ = lab.pair(sq_log_size=2)
    b = lab.b.driver
    target = b.allocate(8)
    for value in range(50):
        qp.post(
            Opcode.WRITE, remote_address=b.virtual(target), rkey=b.key, inline=value.to_bytes(8, "little")
        )
        qp.ring()
        (cqe,) = lab.await_cqes(cq)
        assert cqe.status == Status.SUCCESS
        cq.doorbell(DoorbellType.CQ_CONSUMER)
    assert int.from_bytes(lab.b.machine.load(target, 8), "little") == 49


def test_an_armed_cq_interrupts_once(lab: Lab) -> None:
    qp, cq, _, _ = lab.pair()
    before = lab.a.machine.interrupts(1)
    cq.doorbell(DoorbellType.CQ_ARM)
    qp.post()
    qp.post()
    qp.ring()
    lab.await_cqes(cq, 2)
    events = lab.a.driver.events()
    assert [(event.type, event.object) for event in events] == [(EventType.COMPLETION, cq.number)]
    assert lab.a.machine.interrupts(1) == before + 1


def test_rings_and_payload_in_video_memory(lab: Lab) -> None:
    a, b = lab.a.driver, lab.b.driver
    keys = []
    for node in lab.nodes:
        driver = node.driver
        keys.append(
            driver.register(
                BAR_BASE, 1 << 20, kind=MrKind.GPU, flags=MrFlags.CONTIGUOUS | MrFlags.ATOMIC_CAPABLE
            )
        )
    cq = a.create_cq(ring_key=keys[0], ring_address=a.virtual(BAR_BASE))
    qp = a.create_qp(
        cq, ring_key=keys[0], sq_address=a.virtual(BAR_BASE + 0x2000), rq_address=a.virtual(BAR_BASE + 0x3000)
    )
    peer_cq = b.create_cq()
    peer = b.create_qp(peer_cq)
    a.connect(qp, b, peer)
    b.connect(peer, a, qp)
    data = pattern(3_000, 1)
    vram, peer_vram = lab.a.gpu.memory.view, lab.b.gpu.memory.view
    vram[0x8000 : 0x8000 + len(data)] = data
    vram[0x2000:0x2040] = qp.wqe(
        0,
        opcode=Opcode.WRITE,
        flags=1,
        remote_address=b.virtual(BAR_BASE + 0x100),
        rkey=keys[1],
        length=len(data),
        local_address=a.virtual(BAR_BASE + 0x8000),
        lkey=keys[0],
    )
    qp.ring(1)
    lab.a.client.until(lambda: bool(vram[63] & 1))
    assert bytes(peer_vram[0x100 : 0x100 + len(data)]) == data
    assert vram[62] == Status.SUCCESS


def test_every_byte_arrives_over_a_lossy_link(
    loop: Loop, vfio_client: Callable[[DeviceModel], Client]
) -> None:
    lab = Lab(loop, vfio_client, loss=0.03)
    qp, cq, _, _ = lab.pair()
    a, b = lab.a.driver, lab.b.driver
    data = pattern(100_000, 5)
    source, target = a.allocate(len(data)), b.allocate(len(data))
    lab.a.machine.store(source, data)
    qp.post(
        Opcode.WRITE,
        remote_address=b.virtual(target),
        rkey=b.key,
        length=len(data),
        local_address=a.virtual(source),
        lkey=a.key,
    )
    qp.ring()
    (cqe,) = lab.await_cqes(cq)
    assert cqe.status == Status.SUCCESS
    assert lab.b.machine.load(target, len(data)) == data
    assert a.counter("retransmitted_packets") > 0


def test_the_peers_key_check_ends_both_queue_pairs(lab: Lab) -> None:
    qp, cq, peer, _ = lab.pair()
    b = lab.b.driver
    qp.post(Opcode.WRITE, remote_address=b.virtual(0), rkey=b.key, inline=b"x")
    qp.ring()
    (cqe,) = lab.await_cqes(cq)
    assert cqe.status == Status.REM_ACCESS_ERR
    assert qp.query().state == QpState.ERR
    assert peer.query().state == QpState.ERR
    assert b.counter("protection_errors") == 1
    (event,) = b.events()
    assert (event.type, event.object) == (EventType.QP_ACCESS_ERR, peer.number)


def test_memory_unmapped_under_queued_work_fails_that_work(lab: Lab) -> None:
    qp, cq, _, _ = lab.pair()
    a, b = lab.a.driver, lab.b.driver
    extra = lab.a.client.map_ram(0x1000, 0x5000_0000)
    key = a.register(0x5000_0000, 0x1000)
    lab.a.client.unmap_ram(extra)
    target = b.allocate(64)
    qp.post(
        Opcode.WRITE,
        remote_address=b.virtual(target),
        rkey=b.key,
        length=64,
        local_address=a.virtual(0x5000_0000),
        lkey=key,
    )
    qp.post()
    qp.ring()
    cqes = lab.await_cqes(cq, 2)
    assert [cqe.status for cqe in cqes] == [Status.LOC_PROT_ERR, Status.WR_FLUSH_ERR]
    assert a.counter("dma_errors") == 1


def test_a_dead_guest_leaves_no_object_and_its_peer_times_out(lab: Lab) -> None:
    qp, cq, _, _ = lab.pair()
    b = lab.b.driver
    lab.b.client.close()
    lab.a.client.until(lambda: lab.b.nic.nic.objects().to_json() == NOTHING)
    qp.post(Opcode.WRITE, remote_address=b.virtual(0), rkey=b.key, inline=b"x")
    qp.ring()
    (cqe,) = lab.await_cqes(cq)
    assert cqe.status == Status.RETRY_EXC_ERR
    assert qp.query().state == QpState.ERR


@pytest.mark.parametrize("how", ["register", "device", "flr"])
def test_reset_with_work_in_flight_drops_everything(lab: Lab, how: str) -> None:
    qp, cq, _, _ = lab.pair()
    a, b = lab.a.driver, lab.b.driver
    target = b.allocate(1 << 16)
    for _ in range(8):
        qp.post(
            Opcode.WRITE,
            remote_address=b.virtual(target),
            rkey=b.key,
            length=1 << 16,
            local_address=a.virtual(a.machine.ram_base),
            lkey=a.key,
        )
    qp.ring(settle=False)
    if how == "register":
        a.set_reg("CONTROL", 1)
    elif how == "device":
        lab.a.client.reset()
    else:
        express = lab.a.machine.capability(0x10)
        lab.a.client.config_write(express + 8, 2, 0x8000)
    lab.a.client.settle()
    assert lab.a.nic.nic.objects().to_json() == NOTHING
    assert cq.poll() == []
    lab.a.client.config_write(0x04, 2, 0x6)
    assert a.reg("STATUS") == 1
    a.up()
    assert a.objects()["contexts"] == 1
    lab.b.client.settle()
    assert b.command(AdminOpcode.NOP).status == 0


def map_own_bars(lab: Lab, node: Node, registers: int, doorbells: int) -> None:
    """Give the NIC's own BARs bus addresses, as firmware does."""
    client = node.client
    client.config_write(0x10, 4, registers)
    client.config_write(0x18, 4, doorbells)
    client.settle()


def test_a_remote_write_can_ring_a_doorbell(lab: Lab) -> None:
    qp, cq, peer, peer_cq = lab.pair()
    a, b = lab.a.driver, lab.b.driver
    map_own_bars(lab, lab.b, 0xD000_0000, 0xD800_0000)
    key = b.register(0xD800_0000, 1 << 20)
    peer.post()
    value = b.doorbell_value(DoorbellType.SQ, peer.number, 1)
    qp.post(
        Opcode.WRITE,
        remote_address=b.virtual(0xD800_0000 + 4096 * b.ctx),
        rkey=key,
        inline=value.to_bytes(8, "little"),
    )
    qp.ring()
    lab.await_cqes(cq)
    (cqe,) = lab.await_cqes(peer_cq)
    assert (cqe.status, cqe.opcode_phase >> 4) == (Status.SUCCESS, CompletionOpcode.NOP)
    assert a.counter("check_violations") == b.counter("check_violations") == 0


def test_a_remote_write_that_resets_its_own_receiver_ends_quietly(lab: Lab) -> None:
    qp, cq, _, _ = lab.pair()
    b = lab.b.driver
    map_own_bars(lab, lab.b, 0xD000_0000, 0xD800_0000)
    key = b.register(0xD000_0000, 1 << 16)
    qp.post(Opcode.WRITE, remote_address=b.virtual(0xD000_0080), rkey=key, inline=b"\1\0\0\0")
    qp.ring()
    (cqe,) = lab.await_cqes(cq)
    assert cqe.status == Status.RETRY_EXC_ERR
    assert lab.b.nic.nic.objects().to_json() == NOTHING
