# SPDX-License-Identifier: Apache-2.0
"""NSCC: network signal based congestion control at the source (section 6.3 of the wire reference).

One byte window per direction of a PDC. It grows with delay below the target and unmarked packets, shrinks
with delay above it and marks, and jumps to what really arrived when a round trip lost much.
"""

from __future__ import annotations

from emu.clock import NS_PER_S, US
from emu.uet.parameters import NsccConfig

__all__ = ["Nscc"]

_REFERENCE_BDP = 150_000
_REFERENCE_RTT_NS = 12 * US
_GAMMA = 0.8
_MAX_MD_JUMP = 0.5
_QA_GATE = 3
_NO_DELAY_NS = 1 * US
_AVERAGE_WEIGHT = 0.05
"""Of a new delay in the average; no source gives it. With a quarter of it the average lags so far behind the
queue that two flows drift apart and an incast of sixteen takes three times as long.
"""
_NEVER = 1 << 62


class Nscc:
    """The window of one direction. Bytes are nominal packet sizes, times nanoseconds.

    ``cwnd`` is the window, ``base_rtt`` the least round trip seen or configured.
    """

    def __init__(self, config: NsccConfig, mtu: int) -> None:
        self.mtu = mtu
        self.base_rtt = config.base_rtt_ns
        self._config_rtt = config.base_rtt_ns
        self._speed = config.bytes_per_second
        bdp = config.bytes_per_second * config.base_rtt_ns / NS_PER_S
        self.max_wnd = max(1.5 * bdp, 2 * mtu)
        self.cwnd = self.max_wnd
        self.target_qdelay = config.base_rtt_ns * (0.75 if config.trimming else 1.0)
        self._qa_threshold = _NEVER if config.trimming else 4 * self.target_qdelay
        scaling_a = bdp / _REFERENCE_BDP
        scaling_b = self.target_qdelay / _REFERENCE_RTT_NS
        self._alpha = 4 * scaling_a * scaling_b * mtu / self.target_qdelay
        self._fi = 5 * mtu * scaling_a
        self._fi_scale = 0.25 * scaling_a
        self._eta = 0.15 * mtu * scaling_a
        self._adjust_bytes = 8 * mtu
        self._inc_bytes = 0.0
        self._received = self._achieved = self._fi_count = 0
        self._increase = False
        self._trigger_qa = False
        self._qa_end = 0
        self._bytes_to_ignore = self._bytes_ignored = 0
        self._last_adjust = self._last_decrease = 0
        self.average_delay = 0.0

    def allows(self, inflight: int) -> bool:
        """Whether one more packet may leave while ``inflight`` bytes are on the way."""
        return inflight + self.mtu <= self.cwnd

    def wants_ack(self, inflight: int) -> bool:
        """Whether a packet just counted into ``inflight`` should ask for an acknowledgement."""
        return self.cwnd - inflight < self.mtu

    def acknowledged(
        self,
        now: int,
        inflight: int,
        *,
        newly: int,
        marked: bool,
        sample: int | None,
    ) -> None:
        """Feed one ACK: the bytes that it tells of as ``newly`` received, its mark, and the round-trip
        ``sample`` it gives (None: no valid one).
        """
        self._bytes_ignored += newly
        self._received += newly
        self._achieved += newly
        if sample is None:
            return
        self.observe(sample)
        delay = sample - self.base_rtt
        self._average(delay)
        if self._quick_adapt(now, inflight, loss=False, marked=marked, delay=delay):
            return
        if delay < self.target_qdelay:
            if not marked:
                self._proportional(newly, delay)
        elif marked:
            self._decrease(now)
        else:
            self._inc_bytes += self._fi * newly
            self._increase, self._fi_count = False, 0
        if now - self._last_adjust >= self.base_rtt or self._received > self._adjust_bytes:
            self._apply(now)

    def refused(self, now: int, inflight: int, nominal: int, *, trimmed: bool) -> None:
        """Feed one NACK; ``trimmed`` when a switch cut the packet of ``nominal`` bytes."""
        if not trimmed:
            return
        self._average(self._config_rtt)
        self._bytes_ignored += nominal
        self._trigger_qa = True
        if not self._quick_adapt(now, inflight, loss=True, marked=True, delay=0):
            self.cwnd = max(self.cwnd - nominal, self.mtu)

    def lost(self, nominal: int) -> None:
        """A packet of ``nominal`` bytes was inferred lost, or timed out."""
        self._bytes_ignored += nominal
        self.cwnd = max(self.cwnd - nominal, self.mtu)

    def observe(self, sample: int) -> None:
        """A round trip of ``sample`` ns: the base is the least of them."""
        if 0 < sample < self.base_rtt:
            self.base_rtt = sample
            self.max_wnd = max(1.5 * self._speed * sample / NS_PER_S, 2 * self.mtu)

    def _average(self, delay: float) -> None:
        self.average_delay += (delay - self.average_delay) * _AVERAGE_WEIGHT

    def _proportional(self, newly: int, delay: float) -> None:
        if delay <= _NO_DELAY_NS:
            self._fi_count += newly
            if self._increase or self._fi_count > self.cwnd:
                self.cwnd = min(self.cwnd + newly * self._fi_scale, self.max_wnd)
                self._increase = True
                return
        else:
            self._fi_count = 0
        self._increase = False
        self._inc_bytes += self._alpha * newly * (self.target_qdelay - delay)

    def _decrease(self, now: int) -> None:
        self._increase, self._fi_count = False, 0
        average = self.average_delay
        if average > self.target_qdelay and now - self._last_decrease > self.base_rtt:
            factor = max(1 - _GAMMA * (average - self.target_qdelay) / average, _MAX_MD_JUMP)
            self.cwnd = max(self.cwnd * factor, self.mtu)
            self._last_decrease = now

    def _apply(self, now: int) -> None:
        self.cwnd += self._inc_bytes / self.cwnd
        if now - self._last_adjust >= self.base_rtt:
            self.cwnd += self._eta
            self._last_adjust = now
        self.cwnd = min(self.cwnd, self.max_wnd)
        self._inc_bytes = 0.0
        self._received = 0

    def _quick_adapt(self, now: int, inflight: int, *, loss: bool, marked: bool, delay: float) -> bool:
        handled = False
        if self._bytes_ignored < self._bytes_to_ignore and marked:
            handled = True
        elif now >= self._qa_end:
            bad = self._trigger_qa or loss or delay > self._qa_threshold
            if self._qa_end and bad and self._achieved < int(self.max_wnd) >> _QA_GATE:
                self.cwnd = float(max(self._achieved, self.mtu))
                self._bytes_to_ignore = inflight
                self._bytes_ignored = 0
                self._trigger_qa = False
                handled = True
            self._achieved = 0
            self._qa_end = now + self.base_rtt + int(self.target_qdelay)
        if handled:
            self._inc_bytes = 0.0
            self._received = 0
        return handled
