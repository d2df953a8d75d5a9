# SPDX-License-Identifier: Apache-2.0
"""Flow tables: from a received frame's headers to the TIRs that get it.

A table's entries are tried in the order of their index. An entry belongs to a group, whose criteria say
which bits count. What no entry matches goes to the table's miss table, or nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from emu.nic.errors import ErrorKind, NicError
from emu.nic.frame import TCP, UDP, Headers, parse_headers
from emu.personality.mlx5.layout.steering import FTE_MATCH_SET_LYR_2_4

__all__ = ["MATCH_BYTES", "Entry", "FlowTable", "Steering"]

MATCH_BYTES = 512
"""Size of match criteria and values."""
OUTER_BYTES = 64
"""Of these, the outer headers come first; nothing else of a frame can be matched here."""
MAX_HOPS = 64
MAX_TABLES = 1 << 10
"""Tables and groups together."""
MAX_RULES = 1 << 12
"""In one table."""
_VLAN = b"\x81\x00"
_OTHER_MASK = (1 << (MATCH_BYTES - OUTER_BYTES) * 8) - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """A rule: which bits count (``mask``), their ``value``, and what happens.

    Both are the 512 bytes of the interface as one number. ``tables`` and ``tirs`` are destinations; an entry
    with neither drops the frame.
    """

    mask: int
    value: int
    tables: tuple[int, ...]
    tirs: tuple[int, ...]


@dataclass(slots=True)
class FlowTable:
    """``kind`` is its type (0: receive), ``miss`` the table for what nothing matches (None: drop)."""

    number: int
    kind: int
    miss: int | None = None
    groups: dict[int, int] = field(default_factory=dict)
    """Criteria by group number."""
    entries: dict[int, Entry] = field(default_factory=dict)
    """Rules by index, kept in order."""

    def set(self, index: int, entry: Entry) -> None:
        """Put a rule at an index. :raises NicError: NO_RESOURCE."""
        if index not in self.entries and len(self.entries) >= MAX_RULES:
            raise NicError(ErrorKind.NO_RESOURCE, f"a flow table holds {MAX_RULES} rules")
        self.entries[index] = entry
        self.entries = dict(sorted(self.entries.items()))


class Steering:
    """The tables of one function and the root where received frames start."""

    def __init__(self) -> None:
        self.tables: dict[int, FlowTable] = {}
        self.root: int | None = None
        self._last_number = 0

    def number(self) -> int:
        """A number for a table or a group that none had before. :raises NicError: NO_RESOURCE."""
        groups = sum(len(table.groups) for table in self.tables.values())
        if len(self.tables) + groups >= MAX_TABLES:
            raise NicError(ErrorKind.NO_RESOURCE, f"all {MAX_TABLES} flow tables and groups are in use")
        self._last_number += 1
        return self._last_number

    def route(self, frame: bytes) -> list[int]:
        """Numbers of the TIRs that get ``frame``, each once."""
        if self.root is None:
            return []
        key = match_key(frame) << (MATCH_BYTES - OUTER_BYTES) * 8
        found: dict[int, None] = {}
        waiting = [self.root]
        for _ in range(MAX_HOPS):
            if not waiting:
                break
            table = self.tables.get(waiting.pop())
            if table is None:
                continue
            for entry in table.entries.values():
                if key & entry.mask == entry.value and not entry.mask & _OTHER_MASK:
                    found.update(dict.fromkeys(entry.tirs))
                    waiting.extend(entry.tables)
                    break
            else:
                if table.miss is not None:
                    waiting.append(table.miss)
        return list(found)


def match_key(frame: bytes) -> int:
    """What rules look at, laid out as ``fte_match_set_lyr_2_4``, as one number."""
    headers = parse_headers(frame)
    values = {
        "dmac_47_16": int.from_bytes(frame[0:4], "big"),
        "dmac_15_0": int.from_bytes(frame[4:6], "big"),
        "smac_47_16": int.from_bytes(frame[6:10], "big"),
        "smac_15_0": int.from_bytes(frame[10:12], "big"),
        "ethertype": int.from_bytes(frame[12:14], "big"),
    }
    l3 = headers.l3
    if frame[12:14] == _VLAN:
        tag = int.from_bytes(frame[14:16], "big")
        values["ethertype"] = int.from_bytes(frame[16:18], "big")
        values |= {
            "cvlan_tag": 1,
            "first_prio": tag >> 13,
            "first_cfi": tag >> 12 & 1,
            "first_vid": tag & 0xFFF,
        }
    if headers.version:
        values |= {
            "ip_version": headers.version,
            "ip_protocol": headers.protocol,
            "frag": int(headers.fragment),
        }
    if headers.version == 4:
        values |= {
            "ip_dscp": frame[l3 + 1] >> 2,
            "ip_ecn": frame[l3 + 1] & 3,
            "ttl_hoplimit": frame[l3 + 8],
            "src_ipv4_src_ipv6": int.from_bytes(frame[l3 + 12 : l3 + 16], "big"),
            "dst_ipv4_dst_ipv6": int.from_bytes(frame[l3 + 16 : l3 + 20], "big"),
        }
    elif headers.version == 6:
        traffic_class = int.from_bytes(frame[l3 : l3 + 2], "big") >> 4 & 0xFF
        values |= {
            "ip_dscp": traffic_class >> 2,
            "ip_ecn": traffic_class & 3,
            "ttl_hoplimit": frame[l3 + 7],
            "src_ipv4_src_ipv6": int.from_bytes(frame[l3 + 8 : l3 + 24], "big"),
            "dst_ipv4_dst_ipv6": int.from_bytes(frame[l3 + 24 : l3 + 40], "big"),
        }
    if _has_ports(headers) and headers.end >= headers.l4 + 4:
        kind = "tcp" if headers.protocol == TCP else "udp"
        values[f"{kind}_sport"] = int.from_bytes(frame[headers.l4 : headers.l4 + 2], "big")
        values[f"{kind}_dport"] = int.from_bytes(frame[headers.l4 + 2 : headers.l4 + 4], "big")
        if headers.protocol == TCP and headers.end >= headers.l4 + 14:
            flags = int.from_bytes(frame[headers.l4 + 12 : headers.l4 + 14], "big") & 0x1FF
            values["tcp_flags"] = flags
    return int.from_bytes(FTE_MATCH_SET_LYR_2_4.pack(values), "big")


def _has_ports(headers: Headers) -> bool:
    return bool(headers.version) and not headers.fragment and headers.protocol in (TCP, UDP)
