"""How long it takes to understand a pod: ``python -m bench.translate`` prints one JSON object. Nothing here is a test.

One pod of each dialect in its usual form, and the widest that a dialect has. Times are the least of many rounds, in
microseconds: what others do on the machine only adds. ``of_decoding`` is the translation in parts of what it costs to
decode the same pod from JSON, which the API server's review brings anyway; it is what compares between machines.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from gpu import record
from gpu.dialects import combine
from gpu.dialects.settings import DialectSettings, MetagpuSettings, ReplicasSettings
from gpu.translation import Translation
from wire.core import Pod

_ROUNDS: Final = 200
_PER_ROUND: Final = 20
_SETTINGS: Final = DialectSettings(replicas=ReplicasSettings(entries=("gpu:sharedgpu:8",)))
_WIDE: Final = DialectSettings(
    metagpu=MetagpuSettings(allow_span=True), replicas=ReplicasSettings(entries=("gpu:sharedgpu:8",))
)


def _pod(
    *limits: Mapping[str, int], annotations: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None
) -> bytes:
    """A pod as large as real ones are: twenty variables and a few volumes beside what it asks."""
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
    meta = {
        "name": "p",
        "namespace": "team",
        "annotations": dict(annotations or {}),
        "labels": {"app": "training", "team": "one", **(labels or {})},
    }
    return msgspec.json.encode({"metadata": meta, "spec": {"containers": containers}})


_PODS: Final[Mapping[str, tuple[bytes, DialectSettings]]] = {
    "no GPU": (_pod({}), _SETTINGS),
    "whole GPUs": (_pod({"nvidia.com/gpu": 2}), _SETTINGS),
    "kai": (_pod({}, annotations={"gpu-fraction": "0.5"}), _SETTINGS),
    "nvfractions": (_pod({}, annotations={"nvidia.com/container.c0.gpu-memory.request": "5Gi"}), _SETTINGS),
    "clearml": (_pod({"nvidia.com/gpu": 4}, labels={"clearml-injector/fraction": "0.500"}), _SETTINGS),
    "aliyun": (_pod({"aliyun.com/gpu-mem": 5}), _SETTINGS),
    "metagpu": (_pod({"cnvrg.io/metagpu": 150}), _SETTINGS),
    "replicas": (_pod({"nvidia.com/sharedgpu": 1}), _SETTINGS),
    "hami": (_pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}), _SETTINGS),
    "volcano": (_pod({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 3000}), _SETTINGS),
    "koordinator": (_pod({"koordinator.sh/gpu": 50}), _SETTINGS),
    "two containers of hami": (_pod(*({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000} for _ in range(2))), _SETTINGS),
    "eight replicas or fewer devices": (_pod({"nvidia.com/sharedgpu": 8}), _SETTINGS),
    "metagpu over two cards": (_pod({"cnvrg.io/metagpu": 750}), _WIDE),
}


def _least_us(work: Callable[[], object]) -> float:
    least = float("inf")
    for _ in range(_ROUNDS):
        begun = time.perf_counter_ns()
        for _ in range(_PER_ROUND):
            work()
        least = min(least, (time.perf_counter_ns() - begun) / _PER_ROUND)
    return round(least / 1000, 1)


def _measured(text: bytes, settings: DialectSettings) -> dict[str, Any]:
    decode = msgspec.json.Decoder(Pod).decode
    pod = decode(text)
    made = combine.translate(pod, settings)
    if not isinstance(made, Translation):
        raise TypeError(f"a pod of the bench is refused: {made}")
    written = record.render(made)
    decoding_us = _least_us(lambda: decode(text))
    translation_us = _least_us(lambda: combine.translate(pod, settings))
    return {
        "translate_us": translation_us,
        "of_decoding": round(translation_us / decoding_us, 2),
        "write_record_us": _least_us(lambda: record.render(made)),
        "read_record_us": _least_us(lambda: record.read(written)),
        "record_bytes": len(written),
    }


def main() -> None:
    """Measure and print."""
    gc.disable()
    json.dump({name: _measured(text, settings) for name, (text, settings) in _PODS.items()}, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
