"""A trace drawn as SVG: a row for each span, set in below its parent, with a bar from its start to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from tests.tracing.collector import Collected
from tests.tracing.reading import ADMISSION, BINDER, SCHEDULER

#: Readable on white and on black, and apart for who does not see colours as most do.
_COLOURS: Mapping[str, str] = {ADMISSION: "#c77f16", SCHEDULER: "#2f7fc1", BINDER: "#3d9a68"}
_TEXT, _LINE = "#808890", "#80889055"
_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 880, 170, 60, 20, 48
_TICKS = 5


def drawn(spans: Sequence[Collected]) -> str:
    """Return the picture. ``spans`` are of one trace."""
    rows = _rows(spans)
    start_ns, end_ns = min(span.start_ns for span in spans), max(span.end_ns for span in spans)
    height = _TOP + _ROW * len(rows) + 8
    scale = (_WIDTH - _LEFT - _RIGHT) / max(1, end_ns - start_ns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12" fill="{_TEXT}" role="img">',
        f"<title>Trace of pod {escape(_pod(spans))}</title>",
    ]
    for number, (service, colour) in enumerate(_COLOURS.items()):
        at = _LEFT + 160 * number
        parts.append(f'<rect x="{at}" y="4" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{at + 15}" y="13">{service}</text>')
    for tick in range(_TICKS + 1):
        x = round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * tick / _TICKS, 1)
        told = _length((end_ns - start_ns) * tick / _TICKS)
        parts.append(f'<line x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{height - 8}" stroke="{_LINE}"/>')
        parts.append(f'<text x="{x}" y="{_TOP - 12}" text-anchor="middle" font-size="10">{told}</text>')
    for number, (depth, span) in enumerate(rows):
        y = _TOP + _ROW * number
        x = round(_LEFT + (span.start_ns - start_ns) * scale, 1)
        width = round(max(1.5, (span.end_ns - span.start_ns) * scale), 1)
        parts.append(f'<text x="{8 + 14 * depth}" y="{y + 13}">{escape(span.name)}</text>')
        parts.append(
            f'<rect x="{x}" y="{y + 3}" width="{width}" height="{_ROW - 6}" rx="2" fill="{_COLOURS[span.service]}"/>'
        )
        told = _length(span.end_ns - span.start_ns)
        is_left = x + width + 60 > _WIDTH
        beside = f'x="{x - 5}" text-anchor="end"' if is_left and x > _LEFT + 60 else f'x="{x + width + 5:g}"'
        parts.append(f'<text {beside} y="{y + 13}" font-size="10">{told}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _rows(spans: Sequence[Collected]) -> list[tuple[int, Collected]]:
    """Spans with their depth: children below their parent, in the order of their start."""
    known = {span.span for span in spans}
    below: dict[str, list[Collected]] = {}
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)):
        below.setdefault(span.parent if span.parent in known else "", []).append(span)

    def walk(parent: str, depth: int) -> list[tuple[int, Collected]]:
        return [row for span in below.get(parent, ()) for row in ((depth, span), *walk(span.span, depth + 1))]

    return walk("", 0)


def _pod(spans: Sequence[Collected]) -> str:
    return next((str(span.attributes["pod"]) for span in spans if "pod" in span.attributes), "")


def _length(ns: float) -> str:
    return f"{ns / 1e6:,.0f} ms" if ns >= 1e7 or not ns else f"{ns / 1e6:.1f} ms"
