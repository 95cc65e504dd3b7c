"""Required node affinity that stands for the volumes of a pod."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.autoscale.scaling_pods import scaling_pod_manifest, volume_selector
from scheduler.core.model.pod_class import Demand, Requirement, Term, VolumeRule
from scheduler.settings import ScalingSettings
from tests.scheduler.core.objects import pod
from wire import names
from wire.core import NodeSelector


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
