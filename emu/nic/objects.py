# SPDX-License-Identifier: Apache-2.0
"""How many objects of each kind exist."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["ObjectCounts"]


@dataclass(frozen=True, slots=True)
class ObjectCounts:
    """Live objects of one NIC; all zero when nothing leaked."""

    contexts: int
    pds: int
    mrs: int
    eqs: int
    cqs: int
    qps: int
    ahs: int

    def to_json(self) -> dict[str, int]:
        """By name."""
        return asdict(self)
