# SPDX-License-Identifier: Apache-2.0
"""Counts what one run of resends really put on the wire, and reports it as one observation."""

from __future__ import annotations

from emu.nic.engine import EngineHost

__all__ = ["ResendNote"]


class ResendNote:
    """Gathers resent packets until :meth:`flush`; ``reason`` says what made the requester go back."""

    __slots__ = ("_first", "_host", "_octets", "_packets", "reason")

    def __init__(self, host: EngineHost) -> None:
        self._host = host
        self._first = self._packets = self._octets = 0
        self.reason = ""

    def add(self, psn: int, octets: int) -> None:
        """One packet with ``octets`` payload bytes went out again."""
        if not self._packets:
            self._first = psn
        self._packets += 1
        self._octets += octets

    def flush(self) -> None:
        """Report what was added since the last call, if anything."""
        if self._packets:
            packets, octets = self._packets, self._octets
            self._packets = self._octets = 0
            self._host.note_retransmit(self._first, packets, octets, self.reason)
