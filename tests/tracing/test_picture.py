"""The picture of a trace, and the one in docs/tracing.md: drawn of a run on a real control plane."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from tests.tracing.collector import Collected
from tests.tracing.picture import drawn
from tests.tracing.reading import ADMISSION, BINDER, SCHEDULER

SHOWN = Path(__file__).parents[2] / "docs" / "trace.svg"
_SVG = "{http://www.w3.org/2000/svg}"


def span(name: str, service: str, start_ms: int, end_ms: int, *, parent: str = "pod") -> Collected:
    return Collected(
        service=service,
        name=name,
        trace="t",
        span=name,
        parent="" if name == "pod" else parent,
        start_ns=start_ms * 1_000_000,
        end_ns=end_ms * 1_000_000,
        attributes={"pod": "team/<train>"},
        events=(),
        error="",
    )


def test_a_trace_is_drawn_with_a_row_for_each_span_below_its_parent() -> None:
    spans = [
        span("bind", BINDER, 60, 70, parent="attempt"),
        span("attempt", BINDER, 40, 80),
        span("pod", SCHEDULER, 0, 100),
        span("admit", ADMISSION, 5, 6),
    ]
    picture = ElementTree.fromstring(drawn(spans))  # noqa: S314 - drawn here
    rows = [text for text in picture.iter(f"{_SVG}text") if text.text in {each.name for each in spans}]
    assert [text.text for text in rows] == ["pod", "admit", "attempt", "bind"]
    assert [int(text.attrib["x"]) for text in rows] == [8, 22, 22, 36]
    bars = [float(bar.attrib["width"]) for bar in picture.iter(f"{_SVG}rect") if "rx" in bar.attrib]
    assert bars == [650.0, 6.5, 260.0, 65.0]
    assert picture.findtext(f"{_SVG}title") == "Trace of pod team/<train>"


def test_the_picture_in_the_documentation_shows_a_first_share_whole() -> None:
    text = SHOWN.read_text()
    shown = re.findall(r'<text x="\d+" y="\d+">([^<]+)</text>', text)
    assert {ADMISSION, SCHEDULER, BINDER} <= set(shown)
    names = [
        "pod",
        "admit",
        "wait",
        "decide",
        "hand-over",
        "attempt",
        "reserve",
        "verify",
        "bind",
        "drop-request",
        "start",
    ]
    assert set(names) <= set(shown)
    assert len(text) < 16_384
