# SPDX-License-Identifier: Apache-2.0
"""Frames that travel as one: what segmentation offload is to a kernel, for ends that share a process.

A message of many packets costs an interpreter most of its time per packet, not per byte. So an engine hands
the equal frames in the middle of a message over together, and whoever has to look at single frames (a
listener, a link that loses some, an end elsewhere) asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

__all__ = ["FrameRun", "RunCarrier", "RunReceiver"]


class FrameRun(Protocol):
    """``count`` frames of one flow in order, ``octets`` bytes together, without FCS."""

    @property
    def count(self) -> int:
        """How many frames."""

    @property
    def octets(self) -> int:
        """Bytes of all of them."""

    @property
    def dest_mac(self) -> bytes:
        """Where all of them go."""

    @property
    def dest_qpn(self) -> int:
        """Queue pair all of them are addressed to (24 bits)."""

    @property
    def source_mac(self) -> bytes:
        """Where all of them come from."""

    def frames(self) -> Iterator[bytes]:
        """The frames one by one, exactly as they would have been sent."""


RunReceiver = Callable[[FrameRun], None]
"""Takes a run that arrived."""


@runtime_checkable
class RunCarrier(Protocol):
    """A port that may carry runs, besides what :class:`emu.fabric.port.Port` asks for."""

    def send_run(self, run: FrameRun) -> bool:
        """Put ``run`` on the link as a whole. False when its frames must go one by one: nothing was sent."""

    def attach_runs(self, receiver: RunReceiver) -> None:
        """Deliver arriving runs to ``receiver``, from the owner loop, in order with the frames."""
