"""What a Binding writes, over all dialects: what apps and tools of the origins read, and that there is room for it."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given

from gpu import bound_pod, grant
from gpu.dialects import metagpu
from gpu.dialects.settings import AliyunSettings, DialectSettings, MetagpuSettings, VolcanoSettings
from gpu.grant import DeviceGrant, Grant
from gpu.request import ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk, charge_nano
from gpu.share import NANO_PER_DEVICE
from gpu.translate import combine
from gpu.translation import GivenDevice, Translation, Wishes
from tests.gpu.dialects.pods import asking, pod
from tests.gpu.recorded import DIALECTS, recorded
from tests.values import of_kind, there
from wire import names
from wire.core import Pod

CARD_MIB = 15109
REGULAR = ContainerKind.REGULAR
AT_NS = 1_700_000_000_123_456_789
EARLIEST = "1700000000"
#: Keys by the rules of Kubernetes: a domain, a name of up to 63 characters.
KEY = re.compile(r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)


def bind(translation: Translation, *, card_mib: int = CARD_MIB, cdi: bool = False) -> grant.BoundMetadata:
    """Give it the devices GPU-0, GPU-1 and so on of a node."""
    nanos = [charge_nano(ask, card_mib) or NANO_PER_DEVICE for ask in translation.request.shared]
    granted = Grant("attempt", tuple(DeviceGrant(f"g{n}", f"R{n}", f"GPU-{n}", nano) for n, nano in enumerate(nanos)))
    devices = [GivenDevice(d.uuid, n, card_mib, d.nano) for n, d in enumerate(granted.devices)]
    return bound_pod.bound_metadata(translation, granted, devices, node="node-1", at_ns=AT_NS, cdi=cdi)


@pytest.mark.parametrize("cdi", [False, True])
def test_what_runtimes_read_names_devices_as_cdi_does_and_nothing_else(cdi: bool) -> None:
    prefix = "k8s.device-plugin.nvidia.com/gpu=" if cdi else ""
    asked = asking({}, annotations={"nvidia.com/container.main.gpu-memory.request": "1Gi"})
    said = bind(translated(asked), cdi=cdi)
    by_key = {key: value for key, value in said.annotations.items() if "GPU-0" in value}
    grant_text = by_key.pop(names.GRANT)
    assert by_key == {
        "moorage.dev/visible-devices.c0": f"{prefix}GPU-0",
        "nvidia.com/container.main.gpus.devices": f"{prefix}GPU-0",
    }
    assert "k8s.device-plugin" not in grant_text


def translated(asked: Pod, settings: DialectSettings | None = None) -> Translation:
    return of_kind(Translation, combine.translate(asked, settings or DialectSettings()))


def beside_ours(metadata: grant.BoundMetadata) -> dict[str, str]:
    """What is written beside KAI's keys and ours."""
    return {
        key: value
        for key, value in metadata.annotations.items()
        if key != names.RECEIVED_RESOURCE_TYPE and not key.startswith(names.MOORAGE_PREFIX)
    }


def env(container: str, **variables: str) -> dict[str, str]:
    return {f"env.moorage.dev/{container}.{name}": value for name, value in variables.items()}


def metagpu_env(container: str, count: int, *, index: int = 0, units: int = 100) -> dict[str, str]:
    ids = ",".join(f"cnvrg-meta-{index}-{number}-GPU-{index}" for number in range(count))
    return env(container, CNVRG_META_GPU_DEVICES=ids, METAGPU_MAX_MEM=str(CARD_MIB // units * count))


LIMITS_A = "hami.io/vgpu-devices-allocated"
HAMI = {"hami.io/vgpu-node": "node-1", "hami.io/vgpu-time": EARLIEST}
VOLCANO = {
    "volcano.sh/vgpu-node": "node-1",
    "volcano.sh/vgpu-time": EARLIEST,
    "volcano.sh/bind-time": EARLIEST,
    "volcano.sh/bind-phase": "success",
}


def aliyun(idx: str, *, used: int, card: int = 14) -> dict[str, str]:
    return {
        "ALIYUN_COM_GPU_MEM_IDX": idx,
        "ALIYUN_COM_GPU_MEM_DEV": str(card),
        "ALIYUN_COM_GPU_MEM_POD": str(used),
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": str(AT_NS),
    }


def aliyun_env(container: str, own: int, *, used: int, card: int = 14) -> dict[str, str]:
    return env(
        container,
        ALIYUN_COM_GPU_MEM_IDX="0",
        ALIYUN_COM_GPU_MEM_DEV=str(card),
        ALIYUN_COM_GPU_MEM_POD=str(used),
        ALIYUN_COM_GPU_MEM_CONTAINER=str(own),
    )


def hami(text: str) -> dict[str, str]:
    return {**HAMI, "hami.io/vgpu-devices-to-allocate": text, LIMITS_A: text}


def volcano(text: str) -> dict[str, str]:
    return {**VOLCANO, "volcano.sh/vgpu-ids-new": text, "volcano.sh/devices-to-allocate": text}


def core(container: str, *limits: str, percent: int = 0) -> dict[str, str]:
    caps = {f"CUDA_DEVICE_MEMORY_LIMIT_{number}": text for number, text in enumerate(limits)}
    return env(container, **caps, CUDA_DEVICE_SM_LIMIT=str(percent))


ISOLATED = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
KOORDINATOR = "scheduling.koordinator.sh/device-allocated"


@pytest.mark.parametrize(
    ("asked", "settings", "written"),
    [
        pytest.param(
            asking({"aliyun.com/gpu-mem": 5}), None, {**aliyun("0", used=5), **aliyun_env("c0", 5, used=5)}, id="A1"
        ),
        pytest.param(
            asking({"aliyun.com/gpu-mem": 5}),
            DialectSettings(aliyun=AliyunSettings(unit_mib=1)),
            {**aliyun("0", used=5, card=CARD_MIB), **aliyun_env("c0", 5, used=5, card=CARD_MIB)},
            id="A1 in MiB",
        ),
        pytest.param(
            asking({"aliyun.com/gpu-mem": 2}, {"aliyun.com/gpu-mem": 3}),
            None,
            {**aliyun("0", used=5), **aliyun_env("c0", 2, used=5), **aliyun_env("c1", 3, used=5)},
            id="A4",
        ),
        pytest.param(asking({"aliyun.com/gpu-count": 2}), None, {}, id="A9"),
        pytest.param(
            asking(
                {"aliyun.com/gpu-mem": 5},
                annotations={"ALIYUN_COM_GPU_MEM_IDX": "7", "ALIYUN_COM_GPU_MEM_ASSIGNED": "false"},
            ),
            None,
            {**aliyun("0", used=5), **aliyun_env("c0", 5, used=5)},
            id="A13",
        ),
        pytest.param(asking({"cnvrg.io/metagpu": 30}), None, metagpu_env("c0", 30), id="M1"),
        pytest.param(asking({"cnvrg.io/metagpu": 100}), None, {}, id="M2"),
        pytest.param(
            asking({"cnvrg.io/metagpu": 2}),
            DialectSettings(metagpu=MetagpuSettings(units=7)),
            metagpu_env("c0", 2, units=7),
            id="M8",
        ),
        pytest.param(
            asking({"cnvrg.io/metagpu": 30}, {"cnvrg.io/metagpu": 40}),
            None,
            {**metagpu_env("c0", 30), **metagpu_env("c1", 40)},
            id="M9",
        ),
        pytest.param(pod({"name": "main"}, labels={"clearml-injector/fraction": "0.5"}), None, {}, id="C1"),
        pytest.param(asking({}, annotations={"gpu-fraction": "0.5"}), None, {}, id="K1"),
        pytest.param(asking({"nvidia.com/gpu": 2}), None, {}, id="N1"),
        pytest.param(
            asking({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}),
            None,
            {**hami("GPU-0,NVIDIA,3000,30:GPU-1,NVIDIA,3000,30:;"), **core("c0", "3000m", "3000m", percent=30)},
            id="H1",
        ),
        pytest.param(
            asking({"nvidia.com/gpumem": 3000}, {}, {"nvidia.com/gpumem": 2000}),
            None,
            {**hami("GPU-0,NVIDIA,3000,0:;;GPU-0,NVIDIA,2000,0:;"), **core("c0", "3000m"), **core("c2", "2000m")},
            id="H16",
        ),
        pytest.param(
            asking({"volcano.sh/vgpu-memory": 3}),
            DialectSettings(volcano=VolcanoSettings(memory_factor=1024)),
            {**volcano("GPU-0,NVIDIA,3,0:"), **core("c0", "3072m")},
            id="V10",
        ),
        pytest.param(
            asking({"volcano.sh/gpu-memory": 1024}, {"volcano.sh/gpu-memory": 5}),
            None,
            {
                "volcano.sh/gpu-index": "0",
                "volcano.sh/predicate-time": str(AT_NS),
                **env("c0", VOLCANO_GPU_ALLOCATED="1024", VOLCANO_GPU_TOTAL=str(CARD_MIB)),
                **env("c1", VOLCANO_GPU_ALLOCATED="5", VOLCANO_GPU_TOTAL=str(CARD_MIB)),
            },
            id="V16",
        ),
        pytest.param(
            asking({"koordinator.sh/gpu": 50}),
            None,
            {
                KOORDINATOR: '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"50",'
                '"koordinator.sh/gpu-memory":"7554Mi","koordinator.sh/gpu-memory-ratio":"50"}}]}'
            },
            id="O16",
        ),
        pytest.param(
            asking({"koordinator.sh/gpu": 50}, labels=ISOLATED),
            None,
            {
                KOORDINATOR: '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"50",'
                '"koordinator.sh/gpu-memory":"7554Mi","koordinator.sh/gpu-memory-ratio":"50"}}]}',
                **env("c0", CUDA_DEVICE_MEMORY_LIMIT=str(7554 * 2**20), CUDA_DEVICE_SM_LIMIT="50"),
            },
            id="O16 isolated",
        ),
        pytest.param(
            asking({}, annotations={"nvidia.com/container.main.gpu-memory.request": "1Gi"}),
            None,
            {"nvidia.com/container.main.gpus.devices": "GPU-0"},
            id="F14",
        ),
        pytest.param(
            asking(
                {}, annotations={"gpu-fraction": "0.5", "nvidia.com/container.main.gpu-compute.mode": "time-slicing"}
            ),
            None,
            {
                "nvidia.com/container.main.gpus.devices": "GPU-0",
                "nvidia.com/container.main.gpu-memory.request": "7554Mi",
            },
            id="F14 of a fraction",
        ),
    ],
)
def test_a_binding_carries_what_apps_and_tools_of_the_origin_read(
    asked: Pod, settings: DialectSettings | None, written: dict[str, str]
) -> None:
    assert beside_ours(bind(translated(asked, settings))) == written


def test_what_is_kais_and_ours_is_there_for_a_pod_of_any_dialect() -> None:
    said = bind(translated(asking({"aliyun.com/gpu-mem": 2}, {"aliyun.com/gpu-mem": 3})))
    assert said.labels == {"runai-gpu-group": "g0"}
    assert said.annotations["received-resource-type"] == "Fraction"
    assert said.annotations["moorage.dev/visible-devices.c0"] == said.annotations["moorage.dev/visible-devices.c1"]
    assert grant.read(said.annotations) is not None


def test_the_alternative_that_was_taken_is_written_back() -> None:
    found = translated(asking({"nvidia.com/gpumem": 3000}, {"nvidia.com/gpumem": 2000}))
    apart = msgspec.structs.replace(found, request=found.alternatives[0])
    assert bind(apart).annotations[LIMITS_A] == "GPU-0,NVIDIA,3000,0:;GPU-1,NVIDIA,2000,0:;"


def test_a_container_whose_name_is_too_long_for_a_key_has_none() -> None:
    """A Binding's keys are merged unseen: the pod could not be changed any more, by kubelet neither."""
    longest = "x" * 36
    mode = f"nvidia.com/container.{longest}.gpu-compute.mode"
    asked = pod({"name": longest}, annotations={"gpu-fraction": "0.5", mode: "time-slicing"})
    assert beside_ours(bind(translated(asked))) == {f"nvidia.com/container.{longest}.gpus.devices": "GPU-0"}


def test_a_card_that_does_not_tell_its_memory_or_index_is_written_all_the_same() -> None:
    for asked in (asking({"koordinator.sh/gpu-memory": 2**30}), asking({"aliyun.com/gpu-mem": 5})):
        found = translated(asked)
        granted = Grant("attempt", (DeviceGrant("g", "R", "GPU-0", NANO_PER_DEVICE // 4),))
        devices = [GivenDevice("GPU-0", -1, 0, NANO_PER_DEVICE // 4)]
        said = beside_ours(bound_pod.bound_metadata(found, granted, devices, node="n", at_ns=AT_NS))
        assert said


@given(recorded())
def test_a_binding_of_any_record_can_be_posted_and_has_room(translation: Translation) -> None:
    """Also of records that no dialect makes, on devices with the longest of names."""
    translation = msgspec.structs.replace(translation, driver_caps=True)
    allowed = _allowed(translation)
    for request in (translation.request, *translation.alternatives):
        written = _longest(translation, request)
        assert all(KEY.fullmatch(key) for key in written)
        assert allowed == 0 or allowed + _size(written) <= bound_pod.LARGEST


@pytest.mark.parametrize("unit", [0, 7])
@pytest.mark.parametrize("ask", [FractionAsk(NANO_PER_DEVICE // 2), MemoryAsk(2**31 - 1, compute_percent=99)])
@pytest.mark.parametrize(("asking_containers", "devices"), [(1, 1), (1, 30), (60, 1), (12, 6)])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_largest_pods_of_a_dialect_have_room(
    dialect: str, asking_containers: int, devices: int, ask: FractionAsk | MemoryAsk, unit: int
) -> None:
    places = range(1000 - asking_containers, 1000)
    request = GpuRequest(tuple(ContainerRequest(ContainerRef(REGULAR, n, "n" * 30), (ask,) * devices) for n in places))
    translation = Translation(
        dialect=dialect, request=request, unit=unit, wishes=Wishes(mode="hami-core"), driver_caps=True
    )
    allowed = _allowed(translation)
    assert allowed > 0 or dialect == metagpu.NAME
    assert allowed == 0 or allowed + _size(_longest(translation, request)) <= bound_pod.LARGEST


def _allowed(translation: Translation) -> int:
    refusal = there(bound_pod.cramped({"": "x" * bound_pod.LARGEST}, translation))
    return int(refusal.allowed.split()[2])


def _size(written: dict[str, str]) -> int:
    fence = {names.FENCED: "a" * 36, names.FENCED_BECAUSE: "🚢" * 512}
    return sum(len(key.encode()) + len(value.encode()) for key, value in (written | fence).items())


def _longest(translation: Translation, request: GpuRequest) -> dict[str, str]:
    count = len(request.shared)
    granted = Grant(
        "a" * 36, tuple(DeviceGrant("g" * 36, "r" * 36, f"{n:u>80}", NANO_PER_DEVICE) for n in range(count))
    )
    devices = [GivenDevice(d.uuid, 999_999_999 - n, 999_999_999, d.nano) for n, d in enumerate(granted.devices)]
    taken = msgspec.structs.replace(translation, request=request)
    return bound_pod.bound_metadata(taken, granted, devices, node="n" * 253, at_ns=2**63 - 1).annotations


def test_a_device_without_its_reservation_is_never_told_of() -> None:
    with pytest.raises(ValueError, match="shorter"):
        bound_pod.given(Grant("attempt", devices=(DeviceGrant("g", "R", "GPU-a", NANO_PER_DEVICE),)), [])
