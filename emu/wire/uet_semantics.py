# SPDX-License-Identifier: Apache-2.0
"""Semantic headers of UET and their extensions as scapy layers."""

from __future__ import annotations

from typing import Any, ClassVar

from scapy.packet import Packet, Raw

from emu.wire import uet_ses
from emu.wire.uet_format import names_of
from emu.wire.uet_layer import Layer, Summary, fields_of, fitting, flags_of
from emu.wire.uet_names import (
    AtomicOp,
    NextHeader,
    RequestOpcode,
    ResponseOpcode,
    ReturnCode,
)

__all__ = [
    "BY_NEXT_HEADER",
    "Atomic",
    "CompareSwap",
    "MediumRequest",
    "Rendezvous",
    "Response",
    "ResponseData",
    "ResponseDataSmall",
    "SmallRequest",
    "StdRequest",
]

_OPCODES = names_of(RequestOpcode)
_RESPONSES = names_of(ResponseOpcode)
_CODES = names_of(ReturnCode)
_OPERATIONS = names_of(AtomicOp)


class _SesRequest(Layer):
    """A request header; the opcode says which extension follows."""

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        extension = uet_ses.extension_format(self.opcode, payload)
        return Raw if extension is None else fitting(_EXTENSIONS[extension.name], payload)

    def _line(self, more: str = "") -> Summary:
        flags = flags_of(self, "som", "eom", "dc", "ie", "rel")
        name = _OPCODES.get(self.opcode, f"opcode {self.opcode:#x}")
        target = f"job={self.job_id:#x} pid={self.pid_on_fep} ri={self.resource_index}"
        return f"{name} len={self.request_length} {target}{more}{flags}", self.shown_after


class StdRequest(_SesRequest):
    """Standard request, any message."""

    name = "UET SES standard request"
    header = uet_ses.STANDARD
    fields_desc: ClassVar[list[Any]] = fields_of(uet_ses.STANDARD, som=1, eom=1)

    def mysummary(self) -> Summary:
        place = "" if self.som else f" offset={self.message_offset}"
        return self._line(f" msg={self.message_id}{place}")


class MediumRequest(_SesRequest):
    """Medium request, a message of one packet."""

    name = "UET SES medium request"
    header = uet_ses.MEDIUM
    fields_desc: ClassVar[list[Any]] = fields_of(uet_ses.MEDIUM, som=1, eom=1)

    def mysummary(self) -> Summary:
        return self._line()


class SmallRequest(_SesRequest):
    """Small request, a message of one packet to a buffer that the resource index names."""

    name = "UET SES small request"
    header = uet_ses.SMALL
    fields_desc: ClassVar[list[Any]] = fields_of(uet_ses.SMALL, som=1, eom=1)

    def mysummary(self) -> Summary:
        return self._line()


class _SesResponse(Layer):
    """A response header; what follows is data."""

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return Raw

    def mysummary(self) -> Summary:
        name = _RESPONSES.get(self.opcode, f"response {self.opcode:#x}")
        return f"{name} {_CODES.get(self.return_code, hex(self.return_code))}", self.shown_after


class Response(_SesResponse):
    """Response without data."""

    name = "UET SES response"
    header = uet_ses.RESPONSE
    fields_desc: ClassVar[list[Any]] = fields_of(
        uet_ses.RESPONSE, opcode=ResponseOpcode.RESPONSE, return_code=ReturnCode.OK
    )


class ResponseData(_SesResponse):
    """Response with data of a standard read or fetching atomic."""

    name = "UET SES response with data"
    header = uet_ses.RESPONSE_DATA
    fields_desc: ClassVar[list[Any]] = fields_of(
        uet_ses.RESPONSE_DATA, opcode=ResponseOpcode.RESPONSE_W_DATA, return_code=ReturnCode.OK
    )


class ResponseDataSmall(_SesResponse):
    """Response with data of a medium or small read."""

    name = "UET SES small response with data"
    header = uet_ses.RESPONSE_DATA_SMALL
    fields_desc: ClassVar[list[Any]] = fields_of(
        uet_ses.RESPONSE_DATA_SMALL, opcode=ResponseOpcode.RESPONSE_W_DATA, return_code=ReturnCode.OK
    )


def _below() -> list[type[Packet]]:
    return [*Layer.shown_after, StdRequest, MediumRequest, SmallRequest]


class _Extension(Layer):
    """What stands between a request header and the payload."""

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return Raw


class Rendezvous(_Extension):
    """Where the target reads what did not come along."""

    name = "UET SES rendezvous extension"
    header = uet_ses.RENDEZVOUS
    fields_desc: ClassVar[list[Any]] = fields_of(uet_ses.RENDEZVOUS)

    def mysummary(self) -> Summary:
        return f"rendezvous eager={self.eager_length} offset={self.read_offset:#x}", _below()


class Atomic(_Extension):
    """Operation and type of an atomic whose operands are the payload."""

    name = "UET SES atomic extension"
    header = uet_ses.ATOMIC
    fields_desc: ClassVar[list[Any]] = fields_of(uet_ses.ATOMIC, amo_opcode=AtomicOp.SUM)

    def mysummary(self) -> Summary:
        return f"atomic {_OPERATIONS.get(self.amo_opcode, hex(self.amo_opcode))}", _below()


class CompareSwap(_Extension):
    """Operation, type and operands of a compare-and-swap."""

    name = "UET SES compare and swap extension"
    header = uet_ses.COMPARE_SWAP
    fields_desc: ClassVar[list[Any]] = fields_of(uet_ses.COMPARE_SWAP, amo_opcode=AtomicOp.CSWAP)

    def mysummary(self) -> Summary:
        name = _OPERATIONS.get(self.amo_opcode, hex(self.amo_opcode))
        return f"atomic {name} compare={self.compare_value:#x} swap={self.swap_value:#x}", _below()


_EXTENSIONS: dict[str, type[Layer]] = {
    layer.header.name: layer for layer in (Rendezvous, Atomic, CompareSwap)
}

BY_NEXT_HEADER: dict[int, type[Layer]] = {
    NextHeader.REQUEST_SMALL: SmallRequest,
    NextHeader.REQUEST_MEDIUM: MediumRequest,
    NextHeader.REQUEST_STD: StdRequest,
    NextHeader.RESPONSE: Response,
    NextHeader.RESPONSE_DATA: ResponseData,
    NextHeader.RESPONSE_DATA_SMALL: ResponseDataSmall,
}
"""Layer by next-header value."""
