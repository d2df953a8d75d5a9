# SPDX-License-Identifier: Apache-2.0
"""From queue pair attributes to frames: GIDs to IP addresses, the UDP source port, a template per opcode."""

from __future__ import annotations

from emu.nic.work import AddressHandle, QpAttributes
from emu.wire.frame import FramePath
from emu.wire.template import FrameTemplate

__all__ = ["Templates", "datagram_path", "frame_path", "source_port"]

_V4_MAPPED = bytes(10) + b"\xff\xff"


def source_port(local_qpn: int, remote_qpn: int) -> int:
    """UDP source port of a connection, 0xC000..0xFFFF: a flow label folded to 14 bits.

    The flow label comes from the product of the two QP numbers, so both directions share the port (the
    convention of hardware drivers, and of Linux ``rdma_flow_label_to_udp_sport``).
    """
    value = local_qpn * remote_qpn
    value ^= value >> 20
    value ^= value >> 40
    label = value & 0xFFFFF
    return ((label & 0x3FFF) ^ ((label & 0xFC000) >> 14)) | 0xC000


def frame_path(attributes: QpAttributes, qpn: int) -> FramePath:
    """Addressing of the frames that QP ``qpn`` sends. IPv4 when both GIDs are IPv4-mapped, IPv6 otherwise."""
    return _path(attributes, qpn, attributes.dest_qpn)


def datagram_path(handle: AddressHandle, qpn: int, dest_qpn: int) -> FramePath:
    """Addressing of the datagrams that QP ``qpn`` sends to ``dest_qpn`` through ``handle``."""
    return _path(handle, qpn, dest_qpn)


def _path(address: AddressHandle | QpAttributes, qpn: int, dest_qpn: int) -> FramePath:
    source, dest = address.source_gid, address.dest_gid
    if source.startswith(_V4_MAPPED) and dest.startswith(_V4_MAPPED):
        source, dest = source[12:], dest[12:]
    return FramePath(
        source_mac=address.source_mac,
        dest_mac=address.dest_mac,
        source_ip=source,
        dest_ip=dest,
        source_port=address.udp_source_port or source_port(qpn, dest_qpn),
        traffic_class=address.traffic_class,
        hop_limit=address.hop_limit or 64,
    )


class Templates(dict[int, FrameTemplate]):
    """Templates of one connection by opcode, compiled at first use."""

    def __init__(self, path: FramePath, *, dest_qpn: int, pkey: int) -> None:
        super().__init__()
        self.path = path
        self._dest_qpn = dest_qpn
        self._pkey = pkey

    def __missing__(self, opcode: int) -> FrameTemplate:
        template = FrameTemplate(self.path, opcode, dest_qpn=self._dest_qpn, pkey=self._pkey)
        self[opcode] = template
        return template
