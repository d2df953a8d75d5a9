# SPDX-License-Identifier: Apache-2.0
"""The bytes a send element's message is made of, wherever they are."""

from __future__ import annotations

from emu.nic.engine import EngineHost
from emu.nic.work import SendRequest

__all__ = ["packet_payload"]


def packet_payload(host: EngineHost, request: SendRequest, offset: int, size: int) -> bytes:
    """``size`` bytes at ``offset`` of the message: first what was in the descriptor, then what is in memory.

    :raises ProtectionError: memory does not allow it.
    """
    inline = request.inline
    if inline is None:
        return host.gather(request.sges, offset, size) if size else b""
    data = inline[offset : offset + size]
    if len(data) == size:
        return data
    return data + host.gather(request.sges, max(0, offset - len(inline)), size - len(data))
