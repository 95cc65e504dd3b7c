"""What a Binding of ours leaves on a pod is all that a KAI reads of it: so one that starts again goes on with it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.reservation import name_for
from kube.client.resources import PODS
from tests.binder.cluster import HALF, Cluster, cluster
from tests.conftest import AnyioBackend
from tests.kai import reading
from wire import names


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def _pods(it: Cluster) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(pod) for pod in (await it.api.list(PODS)).items]


async def _runs(it: Cluster, *pod_names: str) -> None:
    for name in pod_names:
        await it.kubelet.status(name, namespace="team", phase="Running")


@pytest.mark.parametrize(
    ("asked", "devices", "labels", "received"),
    [
        ({"fraction": "0.5"}, ("g",), {"runai-gpu-group": "g"}, "Fraction"),
        (
            {"fraction": "0.5", "devices": 2},
            ("g", "h"),
            {"runai-gpu-group/g": "g", "runai-gpu-group/h": "h"},
            "Fraction",
        ),
        ({"fraction": ""}, (), {}, "Regular"),
    ],
)
async def test_a_pod_that_was_bound_here_has_all_that_kai_reads_of_it(
    asked: dict[str, Any], devices: tuple[str, ...], labels: dict[str, str], received: str
) -> None:
    async with cluster() as it:
        made = await it.pod("p", **asked)
        await it.hand_over(made, *devices, nano=HALF)
        await it.until(it.is_bound, "p")
        await _runs(it, "p")
        (pod,) = [each for each in await _pods(it) if each["metadata"]["name"] == "p"]
        assert pod["metadata"].get("labels", {}) == labels
        annotations = pod["metadata"]["annotations"]
        assert annotations["received-resource-type"] == received
        assert annotations.items() >= (made.metadata.annotations or {}).items()
        assert reading.groups(pod) == set(devices)
        pods = await _pods(it)
        assert reading.deleted_at_its_start(pods) == []
        told = annotations.get("moorage.dev/visible-devices.c0", "")
        assert ",".join(reading.device(pods, group) for group in devices) == told
        for held in filter(reading.is_reservation, pods):
            (group,) = reading.groups(held)
            assert held["metadata"]["labels"] == {"app": "kai-resource-reservation", "runai-gpu-group": group}
            assert held["metadata"]["name"] == name_for("node-1", group)
            assert held["spec"]["nodeName"] == "node-1"
            assert held["spec"]["containers"][0]["resources"]["limits"] == {names.GPU_RESOURCE: "1"}


async def test_pods_on_their_way_are_told_apart_from_those_that_are_bound() -> None:
    """KAI would take a label on a pod that is not bound for a bind that broke off: a Binding writes both at once."""
    async with cluster() as it:
        await it.bound("p")
        await it.pod("q")
        pods = await _pods(it)
        labelled = [pod["metadata"]["name"] for pod in pods if reading.groups(pod) and not reading.is_reservation(pod)]
        assert labelled == ["p"]
