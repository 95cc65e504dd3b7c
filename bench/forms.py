"""A pod of each way to ask for GPUs, in its usual form and in the widest that a dialect has: as large as real ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpu.dialects.settings import DialectSettings, MetagpuSettings, ReplicasSettings

Manifest = dict[str, Any]


class Form(msgspec.Struct, frozen=True):
    """A pod, and the settings with which it is understood."""

    pod: Manifest
    settings: DialectSettings = DialectSettings()


def _pod(
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
    "no GPU": _pod({}),
    "whole GPUs": _pod({"nvidia.com/gpu": 2}),
    "kai": _pod({}, annotations={"gpu-fraction": "0.5"}),
    "nvfractions": _pod({}, annotations={"nvidia.com/container.c0.gpu-memory.request": "5Gi"}),
    "clearml": _pod({"nvidia.com/gpu": 4}, labels={"clearml-injector/fraction": "0.500"}),
    "aliyun": _pod({"aliyun.com/gpu-mem": 5}),
    "metagpu": _pod({"cnvrg.io/metagpu": 150}),
    "hami": _pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}),
    "volcano": _pod({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 3000}),
    "koordinator": _pod({"koordinator.sh/gpu": 50}),
}

FORMS: Final[Mapping[str, Form]] = {
    **{name: Form(pod, _REPLICAS) for name, pod in USUAL.items()},
    "replicas": Form(_pod({"nvidia.com/sharedgpu": 1}), _REPLICAS),
    "two containers of hami": Form(
        _pod(*({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000} for _ in range(2))), _REPLICAS
    ),
    "eight replicas or fewer devices": Form(_pod({"nvidia.com/sharedgpu": 8}), _REPLICAS),
    "metagpu over two GPUs": Form(_pod({"cnvrg.io/metagpu": 750}), _WIDE),
}
