from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.mutate import mutated
from admission.settings import Choices, Guard, HandOver, Settings
from gpu.translation import Refusal
from tests.admission.pods import Raw, container, env, half, pod
from wire import names

CONFIG_MAPS = Settings(hand_over=HandOver.CONFIG_MAPS)
VISIBLE = names.ENV_VISIBLE_DEVICES
VOID = {VISIBLE: "void"}


def _mutated(raw: Raw, settings: Settings = Settings(), guard: Guard = Guard.INJECT, seed: int = 1) -> Raw:  # noqa: B008 - frozen
    before = copy.deepcopy(raw)
    result = mutated(raw, choices=Choices(guard=guard), settings=settings, rng=random.Random(seed))
    assert raw == before, "the input was changed"
    assert not isinstance(result, Refusal), result
    return result.pod


def _annotation(key: str) -> Raw:
    return {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{key}']"}}


def _given(key: str) -> dict[str, Any]:
    """The env of a container that reads annotations."""
    return {
        VISIBLE: _annotation(f"moorage.dev/visible-devices.{key}"),
        "RUNAI_NUM_OF_GPUS": _annotation("moorage.dev/gpu-portion"),
        "GPU_PORTION": _annotation("moorage.dev/gpu-portion"),
    }


def _mapped(name: str) -> dict[str, Any]:
    """The env of a container that reads KAI's ConfigMap of that name."""
    return {
        key: {"configMapKeyRef": {"name": name, "key": key}} for key in (VISIBLE, "RUNAI_NUM_OF_GPUS", "GPU_PORTION")
    }


def test_a_share_goes_to_the_first_container_and_the_others_see_nothing() -> None:
    result = _mutated(half(container("a"), container("b"), initContainers=[container("i")]))
    assert env(result) == _given("c0")
    assert env(result, index=1) == VOID
    assert env(result, kind="initContainers") == VOID
    assert result["spec"]["runtimeClassName"] == "nvidia"
    assert result["metadata"]["annotations"] == {names.GPU_FRACTION: "0.5"}
    assert "volumes" not in result["spec"]


@pytest.mark.parametrize(
    ("name", "kind", "index", "key"), [("b", "containers", 1, "c1"), ("i", "initContainers", 0, "i0")]
)
def test_a_share_goes_to_the_container_that_was_named(name: str, kind: str, index: int, key: str) -> None:
    raw = half(
        container("a"),
        container("b"),
        initContainers=[container("i")],
        annotations={names.GPU_FRACTION_CONTAINER_NAME: name},
    )
    result = _mutated(raw)
    assert env(result, kind=kind, index=index) == _given(key)
    assert env(result) == VOID


def test_kais_way_gives_the_very_objects_of_the_contract() -> None:
    result = _mutated(half(), CONFIG_MAPS)
    prefix = result["metadata"]["annotations"][names.SHARED_GPU_CONFIGMAP]
    assert prefix.startswith("trainer-")
    assert prefix.endswith("-shared-gpu")
    assert env(result) == _mapped(f"{prefix}-0")
    assert result["spec"]["containers"][0]["envFrom"] == [
        {"configMapRef": {"name": f"{prefix}-0-evar", "optional": False}}
    ]
    assert result["spec"]["volumes"] == [{"name": f"{prefix}-0-vol", "configMap": {"name": f"{prefix}-0"}}]
    assert result["spec"]["runtimeClassName"] == "nvidia"


def test_kais_way_names_an_init_container_by_i_and_its_index() -> None:
    raw = half(initContainers=[container("x"), container("i")], annotations={names.GPU_FRACTION_CONTAINER_NAME: "i"})
    result = _mutated(raw, CONFIG_MAPS)
    prefix = result["metadata"]["annotations"][names.SHARED_GPU_CONFIGMAP]
    assert env(result, kind="initContainers", index=1) == _mapped(f"{prefix}-i1")


def test_what_the_user_set_himself_loses_and_the_rest_stays_in_order_behind_ours() -> None:
    own = [
        {"name": "A", "value": "1"},
        {"name": VISIBLE, "value": "all"},
        {"name": "B", "value": f"$({VISIBLE})"},
        {"name": "GPU_PORTION", "value": "1.0"},
    ]
    sources = [{"configMapRef": {"name": "mine"}}]
    result = _mutated(half(container(env=own, envFrom=sources)))
    entries = result["spec"]["containers"][0]["env"]
    assert [entry["name"] for entry in entries] == [VISIBLE, "RUNAI_NUM_OF_GPUS", "GPU_PORTION", "A", "B"]
    assert env(result)[VISIBLE] == _given("c0")[VISIBLE]
    assert result["spec"]["containers"][0]["envFrom"] == sources


@pytest.mark.parametrize(
    ("raw", "settings", "expected"),
    [
        (half(), Settings(), "nvidia"),
        (half(runtimeClassName=""), Settings(), "nvidia"),
        (half(runtimeClassName="gvisor"), Settings(), "gvisor"),
        (half(), Settings(runtime_class=""), None),
        (half(), Settings(runtime_class="nvidia-cdi"), "nvidia-cdi"),
        (pod(), Settings(), None),
        (pod(container(resources={"limits": {"nvidia.com/gpu": "1"}})), Settings(), None),
    ],
)
def test_the_runtime_class_is_set_for_shares_that_name_none(raw: Raw, settings: Settings, expected: str | None) -> None:
    assert _mutated(raw, settings)["spec"].get("runtimeClassName") == expected


BROUGHT = {
    names.GRANT: "{}",
    names.FENCED: "a",
    names.TENANTS: "{}",
    names.RECEIVED_RESOURCE_TYPE: "Fraction",
    names.GPU_PORTION_ANNOTATION: "0.50",
    names.VISIBLE_DEVICES_PREFIX + "c0": "GPU-stolen",
    names.SHARED_GPU_CONFIGMAP: "somebody-elses",
    names.RESERVE_FOR_GPU_INDEX: "GPU-1",
    names.DEVICE_INDEX: "0",
    "nvidia.com/container.main.gpus.devices": "all",
    "nvidia.cdi.k8s.io/container.main": "management.nvidia.com/gpu=all",
    "nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=all",
    "nvidia.cdi.k8s.io": "nvidia.com/gpu=all",
}


@pytest.mark.parametrize("base", [pod, half])
def test_protected_keys_that_a_new_pod_brings_along_are_taken_out(base: Any) -> None:
    labels = {names.GPU_GROUP_LABEL: "g", names.MULTI_GPU_GROUP_LABEL_PREFIX + "h": "h", names.QUEUE_LABEL: "q"}
    kept = {"note": "mine", names.POD_GROUP_NAME: "gang", names.VISIBLE_DEVICES_GUARD: "off"}
    result = _mutated(base(annotations={**BROUGHT, **kept}, labels=labels))
    assert result["metadata"]["labels"] == {names.QUEUE_LABEL: "q"}
    asked = {names.GPU_FRACTION: "0.5"} if base is half else {}
    assert result["metadata"]["annotations"] == asked | kept


@pytest.mark.parametrize("now", [Settings(), CONFIG_MAPS])
@pytest.mark.parametrize("then", [Settings(), CONFIG_MAPS])
def test_a_copied_spec_is_admitted_as_if_it_were_new(then: Settings, now: Settings) -> None:
    mine = [{"name": "data", "configMap": {"name": "data"}}]
    new = half(container(env=[{"name": "A", "value": "1"}]), container("b"), volumes=mine)
    copied = _mutated(new, then, seed=7)
    copied["metadata"]["name"] = new["metadata"]["name"]
    assert _mutated(copied, now, seed=1) == _without_empty(_mutated(new, now, seed=1), _mutated(copied, now, seed=1))


def _without_empty(expected: Raw, like: Raw) -> Raw:
    """A list that was emptied stays as an empty list, which the API server takes for none."""
    result = copy.deepcopy(expected)
    for index, other in enumerate(like["spec"]["containers"]):
        if other.get("envFrom") == []:
            result["spec"]["containers"][index].setdefault("envFrom", [])
    return result


def test_a_copied_spec_without_its_ask_waits_for_no_config_map() -> None:
    copied = _mutated(half(), CONFIG_MAPS)
    del copied["metadata"]["annotations"][names.GPU_FRACTION]
    result = _mutated(copied, CONFIG_MAPS)
    assert env(result) == VOID
    assert result["spec"]["volumes"] == []
    assert result["spec"]["containers"][0]["envFrom"] == []
    assert names.SHARED_GPU_CONFIGMAP not in result["metadata"]["annotations"]


def test_a_copied_spec_that_lost_its_annotation_is_cleaned_by_what_its_env_says() -> None:
    copied = _mutated(half(), CONFIG_MAPS)
    del copied["metadata"]["annotations"][names.SHARED_GPU_CONFIGMAP]
    result = _mutated(copied)
    assert env(result) == _given("c0")
    assert result["spec"]["volumes"] == []


def test_a_volume_that_a_container_mounts_is_kept() -> None:
    copied = _mutated(half(), CONFIG_MAPS)
    volume = copied["spec"]["volumes"][0]
    copied["spec"]["containers"][0]["volumeMounts"] = [{"name": volume["name"], "mountPath": "/x"}]
    assert _mutated(copied)["spec"]["volumes"] == [volume]


def test_a_users_own_config_maps_are_left_alone() -> None:
    own = {"configMapKeyRef": {"name": "mine", "key": "n"}}
    raw = pod(
        container(
            env=[{"name": "RUNAI_NUM_OF_GPUS", "valueFrom": own}], envFrom=[{"configMapRef": {"name": "mine-evar"}}]
        ),
        volumes=[{"name": "mine-vol", "configMap": {"name": "mine"}}],
    )
    result = _mutated(raw)
    assert env(result) == VOID | {"RUNAI_NUM_OF_GPUS": own}
    assert result["spec"]["volumes"] == raw["spec"]["volumes"]
    assert result["spec"]["containers"][0]["envFrom"] == raw["spec"]["containers"][0]["envFrom"]


def test_pods_of_other_schedulers_are_not_touched() -> None:
    raw = half(container(env=[{"name": VISIBLE, "value": "all"}]), scheduler="default-scheduler", annotations=BROUGHT)
    assert _mutated(raw) is raw


def test_a_malformed_ask_is_refused_in_kais_words() -> None:
    raw = pod(annotations={names.GPU_FRACTION: "1.5"})
    refusal = mutated(raw, choices=Choices(), settings=Settings(), rng=random.Random(1))
    assert isinstance(refusal, Refusal)
    assert refusal.message == "gpu-fraction annotation value must be a positive number smaller than 1.0"


_env = st.lists(
    st.builds(
        lambda name, value: {"name": name, **value},
        st.sampled_from(["A", VISIBLE, "GPU_PORTION", "RUNAI_NUM_OF_GPUS"]),
        st.sampled_from(
            [
                {"value": "all"},
                {"value": "void"},
                {},
                {"valueFrom": _annotation("moorage.dev/visible-devices.c0")},
                {"valueFrom": {"configMapKeyRef": {"name": "p-aaaaaaa-shared-gpu-0", "key": VISIBLE}}},
                {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            ]
        ),
    ),
    max_size=4,
)
_resources = st.sampled_from(
    [
        {},
        {"limits": {"cpu": "1"}},
        {"limits": {"amd.com/gpu": "1"}},
        {"limits": {"example.com/gpu": "0"}},
        {"claims": [{"name": "c"}]},
    ]
)
_sources = st.sampled_from(
    [[], [{"configMapRef": {"name": "p-aaaaaaa-shared-gpu-0-evar"}}], [{"secretRef": {"name": "s"}}]]
)


@st.composite
def _pods(draw: st.DrawFn) -> Raw:
    containers = [
        container(f"c{index}", env=draw(_env), envFrom=draw(_sources), resources=draw(_resources))
        for index in range(draw(st.integers(1, 3)))
    ]
    raw = pod(
        *containers,
        annotations=draw(st.sampled_from([{}, BROUGHT])) | draw(st.sampled_from([{}, {names.GPU_FRACTION: "0.25"}])),
        labels=draw(st.sampled_from([{}, {names.GPU_GROUP_LABEL: "g"}])),
        metadata=draw(st.sampled_from([{"name": "a.b"}, {"generateName": "g-"}, {"name": "x" * 253}])),
    )
    raw["spec"]["initContainers"] = [container("i", env=draw(_env))]
    raw["spec"]["volumes"] = draw(
        st.sampled_from([[], [{"name": "p-aaaaaaa-shared-gpu-0-vol", "configMap": {"name": "p-aaaaaaa-shared-gpu-0"}}]])
    )
    return raw


@given(raw=_pods(), hand_over=st.sampled_from(HandOver), guard=st.sampled_from(Guard))
def test_admitting_twice_is_admitting_once(raw: Raw, hand_over: HandOver, guard: Guard) -> None:
    settings = Settings(hand_over=hand_over)
    once = _mutated(raw, settings, guard)
    assert _mutated(once, settings, guard) == once


@given(raw=_pods(), hand_over=st.sampled_from(HandOver))
def test_no_container_chooses_its_devices(raw: Raw, hand_over: HandOver) -> None:
    result = _mutated(raw, Settings(hand_over=hand_over))
    is_shared = names.GPU_FRACTION in raw["metadata"]["annotations"]
    for kind in ("containers", "initContainers"):
        for index, owner in enumerate(result["spec"][kind]):
            values = [entry for entry in owner["env"] if entry["name"] == VISIBLE]
            target = is_shared and (kind, index) == ("containers", 0)
            if target:
                assert len(values) == 1
                assert "valueFrom" in values[0]
            else:
                assert all(entry.get("value") == "void" for entry in values)
