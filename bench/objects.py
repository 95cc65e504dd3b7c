"""Nodes and pods of the benches as plain data: of each way to request GPUs the usual pod, and a dialect's widest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpu.dialects.settings import DialectSettings, MetagpuSettings, ReplicasSettings
from kube.client.clock import SystemClock
from simulator.nodes import node_object
from simulator.nodes.shape import NodeShape
from wire import names
from wire.rfc3339 import rfc3339

Manifest = dict[str, Any]


class Form(msgspec.Struct, frozen=True):
    """A pod, and the settings with which it is understood."""

    pod: Manifest
    settings: DialectSettings = DialectSettings()


def _form_pod(
    *limits: Mapping[str, int], annotations: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None
) -> Manifest:
    """A pod with twenty variables and a volume beside what each container asks."""
    containers = [
        {
            "name": f"c{number}",
            "image": "example.org/training:v1",
            "command": ["python", "train.py"],
            "env": [{"name": f"OPTION_{option}", "value": "of some length"} for option in range(20)],
            "resources": {"limits": {"cpu": "8", "memory": "64Gi", **{key: str(n) for key, n in asked.items()}}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
        for number, asked in enumerate(limits)
    ]
    metadata: dict[str, Any] = {
        "name": "p",
        "annotations": dict(annotations or {}),
        "labels": {"app": "training", "team": "one", **(labels or {})},
    }
    spec = {"containers": containers, "volumes": [{"name": "data", "emptyDir": {}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


_REPLICAS: Final = DialectSettings(replicas=ReplicasSettings(entries=("gpu:sharedgpu:8",)))
_WIDE: Final = DialectSettings(
    metagpu=MetagpuSettings(allow_span=True), replicas=ReplicasSettings(entries=("gpu:sharedgpu:8",))
)

#: Understood without any settings.
USUAL: Final[Mapping[str, Manifest]] = {
    "no GPU": _form_pod({}),
    "whole GPUs": _form_pod({"nvidia.com/gpu": 2}),
    "kai": _form_pod({}, annotations={"gpu-fraction": "0.5"}),
    "nvfractions": _form_pod({}, annotations={"nvidia.com/container.c0.gpu-memory.request": "5Gi"}),
    "clearml": _form_pod({"nvidia.com/gpu": 4}, labels={"clearml-injector/fraction": "0.500"}),
    "aliyun": _form_pod({"aliyun.com/gpu-mem": 5}),
    "metagpu": _form_pod({"cnvrg.io/metagpu": 150}),
    "hami": _form_pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}),
    "volcano": _form_pod({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 3000}),
    "koordinator": _form_pod({"koordinator.sh/gpu": 50}),
}

FORMS: Final[Mapping[str, Form]] = {
    **{name: Form(pod, _REPLICAS) for name, pod in USUAL.items()},
    "replicas": Form(_form_pod({"nvidia.com/sharedgpu": 1}), _REPLICAS),
    "two containers of hami": Form(
        _form_pod(*({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000} for _ in range(2))), _REPLICAS
    ),
    "eight replicas or fewer devices": Form(_form_pod({"nvidia.com/sharedgpu": 8}), _REPLICAS),
    "metagpu over two GPUs": Form(_form_pod({"cnvrg.io/metagpu": 750}), _WIDE),
}


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
    return [node_object.node(shape, now=now) for shape in shapes]


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
