"""The scaling pod on the wire."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.autoscale.scaling_pods import read_scaling_pod, scaling_pod_manifest
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.settings import NodePool
from scheduler.settings import ScalingSettings
from tests.scheduler.core.objects import pod
from wire import names
from wire.core import Pod

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
