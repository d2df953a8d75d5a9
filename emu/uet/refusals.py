# SPDX-License-Identifier: Apache-2.0
"""What each NACK code asks of the source (section 2.10 of the wire reference)."""

from __future__ import annotations

import enum

from emu.wire.uet_names import NackCode

__all__ = ["REACTIONS", "TRIMS", "Reaction", "name_of"]


class Reaction(enum.Enum):
    """Classes of consequences."""

    RESEND = "send the packet again now"
    RESEND_LATER = "send the packet again after a pause, so many times"
    GO_BACK = "send everything from the PSN in the payload on again, in order"
    WAIT = "the destination has the packet and is still at work"
    FRESH = "the target has no such PDC (any more): what it did not answer it did not carry out"
    NEW_START = "send everything again from the PSN in the payload on, as the target chose it"
    FATAL = "the PDC ends, and what is outstanding on it fails"


REACTIONS: dict[int, Reaction] = {
    NackCode.TRIMMED: Reaction.RESEND,
    NackCode.TRIMMED_LASTHOP: Reaction.RESEND,
    NackCode.TRIMMED_ACK: Reaction.RESEND,
    NackCode.NO_PDC_AVAIL: Reaction.RESEND_LATER,
    NackCode.NO_CCC_AVAIL: Reaction.RESEND_LATER,
    NackCode.NO_BITMAP: Reaction.RESEND_LATER,
    NackCode.NO_PKT_BUFFER: Reaction.RESEND_LATER,
    NackCode.NO_GTD_DEL_AVAIL: Reaction.RESEND_LATER,
    NackCode.NO_SES_MSG_AVAIL: Reaction.RESEND_LATER,
    NackCode.NO_RESOURCE: Reaction.RESEND_LATER,
    NackCode.PSN_OOR_WINDOW: Reaction.RESEND_LATER,
    NackCode.ROD_OOO: Reaction.GO_BACK,
    NackCode.INV_DPDCID: Reaction.FRESH,
    NackCode.PDC_HDR_MISMATCH: Reaction.FATAL,
    NackCode.CLOSING: Reaction.FRESH,
    NackCode.CLOSING_IN_ERR: Reaction.FATAL,
    NackCode.PKT_NOT_RCVD: Reaction.RESEND,
    NackCode.GTD_RESP_UNAVAIL: Reaction.FATAL,
    NackCode.ACK_WITH_DATA: Reaction.RESEND,
    NackCode.INVALID_SYN: Reaction.FRESH,
    NackCode.PDC_MODE_MISMATCH: Reaction.FATAL,
    NackCode.NEW_START_PSN: Reaction.NEW_START,
    NackCode.RCVD_SES_PROCG: Reaction.WAIT,
    NackCode.UNEXP_EVENT: Reaction.FATAL,
    NackCode.RCVR_INFER_LOSS: Reaction.RESEND,
    NackCode.EXP_NORMAL: Reaction.RESEND_LATER,
    NackCode.EXP_ERROR: Reaction.FATAL,
    NackCode.EXP_FATAL: Reaction.FATAL,
}
"""The reaction to every code there is; unknown ones are fatal."""

TRIMS = frozenset({NackCode.TRIMMED, NackCode.TRIMMED_LASTHOP})
"""Codes by which a switch that cut a packet is heard."""


def name_of(code: int) -> str:
    """A code's name, or its number when it has none."""
    return NackCode(code).name if code in NackCode.__members__.values() else f"{code:#04x}"
