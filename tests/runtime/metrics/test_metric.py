from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from runtime.metrics.declared import COMPONENTS, Kind, Metric, gauge
from runtime.metrics.registry import Registry


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_metric_of_a_component_is_declared_once_and_told(component: str) -> None:
    metrics = COMPONENTS[component]
    assert [name for name, times in Counter(metric.name for metric in metrics).items() if times > 1] == []
    for metric in metrics:
        assert metric.help.endswith(".")
        assert all(metric.labels.values())


def test_what_two_components_call_the_same_is_the_same() -> None:
    by_name: dict[str, Metric] = {}
    for metrics in COMPONENTS.values():
        for metric in metrics:
            assert by_name.setdefault(metric.name, metric) == metric


@pytest.mark.parametrize("component", COMPONENTS)
def test_no_label_names_a_pod_a_user_a_namespace_or_a_node(component: str) -> None:
    labels = {label for metric in COMPONENTS[component] for label in metric.labels}
    assert not labels & {"pod", "user", "namespace", "node", "name", "uid", "group", "instance", "job"}


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ({"name": "moorage_things", "kind": Kind.COUNTER}, "counters end in _total"),
        ({"name": "moorage_things_total"}, "counters end in _total"),
        ({"name": "things"}, "moorage_... or kai_..."),
        ({"name": "moorage_Things"}, "moorage_... or kai_..."),
        ({"labels": {"le": "x"}}, "labels are snake_case"),
        ({"labels": {"Kind": "x"}}, "labels are snake_case"),
        ({"kind": Kind.HISTOGRAM}, "rising buckets"),
        ({"kind": Kind.HISTOGRAM, "buckets": (2.0, 1.0)}, "rising buckets"),
        ({"buckets": (1.0,)}, "rising buckets"),
    ],
    ids=str,
)
def test_what_prometheus_would_not_call_so_is_refused(declared: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Metric(**{"name": "moorage_things", "kind": Kind.GAUGE, "help": "Things.", **declared})


def test_nothing_is_counted_as_another_kind_than_it_is_declared() -> None:
    with pytest.raises(ValueError, match="moorage_things is declared as a gauge, not as a counter"):
        Registry().counter(gauge("moorage_things", "Things."))


def test_nothing_is_counted_twice_under_one_name() -> None:
    registry, metric = Registry(), gauge("moorage_things", "Things.")
    registry.gauge(metric)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.gauge(metric)
