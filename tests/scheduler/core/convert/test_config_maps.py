"""Which ConfigMaps a pod names as required."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.convert.bounds import MOST_VOLUMES
from scheduler.core.convert.config_maps import required
from tests.scheduler.core.objects import pod
from wire import names

_KEY: Any = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "key", "key": "a"}}}


def _container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", **fields}]}


def _projected(*sources: dict[str, Any]) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "projected": {"sources": list(sources)}}]}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({}, ()),
        ({"volumes": [{"name": "v", "configMap": {"name": "a"}}]}, ("a",)),
        ({"volumes": [{"name": "v", "configMap": {"name": "a", "optional": True}}]}, ()),
        ({"volumes": [{"name": "v", "configMap": {"name": "a", "optional": False}}]}, ("a",)),
        (_projected({"configMap": {"name": "a"}}, {"secret": {"name": "s"}}), ("a",)),
        (_projected({"configMap": {"name": "kube-root-ca.crt"}}), ()),
        (_container(envFrom=[{"configMapRef": {"name": "all"}}, {"secretRef": {"name": "s"}}]), ("all",)),
        (_container(envFrom=[{"configMapRef": {"name": "all", "optional": True}}]), ()),
        (_container(env=[_KEY, _KEY]), ("key",)),
        (_container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a"}}}]), ()),
        ({"initContainers": [{"name": "i", "env": [_KEY]}]}, ("key",)),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, ()),
    ],
)
def test_required_are_those_without_which_kubelet_starts_no_container(spec: Any, found: tuple[str, ...]) -> None:
    assert required(pod("p", spec=spec)) == found


def test_those_that_the_binder_makes_are_not_waited_for() -> None:
    spec = _container(envFrom=[{"configMapRef": {"name": "p-x-shared-gpu-0-evar"}}, {"configMapRef": {"name": "own"}}])
    assert required(pod("p", annotations={names.SHARED_GPU_CONFIGMAP: "p-x-shared-gpu"}, spec=spec)) == ("own",)


def test_no_more_are_kept_than_a_pod_may_have_volumes() -> None:
    spec = _container(envFrom=[{"configMapRef": {"name": f"m{number}"}} for number in range(2 * MOST_VOLUMES)])
    assert len(required(pod("p", spec=spec))) == MOST_VOLUMES
