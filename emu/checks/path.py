# SPDX-License-Identifier: Apache-2.0
"""The way between two queue pairs: both ends of it must say the same, and it must stand a loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from emu.checks.check import Check
from emu.checks.rule import Rule
from emu.nic.work import Completion, QpState, Status, Transport

if TYPE_CHECKING:
    from emu.checks.checks import Checks
    from emu.nic.device import Nic
    from emu.nic.qp import QueuePair

__all__ = ["CHECKS", "PathWatch"]

CHECKS = (
    Check(
        Rule.C26_PATH,
        "Both ends of a connection agree: numbers, addresses, path MTU, first PSN, partition, READ depth.",
        "QPN, the attribute, its value at both ends",
        "Nothing: packets are dropped or answered as their transport says.",
        "Give each end what the other one has; take MTU and GID from the port.",
        limits="Between NICs of one lab, when both are in RTR or further.",
    ),
    Check(
        Rule.C27_RETRY,
        "A connection stands the loss of a packet: it has a timeout, and retries.",
        "QPN, index, timeout and retry count",
        "Completion RETRY_EXC_ERR, or waiting without end.",
        "Set a timeout that is not 0, and a retry count; 7 is the most.",
        limits="Named when a packet was lost, not before.",
    ),
)

_CONNECTED = (QpState.RTR, QpState.RTS, QpState.SQD)
_DATAGRAM = (Transport.ROCE_UD, Transport.UET_UUD, Transport.LOCAL)


class PathWatch:
    """Compares a queue pair with the one its packets go to. ``neighbours`` are all NICs of its lab."""

    def __init__(self, nic: Nic, checks: Checks) -> None:
        self._nic = nic
        self._checks = checks
        self.neighbours: Sequence[Nic] = ()

    def moved(self, qp: QueuePair) -> None:
        """A queue pair changed its state."""
        if qp.state not in (QpState.RTR, QpState.RTS) or qp.transport in _DATAGRAM:
            return
        own = qp.attributes
        if own.hop_limit == 0:
            self._report(qp, "its hop limit is 0: no packet gets anywhere; set 64 or more")
        if own.path_mtu > self._nic.limits.port_mtu:
            self._report(qp, f"its path MTU {own.path_mtu} is above the port's {self._nic.limits.port_mtu}")
        peer = next((nic for nic in self.neighbours if own.dest_mac in nic.addresses), None)
        if peer is None:
            return
        other = peer.qps.items.get(own.dest_qpn)
        if other is None:
            self._report(
                qp,
                f"it sends to QP {own.dest_qpn:#x} of {peer.name}, which does not exist; exchange "
                "numbers anew",
            )
        elif other.state in _CONNECTED and QpState.RTS in (qp.state, other.state):
            for difference in _differences(self._nic, qp, peer, other):
                self._report(qp, f"{difference} ({peer.name}, QP {other.number:#x})")

    def completing(self, qp: QueuePair, completion: Completion) -> None:
        """An error completion is about to be written."""
        own = qp.attributes
        if completion.status is Status.RETRY_EXC_ERR and own.retry_cnt == 0:
            self._checks.report(
                Rule.C27_RETRY,
                f"QP {qp.number:#x}: index {completion.index} failed at the first lost packet, as "
                "retry_cnt is "
                "0; allow retries",
                qpn=qp.number,
                index=completion.index,
            )

    def stuck(self, qp: QueuePair) -> None:
        """A queue pair has work and makes no progress."""
        reliable = qp.transport not in (*_DATAGRAM, Transport.ROCE_UC)
        if reliable and qp.state is QpState.RTS and qp.attributes.timeout == 0 and not qp.engine.idle():
            self._checks.report(
                Rule.C27_RETRY,
                f"QP {qp.number:#x}: index {qp.completed} waits for an answer, and for ever if a packet was "
                "lost, as its timeout is 0; set one",
                qpn=qp.number,
                index=qp.completed,
            )

    def _report(self, qp: QueuePair, text: str) -> None:
        self._checks.report(Rule.C26_PATH, f"QP {qp.number:#x}: {text}", qpn=qp.number)


def _differences(nic: Nic, qp: QueuePair, peer: Nic, other: QueuePair) -> Iterable[str]:
    """What the two ends do not agree on, each with what to do."""
    own, their = qp.attributes, other.attributes
    if other.transport is not qp.transport:
        yield f"its transport is {qp.transport.name}, the peer's {other.transport.name}; use one"
        return
    if their.dest_qpn != qp.number:
        yield f"its peer sends to QP {their.dest_qpn:#x}, not here; exchange numbers anew"
        return
    if own.path_mtu != their.path_mtu:
        yield f"its path MTU is {own.path_mtu}, the peer's {their.path_mtu}; use the smaller one"
    if own.dest_gid != their.source_gid:
        yield f"it sends to GID {own.dest_gid.hex()}, its peer is {their.source_gid.hex()}; exchange GIDs"
    if own.pkey & 0x7FFF != their.pkey & 0x7FFF:
        yield f"its partition key is {own.pkey:#x}, the peer's {their.pkey:#x}; use one partition"
    for sender, receiver in ((qp, other), (other, qp)):
        first, expected = sender.attributes.sq_psn, receiver.attributes.rq_psn
        if sender.state is QpState.RTS and first != expected:
            yield f"PSN {first} is sent first and {expected} is expected; exchange PSNs anew"
        asks, allows = sender.attributes.max_rd_atomic, receiver.attributes.max_dest_rd_atomic
        if sender.state is QpState.RTS and asks > allows and sender.transport is Transport.ROCE_RC:
            yield f"{asks} READs may be outstanding and the responder allows {allows}; lower max_rd_atomic"
