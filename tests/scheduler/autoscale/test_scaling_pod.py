"""The scaling pod on the wire."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.autoscale.scaling_pods import read_scaling_pod, scaling_pod_manifest, volume_selector
from scheduler.core.model.pod_class import Demand, Requirement, Term, VolumeRule
from scheduler.core.model.settings import NodePool
from scheduler.settings import ScalingSettings
from tests.scheduler.core.objects import pod
from wire import names
from wire.core import NodeSelector, Pod

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_TERM: dict[str, Any] = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize(
    ("written", "namespaces"),
    [({}, ["team"]), ({"namespaces": ["other"]}, ["other"]), ({"namespaceSelector": {}}, None)],
)
def test_terms_that_mean_their_pods_own_namespace_name_that_of_the_source(
    kind: str, written: dict[str, Any], namespaces: list[str] | None
) -> None:
    term = {**_TERM, **written}
    rules = {_REQUIRED: [term], _PREFERRED: [{"weight": 1, "podAffinityTerm": dict(term)}]}
    source = pod(fraction="0.5", namespace="team", spec={"affinity": {kind: rules}})
    made = scaling_pod_manifest(source, Demand(gpus=1), ScalingSettings(image="scaling:1"))
    assert made is not None
    [required] = made["spec"]["affinity"][kind][_REQUIRED]
    [preferred] = made["spec"]["affinity"][kind][_PREFERRED]
    assert required.get("namespaces") == preferred["podAffinityTerm"].get("namespaces") == namespaces


@pytest.mark.parametrize(
    ("pool", "wanted"),
    [
        (NodePool(value="a"), {"key": names.NODE_POOL_LABEL, "operator": "In", "values": ["a"]}),
        (NodePool(), {"key": names.NODE_POOL_LABEL, "operator": "DoesNotExist"}),
    ],
)
def test_a_node_of_the_pool_is_asked_for_beside_what_the_pod_asks(pool: NodePool, wanted: dict[str, Any]) -> None:
    own = {"key": "zone", "operator": "In", "values": ["x"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [own]}]}
    source = pod(fraction="0.5", spec={"affinity": {"nodeAffinity": {_REQUIRED: terms}}})
    made = scaling_pod_manifest(source, Demand(gpus=1), ScalingSettings(), pool=pool)
    assert made is not None
    [term] = made["spec"]["affinity"]["nodeAffinity"][_REQUIRED]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [own, wanted]


def test_each_scheduler_reads_the_scaling_pods_of_its_pool() -> None:
    settings, pools = ScalingSettings(), {"a": NodePool(value="a"), "": NodePool()}
    for value, pool in pools.items():
        made = scaling_pod_manifest(pod("source", fraction="0.5"), Demand(gpus=1), settings, pool=pool)
        assert made is not None
        there = msgspec.convert({**made, "spec": {"containers": [{"name": "c"}]}}, Pod)
        assert {of: read_scaling_pod(there, settings.namespace, each) is not None for of, each in pools.items()} == {
            of: of == value for of in pools
        }
        assert read_scaling_pod(there, settings.namespace) is not None


# Required node affinity that stands for the volumes of a pod.


def _expression(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def _on(*values: str) -> VolumeRule:
    terms = tuple(Term((Requirement("host", "In", (value,)),), ()) for value in values)
    return VolumeRule(terms=terms)


_ZONED = VolumeRule(zones=((names.OLD_ZONE_LABEL, ("z1", "z2")),))
_ZONE = _expression(names.ZONE_LABEL, "z1", "z2")
_OWN = {"nodeSelectorTerms": [{"matchExpressions": [_expression("pool", "a")]}]}


@pytest.mark.parametrize(
    ("own", "rules", "terms"),
    [
        (None, [_on("x")], [[_expression("host", "x")]]),
        (None, [_on("x", "y"), _ZONED], [[_expression("host", "x"), _ZONE], [_expression("host", "y"), _ZONE]]),
        (_OWN, [_ZONED], [[_expression("pool", "a"), _ZONE]]),
        (_OWN, [_on("x")], [[_expression("pool", "a"), _expression("host", "x")]]),
        # Nowhere, and more alternatives than anybody reads.
        (None, [VolumeRule(terms=())], None),
        (None, [_on(*(str(i) for i in range(9))), _on(*(str(i) for i in range(9)))], None),
    ],
)
def test_what_volumes_ask_of_nodes_is_joined_with_the_pods_own_words(
    own: dict[str, Any] | None, rules: list[VolumeRule], terms: list[Any] | None
) -> None:
    found = volume_selector(None if own is None else msgspec.convert(own, NodeSelector), rules)
    joined = None if terms is None else {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    assert found == joined


def test_a_scaling_pod_asks_for_a_node_where_the_volumes_are() -> None:
    settings = ScalingSettings(image="scaling:1")
    plain = scaling_pod_manifest(pod(fraction="0.5"), Demand(gpus=1), settings)
    assert plain is not None
    assert "affinity" not in plain["spec"]
    zoned = scaling_pod_manifest(pod(fraction="0.5"), Demand(gpus=1), settings, [_ZONED])
    assert zoned is not None
    required = zoned["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required == {"nodeSelectorTerms": [{"matchExpressions": [_ZONE]}]}
    assert scaling_pod_manifest(pod(fraction="0.5"), Demand(gpus=1), settings, [VolumeRule(terms=())]) is None
