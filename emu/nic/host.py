# SPDX-License-Identifier: Apache-2.0
"""What one queue pair's engine sees of the NIC: memory behind keys, the port, its rings and its completion
queues.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emu.checks.descriptors import swapped
from emu.checks.rule import Rule
from emu.events import Kind
from emu.fabric.run import FrameRun
from emu.nic.atomics import ATOMIC_SIZES, AtomicOperation
from emu.nic.engine import AsyncEvent, ProtectionError
from emu.nic.loopback import LoopbackPort
from emu.nic.mr import MemoryKeys, MemoryRegion
from emu.nic.platform import Platform
from emu.nic.serial import MASK, before
from emu.nic.work import Access, Cause, Completion, CompletionOpcode, QpState, ReceiveRequest, Sge, Status
from emu.pcie.bus import BusError

if TYPE_CHECKING:
    from emu.nic.cq import CompletionQueue
    from emu.nic.qp import QueuePair
    from emu.nic.submission import Submission

__all__ = ["QpHost"]

_FRAME_OUT = Kind.FRAME_OUT.bit
_FRAMES = Kind.FRAME_OUT.bit | Kind.FRAME_IN.bit
_FRAME_DROP = Kind.FRAME_DROP.bit
_RETRANSMIT = Kind.RETRANSMIT.bit
_TIMER = Kind.TIMER.bit
_NO_RIGHT = Access.NONE
_LOCAL_WRITE = Access.LOCAL_WRITE
_REMOTE_WRITE = Access.REMOTE_WRITE
_REMOTE_READ = Access.REMOTE_READ
_REMOTE_ATOMIC = Access.REMOTE_ATOMIC
_ATOMIC_BIT = int(Access.REMOTE_ATOMIC)


class QpHost:
    """Implements :class:`emu.nic.engine.EngineHost`. Inert once its queue pair is closed."""

    __slots__ = ("_dma", "_keys", "_pd", "_platform", "_qp", "_srq", "_submission", "qpn")

    def __init__(self, platform: Platform, qp: QueuePair, keys: MemoryKeys, submission: Submission) -> None:
        self._platform = platform
        self._dma = platform.dma
        self._keys = keys
        self._qp = qp
        self._pd = qp.pd
        self._srq = qp.srq
        self._submission = submission
        self.qpn = qp.number

    def send(self, frame: bytes) -> None:
        """Hand a frame to the port."""
        if self._qp.closed:
            return
        platform = self._platform
        counters = platform.counters
        counters.tx_packets += 1
        counters.tx_bytes += len(frame)
        if platform.events.mask & _FRAME_OUT:
            platform.trace.emit(
                Kind.FRAME_OUT, f"{len(frame)} bytes", qpn=self.qpn, length=len(frame), frame=frame
            )
        platform.port.send(frame)

    def owns_address(self, address: bytes) -> bool:
        """True when the GID table holds it."""
        return self._platform.gids.holds(address)

    def send_run(self, run: FrameRun) -> None:
        """Hand frames to the port, together when it carries them so and nobody looks at single ones."""
        if self._qp.closed:
            return
        platform = self._platform
        port = platform.port
        if not platform.events.mask & _FRAMES and isinstance(port, LoopbackPort) and port.send_run(run):
            platform.counters.tx_packets += run.count
            platform.counters.tx_bytes += run.octets
            return
        for frame in run.frames():
            self.send(frame)

    def gather(self, sges: list[Sge], offset: int, length: int) -> bytes:
        """Read from a gather list.

        :raises ProtectionError: see :meth:`MemoryKeys.check`; unreachable memory.
        """
        if len(sges) == 1:
            sge = sges[0]
            data = self._read(sge.lkey, sge.address + offset, length, _NO_RIGHT, remote=False)
            watch = self._platform.checks.watch
            if watch is not None:
                watch.gathered(self.qpn, sges, offset, data)
            return data
        return b"".join(
            [
                self._read(lkey, address, size, _NO_RIGHT, remote=False)
                for lkey, address, size in _slices(sges, offset, length)
            ]
        )

    def scatter(self, sges: list[Sge], offset: int, data: bytes | memoryview) -> None:
        """Write to a scatter list. :raises ProtectionError: as :meth:`gather`, or no LOCAL_WRITE."""
        if len(sges) == 1:
            sge = sges[0]
            self._write(sge.lkey, sge.address + offset, data, _LOCAL_WRITE, remote=False)
            return
        view = memoryview(data)
        done = 0
        for lkey, address, size in _slices(sges, offset, len(data)):
            self._write(lkey, address, view[done : done + size], _LOCAL_WRITE, remote=False)
            done += size

    def check_remote(self, rkey: int, address: int, length: int, access: Access) -> None:
        """Check a remote range. :raises ProtectionError: the rule that failed."""
        region = self._region(rkey, address, length, access, remote=True)
        if int(access) & _ATOMIC_BIT:
            self._check_atomic(region, address, length)

    def write_remote(self, rkey: int, address: int, data: bytes | memoryview) -> None:
        """Place data under a remote key.

        :raises ProtectionError: as :meth:`check_remote`; unreachable memory.
        """
        self._write(rkey, address, data, _REMOTE_WRITE, remote=True)
        watch = self._platform.checks.watch
        if watch is not None:
            watch.landed(self._qp, address, len(data), False)

    def read_remote(self, rkey: int, address: int, length: int) -> bytes:
        """Read under a remote key. :raises ProtectionError: as :meth:`check_remote`; unreachable memory."""
        return self._read(rkey, address, length, _REMOTE_READ, remote=True)

    def invalidate(self, rkey: int) -> None:
        """Take a key out of use. :raises ProtectionError: see :meth:`MemoryKeys.invalidate`."""
        try:
            self._keys.invalidate(rkey, self._pd)
        except ProtectionError as error:
            self._report(Rule.C22_KEY, error.rule)
            raise

    def atomic(self, rkey: int, address: int, operation: AtomicOperation) -> int:
        """Atomic on guest memory.

        Atomic against every other operation of this server, as all run in one thread; not against the guest's
        own processors, which is what adapters without PCIe atomics offer too.

        :raises ProtectionError: as :meth:`check_remote`; unreachable memory.
        """
        size = operation.size
        region = self._region(rkey, address, size, _REMOTE_ATOMIC, remote=True)
        self._check_atomic(region, address, size)
        offset = address - region.address
        try:
            old = int.from_bytes(region.pages.read(self._dma, offset, size), "little")
            new = operation.apply(old)
            if new is not None:
                region.pages.write(self._dma, offset, new.to_bytes(size, "little"))
        except BusError as error:
            raise self._unreachable(error) from None
        watch = self._platform.checks.watch
        if watch is not None:
            watch.landed(self._qp, address, size, operation.add)
        return old

    def take_receive(self) -> ReceiveRequest | None:
        """The next receive element. :raises ProtectionError: it is malformed or cannot be read."""
        qp = self._qp
        if qp.closed:
            return None
        if qp.receive is not None:
            return qp.receive.take()
        # A queue pair in error leaves what is shared to the others.
        if qp.state is QpState.ERR:
            return None
        srq = self._srq
        if srq is not None:
            return srq.take()
        if qp.domain is not None:
            raise ProtectionError(
                "the shared receive queue is not of the XRC domain", cause=Cause.RKEY_UNKNOWN
            )
        return None

    def select_srq(self, number: int) -> None:
        """Serve a shared receive queue of the XRC domain, and check keys against its protection domain."""
        qp = self._qp
        self._srq = None if qp.domain is None else qp.domain.get(number)
        self._pd = qp.pd if self._srq is None else self._srq.pd

    def complete(self, completion: Completion) -> None:
        """Write a completion to the CQ of its ring. A CQ that cannot take it ends the queue pair."""
        qp = self._qp
        if qp.closed:
            return
        if completion.status is not Status.SUCCESS:
            if qp.condemned and completion.opcode < CompletionOpcode.RECV:
                qp.condemned = False
                completion = replace(completion, status=Status.LOC_QP_OP_ERR, cause=Cause.RULE_BROKEN)
            qp.note_completion(completion)
            received = completion.opcode >= CompletionOpcode.RECV
            self._platform.counters.note_failure(completion.status, received=received)
        watch = self._platform.checks.watch
        if watch is not None:
            watch.completing(qp, completion)
        if completion.opcode >= CompletionOpcode.RECV:
            cq = qp.recv_cq
            if qp.receive is not None:
                qp.receive.completed = (completion.index + 1) & MASK
            elif qp.domain is not None:
                cq = self._cq_of(completion) or cq
        else:
            cq = qp.send_cq
        if not cq.post(completion):
            qp.fail_soon(f"CQ {cq.number} takes no completions")

    def _cq_of(self, completion: Completion) -> CompletionQueue | None:
        """The CQ of the shared receive queue that an element came from, where those have CQs."""
        domain, number = self._qp.domain, completion.cookie
        queue = domain.get(number) if domain is not None and isinstance(number, int) else None
        return None if queue is None else queue.cq

    def retire(self, index: int) -> None:
        """Every send slot before ``index`` is free."""
        qp = self._qp
        if before(qp.completed, index):
            qp.completed = index & MASK

    def moved(self, state: QpState, reason: str) -> None:
        """The engine moved the queue pair."""
        if not self._qp.closed:
            self._qp.moved(state, reason)

    def raise_event(self, event: AsyncEvent, reason: str) -> None:
        """Raise an event about the queue pair."""
        if not self._qp.closed:
            self._qp.raise_event(event, reason)

    def note_retransmit(self, psn: int, packets: int, octets: int, reason: str) -> None:
        """Count and trace packets sent again."""
        platform = self._platform
        platform.counters.retransmitted_packets += packets
        platform.counters.retransmitted_bytes += octets
        if platform.events.mask & _RETRANSMIT:
            platform.trace.emit(
                Kind.RETRANSMIT,
                f"QP {self.qpn:#x}: {packets} packets again from PSN {psn} ({reason})",
                qpn=self.qpn,
                length=octets,
                value=psn,
            )

    def note_drop(self, counter: str, reason: str) -> None:
        """Count and trace an inbound packet that was dropped."""
        platform = self._platform
        platform.counters.rx_dropped += 1
        if counter != "rx_dropped":
            platform.counters.bump(counter)
        if platform.events.mask & _FRAME_DROP:
            platform.trace.emit(Kind.FRAME_DROP, f"QP {self.qpn:#x}: {reason}", qpn=self.qpn)

    def note_timer(self, name: str) -> None:
        """Trace a protocol timer that ran out."""
        platform = self._platform
        if platform.events.mask & _TIMER:
            platform.trace.emit(Kind.TIMER, f"QP {self.qpn:#x}: {name}", qpn=self.qpn)

    def count(self, counter: str) -> None:
        """Bump a counter by name."""
        self._platform.counters.bump(counter)

    def _read(self, key: int, address: int, length: int, access: Access, *, remote: bool) -> bytes:
        region = self._region(key, address, length, access, remote=remote)
        try:
            return region.pages.read(self._dma, address - region.address, length)
        except BusError as error:
            raise self._unreachable(error) from None

    def _write(
        self, key: int, address: int, data: bytes | memoryview, access: Access, *, remote: bool
    ) -> None:
        region = self._region(key, address, len(data), access, remote=remote)
        try:
            region.pages.write(self._dma, address - region.address, data, relaxed=region.relaxed)
        except BusError as error:
            raise self._unreachable(error) from None

    def _region(self, key: int, address: int, length: int, access: Access, *, remote: bool) -> MemoryRegion:
        if self._qp.closed:
            raise ProtectionError("the queue pair was destroyed", cause=Cause.FLUSHED)
        try:
            region = self._keys.check(key, address, length, self._pd, access, remote=remote)
        except ProtectionError as error:
            unknown = error.cause in (Cause.LKEY_UNKNOWN, Cause.RKEY_UNKNOWN)
            if unknown and self._keys.region(swapped(key)) is not None:
                text = f"key {key:#x} is {swapped(key):#x} with its bytes swapped; swap it once or never"
                self._report(Rule.C11_BYTE_ORDER, text)
            else:
                self._report(Rule.C22_KEY, error.rule)
            raise
        if region.qpn is not None and region.qpn != self.qpn:
            rule = f"key {key:#x} is bound to QP {region.qpn:#x}; bind it on the QP that uses it"
            self._report(Rule.C22_KEY, rule)
            raise ProtectionError(rule, cause=Cause.RKEY_ACCESS if remote else Cause.LKEY_ACCESS)
        return region

    def _check_atomic(self, region: MemoryRegion, address: int, size: int) -> None:
        if size not in ATOMIC_SIZES:
            rule = f"an atomic works on {' or '.join(map(str, ATOMIC_SIZES))} bytes, not {size}"
        elif address % size:
            rule = f"atomic target {address:#x} is not {size}-byte aligned"
        elif not region.atomic_capable:
            rule = f"rkey {region.key:#x} is not atomic-capable; register the memory with that flag"
        else:
            return
        self._report(Rule.C23_ATOMIC, rule)
        raise ProtectionError(rule, cause=Cause.RKEY_ACCESS)

    def _unreachable(self, error: BusError) -> ProtectionError:
        self._platform.counters.protection_errors += 1
        return ProtectionError(f"{error}; keep memory mapped while work uses it", cause=Cause.BUS_ERROR)

    def _report(self, rule: Rule, text: str) -> None:
        self._platform.counters.protection_errors += 1
        self._platform.checks.report(rule, f"QP {self.qpn:#x}: {text}", qpn=self.qpn)


def _slices(sges: list[Sge], offset: int, length: int) -> list[tuple[int, int, int]]:
    """(key, address, size) of each piece of ``[offset, offset + length)`` of a scatter/gather list.

    A range past the list's end is charged to its last element, whose bounds check then refuses it.
    """
    pieces: list[tuple[int, int, int]] = []
    last = len(sges) - 1
    for position, sge in enumerate(sges):
        if not length:
            break
        if offset >= sge.length and position != last:
            offset -= sge.length
            continue
        size = length if position == last else min(length, sge.length - offset)
        pieces.append((sge.lkey, sge.address + offset, size))
        offset = 0
        length -= size
    return pieces
