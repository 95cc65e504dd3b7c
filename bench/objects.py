"""Nodes and pods of the benches, as plain data."""

from __future__ import annotations

from typing import Any

from kube.client.clock import SystemClock
from simulator import nodeobject
from simulator.shape import NodeShape
from wire import names
from wire.rfc3339 import rfc3339

Manifest = dict[str, Any]

CARDS = 8
CARD_MIB = 81_920
#: What kube-scheduler looks for.
STOCK = "default-scheduler"


def nodes(count: int, *, zones: int = 0) -> list[Manifest]:
    """Ready nodes of 8 GPUs, 128 cores, 1 TiB and 256 pods, in ``zones``. Objects only: no kubelet speaks for them."""
    now = rfc3339(SystemClock().now_ns())
    shapes = [
        NodeShape(
            name=f"node-{i:04}",
            cards_mib=(CARD_MIB,) * CARDS,
            cpu_milli=128_000,
            mem_mib=1_048_576,
            pods=256,
            labels={names.ZONE_LABEL: f"zone-{i % zones}"} if zones else {},
        )
        for i in range(count)
    ]
    return [nodeobject.node(shape, now=now) for shape in shapes]


def whole(
    name: str,
    *,
    scheduler: str = names.SCHEDULER_NAME,
    gpus: int = 1,
    group: str = "",
    queue: str = "",
    node: str = "",
) -> Manifest:
    """A pod of whole GPUs; ``group`` names its PodGroup, ``queue`` its queue, ``node`` binds it at once."""
    made = _pod(name, scheduler, {names.POD_GROUP_NAME: group} if group else {})
    made["spec"]["containers"][0]["resources"]["limits"] = {names.GPU_RESOURCE: str(gpus)}
    if queue:
        made["metadata"]["labels"] = {names.QUEUE_LABEL: queue}
    if node:
        made["spec"]["nodeName"] = node
    return made


def preferring(name: str, *, scheduler: str = names.SCHEDULER_NAME) -> Manifest:
    """A pod of a GPU that is rather not beside others of its kind: spread over zones, and off their hosts."""
    made = whole(name, scheduler=scheduler)
    made["metadata"]["labels"] = {"app": "replica"}
    alike = {"matchLabels": {"app": "replica"}}
    made["spec"]["topologySpreadConstraints"] = [
        {
            "topologyKey": names.ZONE_LABEL,
            "maxSkew": 1,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": alike,
        }
    ]
    term = {"weight": 10, "podAffinityTerm": {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": alike}}
    made["spec"]["affinity"] = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    return made


def share(name: str, fraction: str) -> Manifest:
    """A pod of a part of a GPU, as a user writes it."""
    return _pod(name, names.SCHEDULER_NAME, {names.GPU_FRACTION: fraction})


def queue(name: str, *, gpus: int, parent: str = "") -> Manifest:
    """A queue with a quota of GPUs, without limits; what is left is divided equally."""
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"cpu": unlimited, "memory": unlimited, "gpu": {"quota": gpus, "limit": -1, "overQuotaWeight": 1}}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"resources": resources} | ({"parentQueue": parent} if parent else {}),
    }


def pod_group(name: str, minimum: int, *, queue: str = "default") -> Manifest:
    """A gang."""
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": minimum, "queue": queue},
    }


def _pod(name: str, scheduler: str, annotations: dict[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/train:1",
                    "resources": {"requests": {"cpu": "1", "memory": "4Gi"}},
                }
            ],
        },
    }
