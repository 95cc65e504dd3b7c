from __future__ import annotations

from typing import Any

import msgspec
import pytest

from simulator.nodes import containers
from simulator.nodes.containers import MissingSource, UnknownDevice
from simulator.nodes.device_manager import Device
from wire.core import Pod

CARDS = (Device(0, "GPU-a", 1024), Device(1, "GPU-b", 1024))


def resolve(
    container: dict[str, Any], *, sources: dict[str, dict[str, str]] | None = None, **more: Any
) -> dict[str, str] | MissingSource:
    annotations = {"devices": "GPU-a", "a'b": "quoted"}
    raw = {"metadata": {"name": "p", "namespace": "team", "uid": "u", "annotations": annotations}}
    pod = msgspec.convert({**raw, "spec": {"nodeName": "n", "containers": [{"name": "main", **container}]}}, Pod)
    (converted,) = pod.spec.containers
    found: dict[tuple[str, str], dict[str, str] | None] = dict.fromkeys(containers.sources_of(converted))
    for key, data in (sources or {}).items():
        kind, _, name = key.partition("/")
        found[kind, name] = data
    assigned, image = more.get("assigned", ()), more.get("image", {})
    return containers.resolve(pod, converted, sources=found, assigned=assigned, image=image)


def entry(name: str, **value_from: Any) -> dict[str, Any]:
    return {"name": name, "valueFrom": value_from}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], {"A": "2"}),
        ([{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$(C)-$$(A)"}], {"A": "1", "B": "1-$(C)-$(A)"}),
        ([entry("A", fieldRef={"fieldPath": "metadata.annotations['devices']"})], {"A": "GPU-a"}),
        ([entry("A", fieldRef={"fieldPath": "metadata.annotations['missing']"})], {"A": ""}),
        ([entry("A", fieldRef={"fieldPath": "metadata.uid"})], {"A": "u"}),
        ([entry("A", configMapKeyRef={"name": "m", "key": "k"})], {"A": "from-map"}),
        ([entry("A", secretKeyRef={"name": "s", "key": "k"})], {"A": "from-secret"}),
        ([entry("A", configMapKeyRef={"name": "gone", "key": "k", "optional": True})], {}),
        ([entry("A", resourceFieldRef={"resource": "limits.cpu"})], {"A": ""}),
    ],
)
def test_entries_resolve(env: list[dict[str, Any]], expected: dict[str, str]) -> None:
    sources = {"configmap/m": {"k": "from-map"}, "secret/s": {"k": "from-secret"}}
    assert resolve({"env": env}, sources=sources) == expected


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"env": [entry("A", configMapKeyRef={"name": "gone", "key": "k"})]}, 'configmap "gone" not found'),
        (
            {"env": [entry("A", configMapKeyRef={"name": "m", "key": "other"})]},
            "couldn't find key other in configmap team/m",
        ),
        ({"env": [entry("A", secretKeyRef={"name": "gone", "key": "k"})]}, 'secret "gone" not found'),
        ({"envFrom": [{"configMapRef": {"name": "gone"}}]}, 'configmap "gone" not found'),
        ({"envFrom": [{"secretRef": {"name": "gone"}}]}, 'secret "gone" not found'),
    ],
)
def test_what_is_not_there_is_named(container: dict[str, Any], message: str) -> None:
    assert resolve(container, sources={"configmap/m": {"k": "v"}}) == MissingSource(message)


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, "GPU-a"),
        ({"envFrom": [{"configMapRef": {"name": "m"}}]}, "map"),
        ({"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "own"}]}, "own"),
        (
            {
                "envFrom": [{"configMapRef": {"name": "m"}}],
                "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "own"}],
            },
            "own",
        ),
    ],
)
def test_later_wins_image_then_device_plugin_then_env_from_then_env(container: dict[str, Any], expected: str) -> None:
    env = resolve(
        container,
        sources={"configmap/m": {"NVIDIA_VISIBLE_DEVICES": "map"}},
        assigned=CARDS[:1],
        image={"NVIDIA_VISIBLE_DEVICES": "all"},
    )
    assert isinstance(env, dict)
    assert env["NVIDIA_VISIBLE_DEVICES"] == expected


def test_env_from_with_a_prefix_and_an_optional_one_that_is_gone() -> None:
    bulk = [{"prefix": "P_", "configMapRef": {"name": "m"}}, {"configMapRef": {"name": "gone", "optional": True}}]
    assert resolve({"envFrom": bulk}, sources={"configmap/m": {"K": "v"}}) == {"P_K": "v"}


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        (None, ()),
        ("", ()),
        ("void", ()),
        ("none", ()),
        ("all", (0, 1)),
        ("GPU-b", (1,)),
        ("GPU-b,GPU-a", (0, 1)),
        ("0", (0,)),
        ("k8s.device-plugin.nvidia.com/gpu=GPU-b", (1,)),
        ("GPU-a,GPU-a", (0,)),
    ],
)
def test_the_runtime_shows_what_the_variable_names(value: str | None, indices: tuple[int, ...]) -> None:
    seen = containers.visible(value, CARDS)
    assert not isinstance(seen, UnknownDevice)
    assert tuple(device.index for device in seen) == indices


@pytest.mark.parametrize(("value", "unknown"), [("GPU-x", "GPU-x"), ("GPU-a,", ""), ("2", "2"), ("ALL", "ALL")])
def test_an_unknown_device_is_named(value: str, unknown: str) -> None:
    assert containers.visible(value, CARDS) == UnknownDevice(unknown)
