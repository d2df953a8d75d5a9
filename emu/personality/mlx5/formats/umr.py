# SPDX-License-Identifier: Apache-2.0
"""Descriptors that change a memory key: what follows their control segment, whose immediate names the key.

::

    0   flags (1)   4 octowords of translation (2), offset in octowords (2)   8 mask (8)
        16 offset, upper 32 bits                                                          48 bytes
    48  memory key context                                                                64 bytes
    112 the translation, when the flags say inline; else a data segment that names it

Source: ``struct mlx5_wqe_umr_ctrl_seg`` in ``include/linux/mlx5/qp.h``, ``mlx5_wqe_mkey_context_seg`` in
rdma-core's ``mlx5dv.h``.
"""

from __future__ import annotations

import struct

from emu.nic.work import Sge
from emu.personality.mlx5.formats.rwqe import SEGMENT
from emu.personality.mlx5.layout.contexts import MKC
from emu.personality.mlx5.mkey import Check, KeyChange

__all__ = ["key_change"]

_CONTROL = struct.Struct(">B3xHHQI28x")


def key_change(wqe: bytes, at: int, number: int) -> KeyChange | None:
    """The change that the segments from byte ``at`` on describe; None when they are cut off."""
    context = at + _CONTROL.size
    body = context + MKC.size
    if len(wqe) < body:
        return None
    flags, octowords, low, mask, high = _CONTROL.unpack_from(wqe, at)
    check = Check(flags & sum(Check))
    source = None
    inline = b""
    if check & Check.INLINE:
        inline = wqe[body:]
    elif octowords:
        if len(wqe) < body + SEGMENT.size:
            return None
        length, lkey, address = SEGMENT.unpack_from(wqe, body)
        source = Sge(address, length, lkey)
    offset = high << 16 | low if check & Check.OFFSET else 0
    return KeyChange(number, check, mask, MKC.unpack(wqe[context:body]), octowords, offset, inline, source)
