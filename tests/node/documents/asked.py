"""What each pod of the documents asks, in all its containers, and what their apps shall read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tools.node.gpus import Gpu, made_up
from wire import names

NODE = "node-d"
#: A small card, so that what each system makes of its memory differs.
CARD_MIB, UNITS_GIB, UNIT_MIB = 15109, 14, 151
GPUS = tuple(Gpu(one.uuid, one.minor, "Tesla T4", CARD_MIB) for one in made_up(NODE, 20))
GPU_OF = {gpu.uuid: gpu for gpu in GPUS}

Env = dict[str, str]
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Asked:
    """What one container asks: of each card that it shall see so much; and what its app reads, once it has them.

    ``is_shared``: whether it is told its devices by us, by UUIDs or, where that is on, CDI names.
    """

    cards: Sequence[Fraction]
    env: Callable[[Sequence[Gpu]], Env]
    is_shared: bool = True


def whole(count: int, **env: str) -> Asked:
    """Whole GPUs, from kubelet."""
    return Asked([Fraction(1)] * count, lambda gpus: {names.ENV_VISIBLE_DEVICES: _uuids(gpus), **env}, is_shared=False)


def part(*cards: Fraction, portion: str, **env: str) -> Asked:
    """Parts, told in KAI's variables and others."""
    return Asked(cards, lambda gpus: {**_kais(gpus, portion), **env})


#: Beside a container that asks.
NOTHING = Asked((), lambda _: {names.ENV_VISIBLE_DEVICES: "void"}, is_shared=False)


def aliyun(units: int, *, pod_units: int) -> Asked:
    """Units of a GiB, of a pod with so many on its card."""

    def env(gpus: Sequence[Gpu]) -> Env:
        (gpu,) = gpus
        return {
            **_kais(gpus, "0.34"),
            "ALIYUN_COM_GPU_MEM_IDX": str(gpu.minor),
            "ALIYUN_COM_GPU_MEM_POD": str(pod_units),
            "ALIYUN_COM_GPU_MEM_CONTAINER": str(units),
            "ALIYUN_COM_GPU_MEM_DEV": str(UNITS_GIB),
        }

    return Asked([_of_memory(units * 1024)], env)


def metagpu(*units: int, portion: str) -> Asked:
    """Hundredths of cards."""

    def env(gpus: Sequence[Gpu]) -> Env:
        ids = [
            f"cnvrg-meta-{gpu.minor}-{number}-{gpu.uuid}"
            for gpu, count in zip(gpus, units, strict=True)
            for number in range(count)
        ]
        memory = str(sum(units) * UNIT_MIB)
        return {**_kais(gpus, portion), "CNVRG_META_GPU_DEVICES": ",".join(ids), "METAGPU_MAX_MEM": memory}

    return Asked([Fraction(count, 100) for count in units], env)


def _of_memory(mem_mib: int) -> Fraction:
    return Fraction(mem_mib, CARD_MIB)


def _kais(gpus: Sequence[Gpu], portion: str) -> Env:
    return {names.ENV_VISIBLE_DEVICES: _uuids(gpus), names.ENV_NUM_OF_GPUS: portion, names.ENV_GPU_PORTION: portion}


def _uuids(gpus: Sequence[Gpu]) -> str:
    return ",".join(gpu.uuid for gpu in gpus)


def clearml(share: str, portion: str) -> Asked:
    """A share as its agent reports it."""
    return part(Fraction(share), portion=portion, CLEARML_AGENT_GPU_FRACTIONS=share)


#: Not of the document, which shows the resources of single cards in the configuration of the device plugin only.
INDEXED: Name = ("clearml", "indexed")
_HALF, _QUARTER = Fraction(1, 2), Fraction(1, 4)
#: Namespace and pod -> what each container asks.
ASKED: Mapping[Name, Mapping[str, Asked]] = {
    ("clearml", "fraction-1-000"): {"clearml-task": whole(1, CLEARML_AGENT_GPU_FRACTIONS="1.000")},
    ("clearml", "fraction-2"): {"clearml-task": whole(2, CLEARML_AGENT_GPU_FRACTIONS="1.000")},
    ("clearml", "fraction-0-250"): {"clearml-task": clearml("0.250", "0.25")},
    ("clearml", "fraction-0-0625"): {"clearml-task": clearml("0.0625", "0.06")},
    INDEXED: {"main": clearml("0.125", "0.13")},
    ("clearml-older", "whole"): {"clearml-task": whole(1, CLEARML_AGENT_GPU_FRACTIONS="1.000")},
    ("clearml-older", "fraction-0-500"): {"clearml-task": clearml("0.500", "0.50")},
    ("aliyun", "gpushare-test-pod"): {"gpushare-test-pod": aliyun(5, pod_units=5)},
    ("aliyun", "several"): {"model": aliyun(3, pod_units=5), "encoder": aliyun(2, pod_units=5), "beside": NOTHING},
    ("metagpu", "half"): {"jupyter": metagpu(50, portion="0.50")},
    ("metagpu", "one-and-a-half"): {"jupyter": metagpu(100, 50, portion="1.00")},
    ("kai", "gpu-sharing"): {"ubuntu": part(_HALF, portion="0.50")},
    ("kai", "gpu-memory"): {"ubuntu": part(_of_memory(2000), portion="0.14")},
    ("kai", "gpu-sharing-non-default-container"): {"sidecar": NOTHING, "gpu-workload": part(_HALF, portion="0.50")},
    ("kai", "gpu-sharing-init-container"): {"gpu-init": part(_HALF, portion="0.50"), "main": NOTHING},
    ("replicas", "gpu-pod"): {"cuda-container": whole(2), "digits-container": whole(2)},
    ("replicas", "sharedgpu"): {"cuda-container": part(_QUARTER, portion="0.25")},
    ("replicas", "two-sharedgpu"): {"cuda-container": part(_QUARTER, _QUARTER, portion="0.25")},
}
