"""The tables of docs/reference/metrics.md, made from declarations and alert rules: ``python -m tools.metricspage``.

The page around them is written by hand. A test compares (tests/runtime/metrics/test_components.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import yaml

from runtime.metrics.declared import COMPONENTS, Metric
from runtime.metrics.nodeagent import COMPAT, TENANTS

_ROOT: Final = Path(__file__).parent.parent
PAGE: Final = _ROOT / "docs" / "reference" / "metrics.md"
ALERTS: Final = _ROOT / "helm" / "moorage" / "alerts" / "moorage.yaml"
_BEGIN: Final = "<!-- made by make metrics from runtime/metrics/declared.py -->"
_END: Final = "<!-- end of what is made -->"
_BEGIN_TENANTS: Final = "<!-- made by make metrics from runtime/metrics/nodeagent.py -->"
_END_TENANTS: Final = "<!-- end of tenants -->"
_BEGIN_COMPAT: Final = "<!-- made by make metrics from runtime/metrics/nodeagent.py: names of other systems -->"
_END_COMPAT: Final = "<!-- end of names of other systems -->"
_BEGIN_ALERTS: Final = "<!-- made by make metrics from helm/moorage/alerts/moorage.yaml -->"
_END_ALERTS: Final = "<!-- end of the alerts -->"

#: A text that depends on a label, in a rule's summary.
_CHOICE: Final = re.compile(r"\{\{ if [^}]* \}\}(.*?)\{\{ else \}\}(.*?)\{\{ end \}\}")


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
    *first, last = components
    some = f"{', '.join(first)} and {last}" if first else last
    yield f"### Of {'all components' if len(components) == len(COMPONENTS) else some}"
    yield ""
    yield from _rows(metrics)


def _rows(metrics: Iterable[Metric]) -> Iterator[str]:
    """One row for metrics that follow each other and differ in their names only."""
    yield "| metric | kind | meaning |"
    yield "|---|---|---|"
    before: Mapping[str, str] = {}
    for (kind, meaning, labels), alike in groupby(metrics, key=_meaning):
        told = "<br>labels as above" if labels and dict(labels) == before else _labels(labels)
        yield f"| {'<br>'.join(f'`{metric.name}`' for metric in alike)} | {kind} | {meaning}{told} |"
        before = dict(labels)
    yield ""


def _meaning(metric: Metric) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    return metric.kind.value, metric.help, tuple(metric.labels.items())


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    return "".join(f"<br>`{label}`: {text}" for label, text in labels)


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
    text = _CHOICE.sub(r"\1 or \2", "\n".join(lines))
    return text.replace("{{ $labels.", "*").replace("{{ $value", "*N").replace(" }}", "*") + "\n"


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
