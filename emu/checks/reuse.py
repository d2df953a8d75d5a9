# SPDX-License-Identifier: Apache-2.0
"""What the device may still read stays as it is until its completion: descriptors and payload."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from emu.checks.check import Check
from emu.checks.rule import Rule
from emu.nic.serial import MASK, ahead
from emu.nic.work import Completion, Opcode, SendRequest, Sge
from emu.pcie.bus import BusError
from emu.wire.icrc import crc32

if TYPE_CHECKING:
    from emu.checks.checks import Checks
    from emu.nic.device import Nic
    from emu.nic.formats import WqeFault
    from emu.nic.qp import QueuePair

__all__ = ["CHECKS", "ReuseWatch"]

CHECKS = (
    Check(
        Rule.C04_CHANGED,
        "A WQE does not change between its doorbell and its completion.",
        "QPN, index, byte of the slot, bus address",
        "Nothing: the descriptor was read once.",
        "Reuse a slot only after its completion, or a later one of its queue pair, was seen.",
        limits="A change back before the completion is written goes unnoticed.",
    ),
    Check(
        Rule.C05_REUSE,
        "Slots, payload and result buffers are not reused before their completion was seen.",
        "QPN, index, address of the payload; with hints the lane that writes",
        "Nothing: a retransmission sends what is there then.",
        "Wait for the completion, not for the doorbell; wait for a free slot before reserving it.",
        limits="The device compares payload of one piece of memory: of one packet at its completion, of more "
        "when it sends them again. What READs and atomics bring is watched with hints only.",
    ),
)

LONGEST = 4096
"""Bytes of a payload that are compared at its completion."""
KEPT = 1024
"""Checksums kept of each message: pieces beyond it are not compared."""
_PAYLOAD = frozenset((Opcode.WRITE, Opcode.WRITE_IMM, Opcode.SEND, Opcode.SEND_IMM, Opcode.SEND_INV))


class _Flight:
    """What of one queue pair was read and is not complete."""

    __slots__ = ("bursts", "requests", "sums")

    def __init__(self) -> None:
        self.bursts: deque[tuple[int, int, bytes]] = deque()
        """First index, slots, bytes."""
        self.requests: deque[SendRequest] = deque()
        self.sums: dict[int, dict[tuple[int, int], int]] = {}
        """By identity of a gather list that :attr:`requests` keeps: checksum of each piece that was sent, by
        offset and length.
        """


class ReuseWatch:
    """Keeps copies and checksums of what was read, and looks again before a completion is written."""

    def __init__(self, nic: Nic, checks: Checks) -> None:
        self._nic = nic
        self._checks = checks
        self._quiet = nic.platform.dma.quiet()
        self._flights: dict[int, _Flight] = {}
        self.slots = self.payload = True
        """What is watched."""

    def clear(self) -> None:
        """Forget everything."""
        self._flights.clear()

    def forget(self, qpn: int) -> None:
        """A queue pair starts anew or is gone."""
        self._flights.pop(qpn, None)

    def fetched(
        self, qp: QueuePair, first: int, count: int, burst: bytes, found: list[SendRequest | WqeFault]
    ) -> None:
        """A span of the send ring was read."""
        flight = self._flights.get(qp.number)
        if flight is None:
            flight = self._flights[qp.number] = _Flight()
        self._forget_written(flight, (first + count - qp.sq.size) & MASK)
        if self.slots:
            flight.bursts.append((first, count, burst))
        requests, sums = flight.requests, flight.sums
        for request in found:
            if not isinstance(request, SendRequest):
                break
            requests.append(request)
            if request.sges and request.opcode in _PAYLOAD:
                sums[id(request.sges)] = {}

    @staticmethod
    def _forget_written(flight: _Flight, oldest: int) -> None:
        """Slots before ``oldest`` are used again, so nobody waits for a completion of what was in them."""
        bursts, requests = flight.bursts, flight.requests
        while bursts and ahead(bursts[0][0], oldest) < 0:
            bursts.popleft()
        while requests and ahead(requests[0].index, oldest) < 0:
            flight.sums.pop(id(requests.popleft().sges), None)

    def gathered(self, qpn: int, sges: list[Sge], offset: int, data: bytes) -> None:
        """Payload was read to be sent, perhaps again."""
        flight = self._flights.get(qpn)
        sums = None if flight is None else flight.sums.get(id(sges))
        if flight is None or sums is None:
            return
        piece = (offset, len(data))
        total = crc32(data)
        before = sums.get(piece)
        if before is None:
            if len(sums) < KEPT:
                sums[piece] = total
        elif before != total:
            sums[piece] = total
            index = self._owner(flight, sges)
            address = sges[0].address + offset
            self._checks.report(
                Rule.C05_REUSE,
                f"QP {qpn:#x}: the {len(data)} bytes of payload at {address:#x} are sent again and changed "
                "meanwhile; leave a payload alone until its completion was seen",
                qpn=qpn,
                index=index,
                address=address,
            )

    def completing(self, qp: QueuePair, completion: Completion) -> None:
        """The completion of a send element is about to be written."""
        flight = self._flights.get(qp.number)
        if flight is None:
            return
        index = completion.index
        end = (index + 1) & MASK
        requests = flight.requests
        while requests and ahead(requests[0].index, index) <= 0:
            request = requests.popleft()
            end = (request.index + request.slots) & MASK
            sums = flight.sums.pop(id(request.sges), None)
            if sums and self.payload:
                self._compare_payload(qp, sums, request)
        if self.slots:
            self._compare_slots(qp, flight, end)

    def _compare_slots(self, qp: QueuePair, flight: _Flight, end: int) -> None:
        size = qp.sq.slot_size
        bursts = flight.bursts
        while bursts:
            first, count, burst = bursts[0]
            done = min(count, ahead(end, first))
            if done <= 0:
                return
            try:
                now = qp.sq.peek(self._quiet, first, done)
            except BusError:
                now = burst[: done * size]
            if now != burst[: done * size]:
                self._name_slot(qp, first, burst, now)
            if done < count:
                bursts[0] = ((first + done) & MASK, count - done, burst[done * size :])
                return
            bursts.popleft()

    def _name_slot(self, qp: QueuePair, first: int, was: bytes, now: bytes) -> None:
        size = qp.sq.slot_size
        at = next(at for at in range(len(now)) if now[at] != was[at])
        index = (first + at // size) & MASK
        address = qp.sq.place(index)
        self._checks.report(
            Rule.C04_CHANGED,
            f"QP {qp.number:#x}: the WQE of index {index} changed between its fetch and its completion, from "
            f"byte {at % size} of the slot at {address:#x} on; wait for the completion before reusing a slot",
            qpn=qp.number,
            index=index,
            address=address,
        )

    def _compare_payload(self, qp: QueuePair, sums: dict[tuple[int, int], int], request: SendRequest) -> None:
        sge = request.sges[0]
        total = sums.get((0, request.length))
        if total is None or request.length > LONGEST or len(request.sges) > 1:
            return
        region = self._nic.keys.region(sge.lkey)
        if region is None or not region.address <= sge.address <= region.end - request.length:
            return
        try:
            now = region.pages.read(self._quiet, sge.address - region.address, request.length)
        except BusError:
            return
        if crc32(now) != total:
            self._checks.report(
                Rule.C05_REUSE,
                f"QP {qp.number:#x}: the payload of index {request.index}, {request.length} bytes at "
                f"{sge.address:#x}, changed before its completion was written; wait for it first",
                qpn=qp.number,
                index=request.index,
                address=sge.address,
            )

    @staticmethod
    def _owner(flight: _Flight, sges: list[Sge]) -> int | None:
        for request in flight.requests:
            if request.sges is sges:
                return request.index
        return None
