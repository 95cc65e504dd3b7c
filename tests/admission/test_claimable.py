"""Containers with a share request the extended resource by which a claim may give it, where a claim can."""

from __future__ import annotations

import random
from typing import Any

import pytest

from admission.mutate import mutated
from admission.settings import Choices, Settings
from gpu.translation import Refusal
from tests.admission.pods import Raw, container, half, pod
from wire import names

_ASKED = {names.GPU_SHARE_RESOURCE: "1"}


def _asking(raw: Raw, *, is_on: bool = True) -> tuple[Raw, list[str]]:
    """The pod as it is stored, and its containers that request the resource, in limits and requests alike."""
    made = mutated(raw, choices=Choices(), settings=Settings(shares_by_claims=is_on), rng=random.Random(1))
    assert not isinstance(made, Refusal), made
    spec, found = made.pod["spec"], []
    for each in (*(spec.get("initContainers") or ()), *spec["containers"]):
        resources: dict[str, Any] = each.get("resources") or {}
        asked = [names.GPU_SHARE_RESOURCE in (resources.get(field) or {}) for field in ("limits", "requests")]
        assert len({*asked}) == 1
        found += [each["name"]] * all(asked)
    return made.pod, found


def _share(*containers: Raw, **annotations: str) -> Raw:
    written = {key.replace("_", "-"): value for key, value in annotations.items()}
    return pod(*containers, annotations={names.GPU_FRACTION: "0.5", **written})


def _limited(limits: dict[str, str]) -> Raw:
    return container("a", resources={"limits": limits, "requests": dict(limits)})


@pytest.mark.parametrize(
    ("raw", "asking"),
    [
        (half(container("a"), container("b")), ["a"]),
        (_share(container("a"), container("b"), gpu_fraction_container_name="b"), ["b"]),
        (_share(container("a"), gpu_fraction_num_devices="2"), []),
        (pod(_limited({"nvidia.com/gpu": "1"})), []),
        (pod(container("a")), []),
        (pod(_limited({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"})), ["a"]),
        (pod(_limited({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "9", "nvidia.com/gpucores": "9"})), []),
    ],
    ids=["the first", "a named one", "two devices", "a whole one", "none", "memory of HAMi", "with a cap on compute"],
)
def test_the_containers_of_a_share_of_one_gpu_request_it(raw: Raw, asking: list[str]) -> None:
    assert _asking(raw)[1] == asking


def test_nothing_is_requested_unless_it_is_turned_on() -> None:
    assert _asking(half(container("a")), is_on=False)[1] == []


@pytest.mark.parametrize(("is_on", "asking"), [(True, ["a"]), (False, [])])
def test_what_a_copied_pod_brings_along_is_written_again(is_on: bool, asking: list[str]) -> None:
    copied = half(container("a"), container("b", resources={"limits": dict(_ASKED), "requests": dict(_ASKED)}))
    stored, found = _asking(copied, is_on=is_on)
    assert found == asking
    assert _asking(stored, is_on=is_on) == (stored, asking)


def test_the_other_resources_of_a_container_stay() -> None:
    stored, _ = _asking(half(container("a", resources={"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}})))
    resources = stored["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"memory": "1Gi", **_ASKED}, "requests": {"cpu": "1", **_ASKED}}
