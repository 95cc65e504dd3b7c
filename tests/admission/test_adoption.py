from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from admission.namespaces import NamespaceChoices
from admission.review import PodAdmission
from admission.settings import Choices, Settings
from gpu import record
from gpu.dialects.settings import DialectSettings, ReplicasSettings
from gpu.request import ContainerKind, ContainerRef, ContainerRequest, GpuRequest, MemoryAsk
from gpu.translation import Translation
from tests.admission.pods import Raw, container, patched, pod, review
from wire import names
from wire.core import Namespace, ObjectMeta


def _asking(limits: Raw, **more: Any) -> Raw:
    more.setdefault("scheduler", "default-scheduler")
    return pod(container(resources={"limits": limits}), **more)


def _adopted(raw: Raw, admission: PodAdmission | None = None) -> bool:
    before = copy.deepcopy(raw)
    made = patched(raw, (admission or PodAdmission(Settings(), rng=random.Random(1))).adopting(review(raw)))
    assert raw == before
    assert {**made, "spec": {**made["spec"], "schedulerName": ""}} == {
        **raw,
        "spec": {**raw["spec"], "schedulerName": ""},
    }
    return bool(made["spec"]["schedulerName"] == names.SCHEDULER_NAME)


RECORD = record.render(
    Translation(
        dialect="aliyun",
        request=GpuRequest((ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0, "main"), (MemoryAsk(5120),)),)),
    )
)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(_asking({"aliyun.com/gpu-mem": "5"}), True, id="memory of Aliyun's"),
        pytest.param(_asking({}, labels={"clearml-injector/fraction": "0.5"}), True, id="ClearML's label"),
        pytest.param(_asking({}, annotations={names.GPU_FRACTION: "0.5"}), True, id="KAI's annotation"),
        pytest.param(_asking({}, annotations={names.GPU_RECORD: RECORD}), True, id="a record"),
        pytest.param(_asking({names.GPU_RESOURCE: "1"}), True, id="a whole GPU"),
        pytest.param(_asking({"nvidia.com/mig-1g.5gb": "1"}), True, id="a MIG slice"),
        pytest.param(_asking({"nvidia.com/gpumem": "3000"}, scheduler="hami-scheduler"), True, id="of HAMi"),
        pytest.param(_asking({"volcano.sh/vgpu-number": "1"}, scheduler="volcano"), True, id="of Volcano"),
        pytest.param(_asking({"koordinator.sh/gpu": "50"}, scheduler="koord-scheduler"), True, id="of Koordinator"),
        pytest.param(_asking({"koordinator.sh/gpu": "50"}, scheduler=""), True, id="of none"),
        pytest.param(_asking({}, labels={"clearml-injector/fraction": "7.5"}), True, id="asks wrongly, to be told"),
        pytest.param(_asking({"cpu": "1"}), False, id="no GPU"),
        pytest.param(_asking({"aliyun.com/gpu-mem": "0"}), False, id="none of it"),
        pytest.param(_asking({"amd.com/gpu": "1"}), False, id="another vendor's"),
        pytest.param(_asking({names.GPU_RESOURCE: "1"}, scheduler="slurm-bridge"), False, id="of a stranger"),
        pytest.param(_asking({names.GPU_RESOURCE: "1"}, nodeName="n1"), False, id="has its node"),
    ],
)
def test_who_asks_for_gpus_is_taken_and_nobody_else(raw: Raw, expected: bool) -> None:
    assert _adopted(raw) is expected


def test_whose_pods_are_taken_is_a_setting() -> None:
    admission = PodAdmission(Settings(origins=("slurm-bridge",)), rng=random.Random(1))
    assert _adopted(_asking({names.GPU_RESOURCE: "1"}, scheduler="slurm-bridge"), admission)
    assert not _adopted(_asking({names.GPU_RESOURCE: "1"}), admission)


def test_it_is_read_with_the_settings_of_the_namespace() -> None:
    dialects = DialectSettings(replicas=ReplicasSettings(entries=("gpu:sharedgpu:4",)))
    admission = PodAdmission(Settings(choices=Choices(dialects=dialects)), rng=random.Random(1))
    raw = _asking({"nvidia.com/sharedgpu": "1"})
    assert _adopted(raw, admission)
    assert not _adopted(raw)


def test_where_the_namespace_is_not_understood_the_next_webhook_says_so() -> None:
    choices = NamespaceChoices(Choices())
    choices.upsert(Namespace(metadata=ObjectMeta(name="team-a", annotations={names.DIALECTS: "{"})))
    admission = PodAdmission(Settings(), rng=random.Random(1), choices_of=choices)
    assert _adopted(_asking({"aliyun.com/gpu-mem": "5"}), admission)
    assert not _adopted(_asking({"cpu": "1"}), admission)
