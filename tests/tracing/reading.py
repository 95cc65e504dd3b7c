"""A trace as a test looks at it: its spans by name and process, and whether it is well formed."""

from __future__ import annotations

from collections.abc import Sequence

from tests.tracing.collector import Collected

ADMISSION, SCHEDULER, BINDER = "moorage-admission", "moorage-scheduler", "moorage-binder"


def names_of(spans: Sequence[Collected], service: str = "") -> list[str]:
    return [span.name for span in spans if service in {"", span.service}]


def the(spans: Sequence[Collected], name: str, service: str = "") -> Collected:
    found = [span for span in spans if span.name == name and service in {"", span.service}]
    assert len(found) == 1, (name, names_of(spans))
    return found[0]


def assert_sound(spans: Sequence[Collected], *, outside: str = "") -> None:
    """One root, every parent is there and began first, no id is twice, no time runs backwards."""
    by_id = {span.span: span for span in spans}
    assert len(by_id) == len(spans)
    roots = [span for span in spans if span.parent == outside]
    assert [span.name for span in roots if span.name != "admit"] == ["pod"], names_of(spans)
    for span in spans:
        assert span.start_ns <= span.end_ns, span
        if span.parent != outside:
            assert by_id[span.parent].start_ns <= span.start_ns, (span, by_id[span.parent])
    waits = [span for span in spans if span.name == "wait"]
    decides = [span for span in spans if span.name == "decide"]
    for wait, decide in zip(waits, decides, strict=False):
        assert wait.end_ns <= decide.start_ns
