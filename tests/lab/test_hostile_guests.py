# SPDX-License-Identifier: Apache-2.0
"""Two guests that do anything at all with their NIC, and a wire that carries anything: the server goes on.

Registers, configuration space, admin commands, descriptors, doorbells and frames are random but mostly near
what is right, since plain noise is refused at the door. Memory regions cover the guest's RAM and the NIC's
own BARs, so that rings, records and payload meet registers and doorbells.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emu.events import Event, Kind
from emu.lab.runner import socket_path
from emu.lab.server import LabServer
from emu.lab.topology import default_lab
from emu.nic.work import Opcode
from emu.personality.vrnic.contract.codes import AdminOpcode, CqMode, DbrPolicy
from emu.personality.vrnic.contract.commands import COMMANDS
from emu.personality.vrnic.contract.descriptors import DOORBELL_VALID, DoorbellOffset, DoorbellType
from emu.personality.vrnic.contract.identity import DOORBELL_PAGE_SIZE
from emu.wire.icrc import icrc
from tests.personality.client_machine import ClientMachine
from tests.personality.driver import Cq, Driver, Qp
from tests.vfio_user import Client

BARS = {0: (0xE000_0000, 0x1_0000), 2: (0xE100_0000, 0x10_0000), 4: (0xE200_0000, 0x2000)}
SIZES = {bar: size for bar, (_, size) in BARS.items()}
EDGES = (0, 1, 2, 7, 8, 63, 64, 255, 256, 4095, 4096, 0xFFFF, 0x10000, 0xFFFFFF, 0x7FFFFFFF, 0xFFFFFFFF)
REGISTERS = (0x100, 0x104, 0x108, 0x110, 0x118, 0x200, 0x208, 0x400, 0x800)
NOTHING = {"contexts": 0, "pds": 0, "mrs": 0, "eqs": 0, "cqs": 0, "qps": 0, "ahs": 0}


class Guest:
    """One guest: first it sets up what a good driver would, then it goes wild."""

    def __init__(self, lab: LabServer, node: str, chance: random.Random, frames: list[bytes]) -> None:
        self.name = f"{node}.nic0"
        self.lab = lab
        self.chance = chance
        self.frames = frames
        self.client = Client(str(socket_path(lab.directory, self.name)), lab.loop)
        self.machine = ClientMachine(self.client, 32)
        self.start()

    def start(self) -> None:
        """Reset the NIC and make a few of everything."""
        for bar, (address, _) in BARS.items():
            self.client.config_write(0x10 + 4 * bar, 4, address)
        self.client.config_write(0x04, 2, 0x6)
        self.driver = Driver(self.machine)
        self.driver.set_reg("CONTROL", 1)
        self.driver.up()
        self.keys = [self.driver.key, *(self.driver.register(*place) for place in BARS.values())]
        modes = self.chance.choices(list(CqMode), k=3)
        self.cqs: list[Cq] = [self.driver.create_cq(mode=mode, log_size=3) for mode in modes]
        self.qps: list[Qp] = []
        self.window = self.driver.allocate(0x10000)

    def pair(self, peer: Guest) -> None:
        """One connected queue pair in each of the two."""
        made = []
        for guest in (self, peer):
            policy, phase = self.chance.choice(list(DbrPolicy)), self.chance.random() < 0.5
            qp = guest.driver.create_qp(guest.chance.choice(guest.cqs), policy=policy, phase=phase)
            guest.qps.append(qp)
            made.append(qp)
        self.driver.connect(made[0], peer.driver, made[1], timeout=4)
        peer.driver.connect(made[1], self.driver, made[0], timeout=4)

    def number(self, bits: int) -> int:
        """Any number, often at an edge."""
        edge = self.chance.random() < 0.6
        return (self.chance.choice(EDGES) if edge else self.chance.getrandbits(bits)) & ((1 << bits) - 1)

    def place(self) -> int:
        """A virtual address in the window, in RAM, in a BAR, or nowhere."""
        bar, size = self.chance.choice(tuple(BARS.values()))
        ram = self.machine.ram_base + self.chance.randrange(self.machine.ram_size)
        near = (self.window, ram, bar + self.chance.randrange(size), bar, self.number(64))
        return (
            self.driver.virtual(self.chance.choice(near)) & ~self.chance.choice((0, 7, 63)) & ((1 << 64) - 1)
        )

    def mostly(self, right: int, wrong: int) -> int:
        """``right`` in nine of ten cases: one fault at a time gets further than ten."""
        return right if self.chance.random() < 0.9 else wrong

    def field(self, name: str, bits: int) -> int | bytes:
        """A value for a field of a command."""
        chance, wild = self.chance, self.number(bits)
        if name in ("dest_gid", "gid", "dest_mac"):
            return chance.choice((bytes(bits // 8), chance.randbytes(bits // 8)))
        numbers = {"ctx": self.driver.ctx, "pd": self.driver.pd, "eq": self.driver.eq}
        qps, cqs = [qp.number for qp in self.qps], [cq.number for cq in self.cqs]
        objects = {"qpn": qps, "send_cq": cqs, "recv_cq": cqs}
        if name in numbers:
            value = self.mostly(numbers[name], wild)
        elif name in objects:
            value = self.mostly(chance.choice(objects[name]), wild)
        elif name in ("ring_key", "object"):
            value = self.mostly(chance.choice(self.keys[:2]), chance.choice(qps + cqs))
        elif bits == 64:
            value = self.mostly(chance.choice((self.place(), self.window, 4096)), wild)
        elif bits == 8:
            value = self.mostly(chance.randrange(5), wild)
        else:
            value = self.mostly(chance.choice((0, 1, 2, 3, 1 << 9)), wild)
        return value & ((1 << bits) - 1)

    def command(self, _: Guest) -> None:
        """An admin command with a fault or two."""
        opcode = self.chance.choice(list(AdminOpcode))
        fields: dict[str, Any] = {
            part.name: self.field(part.name, 8 * part.sizeof())
            for part in COMMANDS[opcode][0].subcons
            if part.name not in ("opcode", "command_flags", "body") and not part.name.startswith("reserved")
        }
        raw = bytearray(self.driver.build(opcode, **fields))
        if self.chance.random() < 0.1:
            raw[self.chance.randrange(64)] ^= 1 << self.chance.randrange(8)
        self.driver.submit(bytes(raw))

    def work(self, peer: Guest) -> None:
        """Send and receive elements, and doorbells that may cover them."""
        chance, qp, driver = self.chance, self.chance.choice(self.qps), self.driver
        near = driver.virtual(self.window)
        for _ in range(chance.choice((1, 1, 4))):
            qp.post(
                chance.choice((*Opcode, *Opcode, 200)),
                flags=chance.choice((0, 0, 2, 4, chance.getrandbits(8) & ~0x10)),
                remote_address=self.mostly(peer.driver.virtual(peer.window), peer.place()),
                rkey=self.mostly(peer.keys[0], chance.choice(peer.keys)),
                length=self.mostly(chance.choice((0, 1, 8, 8, 8, 1000, 20_000)), self.number(32)),
                local_address=self.mostly(near, self.place()),
                lkey=self.mostly(driver.key, chance.choice(self.keys)),
                result_address=self.mostly(near, self.place()),
                result_lkey=self.mostly(driver.key, chance.choice(self.keys)),
            )
            address = self.mostly(near, self.place())
            qp.post_receive(address, self.mostly(driver.key, 0), self.mostly(1 << 16, self.number(32)))
        qp.record(receive=qp.receive_index, send=self.mostly(qp.index, self.number(32)))
        qp.ring_receive()
        qp.ring(settle=False)
        for cq in self.cqs:
            found = self.lab.nics[self.name].nic.cqs.items.get(cq.number)
            index = self.mostly(found.producer if found else 0, self.number(32))
            kind = DoorbellType.CQ_CONSUMER if chance.random() < 0.7 else chance.choice(list(DoorbellType))
            at = DoorbellOffset.CQ_CONSUMER if chance.random() < 0.7 else chance.choice(list(DoorbellOffset))
            value = DOORBELL_VALID | kind << 56 | cq.number << 32 | index
            driver.ring(driver.ctx, at, value, settle=False)

    def memory(self, __: Guest) -> None:
        """RAM goes away under whatever uses it, and comes back."""
        ram = self.machine.ram
        self.client.unmap_ram(ram)
        for _ in range(3):
            self.lab.loop.step(0)
        self.client.dma_map(ram.address, ram.size, ram.fd)

    def mmio(self, _: Guest) -> None:
        """An access of any width anywhere; CONTROL and the admin doorbell are left to :meth:`start`."""
        bar, size = self.chance.choice(tuple(SIZES.items()))
        width = self.chance.choice((1, 2, 4, 8))
        offset = self.chance.randrange(size - width)
        if bar == 0:
            offset = self.chance.choice((offset | 0x1000, *REGISTERS))
        elif bar == 2:
            offset = self.chance.randrange(4) * DOORBELL_PAGE_SIZE + self.chance.choice((0, 8, 16, 32, 33))
        if self.chance.random() < 0.4:
            self.client.read(bar, offset, width)
        else:
            self.client.write_posted(bar, offset, self.number(8 * width).to_bytes(width, "little"))

    def config(self, _: Guest) -> None:
        """Configuration space behind the header, of which a wrong value would only take the NIC away."""
        width = self.chance.choice((1, 2, 4))
        offset = self.chance.randrange(0x40, 0x1000 - width)
        self.client.read(7, offset, width)
        self.client.write(7, offset, self.number(8 * width).to_bytes(width, "little"))

    def wire(self, peer: Guest) -> None:
        """A frame that was seen before, changed, under a right ICRC; or noise."""
        frame = bytearray(self.chance.choice(self.frames) if self.frames else b"")
        if len(frame) < 60 or self.chance.random() < 0.2:
            frame = bytearray(self.chance.randbytes(self.chance.randrange(300)))
        else:
            for _ in range(self.chance.randrange(4)):
                frame[self.chance.randrange(len(frame))] ^= 1 << self.chance.randrange(8)
            if frame[14] >> 4 in (4, 6):
                frame[-4:] = icrc(bytes(frame[14:-4]))
        self.lab.switch.link(self.name).far.send(bytes(frame))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LabServer]:
    """A lab under capture that loses a frame now and then; nothing in it may have raised."""
    server = LabServer(default_lab(loss=0.01), tmp_path, capture=tmp_path / "capture.pcapng")
    yield server
    assert server.loop.faults == 0
    for endpoint in server.endpoints.values():
        assert (endpoint.counters.faults, endpoint.counters.protocol_errors) == (0, 0)
    server.close()


def torment(lab: LabServer, seed: int, operations: int) -> dict[str, dict[str, int]]:
    """Let both guests loose, each starting over now and then, until they leave; the objects that are left."""
    chance = random.Random(seed)
    frames: list[bytes] = []

    def keep(event: Event) -> None:
        if event.frame is not None and len(frames) < 500:
            frames.append(event.frame)

    lab.events.subscribe(keep, [Kind.FRAME_OUT])
    guests = [Guest(lab, f"node{number}", chance, frames) for number in (0, 1)]
    actions: list[Callable[[Guest, Guest], None]] = [
        *([Guest.command] * 4),
        *([Guest.work] * 4),
        *([Guest.mmio] * 3),
        *([Guest.wire] * 3),
        Guest.config,
        Guest.memory,
    ]
    for count in range(operations):
        if count % 100 == 0:
            for guest in guests:
                guest.client.reset()
                guest.start()
            for _ in range(3):
                guests[0].pair(guests[1])
        guest, peer = chance.sample(guests, 2)
        chance.choice(actions)(guest, peer)
        lab.loop.step(0)
    for guest in guests:
        guest.client.close()
        guest.client.until_lost(lab.endpoints[guest.name])
    assert sum(device.nic.counters.tx_packets for device in lab.nics.values()) == 0, "a reset clears counters"
    assert frames, "they never got to the point of sending"
    return {guest.name: lab.nics[guest.name].nic.objects().to_json() for guest in guests}


@pytest.mark.parametrize("seed", [1, 2])
def test_the_server_survives_guests_that_do_anything(lab: LabServer, seed: int) -> None:
    assert torment(lab, seed, 1500) == {"node0.nic0": NOTHING, "node1.nic0": NOTHING}


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3, 9))
def test_the_server_survives_them_for_long(lab: LabServer, seed: int) -> None:
    assert torment(lab, seed, 30_000) == {"node0.nic0": NOTHING, "node1.nic0": NOTHING}
