from __future__ import annotations

import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.mutate import new_prefix
from gpu import container_devices
from gpu.request import ContainerKind, ContainerRef

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
C0 = ContainerRef(ContainerKind.REGULAR, 0, "main")
I1 = ContainerRef(ContainerKind.INIT, 1, "fetch")


def _prefix(metadata: dict[str, Any], container: ContainerRef = C0) -> str:
    return new_prefix(metadata, [container], random.Random(1))


def _is_subdomain(name: str) -> bool:
    return len(name) <= 253 and all(LABEL.fullmatch(part) and len(part) <= 63 for part in name.split("."))


def _assert_valid(prefix: str, container: ContainerRef) -> None:
    capabilities = container_devices.capabilities_name(prefix, container)
    volume = container_devices.volume_name(capabilities)
    assert _is_subdomain(capabilities)
    assert _is_subdomain(container_devices.direct_env_name(capabilities))
    assert LABEL.fullmatch(volume)
    assert len(volume) <= 63


@pytest.mark.parametrize(
    ("metadata", "base"),
    [
        ({"name": "trainer"}, "trainer"),
        ({"name": "trainer-x7", "ownerReferences": [{"name": "trainer"}]}, "trainer"),
        ({"generateName": "train-"}, "train"),
        ({"name": "", "generateName": "train-"}, "train"),
        ({"ownerReferences": [{"name": "job-"}]}, "job"),
        ({"ownerReferences": [], "name": "a.b"}, "a.b"),
        ({"name": "a" * 253}, "a" * 33),
        ({"name": "a" * 32 + "-b"}, "a" * 32),
        ({"name": "a" * 32 + ".b"}, "a" * 32),
        ({"ownerReferences": [{"name": "system:Node_1.-x"}]}, "system-node-1.x"),
        ({"ownerReferences": [{"name": "Größe"}]}, "gr-e"),
        ({"ownerReferences": [{"name": "日本"}]}, "pod"),
        ({"generateName": "-"}, "pod"),
        ({}, "pod"),
    ],
)
def test_the_base_is_the_first_name_there_is_made_valid(metadata: dict[str, Any], base: str) -> None:
    prefix = _prefix(metadata)
    assert re.fullmatch(re.escape(base) + r"-[a-z0-9]{7}-shared-gpu", prefix)
    _assert_valid(prefix, C0)


def test_names_of_the_two_config_maps_and_the_volume() -> None:
    assert container_devices.capabilities_name("t-abc-shared-gpu", C0) == "t-abc-shared-gpu-0"
    assert container_devices.capabilities_name("t-abc-shared-gpu", I1) == "t-abc-shared-gpu-i1"
    assert container_devices.direct_env_name("t-abc-shared-gpu-0") == "t-abc-shared-gpu-0-evar"
    assert container_devices.volume_name("a.b-abc-shared-gpu-0") == "a-b-abc-shared-gpu-0-vol"


@given(
    name=st.text(min_size=0, max_size=253) | st.text(alphabet="a.-", max_size=253),
    field=st.sampled_from(["name", "generateName", "owner"]),
    container=st.builds(ContainerRef, st.sampled_from(ContainerKind), st.integers(0, 999)),
)
def test_any_name_gives_valid_objects(name: str, field: str, container: ContainerRef) -> None:
    metadata = {"ownerReferences": [{"name": name}]} if field == "owner" else {field: name}
    _assert_valid(_prefix(metadata, container), container)
