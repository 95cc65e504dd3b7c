"""The scaling pod on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.autoscale.scaling_pod import manifest
from scheduler.core.model.records import Demand
from scheduler.settings import ScalingSettings
from tests.scheduler.core.objects import pod

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
    made = manifest(source, Demand(gpus=1), ScalingSettings(image="scaling:1"))
    assert made is not None
    [required] = made["spec"]["affinity"][kind][_REQUIRED]
    [preferred] = made["spec"]["affinity"][kind][_PREFERRED]
    assert required.get("namespaces") == preferred["podAffinityTerm"].get("namespaces") == namespaces
