# SPDX-License-Identifier: Apache-2.0
"""The tshark command line that shows a capture as it should be seen."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from emu.capture.generate import LUA_SCRIPT, UET_SCRIPT

__all__ = ["PAYLOAD_GUESSES", "tshark_arguments", "tshark_command"]

PAYLOAD_GUESSES = (
    "eth_over_ib",
    "fc_infiniband",
    "iser_infiniband",
    "lnet_ib",
    "mellanox_eoib",
    "nvme_rdma",
    "rpcrdma_infiniband",
    "sdp_infiniband",
    "smb_direct_infiniband",
    "smcr_infiniband",
)
"""Heuristic dissectors that Wireshark (4.0 to 4.4) tries on the payload of RDMA messages. They guess from
a few bytes and call ordinary data malformed RPC-over-RDMA and the like; none of these protocols is
spoken in a lab."""

COLUMNS = (
    ("No.", "%m"),
    ("Time", "%t"),
    ("Interface", "%Cus:frame.interface_name:0:R"),
    ("Direction", "%Cus:frame.packet_flags_direction:0:R"),
    ("Protocol", "%p"),
    ("PSN", "%Cus:infiniband.bth.psn:0:R"),
    ("Info", "%i"),
)
"""Title and Wireshark format of each column: a frame shows twice, so where it was seen matters most."""


def tshark_arguments(path: str | os.PathLike[str], *more: str) -> list[str]:
    """Options for tshark or wireshark: read ``path``, show events and UET, do not guess at payloads.

    ``more`` follows, for example ``"-Y", "vrnic.qpn == 0x101"``.
    """
    words = ["-r", os.fspath(path), "-X", f"lua_script:{LUA_SCRIPT}", "-X", f"lua_script:{UET_SCRIPT}"]
    # UET sends UDP checksum 0 over IPv6 too: a switch that trims could not keep another right.
    words += ["-o", "udp.ignore_ipv6_zero_checksum:TRUE"]
    for name in PAYLOAD_GUESSES:
        words += ["--disable-heuristic", name]
    columns = ",".join(f'"{title}","{content}"' for title, content in COLUMNS)
    words += ["-o", f"gui.column.format:{columns}"]
    return [*words, *more]


def tshark_command(path: str | os.PathLike[str], program: Sequence[str] = ("tshark",)) -> str:
    """The whole command as a line for a shell; ``program`` is what starts tshark here."""
    return shlex.join([*program, *tshark_arguments(path)])
