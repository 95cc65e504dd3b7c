"""GPUs in use by load as SVG: a line for each strategy, readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

_WIDTH: Final = 760
_HEIGHT: Final = 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 150, 24, 44
#: Lines of strategies, in their order, on light and on dark pages; no two of them differ by hue alone.
_LIGHT: Final = ("#1f6fb2", "#b3590a", "#2e7d4f", "#8e3f7d", "#5f6670", "#a03030")
_DARK: Final = ("#6cb2ee", "#f0a04b", "#6fcf97", "#d58cc6", "#a9b1bb", "#f28b82")
_DASHES: Final = ("", "7 4", "2 3", "9 3 2 3", "5 5", "1 4")
#: Below this load every strategy places all pods.
_FROM_PERCENT: Final = 80
#: Percent between two lines of the grid, four times as many if there would be more lines than this.
_TICK: Final = 5
_MOST_TICKS: Final = 10


def drawn(curves: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Return the picture. ``curves``: load and GPUs in use, both in percent, by the name of a strategy."""
    shown = {name: [at for at in curve if at[0] >= _FROM_PERCENT] or list(curve) for name, curve in curves.items()}
    points = [at for curve in shown.values() for at in curve] or [(0, 0.0), (100, 100.0)]
    frame = _Frame(points)
    lines = [*_head(), *frame.grid()]
    for number, (name, curve) in enumerate(shown.items()):
        lines += _line(frame, number, name, curve)
    return "\n".join([*lines, "</svg>", ""])


def _head() -> list[str]:
    light = "".join(f".s{i}{{stroke:{each}}}.t{i}{{fill:{each}}}" for i, each in enumerate(_LIGHT))
    dark = "".join(f".s{i}{{stroke:{each}}}.t{i}{{fill:{each}}}" for i, each in enumerate(_DARK))
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12" role="img">',
        "<title>GPUs in use by arrived load, in percent of all GPUs</title>",
        "<desc>A line for each strategy: GPUs in use over GPUs requested so far.</desc>",
        f"<style>text{{fill:#3a4048}}.g{{stroke:#80889055}}path{{fill:none;stroke-width:2}}{light}"
        f"@media (prefers-color-scheme:dark){{text{{fill:#c6ccd4}}{dark}}}</style>",
    ]


class _Frame:
    """The axes: where a load and a use are drawn."""

    def __init__(self, points: Sequence[tuple[int, float]]) -> None:
        loads, uses = [load for load, _ in points], [used for _, used in points]
        self._load = min(loads), max(*loads, min(loads) + 1)
        self._use = _rounded_down(min(uses)), 100.0

    def x(self, load: float) -> float:
        least, most = self._load
        return round(_LEFT + (load - least) / (most - least) * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, used: float) -> float:
        least, most = self._use
        return round(_HEIGHT - _BOTTOM - (used - least) / (most - least) * (_HEIGHT - _TOP - _BOTTOM), 1)

    def grid(self) -> list[str]:
        lines = []
        least, most = self._use
        for used in range(int(least), int(most) + 1, _TICK if most - least <= _MOST_TICKS * _TICK else 4 * _TICK):
            y = self.y(used)
            lines.append(f'<line class="g" x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}"/>')
            lines.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{used}</text>')
        first, last = self._load
        below = _HEIGHT - _BOTTOM + 18
        lines += [
            f'<text x="{self.x(load)}" y="{below}" text-anchor="middle">{load}</text>'
            for load in range(first - first % -10, last + 1, 10)
        ]
        lines.append(f'<text x="{_LEFT}" y="14">GPUs in use, % of all</text>')
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        lines.append(
            f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">GPUs asked by arrived pods, % of all</text>'
        )
        return lines


def _line(frame: _Frame, number: int, name: str, curve: Sequence[tuple[int, float]]) -> list[str]:
    place = number % len(_LIGHT)
    y = _TOP + 12 + 18 * number
    x = _WIDTH - _RIGHT + 10
    dashes = f' stroke-dasharray="{_DASHES[place]}"' if _DASHES[place] else ""
    path = " ".join(f"{'L' if i else 'M'}{frame.x(load)} {frame.y(used)}" for i, (load, used) in enumerate(curve))
    return [
        f'<path class="s{place}"{dashes} d="{path}"/>' if curve else "",
        f'<path class="s{place}"{dashes} d="M{x} {y - 4}h22"/>',
        f'<text class="t{place}" x="{x + 28}" y="{y}">{escape(name)}</text>',
    ]


def _rounded_down(percent: float) -> float:
    return float(int(percent) - int(percent) % 5)
