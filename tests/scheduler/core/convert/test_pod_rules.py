"""Reading what pods ask of others."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.convert.pod_rules import host_ports, pod_rules, unreadable
from scheduler.core.model.pod_class import HostPort, PodRules, Requirement, Spread
from tests.scheduler.core.filters.beside import affinity, anti_affinity, term
from tests.scheduler.core.objects import pod

_APP = Requirement("app", "In", ("a",))


def _rules(spec: dict[str, Any], **labels: str) -> PodRules:
    found = pod_rules(pod(spec=spec, labels=labels))
    assert found is not None
    return found


def _spread(**fields: Any) -> Spread:
    written = {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule", **fields}
    (found,) = _rules({"topologySpreadConstraints": [written]}, app="a", tier="x").spread
    return found


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"affinity": {}},
        {"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]},
        {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]},
    ],
)
def test_a_pod_that_asks_nothing_of_others_has_no_rules(spec: dict[str, Any]) -> None:
    assert pod_rules(pod(spec=spec, labels={"app": "a"})) is None
    assert unreadable(pod(spec=spec)) == ""


def test_of_its_own_labels_it_keeps_those_that_its_selectors_look_at() -> None:
    labels = {"app": "a", "index": "7"}
    assert _rules(affinity(term()), **labels).labels == (("app", "a"),)
    assert _rules(anti_affinity(term()), **labels).labels == ()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Spread(key="zone", most_skew=2, selector=None)),
        ({"labelSelector": {}}, Spread(key="zone", most_skew=2, selector=())),
        ({"labelSelector": {"matchLabels": {"app": "a"}}}, Spread(key="zone", most_skew=2, selector=(_APP,))),
        ({"minDomains": 3}, Spread(key="zone", most_skew=2, selector=None, fewest_domains=3)),
        ({"nodeAffinityPolicy": "Ignore"}, Spread(key="zone", most_skew=2, selector=None, honors_affinity=False)),
        ({"nodeTaintsPolicy": "Honor"}, Spread(key="zone", most_skew=2, selector=None, honors_taints=True)),
        ({"matchLabelKeys": ["app"]}, Spread(key="zone", most_skew=2, selector=None)),
        ({"matchLabelKeys": ["app", "gone"], "labelSelector": {}}, Spread(key="zone", most_skew=2, selector=(_APP,))),
        (
            # The API server may have merged them already.
            {"matchLabelKeys": ["app"], "labelSelector": {"matchLabels": {"app": "a"}}},
            Spread(key="zone", most_skew=2, selector=(_APP,)),
        ),
    ],
)
def test_spread_constraints_are_read_with_kubernetes_defaults(fields: dict[str, Any], expected: Spread) -> None:
    assert _spread(**fields) == expected


def test_equal_terms_are_kept_once_and_a_term_means_its_own_namespace() -> None:
    (found,) = _rules(affinity(term(), term())).affinity
    assert found.namespaces == frozenset(("ns",))


def test_ports_are_those_of_containers_that_run_for_good() -> None:
    spec = {
        "hostNetwork": True,
        "containers": [{"name": "c", "ports": [{"hostPort": 81, "hostIP": "0.0.0.0"}, {"containerPort": 80}]}],  # noqa: S104
        "initContainers": [
            {"name": "i", "ports": [{"hostPort": 1}]},
            {
                "name": "s",
                "restartPolicy": "Always",
                "ports": [{"hostPort": 2, "protocol": "UDP", "hostIP": "10.0.0.1"}],
            },
        ],
    }
    assert host_ports(pod(spec=spec)) == (HostPort("TCP", 80), HostPort("TCP", 81), HostPort("UDP", 2, "10.0.0.1"))
