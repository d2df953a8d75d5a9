# SPDX-License-Identifier: Apache-2.0
"""A driver for tests: brings a NIC up, runs admin commands and plays the submission kernel.

It builds every byte with the contract's own layouts and knows nothing of the device's code. What it runs on
is a :class:`Machine`: the bare register blocks over a bytearray, or a vfio-user client.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from construct import Struct

from emu.nic.work import Access, ModifyMask, Opcode, QpState
from emu.personality.vrnic.contract.codes import (
    AdminOpcode,
    AdminStatus,
    CqMode,
    CqOverrun,
    DbrPolicy,
    MrFlags,
    QpFlags,
)
from emu.personality.vrnic.contract.commands import COMMANDS, NO_EQ, NO_RECEIVE_RING
from emu.personality.vrnic.contract.descriptors import (
    CQE_SIZE,
    DOORBELL_VALID,
    EQE_SIZE,
    RECV_WQE_SIZE,
    WQE_SIZE,
    Cqe,
    DoorbellOffset,
    DoorbellType,
    Eqe,
    RecvWqe,
    SendWqe,
    WqeFlags,
)
from emu.personality.vrnic.contract.identity import DOORBELL_PAGE_SIZE
from emu.personality.vrnic.contract.registers import (
    COUNTER_OFFSET,
    COUNTERS,
    EQ_CONSUMER_OFFSET,
    NIC_REGISTERS,
)

REGISTERS = {register.name: register for register in NIC_REGISTERS}
ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
MASK = 0xFFFFFFFF


class Machine(Protocol):
    """What a driver runs on. Addresses are bus addresses; BARs go by their number."""

    ram_base: int
    ram_size: int

    def read(self, bar: int, offset: int, size: int) -> int:
        """Read a register."""

    def write(self, bar: int, offset: int, data: bytes) -> None:
        """Write a register."""

    def load(self, address: int, length: int) -> bytes:
        """Read memory as the CPU does."""

    def store(self, address: int, data: bytes) -> None:
        """Write memory as the CPU does."""

    def settle(self) -> None:
        """Let the device finish what it was told."""


class Refused(Exception):
    """An admin command that was not OK."""

    def __init__(self, status: AdminStatus, field_offset: int) -> None:
        super().__init__(f"{status.name}, field at {field_offset}")
        self.status = status
        self.offset = field_offset


def offset_of(layout: Struct, name: str) -> int:
    """Byte offset of a field of a layout."""
    offset = 0
    for part in layout.subcons:
        if part.name == name:
            return offset
        offset += part.sizeof()
    raise KeyError(name)


def _blank(layout: Struct) -> dict[str, Any]:
    return dict(layout.parse(bytes(layout.sizeof())))


@dataclass
class Cq:
    """A CQ as software sees it."""

    driver: Driver
    number: int
    mode: CqMode
    log_size: int
    address: int
    consumer: int = 0

    def entry(self, slot: int = 0) -> Any:
        """The CQE in a slot."""
        return Cqe.parse(self.driver.machine.load(self.address + slot * CQE_SIZE, CQE_SIZE))

    def poll(self) -> list[Any]:
        """Every new entry of a ring CQ."""
        found: list[Any] = []
        while True:
            cqe = self.entry(self.consumer & ((1 << self.log_size) - 1))
            if cqe.opcode_phase & 1 == (self.consumer >> self.log_size) & 1:
                return found
            assert cqe.producer == self.consumer
            assert cqe.index16 == cqe.index & 0xFFFF
            found.append(cqe)
            self.consumer = (self.consumer + 1) & MASK

    def doorbell(self, kind: DoorbellType, index: int | None = None, page: int | None = None) -> None:
        """Write the consumer index, or arm."""
        offset = DoorbellOffset.CQ_CONSUMER if kind is DoorbellType.CQ_CONSUMER else DoorbellOffset.CQ_ARM
        value = self.driver.doorbell_value(kind, self.number, self.consumer if index is None else index)
        self.driver.ring(page or self.driver.ctx, offset, value)


@dataclass
class Qp:
    """A queue pair as software sees it."""

    driver: Driver
    number: int
    sq_address: int
    sq_log_size: int
    rq_address: int
    rq_log_size: int
    dbr_address: int
    start: int
    phase: bool
    index: int = field(init=False)
    receive_index: int = field(init=False)

    def __post_init__(self) -> None:
        self.index = self.receive_index = self.start

    def wqe(self, index: int, /, **values: Any) -> bytes:
        """Bytes of a send WQE; fields by name, ``inline`` for an inline payload."""
        inline = values.pop("inline", None)
        fields = _blank(SendWqe) | {"index": index, "qpn": self.number, "blocks": 1} | values
        if inline is not None:
            fields["flags"] |= WqeFlags.INLINE
            fields["length"] = len(inline)
        if self.phase and not (((index - self.start) & MASK) >> self.sq_log_size) & 1:
            fields["flags"] |= WqeFlags.PHASE
        data = bytes(SendWqe.build(fields))
        return data if inline is None else (data[:32] + inline + data[32 + len(inline) :])

    def slot(self, index: int) -> int:
        """Address of a send slot."""
        return self.sq_address + (index & ((1 << self.sq_log_size) - 1)) * WQE_SIZE

    def post(self, opcode: int = Opcode.NOP, *, signal: bool = True, **values: Any) -> int:
        """Write the next WQE, without a doorbell; its index."""
        index = self.index
        values["flags"] = values.get("flags", 0) | (WqeFlags.SIGNAL if signal else 0)
        self.driver.machine.store(self.slot(index), self.wqe(index, opcode=opcode, **values))
        self.index = (index + 1) & MASK
        return index

    def post_receive(self, address: int, lkey: int, length: int, **values: Any) -> int:
        """Write the next receive WQE, without a doorbell; its index."""
        index = self.receive_index
        slot = index & ((1 << self.rq_log_size) - 1)
        fields = {"index": index, "qpn": self.number, "address": address, "lkey": lkey, "length": length}
        data = RecvWqe.build(_blank(RecvWqe) | fields | values)
        self.driver.machine.store(self.rq_address + slot * RECV_WQE_SIZE, data)
        self.receive_index = (index + 1) & MASK
        return index

    def record(self, *, send: int | None = None, receive: int | None = None) -> None:
        """Store the doorbell record."""
        if receive is not None:
            self.driver.machine.store(self.dbr_address, receive.to_bytes(4, "little"))
        if send is not None:
            self.driver.machine.store(self.dbr_address + 4, send.to_bytes(4, "little"))

    def ring(self, index: int | None = None, *, page: int | None = None, settle: bool = True) -> None:
        """Send doorbell."""
        index = self.index if index is None else index
        value = self.driver.doorbell_value(DoorbellType.SQ, self.number, index)
        self.driver.ring(page or self.driver.ctx, DoorbellOffset.SQ, value, settle=settle)

    def ring_receive(self, index: int | None = None) -> None:
        """Receive doorbell."""
        index = self.receive_index if index is None else index
        value = self.driver.doorbell_value(DoorbellType.RQ, self.number, index)
        self.driver.ring(self.driver.ctx, DoorbellOffset.RQ, value)

    def query(self) -> Any:
        """QUERY_QP."""
        return self.driver.command(AdminOpcode.QUERY_QP, object=self.number)


class Driver:
    """Brings the device up with one context, one PD, one EQ and one region over all of memory.

    The region's virtual addresses are bus addresses plus ``SHIFT``, so that mixing the two up shows.
    """

    ADMIN_LOG = 3
    EQ_LOG = 4
    SHIFT = 0x7000_0000_0000

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._next = machine.ram_base
        self.commands = self.allocate(64 << self.ADMIN_LOG)
        self.replies = self.allocate(64 << self.ADMIN_LOG)
        self.sequence = 0
        self.ctx = 0
        self.pd = 0
        self.eq = 0
        self.eq_base = 0
        self.eq_consumer = 0
        self.key = 0

    def allocate(self, size: int, align: int = 4096) -> int:
        """Bus address of fresh zeroed memory."""
        address = -(-self._next // align) * align
        self._next = address + size
        assert self._next <= self.machine.ram_base + self.machine.ram_size
        return address

    def reg(self, name: str) -> int:
        """Read a register by name."""
        register = REGISTERS[name]
        return self.machine.read(0, register.offset, register.width)

    def set_reg(self, name: str, value: int) -> None:
        """Write a register by name."""
        register = REGISTERS[name]
        self.machine.write(0, register.offset, value.to_bytes(register.width, "little"))

    def counter(self, name: str) -> int:
        """Read a counter by name."""
        number = [counter for counter, _ in COUNTERS].index(name)
        return self.machine.read(0, COUNTER_OFFSET + 8 * number, 8)

    def enable(self) -> None:
        """Start the admin queue."""
        self.set_reg("ADMIN_SQ_BASE", self.commands)
        self.set_reg("ADMIN_RQ_BASE", self.replies)
        self.set_reg("ADMIN_LOG_SIZE", self.ADMIN_LOG)
        self.set_reg("CONTROL", 2)
        self.sequence = 0

    def up(self) -> None:
        """Enable the admin queue and make the usual objects."""
        self.enable()
        self.ctx = self.command(AdminOpcode.ALLOC_CTX).ctx
        self.pd = self.command(AdminOpcode.ALLOC_PD, ctx=self.ctx).object
        self.eq_base = self.allocate(EQE_SIZE << self.EQ_LOG)
        self.eq = self.command(
            AdminOpcode.CREATE_EQ, vector=1, log_size=self.EQ_LOG, base=self.eq_base
        ).object
        self.key = self.register(self.machine.ram_base, self.machine.ram_size)

    def build(self, opcode: AdminOpcode, **values: Any) -> bytes:
        """Bytes of a command."""
        layout = COMMANDS[opcode][0]
        return bytes(layout.build(_blank(layout) | {"opcode": opcode} | values))

    def submit(self, command: bytes) -> bytes:
        """Run one raw command; the raw reply."""
        slot = self.sequence & ((1 << self.ADMIN_LOG) - 1)
        self.machine.store(self.commands + 64 * slot, command)
        self.sequence = (self.sequence + 1) & MASK
        self.set_reg("ADMIN_DOORBELL", self.sequence)
        self.machine.settle()
        return self.machine.load(self.replies + 64 * slot, 64)

    def command(self, opcode: AdminOpcode, **values: Any) -> Any:
        """Run one command; its parsed reply. :raises Refused: it was not OK."""
        reply = COMMANDS[opcode][1].parse(self.submit(self.build(opcode, **values)))
        assert reply.sequence == self.sequence
        if reply.status != AdminStatus.OK:
            raise Refused(AdminStatus(reply.status), reply.refused)
        assert reply.refused == 0
        return reply

    def register(self, base: int, length: int, **values: Any) -> int:
        """A contiguous region at virtual address ``base + SHIFT``; its key."""
        fields: dict[str, Any] = {
            "pd": self.pd,
            "access": ALL,
            "flags": MrFlags.CONTIGUOUS | MrFlags.ATOMIC_CAPABLE,
            "address": base + self.SHIFT,
            "length": length,
            "pages": base,
        }
        return int(self.command(AdminOpcode.REG_MR, **(fields | values)).object)

    def virtual(self, address: int) -> int:
        """Virtual address of a bus address in the region over all memory."""
        return address + self.SHIFT

    def create_cq(
        self,
        mode: CqMode = CqMode.RING,
        log_size: int = 4,
        overrun: CqOverrun = CqOverrun.ERROR,
        *,
        events: bool = True,
        **values: Any,
    ) -> Cq:
        """Make a CQ."""
        address = self.allocate(max(CQE_SIZE << log_size, 64), 64)
        fields: dict[str, Any] = {
            "ctx": self.ctx,
            "eq": self.eq if events else NO_EQ,
            "mode": mode,
            "overrun": overrun,
            "log_size": log_size,
            "ring_key": self.key,
            "ring_address": self.virtual(address),
        }
        number = self.command(AdminOpcode.CREATE_CQ, **(fields | values)).object
        return Cq(self, number, mode, log_size, address)

    def create_qp(
        self,
        send_cq: Cq,
        recv_cq: Cq | None = None,
        *,
        sq_log_size: int = 4,
        rq_log_size: int = 4,
        policy: DbrPolicy = DbrPolicy.NONE,
        start: int = 0,
        phase: bool = False,
        signal_all: bool = False,
        **values: Any,
    ) -> Qp:
        """Make a queue pair in RESET."""
        sq = self.allocate(WQE_SIZE << sq_log_size, 64)
        rq = self.allocate(RECV_WQE_SIZE << min(rq_log_size, 16), 64) if rq_log_size != NO_RECEIVE_RING else 0
        dbr = self.allocate(8, 64)
        flags = (QpFlags.PHASE if phase else 0) | (QpFlags.SIGNAL_ALL if signal_all else 0)
        fields: dict[str, Any] = {
            "ctx": self.ctx,
            "pd": self.pd,
            "send_cq": send_cq.number,
            "recv_cq": (recv_cq or send_cq).number,
            "transport": 0,
            "sq_log_size": sq_log_size,
            "rq_log_size": rq_log_size,
            "dbr_policy": policy,
            "ring_key": self.key,
            "sq_address": self.virtual(sq),
            "rq_address": self.virtual(rq),
            "dbr_address": self.virtual(dbr),
            "flags": flags,
            "start_index": start,
        }
        number = self.command(AdminOpcode.CREATE_QP, **(fields | values)).object
        return Qp(self, number, sq, sq_log_size, rq, rq_log_size, dbr, start, phase)

    def gid(self, index: int = 0) -> Any:
        """QUERY_GID."""
        return self.command(AdminOpcode.QUERY_GID, gid_index=index)

    def to_init(self, qp: Qp, access: Access = ALL) -> None:
        """RESET to INIT."""
        mask = ModifyMask.STATE | ModifyMask.ACCESS_FLAGS
        self.modify(qp, mask, state=QpState.INIT, access=access)

    def to_rtr(self, qp: Qp, *, dest_qpn: int, dest_gid: bytes, dest_mac: bytes, **values: Any) -> None:
        """INIT to RTR."""
        mask = (
            ModifyMask.STATE
            | ModifyMask.AV
            | ModifyMask.PATH_MTU
            | ModifyMask.DEST_QPN
            | ModifyMask.RQ_PSN
            | ModifyMask.MAX_DEST_RD_ATOMIC
            | ModifyMask.MIN_RNR_TIMER
        )
        fields: dict[str, Any] = {
            "state": QpState.RTR,
            "path_mtu": 3,
            "dest_qpn": dest_qpn,
            "dest_gid": dest_gid,
            "dest_mac": dest_mac,
            "max_dest_rd_atomic": 4,
            "min_rnr_timer": 1,
        }
        self.modify(qp, mask, **(fields | values))

    def to_rts(self, qp: Qp, **values: Any) -> None:
        """RTR to RTS."""
        mask = (
            ModifyMask.STATE
            | ModifyMask.TIMEOUT
            | ModifyMask.RETRY_CNT
            | ModifyMask.RNR_RETRY
            | ModifyMask.SQ_PSN
            | ModifyMask.MAX_RD_ATOMIC
        )
        fields: dict[str, Any] = {
            "state": QpState.RTS,
            "timeout": 12,
            "retry_cnt": 7,
            "rnr_retry": 7,
            "max_rd_atomic": 4,
        }
        self.modify(qp, mask, **(fields | values))

    def connect(
        self,
        qp: Qp,
        peer: Driver,
        other: Qp,
        gid_index: int = 0,
        *,
        timeout: int = 12,
        rnr_retry: int = 7,
    ) -> None:
        """RESET to RTS towards another NIC's queue pair; ``timeout`` is the ACK timeout's exponent."""
        there = peer.gid(gid_index)
        self.to_init(qp)
        self.to_rtr(qp, dest_qpn=other.number, dest_gid=there.gid, dest_mac=there.mac, gid_index=gid_index)
        self.to_rts(qp, timeout=timeout, rnr_retry=rnr_retry)

    def modify(self, qp: Qp, mask: int, **values: Any) -> None:
        """MODIFY_QP."""
        self.command(AdminOpcode.MODIFY_QP, qpn=qp.number, mask=mask, **values)

    def move(self, qp: Qp, state: QpState) -> None:
        """MODIFY_QP with the state alone."""
        self.modify(qp, ModifyMask.STATE, state=state)

    def events(self) -> list[Any]:
        """New events of the EQ, without telling the device."""
        found: list[Any] = []
        while True:
            slot = self.eq_consumer & ((1 << self.EQ_LOG) - 1)
            eqe = Eqe.parse(self.machine.load(self.eq_base + slot * EQE_SIZE, EQE_SIZE))
            if eqe.phase & 1 == (self.eq_consumer >> self.EQ_LOG) & 1:
                return found
            assert eqe.index == self.eq_consumer
            found.append(eqe)
            self.eq_consumer += 1

    def acknowledge_events(self) -> None:
        """Write the EQ's consumer index, which re-arms its vector."""
        value = self.eq_consumer.to_bytes(8, "little")
        self.machine.write(0, EQ_CONSUMER_OFFSET + 8 * self.eq, value)

    def objects(self) -> dict[str, int]:
        """QUERY_OBJECTS."""
        reply = self.command(AdminOpcode.QUERY_OBJECTS)
        return {name: reply[name] for name in ("contexts", "pds", "mrs", "eqs", "cqs", "qps", "ahs")}

    @staticmethod
    def doorbell_value(kind: DoorbellType, number: int, index: int) -> int:
        """The 64 bits of a doorbell."""
        return DOORBELL_VALID | kind << 56 | number << 32 | index

    def ring(self, page: int, offset: int, value: int, *, settle: bool = True) -> None:
        """Store a doorbell."""
        self.machine.write(2, page * DOORBELL_PAGE_SIZE + offset, value.to_bytes(8, "little"))
        if settle:
            self.machine.settle()
