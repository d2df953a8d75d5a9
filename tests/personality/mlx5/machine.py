# SPDX-License-Identifier: Apache-2.0
"""An mlx5-compatible NIC without PCIe and sockets, and the smallest driver for it: registers, commands,
rings."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from emu.clock import VirtualScheduler
from emu.events import EventBus, Kind
from emu.fabric.port import Port
from emu.nic.device import Nic
from emu.nic.engine import EngineFactory
from emu.nic.local import LocalEngine
from emu.nic.work import Transport
from emu.personality.mlx5.addresses import AddressTable
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.codes import CommandStatus
from emu.personality.mlx5.commandqueue import CommandQueue
from emu.personality.mlx5.commands import COMMANDS
from emu.personality.mlx5.device import Mlx5Device
from emu.personality.mlx5.formats import mlx5_formats
from emu.personality.mlx5.identity import LIMITS, UAR_SIZE
from emu.personality.mlx5.mkey import MkeyTable
from emu.personality.mlx5.registers import Registers
from emu.roce import create_engine, parse
from tests.nic.fakes import CountingInterrupts, MemoryBus, Recorder, RecordingPort

__all__ = ["ALL_EVENTS", "Completion", "Cq", "Machine", "Qp", "Reply"]

PAGE = 4096
RAM, RAM_SIZE = 0x1000_0000, 4 << 20
MAC = bytes.fromhex("020000000001")
BLOCK, NEXT = 512, 560
OUTPUT_ROOM = 16 + 9 * BLOCK
ALL_EVENTS = 0xFFFFFFFF
ALL_RIGHTS = {"lr": 1, "lw": 1, "rr": 1, "rw": 1, "a": 1}
LOG_ENTRIES = 4


@dataclass(frozen=True)
class Reply:
    """How a command ended: delivery status of its entry, status, its fields, its bytes."""

    delivery: int
    status: CommandStatus
    fields: Mapping[str, int]
    data: bytes

    def __getitem__(self, field: str) -> int:
        return self.fields[field]


@dataclass(frozen=True)
class Completion:
    """A completion entry as its reader sees it."""

    opcode: int
    wqe_opcode: int
    qpn: int
    counter: int
    length: int
    word: int
    syndrome: int
    source: int


class Cq:
    """Reader of one completion ring."""

    def __init__(self, machine: Machine, number: int, ring: int, record: int) -> None:
        self.machine, self.number, self.ring, self.record = machine, number, ring, record
        self.consumer = 0

    def poll(self) -> Completion | None:
        """The next entry, if the device owns it no more; the record then says that it was read."""
        entry = self.machine.load(self.ring + (self.consumer % (1 << LOG_ENTRIES)) * 64, 64)
        last = entry[63]
        if last & 1 != self.consumer >> LOG_ENTRIES & 1 or last >> 4 == 0xF:
            return None
        self.consumer += 1
        self.machine.store(self.record, self.consumer.to_bytes(4, "big"))
        word = struct.unpack_from(">I", entry, 56)[0]
        return Completion(
            opcode=last >> 4,
            wqe_opcode=word >> 24,
            qpn=word & 0xFFFFFF,
            counter=int.from_bytes(entry[60:62], "big"),
            length=int.from_bytes(entry[44:48], "big"),
            word=int.from_bytes(entry[36:40], "big"),
            syndrome=entry[55],
            source=int.from_bytes(entry[24:28], "big"),
        )

    def arm(self, uar: int) -> None:
        """Ask for an event at the next completion."""
        doorbell = struct.pack(">II", self.consumer & 0xFFFFFF, self.number)
        self.machine.registers.write(uar * UAR_SIZE + 0x20, doorbell)


class Qp:
    """Rings of one queue pair: 16 receives of 64 bytes, then 16 sends."""

    def __init__(self, machine: Machine, number: int, ring: int, record: int, uar: int) -> None:
        self.machine, self.number, self.record, self.uar = machine, number, record, uar
        self.receives, self.sends = ring, ring + (64 << LOG_ENTRIES)
        self.sent = self.received = 0

    def post(self, opcode: int, *segments: bytes, flags: int = 2 << 2, immediate: int = 0) -> None:
        """Write one send descriptor and ring."""
        self.write(opcode, *segments, flags=flags, immediate=immediate)
        self.ring()

    def write(self, opcode: int, *segments: bytes, flags: int = 2 << 2, immediate: int = 0) -> None:
        """Write one send descriptor without ringing."""
        body = b"".join(segments)
        units = 1 + (len(body) + 15) // 16
        wqe = struct.pack(
            ">IIxxxBI", (self.sent & 0xFFFF) << 8 | opcode, self.number << 8 | units, flags, immediate
        )
        wqe = (wqe + body).ljust((units + 3) // 4 * 64, b"\0")
        for at in range(0, len(wqe), 64):
            self.machine.store(self.sends + (self.sent % (1 << LOG_ENTRIES)) * 64, wqe[at : at + 64])
            self.sent += 1

    def ring(self) -> None:
        """Store the record, then the doorbell."""
        self.machine.store(self.record + 4, (self.sent & 0xFFFF).to_bytes(4, "big"))
        doorbell = struct.pack(">II", 0, self.number << 8)
        self.machine.registers.write(self.uar * UAR_SIZE + 0x800, doorbell)

    def receive(self, *pieces: tuple[int, int, int]) -> None:
        """Post a receive of (length, lkey, address) pieces; no doorbell exists for it."""
        slot = b"".join(struct.pack(">IIQ", *piece) for piece in pieces)
        if len(slot) < 64:
            slot += struct.pack(">IIQ", 0, 0x100, 0)
        at = self.receives + (self.received % (1 << LOG_ENTRIES)) * 64
        self.machine.store(at, slot.ljust(64, b"\0"))
        self.received += 1
        self.machine.store(self.record, (self.received & 0xFFFF).to_bytes(4, "big"))


class Machine:
    """The NIC, its memory, and a driver's steps."""

    def __init__(
        self,
        *,
        clock: VirtualScheduler | None = None,
        port: Port | None = None,
        mac: bytes = MAC,
        engine: EngineFactory = create_engine,
    ) -> None:
        self.clock = clock or VirtualScheduler()
        self.bus = MemoryBus()
        self.ram = self.bus.map(RAM, RAM_SIZE)
        self.interrupts = CountingInterrupts()
        self.own_port = RecordingPort()
        self.event_bus = EventBus()
        self.events = Recorder(self.event_bus)
        self.mac = mac
        addresses = AddressTable()
        mkeys = MkeyTable()
        self.nic = Nic(
            "node0.nic0",
            bus=self.bus,
            interrupts=self.interrupts,
            port=port or self.own_port,
            scheduler=self.clock,
            events=self.event_bus,
            formats=mlx5_formats(LIMITS, addresses, mkeys),
            create_engine=lambda transport, host: (
                LocalEngine(host) if transport is Transport.LOCAL else engine(transport, host)
            ),
            parse=parse,
            mac=mac,
            gids=(),
            limits=LIMITS,
        )
        self.device = Mlx5Device(self.nic, addresses, mkeys)
        self.queue = CommandQueue(self.device)
        self.registers = Registers(self.device, self.queue, self.clock)
        self._next = RAM
        self._entry = self.allocate(PAGE)
        self._inbox = [self.allocate(1024) for _ in range(12)]
        self._outbox = [self.allocate(1024) for _ in range(9)]
        for chain in (self._inbox, self._outbox):
            for number, (box, following) in enumerate(zip(chain, [*chain[1:], 0], strict=True)):
                self.store(box + NEXT, struct.pack(">QI", following, number))
        self.registers.write(0x10, (self._entry >> 32).to_bytes(4, "big"))
        self.registers.write(0x14, (self._entry & 0xFFFFFFFF).to_bytes(4, "big"))

    def allocate(self, size: int) -> int:
        """Fresh page-aligned memory."""
        address = self._next
        self._next += (size + PAGE - 1) // PAGE * PAGE
        assert self._next <= RAM + RAM_SIZE
        return address

    def store(self, address: int, data: bytes) -> None:
        """Write memory as the CPU does."""
        self.ram[address - RAM : address - RAM + len(data)] = data

    def load(self, address: int, length: int) -> bytes:
        """Read memory as the CPU does."""
        return bytes(self.ram[address - RAM : address - RAM + length])

    def settle(self) -> None:
        """Run what is due now."""
        self.clock.run(until=self.clock.now())

    def submit(self, data: bytes, *, slot: int = 0, kind: int = 7, inbox: int | None = None) -> None:
        """Write an entry with input ``data`` and hand it over."""
        rest = data[16:]
        for number, at in enumerate(range(0, len(rest), BLOCK)):
            self.store(self._inbox[number], rest[at : at + BLOCK])
        address = self._inbox[0] if inbox is None else inbox
        entry = struct.pack(
            ">B3xIQ16s16xQIB2xB",
            kind,
            len(data),
            address if rest else 0,
            data[:16].ljust(16, b"\0"),
            self._outbox[0],
            OUTPUT_ROOM,
            0,
            1,
        )
        self.store(self._entry + 64 * slot, entry)
        self.registers.write(0x18, (1 << slot).to_bytes(4, "big"))
        self.settle()

    def result(self, opcode: int, slot: int = 0) -> Reply:
        """The outcome of the entry in ``slot``."""
        entry = self.load(self._entry + 64 * slot, 64)
        data = entry[32:48] + b"".join(self.load(box, BLOCK) for box in self._outbox)
        command = COMMANDS.get(opcode)
        fields = command.gives.unpack(data) if command is not None else {}
        return Reply(entry[63] >> 1, CommandStatus(data[0]), fields, data)

    def input(self, opcode: int, values: Mapping[str, int], op_mod: int = 0, tail: bytes = b"") -> bytes:
        """The bytes of a command."""
        command = COMMANDS[opcode]
        data = bytearray(command.takes.pack(values))
        data[0:2] = int(opcode).to_bytes(2, "big")
        data[6:8] = op_mod.to_bytes(2, "big")
        return bytes(data) + tail

    def command(self, opcode: Op, op_mod: int = 0, tail: bytes = b"", **values: int) -> Reply:
        """Run a command; dots in field names are written as two underscores."""
        named = {name.replace("__", "."): value for name, value in values.items()}
        self.submit(self.input(opcode, named, op_mod, tail))
        return self.result(opcode)

    def do(self, opcode: Op, op_mod: int = 0, tail: bytes = b"", **values: int) -> Reply:
        """Run a command that must succeed."""
        reply = self.command(opcode, op_mod, tail, **values)
        assert reply.delivery == 0
        assert reply.status is CommandStatus.OK, (
            opcode.name,
            reply.status.name,
            self.events.texts(Kind.COMMAND)[-1:],
        )
        return reply

    def pages(self, address: int, size: int) -> bytes:
        """A page list over contiguous memory."""
        return b"".join((address + at).to_bytes(8, "big") for at in range(0, size, PAGE))

    # A driver's steps

    def uar(self) -> int:
        """A doorbell page."""
        return self.do(Op.ALLOC_UAR)["uar"]

    def pd(self) -> int:
        """A protection domain."""
        return self.do(Op.ALLOC_PD)["pd"]

    def eq(self, vector: int = 0, mask: int = 0) -> tuple[int, int]:
        """An event queue of 16 entries and where its ring is."""
        ring = self.allocate(PAGE)
        self.store(ring, (bytes(63) + b"\1") * 16)
        reply = self.do(
            Op.CREATE_EQ,
            tail=self.pages(ring, PAGE),
            eq_context_entry__log_eq_size=4,
            eq_context_entry__intr=vector,
            event_bitmask=mask,
        )
        return reply["eq_number"], ring

    def cq(self, eq: int, uar: int, **context: int) -> Cq:
        """A completion queue of 16 entries."""
        ring, record = self.allocate(PAGE), self.allocate(64)
        self.store(ring, (bytes(63) + b"\xf1") * 16)
        values = {
            "log_cq_size": LOG_ENTRIES,
            "c_eqn_or_apu_element": eq,
            "uar_page": uar,
            "dbr_addr": record,
            **context,
        }
        named = {f"cq_context__{name}": value for name, value in values.items()}
        reply = self.do(Op.CREATE_CQ, tail=self.pages(ring, PAGE), **named)
        return Cq(self, reply["cqn"], ring, record)

    def mkey(self, pd: int, address: int, size: int, *, variant: int = 0x42, **rights: int) -> int:
        """A key over memory whose virtual address is its bus address."""
        named = {f"memory_key_mkey_entry__{name}": value for name, value in (rights or ALL_RIGHTS).items()}
        reply = self.do(
            Op.CREATE_MKEY,
            tail=self.pages(address, size),
            memory_key_mkey_entry__access_mode_1_0=1,
            memory_key_mkey_entry__pd=pd,
            memory_key_mkey_entry__start_addr=address,
            memory_key_mkey_entry__len=size,
            memory_key_mkey_entry__log_page_size=12,
            memory_key_mkey_entry__translations_octword_size=(size // PAGE + 1) // 2,
            memory_key_mkey_entry__mkey_7_0=variant,
            **named,
        )
        return reply["mkey_index"] << 8 | variant

    def qp(self, pd: int, cq: Cq, uar: int, *, service: int = 0, **context: int) -> Qp:
        """A queue pair in RESET."""
        ring, record = self.allocate(PAGE), self.allocate(64)
        values = {
            "st": service,
            "pd": pd,
            "uar_page": uar,
            "cqn_snd": cq.number,
            "cqn_rcv": cq.number,
            "log_rq_size": LOG_ENTRIES,
            "log_rq_stride": 2,
            "log_sq_size": LOG_ENTRIES,
            "dbr_addr": record,
            **context,
        }
        named = {f"qpc__{name}": value for name, value in values.items()}
        reply = self.do(Op.CREATE_QP, tail=self.pages(ring, PAGE), **named)
        return Qp(self, reply["qpn"], ring, record, uar)

    def address(self, index: int, gid: bytes) -> None:
        """An entry of the RoCE address table."""
        self.do(
            Op.SET_ROCE_ADDRESS,
            roce_address_index=index,
            roce_address__source_l3_address=int.from_bytes(gid, "big"),
            roce_address__source_mac_47_32=int.from_bytes(self.mac[:2], "big"),
            roce_address__source_mac_31_0=int.from_bytes(self.mac[2:], "big"),
            roce_address__roce_version=2,
        )

    def connect(self, qp: Qp, peer: int, gid: bytes, mac: bytes, *, until: str = "RTS") -> None:
        """RESET to RTS (or to RTR) towards a peer."""
        self.do(Op.RST2INIT_QP, qpn=qp.number, qpc__rre=1, qpc__rwe=1, qpc__rae=1)
        path = "qpc__primary_address_path__"
        self.do(
            Op.INIT2RTR_QP,
            0,
            b"",
            qpn=qp.number,
            qpc__mtu=3,
            qpc__remote_qpn=peer,
            qpc__min_rnr_nak=12,
            qpc__log_rra_max=2,
            **{
                path + "rgid_rip": int.from_bytes(gid, "big"),
                path + "rmac_47_32": int.from_bytes(mac[:2], "big"),
                path + "rmac_31_0": int.from_bytes(mac[2:], "big"),
                path + "hop_limit": 64,
            },
        )
        if until == "RTS":
            self.do(
                Op.RTR2RTS_QP,
                qpn=qp.number,
                qpc__retry_count=7,
                qpc__rnr_retry=7,
                qpc__log_sra_max=2,
                qpc__primary_address_path__ack_timeout=14,
            )


def data(address: int, length: int, key: int) -> bytes:
    """A data segment."""
    return struct.pack(">IIQ", length, key, address)


def inline(payload: bytes) -> bytes:
    """An inline segment."""
    segment = struct.pack(">I", 1 << 31 | len(payload)) + payload
    return segment.ljust((len(segment) + 15) // 16 * 16, b"\0")


def remote(address: int, key: int) -> bytes:
    """A remote address segment."""
    return struct.pack(">QI4x", address, key)
