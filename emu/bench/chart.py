# SPDX-License-Identifier: Apache-2.0
"""A comparison of transports as a picture: an SVG with one panel for each workload and quantity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

from emu.bench.compare import Outcome

__all__ = ["draw"]

_COLOURS = ("#c44e52", "#e8a3a5", "#1f5fa8", "#8fb8e0")
"""Of the series, in order: RoCE in red, UET in blue."""
_WIDTH, _HEIGHT = 300, 190
_LEFT, _TOP, _GAP = 64, 34, 24
_LEGEND = 26


def draw(outcomes: Sequence[Outcome]) -> str:
    """SVG text. Above: completion time, below: payload bytes sent again, both on logarithmic scales, by loss.

    Runs that failed have no bar.
    """
    workloads = list(dict.fromkeys(outcome.workload for outcome in outcomes))
    series = sorted({(outcome.transport, outcome.paths) for outcome in outcomes})
    colours = {key: _COLOURS[number % len(_COLOURS)] for number, key in enumerate(series)}
    rows: tuple[tuple[str, Callable[[Outcome], float]], ...] = (
        ("time, ms", lambda outcome: outcome.time / 1e6),
        ("sent again, KiB", lambda outcome: outcome.resent / 1024),
    )
    width = len(workloads) * (_LEFT + _WIDTH) + _GAP
    height = _LEGEND + len(rows) * (_TOP + _HEIGHT + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, key in enumerate(series):
        x = _LEFT + number * 130
        parts.append(f'<rect x="{x}" y="8" width="10" height="10" fill="{colours[key]}"/>')
        parts.append(_text(x + 15, 17, f"{key[0]}, {_paths(key[1])}"))
    for row, (label, value) in enumerate(rows):
        for column, workload in enumerate(workloads):
            shown = [outcome for outcome in outcomes if outcome.workload == workload]
            x, y = _LEFT + column * (_LEFT + _WIDTH), _LEGEND + _TOP + row * (_TOP + _HEIGHT + _GAP)
            parts.append(f'<g transform="translate({x},{y})">')
            parts.append(_text(0, -8, f"{workload}: {label}"))
            parts += _panel(shown, value, colours)
            parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    outcomes: Sequence[Outcome],
    value: Callable[[Outcome], float],
    colours: dict[tuple[str, int], str],
) -> list[str]:
    """Bars of one workload, grouped by loss, between powers of ten."""
    values = [value(outcome) for outcome in outcomes if not outcome.failed and value(outcome) > 0]
    low = math.floor(math.log10(min(values))) if values else 0
    high = max(low + 1, math.ceil(math.log10(max(values))) if values else 1)
    parts = []
    for exponent in range(low, high + 1):
        y = _HEIGHT * (1 - (exponent - low) / (high - low))
        parts.append(f'<line x1="0" y1="{y:.1f}" x2="{_WIDTH}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(-6, y + 4, f"{10.0**exponent:g}", "end"))
    losses = sorted({outcome.loss for outcome in outcomes})
    group = _WIDTH / len(losses)
    bar = 0.8 * group / len(colours)
    for place, loss in enumerate(losses):
        parts.append(_text((place + 0.5) * group, _HEIGHT + 15, f"{100 * loss:g} % loss", "middle"))
        for number, (key, colour) in enumerate(colours.items()):
            for outcome in outcomes:
                found = value(outcome)
                if (outcome.transport, outcome.paths) != key or outcome.loss != loss or outcome.failed:
                    continue
                if found <= 0:
                    continue
                tall = _HEIGHT * (math.log10(found) - low) / (high - low)
                x = place * group + 0.1 * group + number * bar
                parts.append(
                    f'<rect x="{x:.1f}" y="{_HEIGHT - tall:.1f}" width="{bar:.1f}" height="{tall:.1f}"'
                    f' fill="{colour}"><title>{key[0]}, {_paths(key[1])}: {found:g}</title></rect>'
                )
    return parts


def _paths(count: int) -> str:
    return "1 path" if count == 1 else f"{count} paths"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
