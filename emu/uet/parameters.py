# SPDX-License-Identifier: Apache-2.0
"""Configuration of a fabric endpoint (section 3.15 of the wire reference names most of these).

Times are those of an emulator: about a hundred times the specification's, because one round trip through a
Python device takes milliseconds while guests load the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from emu.clock import MS, NS_PER_S
from emu.uet.tss_keys import SecureDomain
from emu.wire import uet_profile

__all__ = ["NsccConfig", "Parameters"]


@dataclass(frozen=True, slots=True)
class NsccConfig:
    """What the constants of sender congestion control derive from.

    ``base_rtt_ns`` is the round trip of one packet over the longest path when idle, ``bytes_per_second`` the
    slowest link's speed; ``trimming`` says that switches trim, which allows a lower delay target.
    """

    base_rtt_ns: int = 10 * MS
    bytes_per_second: int = 1_250_000_000
    trimming: bool = False


@dataclass(frozen=True, slots=True)
class Parameters:
    """One fabric endpoint's configuration.

    ``wire`` are the choices of the wire format; the engine sends UDP checksum 0 whatever they say of it. A
    CRC trailer costs ten times the rest of a packet's way.
    ``job_id`` and ``relative`` are how its requests address; all queue pairs of a lab are one job.
    ``operand_order`` is the byte order of atomic operands and results on the wire, which no source settles.

    ``mpr_before_ack`` is the range assumed of a peer until its first ACK, in units of 128 PSNs.
    ``ack_trigger`` and ``ack_min_add`` are bytes until an ACK nobody asked for, ``ack_interval`` the packets
    after which a source asks for one, ``max_ack_data`` the longest read answered inside an ACK.

    ``reorder_bound`` packets must overtake another on its own path before that counts as lost, since a path
    keeps order. After ``tail_loss_ns`` of silence (two round trips, if longer) a packet's fate is asked for,
    after an eighth of it when nothing more is to be sent, ``max_asks`` times; then it is sent again every
    ``rto_ns``, doubled each time, ``max_rto`` times.
    ``nack_retx_ns`` is the pause after a refusal for lack of resources, taken at most ``max_nack_retx`` times
    for one packet.

    ``eager_bytes`` is the most that a rendezvous carries of a message that is longer than a packet. Of
    messages without a receive element ``max_unexpected`` wait at a queue pair, with at most
    ``unexpected_bytes`` of data; ``max_fetches`` rendezvous are fetched at a time. A deferrable send that was
    called off is tried again after ``deferral_ns`` even if nobody asked for it.

    ``max_pdcs`` bounds the contexts of an endpoint, ``max_bitmaps`` those that others opened for unordered
    delivery, ``max_messages`` the started messages on one, ``max_replies`` the read answers that wait for its
    window, ``max_stored`` the answers that wait to be cleared.
    An initiator closes a PDC ``idle_close_ns`` after its last use, in error if read data is still missing; a
    target that asked for a close waits ``close_ns``; late SYN packets of a closed PDC are recognized for
    ``syn_safety_ns``.

    With ``choose_start`` a target has initiators begin at a PSN of its choice, which it can tell again
    without remembering anything: SYN packets with forged source addresses then open no contexts.

    ``congestion`` names what holds senders back: a window that follows the network's signals (NSCC), credit
    that the receiver paces (RCCC), or both; ends of a link agree on it. With ``probe`` a source asks once for
    the base round trip; that is of a small packet past all queues, less than the configured one of a full
    packet, and so makes the window smaller. ``max_cccs`` bounds the congestion
    control contexts of others that get credit here.

    ``paths`` is the number of entropy values packets are sprayed over. ``security`` is the domain whose key
    protects all packets, None for none; its ICV takes the place of a CRC.

    :raises ValueError: both a domain and a CRC
    """

    wire: uet_profile.Profile = uet_profile.DEFAULT
    job_id: int = 1
    relative: bool = True
    operand_order: Literal["big", "little"] = "big"

    mpr_before_ack: int = 8
    ack_trigger: int = 16 * 1024
    ack_min_add: int = 1024
    ack_interval: int = 16
    max_ack_data: int = 16

    eager_bytes: int = 1024
    max_unexpected: int = 64
    unexpected_bytes: int = 1 << 20
    max_fetches: int = 16
    deferral_ns: int = NS_PER_S

    reorder_bound: int = 3
    tail_loss_ns: int = 50 * MS
    max_asks: int = 2
    rto_ns: int = 200 * MS
    max_rto: int = 5
    nack_retx_ns: int = 10 * MS
    max_nack_retx: int = 5

    max_pdcs: int = 4096
    max_bitmaps: int = 4096
    max_messages: int = 1024
    max_replies: int = 4096
    max_stored: int = 1024
    idle_close_ns: int = 5 * NS_PER_S
    close_ns: int = NS_PER_S
    syn_safety_ns: int = NS_PER_S
    choose_start: bool = False

    congestion: Literal["nscc", "rccc", "both"] = "nscc"
    probe: bool = False
    max_cccs: int = 4096
    paths: int = 8
    nscc: NsccConfig = field(default_factory=NsccConfig)
    security: SecureDomain | None = None

    def __post_init__(self) -> None:
        if self.security is not None and self.wire.trailer is uet_profile.Trailer.CRC:
            raise ValueError("secured packets end with an ICV in place of a CRC: choose one of the two")
