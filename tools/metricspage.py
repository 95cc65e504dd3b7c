"""The tables of docs/metrics.md, made from the declarations: ``python -m tools.metricspage``.

The page around them is written by hand. A test compares (tests/cli/metrics/test_page.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from cli.metrics.declared import COMPONENTS
from cli.metrics.metric import Kind, Metric

PAGE: Final = Path(__file__).parent.parent / "docs" / "metrics.md"
_BEGIN: Final = "<!-- made by make metrics from cli/metrics/declared.py -->"
_END: Final = "<!-- end of what is made -->"


def tables() -> str:
    """Return a table of the metrics that several components have, and one for each component."""
    metrics = {metric.name: metric for each in COMPONENTS.values() for metric in each}
    groups: dict[tuple[str, ...], list[Metric]] = {}
    for metric in metrics.values():
        components = tuple(name for name, each in COMPONENTS.items() if metric in each)
        groups.setdefault(components, []).append(metric)
    by_most = sorted(groups.items(), key=lambda group: -len(group[0]))
    return "\n".join(line for components, each in by_most for line in _table(components, each))


def _table(components: tuple[str, ...], metrics: Iterable[Metric]) -> Iterator[str]:
    title = "all components" if len(components) == len(COMPONENTS) else " and ".join(components)
    yield f"### Of {title}"
    yield ""
    yield "| metric | kind | what it says |"
    yield "|---|---|---|"
    for metric in metrics:
        labels = "".join(f"<br>`{label}`: {text}" for label, text in metric.labels.items())
        yield f"| `{metric.name}` | {metric.kind.value} | {metric.help}{labels}{_buckets(metric)} |"
    yield ""


def _buckets(metric: Metric) -> str:
    if metric.kind is not Kind.HISTOGRAM:
        return ""
    return f"<br>Buckets: {', '.join(f'{bound:g}' for bound in metric.buckets)}"


def rendered(page: str) -> str:
    """Return a page with its tables as they should be."""
    before, _, rest = page.partition(_BEGIN)
    after = rest.partition(_END)[2]
    return f"{before}{_BEGIN}\n\n{tables()}\n{_END}{after}"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
