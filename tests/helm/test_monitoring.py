"""Alert rules and the dashboard ask only for what there is: each metric is declared, and so is each of its labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import promql_parser
import pytest

from runtime.metrics.declared import COMPONENTS, Metric
from runtime.metrics.nodeagent import TENANTS
from tools.chart import CHART, PANELS, dashboard
from tools.metricspage import rules

#: Set by the configuration that scrapes. ``le`` is Prometheus' own.
SCRAPED = frozenset({"job", "instance", "le"})
BY_SERIES: Mapping[str, Metric] = {
    series: metric for metrics in (*COMPONENTS.values(), TENANTS) for metric in metrics for series in metric.series
}
ALERTS = {rule["alert"]: rule for rule in rules()}
SHOWN = {f"{panel.title}/{number}": query for panel in PANELS for number, query in enumerate(panel.queries)}


def parts(node: Any) -> Iterator[Any]:
    """A query's tree, node by node."""
    yield node
    for name in ("lhs", "rhs", "expr", "vector_selector", "args", "param"):
        below = getattr(node, name, None)
        if below is not None:
            for each in below if isinstance(below, list) else [below]:
                yield from parts(each)


def parsed(query: str) -> Any:
    """Read PromQL, Grafana's own variables filled in. Raises ValueError."""
    return promql_parser.parse(query.replace("$__rate_interval", "5m"))


def problems(query: str) -> list[str]:
    """What a query asks for that nobody has."""
    tree = parsed(query)
    found: list[str] = []
    known: list[Metric] = []
    for node in parts(tree):
        if not isinstance(node, promql_parser.VectorSelector):
            continue
        metric = BY_SERIES.get(node.name or "")
        if metric is None:
            found.append(f"{node.name} is no metric")
            continue
        known.append(metric)
        chosen = {matcher.name for matcher in node.matchers.matchers} - {*metric.labels, *SCRAPED}
        found += [f"{node.name} has no {label}" for label in sorted(chosen)]
    shared = {label for metric in known for label in metric.labels} | SCRAPED
    for node in parts(tree):
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            found += [f"nothing has {label}" for label in node.modifier.labels if label not in shared]
    return found


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_asks_for_what_there_is(name: str) -> None:
    assert problems(ALERTS[name]["expr"]) == []


@pytest.mark.parametrize("name", SHOWN)
def test_a_panel_asks_for_what_there_is_and_names_its_lines_by_it(name: str) -> None:
    query, legend = SHOWN[name]
    assert problems(query) == []
    tree = parsed(query)
    kept = {
        label
        for node in parts(tree)
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None
        for label in node.modifier.labels
    }
    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= kept


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("moorage_bindings_total", "moorage_bindings_total is no metric"),
        ("rate(moorage_binds[5m])", "moorage_binds is no metric"),
        ("moorage_pod_scheduling_duration_seconds", "moorage_pod_scheduling_duration_seconds is no metric"),
        ('moorage_binds_total{pod="a"}', "moorage_binds_total has no pod"),
        ("sum by (pod) (moorage_binds_total)", "nothing has pod"),
    ],
)
def test_what_there_is_not_would_be_found(query: str, problem: str) -> None:
    assert problems(query) == [problem]


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_it_is_how_bad_and_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert len(rule["annotations"]["summary"]) > 20
    assert rule["annotations"]["description"].endswith((".", ").")), "what to do, in sentences"
    given = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    query = rule["expr"]
    assert all(re.search(rf"by \([^)]*\b{label}\b", query) for label in given)


def test_the_values_of_labels_that_alerts_choose_are_ones_that_are_counted() -> None:
    from binder.report.status import Drift, Held  # noqa: PLC0415
    from gpu.attempts import Cause  # noqa: PLC0415
    from scheduler.core.model.verdict import Code  # noqa: PLC0415
    from scheduler.core.report import fragmentation  # noqa: PLC0415
    from scheduler.report.state import UNDECIDED  # noqa: PLC0415

    there = {
        "kind": {drift.value for drift in Drift},
        "state": {*(held.value for held in Held), "used", "free", "pieces", "stranded"},
        "outcome": {"bound", *(cause.value for cause in Cause)},
        "reason": {UNDECIDED, *(code.value for code in Code)},
        "cause": {cause.value for cause in fragmentation.Cause},
        "answer": {"failed", "malformed"},
        "job": set(COMPONENTS),
    }
    for rule in ALERTS.values():
        for node in parts(parsed(rule["expr"])):
            if isinstance(node, promql_parser.VectorSelector):
                for matcher in node.matchers.matchers:
                    if matcher.name in there:
                        assert set(matcher.value.split("|")) <= there[matcher.name], rule["alert"]


def test_the_dashboard_is_json_with_a_panel_each_and_no_two_in_one_place() -> None:
    made = json.loads(dashboard())
    assert len(made["panels"]) == len(PANELS)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in made["panels"]]
    assert len(set(places)) == len(places)
    assert (CHART / "dashboards" / "moorage.json").read_text() == dashboard()


def test_no_metric_but_a_tenants_has_a_label_that_prometheus_sets_for_what_it_scrapes() -> None:
    """The PodMonitor lets labels of a metric win, for tenants."""
    scraped = {"namespace", "pod", "container", "endpoint", *SCRAPED} - {"le"}
    for metrics in COMPONENTS.values():
        assert [metric.name for metric in metrics if scraped & metric.labels.keys()] == []


def test_the_dashboard_shows_evictions_by_action_and_those_without_a_start_side_by_side() -> None:
    panels = {panel["title"]: panel for panel in json.loads(dashboard())["panels"]}
    made, in_vain = panels["Evictions, in an hour"], panels["Evictions without a start, in an hour"]
    assert "moorage_evictions_total" in made["targets"][0]["expr"]
    assert [target["legendFormat"] for target in made["targets"]] == ["{{action}}"]
    assert ALERTS["MoorageEvictionsInVain"]["expr"].startswith(in_vain["targets"][0]["expr"])
    assert made["gridPos"]["y"] == in_vain["gridPos"]["y"]
