from __future__ import annotations

import pytest

from gpu.dialects.settings import (
    AliyunSettings,
    ClearmlSettings,
    DialectSettings,
    HamiSettings,
    MetagpuSettings,
    ReplicasSettings,
    VolcanoSettings,
)
from gpu.dialects.settings_file import mistakes
from gpu.translation import Mistake


def test_what_is_set_by_default_can_be() -> None:
    assert mistakes(DialectSettings()) == ()


@pytest.mark.parametrize(
    "settings",
    [
        DialectSettings(clearml=ClearmlSettings(legacy_replicas=8), aliyun=AliyunSettings(unit_mib=1)),
        DialectSettings(metagpu=MetagpuSettings(units=3, resource="example.org/metaGpus")),
        DialectSettings(replicas=ReplicasSettings(entries=("gpu:sharedgpu:4,mig-3g.20gb:small:2",), time_slices=8)),
        DialectSettings(hami=HamiSettings(memory_factor=1024, default_cores_percent=100)),
    ],
)
def test_what_the_documents_name_can_be(settings: DialectSettings) -> None:
    assert mistakes(settings) == ()


@pytest.mark.parametrize(
    ("settings", "field", "value"),
    [
        (DialectSettings(clearml=ClearmlSettings(legacy_replicas=-1)), "clearml.legacy_replicas", "-1"),
        (DialectSettings(aliyun=AliyunSettings(unit_mib=0)), "aliyun.unit_mib", "0"),
        (DialectSettings(aliyun=AliyunSettings(unit_mib=1000)), "aliyun.unit_mib", "1000"),
        (DialectSettings(metagpu=MetagpuSettings(units=0)), "metagpu.units", "0"),
        (DialectSettings(metagpu=MetagpuSettings(units=1001)), "metagpu.units", "1001"),
        (DialectSettings(metagpu=MetagpuSettings(resource="")), "metagpu.resource", ""),
        (DialectSettings(metagpu=MetagpuSettings(resource="metagpu")), "metagpu.resource", "metagpu"),
        (DialectSettings(metagpu=MetagpuSettings(resource="nvidia.com/gpu")), "metagpu.resource", "nvidia.com/gpu"),
        (DialectSettings(replicas=ReplicasSettings(entries=("gpu:x",))), "resourceConfig", "gpu:x"),
        (DialectSettings(replicas=ReplicasSettings(mps_replicas=0)), "mps", "0"),
        (DialectSettings(hami=HamiSettings(memory_factor=0)), "hami.memory_factor", "0"),
        (DialectSettings(hami=HamiSettings(default_mem_mib=-1)), "hami.default_mem_mib", "-1"),
        (DialectSettings(hami=HamiSettings(default_cores_percent=101)), "hami.default_cores_percent", "101"),
        (DialectSettings(hami=HamiSettings(default_gpus=0)), "hami.default_gpus", "0"),
        (DialectSettings(volcano=VolcanoSettings(memory_factor=0)), "volcano.memory_factor", "0"),
    ],
)
def test_a_wrong_setting_is_told_by_name(settings: DialectSettings, field: str, value: str) -> None:
    [refusal] = mistakes(settings)
    assert (refusal.code, refusal.field, refusal.value) == (Mistake.MALFORMED, field, value)
    assert refusal.message
    assert refusal.allowed


def test_all_wrong_settings_are_told_at_once() -> None:
    settings = DialectSettings(
        aliyun=AliyunSettings(unit_mib=0), metagpu=MetagpuSettings(units=0), replicas=ReplicasSettings(entries=("",))
    )
    assert [refusal.field for refusal in mistakes(settings)] == ["metagpu.units", "aliyun.unit_mib", "resourceConfig"]
