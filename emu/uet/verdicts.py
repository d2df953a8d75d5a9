# SPDX-License-Identifier: Apache-2.0
"""Semantic refusals: return codes of what a target does not carry out."""

from __future__ import annotations

from emu.nic.engine import ProtectionError
from emu.nic.work import Cause
from emu.uet.headers import RequestHeader, response
from emu.uet.outgoing import Answer
from emu.wire.uet_names import NextHeader, ResponseOpcode, ReturnCode

__all__ = ["Refused", "code_of", "refusal"]

_CODES: dict[int, ReturnCode] = {
    Cause.RKEY_UNKNOWN: ReturnCode.BAD_MKEY,
    Cause.RKEY_BOUNDS: ReturnCode.BAD_ADDR,
    Cause.RKEY_ACCESS: ReturnCode.PERM_VIOLATION,
    Cause.RKEY_PD: ReturnCode.PERM_VIOLATION,
    Cause.BUS_ERROR: ReturnCode.UNCOR,
}


class Refused(Exception):
    """A request that is not carried out: what the initiator is told."""

    def __init__(self, code: int) -> None:
        super().__init__(f"return code {code:#04x}")
        self.code = code


def code_of(error: ProtectionError) -> ReturnCode:
    """The return code for memory that may not be accessed."""
    return _CODES.get(error.cause, ReturnCode.PERM_VIOLATION)


def refusal(code: int, header: RequestHeader) -> Answer:
    """A SES response that refuses a packet for good."""
    octets = response(ResponseOpcode.RESPONSE, code, header.message_id, header.job_id)
    return Answer(NextHeader.RESPONSE, octets)
