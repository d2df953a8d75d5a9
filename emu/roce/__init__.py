# SPDX-License-Identifier: Apache-2.0
"""RoCEv2 transport: engines for the core, and the parser for what arrives."""

from __future__ import annotations

from emu.nic.engine import Drop, Engine, EngineHost
from emu.nic.work import Transport
from emu.roce.packet import RocePacket, parse
from emu.roce.rc import RcEngine
from emu.roce.uc import UcEngine
from emu.roce.ud import UdEngine
from emu.roce.xrc import XrcEngine

__all__ = ["Drop", "RcEngine", "RocePacket", "UcEngine", "UdEngine", "XrcEngine", "create_engine", "parse"]


def create_engine(transport: Transport, host: EngineHost) -> Engine:
    """The engine of a queue pair of service ``transport``, in state RESET.

    :raises ValueError: the service is not one of RoCEv2.
    """
    if transport is Transport.ROCE_RC:
        return RcEngine(host)
    if transport is Transport.ROCE_XRC:
        return XrcEngine(host)
    if transport is Transport.ROCE_UC:
        return UcEngine(host)
    if transport is Transport.ROCE_UD:
        return UdEngine(host)
    raise ValueError(
        f"transport {transport.name} is not offered: RoCEv2 has ROCE_RC, ROCE_XRC, ROCE_UC and ROCE_UD"
    )
