# SPDX-License-Identifier: Apache-2.0
"""A NIC with a personality of its own kind, to show what the core does not assume.

Unlike the `vrnic` contract its descriptors take several 16-byte slots, its doorbell record is big-endian with
16-bit counters, receives ring no doorbell, rings are page lists that belong to no memory region, and the
owner bit of its 16-byte completions is in the last byte alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from emu.checks.rule import Rule
from emu.clock import VirtualScheduler
from emu.events import EventBus
from emu.nic.context import Context, ProtectionDomain
from emu.nic.cq import CompletionQueue, CqMode, CqOverrun
from emu.nic.device import Nic
from emu.nic.engine import AsyncEvent, EngineFactory, PacketParser
from emu.nic.eq import EventQueue
from emu.nic.formats import Formats, WqeFault
from emu.nic.limits import NicLimits
from emu.nic.mr import MemoryRegion
from emu.nic.pages import PageList
from emu.nic.qp import QpConfig, QueuePair
from emu.nic.record import DbrPolicy
from emu.nic.ring import RingMemory
from emu.nic.work import (
    Access,
    Cause,
    Completion,
    ModifyMask,
    Opcode,
    QpAttributes,
    QpState,
    ReceiveRequest,
    SendRequest,
    Sge,
    Transport,
)
from tests.nic.fakes import (
    CountingInterrupts,
    Engines,
    FakeEngine,
    MemoryBus,
    Recorder,
    RecordingPort,
    fake_parse,
)

SLOT = 16
CQE = 16
MAC = bytes.fromhex("020000000001")
RAM, RAM_SIZE = 0x10_0000, 0x10_0000
ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC


class TinyWqe:
    """Byte 0 how many slots, byte 1 an opcode; opcode 0xEE is a fault."""

    slot_size = SLOT

    def decode(self, burst: bytes, first: int, count: int, qp: QueuePair) -> list[SendRequest | WqeFault]:
        """Whole descriptors only."""
        results: list[SendRequest | WqeFault] = []
        at = 0
        while at < count:
            slots, opcode = burst[at * SLOT], burst[at * SLOT + 1]
            index = (first + at) & 0xFFFFFFFF
            if opcode == 0xEE:
                results.append(WqeFault(index, Rule.C29_UNSUPPORTED, Cause.BAD_OPCODE, "opcode 0xee"))
                at += 1
                continue
            if at + slots > count:
                break
            results.append(SendRequest(index, Opcode(opcode), slots=slots, signaled=True))
            at += slots
        return results


class TinyReceive:
    """Byte 0 is the length."""

    slot_size = SLOT

    def decode(self, burst: bytes, first: int, count: int, qp: QueuePair) -> list[ReceiveRequest | WqeFault]:
        """One a slot."""
        return [
            ReceiveRequest((first + number) & 0xFFFFFFFF, [Sge(0, burst[number * SLOT], 0)])
            for number in range(count)
        ]


class TinyCqe:
    """Index, status, and the owner bit in the last byte."""

    slot_size = CQE

    def encode(self, completion: Completion, cq: CompletionQueue, timestamp: int) -> tuple[bytes, bytes]:
        """15 bytes and 1."""
        body = completion.index.to_bytes(4, "big") + bytes([completion.status]) + bytes(10)
        return body, bytes([cq.producer >> cq.ring.log_size & 1])

    def counter(self, value: int) -> bytes:
        """Big-endian."""
        return value.to_bytes(8, "big")


class TinyEqe:
    """Type and number."""

    slot_size = SLOT

    def encode(
        self, event: AsyncEvent | None, number: int, eq: EventQueue, timestamp: int
    ) -> tuple[bytes, bytes]:
        """15 bytes and 1."""
        kind = 0xFF if event is None else int(event)
        return number.to_bytes(4, "big") + bytes([kind]) + bytes(10), b"\1"


class TinyRecord:
    """Receive then send counter, 32 bits each of which 16 count."""

    size = 8

    def send(self, record: bytes, last: int) -> int:
        """Extend to 32 bits."""
        return _extend(int.from_bytes(record[4:8], "big"), last)

    def receive(self, record: bytes, last: int) -> int:
        """Extend to 32 bits."""
        return _extend(int.from_bytes(record[0:4], "big"), last)

    def consumer(self, record: bytes, last: int) -> int:
        """Extend to 32 bits."""
        return _extend(int.from_bytes(record[0:4], "big"), last)


def _extend(counter: int, last: int) -> int:
    return (last + ((counter - last) & 0xFFFF)) & 0xFFFFFFFF


class Rig:
    """The NIC, memory for it, and short ways to make objects."""

    def __init__(
        self,
        limits: NicLimits | None = None,
        create_engine: EngineFactory | None = None,
        parse: PacketParser = fake_parse,
        gids: Sequence[bytes] = (),
    ) -> None:
        self.bus = MemoryBus()
        self.ram = self.bus.map(RAM, RAM_SIZE)
        self.clock = VirtualScheduler()
        self.port = RecordingPort()
        self.interrupts = CountingInterrupts()
        self.engines = Engines()
        self.event_bus = EventBus()
        self.events = Recorder(self.event_bus)
        self.nic = Nic(
            "node0.nic0",
            bus=self.bus,
            interrupts=self.interrupts,
            port=self.port,
            scheduler=self.clock,
            events=self.event_bus,
            formats=Formats(TinyWqe(), TinyReceive(), TinyCqe(), TinyEqe(), TinyRecord()),
            create_engine=create_engine or self.engines.create,
            parse=parse,
            mac=MAC,
            gids=gids,
            limits=limits,
        )
        self._next = RAM
        self.context: Context = self.nic.alloc_context()
        self.pd: ProtectionDomain = self.nic.alloc_pd(self.context)

    def memory(self, size: int) -> RingMemory:
        """Fresh memory that belongs to no region, 8 bytes into its page list."""
        address = self._next
        self._next += size + 64
        return RingMemory(PageList.contiguous(address, size + 8), 8)

    @staticmethod
    def address(memory: RingMemory) -> int:
        """Bus address of its first byte."""
        assert isinstance(memory.pages, PageList) and memory.pages.base is not None
        return memory.pages.base + memory.offset

    def create_cq(self, log_size: int = 8) -> tuple[CompletionQueue, int]:
        """A ring CQ and where it is."""
        memory = self.memory(CQE << log_size)
        cq = self.nic.create_cq(
            self.context, None, mode=CqMode.RING, overrun=CqOverrun.ERROR, log_size=log_size, memory=memory
        )
        return cq, self.address(memory)

    def create_qp(
        self,
        cq: CompletionQueue,
        *,
        log_size: int = 8,
        start: int = 0,
        policy: DbrPolicy = DbrPolicy.AUTHORITATIVE,
    ) -> tuple[QueuePair, FakeEngine, int, int]:
        """A queue pair in RTS, its engine, its send ring and its record."""
        ring, record = self.memory(SLOT << log_size), self.memory(8)
        qp = self.nic.create_qp(
            QpConfig(
                pd=self.pd,
                send_cq=cq,
                recv_cq=cq,
                transport=Transport.ROCE_RC,
                send=ring,
                send_log_size=log_size,
                receive=self.memory(SLOT << log_size),
                receive_log_size=log_size,
                record=record,
                record_policy=policy,
                start_index=start,
            )
        )
        self.to_rts(qp)
        return qp, self.engines.made[qp.number], self.address(ring), self.address(record)

    @staticmethod
    def to_rts(qp: QueuePair) -> None:
        """RESET to RTS."""
        attributes = QpAttributes(dest_gid=b"\1" * 16, dest_mac=MAC)
        for state, mask in (
            (QpState.INIT, ModifyMask.PKEY_INDEX | ModifyMask.PORT | ModifyMask.ACCESS_FLAGS),
            (
                QpState.RTR,
                ModifyMask.AV
                | ModifyMask.PATH_MTU
                | ModifyMask.DEST_QPN
                | ModifyMask.RQ_PSN
                | ModifyMask.MAX_DEST_RD_ATOMIC
                | ModifyMask.MIN_RNR_TIMER,
            ),
            (
                QpState.RTS,
                ModifyMask.TIMEOUT
                | ModifyMask.RETRY_CNT
                | ModifyMask.RNR_RETRY
                | ModifyMask.SQ_PSN
                | ModifyMask.MAX_RD_ATOMIC,
            ),
        ):
            attributes.state = state
            qp.modify(ModifyMask.STATE | mask, attributes)

    def region(
        self, address: int, pages: PageList, access: Access = ALL, *, atomic: bool = True
    ) -> MemoryRegion:
        """A memory region of the rig's domain."""
        return self.nic.register_mr(
            self.pd, access=access, address=address, pages=pages, atomic_capable=atomic
        )

    def store(self, address: int, data: bytes) -> None:
        """Write memory as the CPU does."""
        self.ram[address - RAM : address - RAM + len(data)] = data

    def load(self, address: int, length: int) -> bytes:
        """Read memory as the CPU does."""
        return bytes(self.ram[address - RAM : address - RAM + length])

    def settle(self) -> None:
        """Run what is due now."""
        self.clock.run(until=self.clock.now())
