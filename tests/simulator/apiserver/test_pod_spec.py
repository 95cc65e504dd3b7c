"""What is wrong with the spec of a pod is said with its field, in the API server's words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from simulator.apiserver.pod_spec import problems

_NODES = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
_LIKED = "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
_PODS = "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
_SELECTOR = {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]}
_BAD = 'Invalid value: "a b": a valid label must be'


def of_container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", **fields}]}


def of_nodes(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": [*expressions]}] if expressions else []
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def liking(weight: int, *values: str) -> dict[str, Any]:
    preference = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [*values]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "preference": preference}]}
    return {"affinity": {"nodeAffinity": preferred}}


def of_pods(**term: Any) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def of_spread(**rule: Any) -> dict[str, Any]:
    usual = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**usual, **rule}]}


@pytest.mark.parametrize(
    "spec",
    [
        of_container(volumeMounts=[{"name": "data", "mountPath": "/data"}]) | {"volumes": [{"name": "data"}]},
        of_container(resources={"claims": [{"name": "gpu"}]}) | {"resourceClaims": [{"name": "gpu"}]},
        {"nodeSelector": {"example.com/zone": "x"}},
        of_nodes(
            {"key": "zone", "operator": "In", "values": ["x"]}, {"key": "gpus", "operator": "Gt", "values": ["3"]}
        ),
        of_nodes({"key": "zone", "operator": "Exists"}),
        liking(100, "a b"),
        of_pods(topologyKey="zone", labelSelector={"matchLabels": {"app": "a"}}),
        of_spread(),
        {"volumes": "data", "affinity": [], "topologySpreadConstraints": {"a": 1}, "containers": [None]},
    ],
)
def test_what_is_allowed_has_no_problem(spec: dict[str, Any]) -> None:
    assert list(problems(spec)) == []


@pytest.mark.parametrize(
    ("spec", "field", "why"),
    [
        (
            of_container(volumeMounts=[{"name": "data", "mountPath": "/data"}]),
            "containers[0].volumeMounts[0].name",
            'Not found: "data"',
        ),
        (
            of_container(volumeMounts=[{"name": "data"}]) | {"volumes": [{"name": "data"}]},
            "containers[0].volumeMounts[0].mountPath",
            "Required value",
        ),
        (
            of_container(volumeMounts=[{"name": "data", "mountPath": "/x"}] * 2) | {"volumes": [{"name": "data"}]},
            "containers[0].volumeMounts[1].mountPath",
            'Invalid value: "/x": must be unique',
        ),
        ({"volumes": [{"name": "data"}] * 2}, "volumes[1].name", 'Duplicate value: "data"'),
        ({"volumes": [{}]}, "volumes[0].name", "Required value"),
        (
            of_container(resources={"claims": [{"name": "gpu"}]}),
            "containers[0].resources.claims[0]",
            'Not found: "gpu": must be one of the names in pod.spec.resourceClaims which is empty',
        ),
        ({"nodeSelector": {"zone": "a b"}}, "nodeSelector", _BAD),
        (of_nodes(), _NODES, "Required value: must have at least one node selector term"),
        (
            of_nodes({"key": "zone", "operator": "In", "values": ["x", "a b"]}),
            f"{_NODES}[0].matchExpressions[0].values[1]",
            _BAD,
        ),
        (
            of_nodes({"key": "zone", "operator": "In"}),
            f"{_NODES}[0].matchExpressions[0].values",
            "Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
        (
            of_nodes({"key": "zone", "operator": "Exists", "values": ["x"]}),
            f"{_NODES}[0].matchExpressions[0].values",
            "Forbidden: may not be specified",
        ),
        (
            of_nodes({"key": "zone", "operator": "Gt", "values": ["1", "2"]}),
            f"{_NODES}[0].matchExpressions[0].values",
            "Required value: must be specified single value when",
        ),
        (
            of_nodes({"key": "zone", "operator": "in", "values": ["x"]}),
            f"{_NODES}[0].matchExpressions[0].operator",
            'Invalid value: "in": not a valid selector operator',
        ),
        (
            of_nodes({"key": "a b", "operator": "Exists"}),
            f"{_NODES}[0].matchExpressions[0].key",
            'Invalid value: "a b": name part must',
        ),
        (liking(0, "x"), f"{_LIKED}.weight", "Invalid value: 0: must be in the range 1-100"),
        (of_pods(), f"{_PODS}.topologyKey", "Required value: can not be empty"),
        (
            of_pods(topologyKey="zone", labelSelector={"matchLabels": {"app": "a b"}}),
            f"{_PODS}.labelSelector.matchLabels",
            _BAD,
        ),
        (
            of_pods(topologyKey="zone", namespaceSelector={"matchExpressions": [{"key": "a", "operator": "Gt"}]}),
            f"{_PODS}.namespaceSelector.matchExpressions[0].operator",
            'Invalid value: "Gt": not a valid selector operator',
        ),
        (of_spread(maxSkew=0), "topologySpreadConstraints[0].maxSkew", "Invalid value: 0: must be greater than zero"),
        (
            of_spread(whenUnsatisfiable="Never"),
            "topologySpreadConstraints[0].whenUnsatisfiable",
            'Unsupported value: "Never": supported values: "DoNotSchedule", "ScheduleAnyway"',
        ),
        (of_spread(topologyKey=""), "topologySpreadConstraints[0].topologyKey", "Required value: can not be empty"),
    ],
)
def test_what_is_not_allowed_is_named(spec: dict[str, Any], field: str, why: str) -> None:
    ((where, said),) = problems(spec)
    assert (where, said[: len(why)]) == (field, why)


_WHOLE: dict[str, Any] = {
    **of_container(
        volumeMounts=[{"name": "data", "mountPath": "/data"}], resources={"claims": [{"name": "gpu"}]}, volumeDevices=[]
    ),
    "volumes": [{"name": "data"}],
    "resourceClaims": [{"name": "gpu"}],
    "nodeSelector": {"zone": "x"},
    **of_spread(labelSelector=_SELECTOR),
    "affinity": {
        **of_nodes({"key": "zone", "operator": "In", "values": ["x"]})["affinity"],
        **of_pods(topologyKey="zone", labelSelector=_SELECTOR)["affinity"],
    },
}


def replaced(value: Any, other: Any) -> Iterator[Any]:
    """Yield a value with another one in place of each of its parts."""
    yield other
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for at, part in parts:
        for each in replaced(part, other):
            copy = value.copy()
            copy[at] = each
            yield copy


@pytest.mark.parametrize("other", [None, 5, True, "x", [["x"]], {"a": {"b": 1}}], ids=repr)
def test_a_value_of_another_type_anywhere_is_judged_or_passed_over(other: Any) -> None:
    """Nothing is raised: the objects are read as users wrote them."""
    assert not list(problems(_WHOLE))
    found = [list(problems(spec)) for spec in replaced(_WHOLE, other) if isinstance(spec, dict)]
    assert len(found) > 40
