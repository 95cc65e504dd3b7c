"""The tables of docs/metrics.md, made from declarations and alert rules: ``python -m tools.metricspage``.

The page around them is written by hand. A test compares (tests/runtime/metrics/test_page.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from runtime.metrics.compat import COMPAT
from runtime.metrics.declared import COMPONENTS, Kind, Metric
from runtime.metrics.nodeagent import TENANTS

_ROOT: Final = Path(__file__).parent.parent
PAGE: Final = _ROOT / "docs" / "metrics.md"
ALERTS: Final = _ROOT / "helm" / "moorage" / "alerts" / "moorage.yaml"
_BEGIN: Final = "<!-- made by make metrics from runtime/metrics/declared.py -->"
_END: Final = "<!-- end of what is made -->"
_BEGIN_TENANTS: Final = "<!-- made by make metrics from runtime/metrics/nodeagent.py -->"
_END_TENANTS: Final = "<!-- end of tenants -->"
_BEGIN_COMPAT: Final = "<!-- made by make metrics from runtime/metrics/compat.py -->"
_END_COMPAT: Final = "<!-- end of names of other systems -->"
_BEGIN_ALERTS: Final = "<!-- made by make metrics from helm/moorage/alerts/moorage.yaml -->"
_END_ALERTS: Final = "<!-- end of the alerts -->"


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
    yield from _rows(metrics)


def _rows(metrics: Iterable[Metric]) -> Iterator[str]:
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


def rules() -> list[dict[str, Any]]:
    """Return the alert rules."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> str:
    """Return a table of the alerts and of what is to be done."""
    lines = ["| alert | says | what to do |", "|---|---|---|"]
    for rule in rules():
        told, how_bad = rule["annotations"], rule["labels"]["severity"]
        lines.append(f"| {rule['alert']}<br>{how_bad} | {told['summary']} | {told['description']} |")
    return "\n".join(lines).replace("{{ $labels.", "*").replace("{{ $value", "*N").replace(" }}", "*") + "\n"


def rendered(page: str) -> str:
    """Return a page with its tables as they should be."""
    page = _between(page, _BEGIN, _END, tables())
    page = _between(page, _BEGIN_TENANTS, _END_TENANTS, "\n".join(_rows(TENANTS)))
    page = _between(page, _BEGIN_COMPAT, _END_COMPAT, "\n".join(_rows(COMPAT)))
    return _between(page, _BEGIN_ALERTS, _END_ALERTS, alerts())


def _between(page: str, begin: str, end: str, made: str) -> str:
    before, _, rest = page.partition(begin)
    after = rest.partition(end)[2]
    return f"{before}{begin}\n\n{made}\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
