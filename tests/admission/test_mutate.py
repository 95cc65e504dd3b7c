from __future__ import annotations

import copy
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.mutate import Mutated, grouped, mutated, new_prefix
from admission.settings import Choices, Guard, HandOver, Settings
from gpu import container_devices
from gpu.request import ContainerKind, ContainerRef
from gpu.translation import Refusal
from tests.admission.pods import Raw, container, env, half, pod
from tests.values import of_kind
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


# New pods are given the name of their PodGroup where it can be told from them.

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}


def new_pod(**metadata: Any) -> Raw:
    made = pod()
    return {**made, "metadata": {**made["metadata"], **metadata}}


def stored(settings: Settings, **metadata: Any) -> dict[str, str]:
    result = of_kind(Mutated, mutated(new_pod(**metadata), choices=Choices(), settings=settings, rng=random.Random(1)))
    return result.pod["metadata"].get("annotations") or {}


def test_a_pod_of_a_job_is_named_its_pod_group_where_workloads_are_grouped() -> None:
    named = stored(Settings(workloads_are_grouped=True), ownerReferences=[JOB])
    assert named[names.POD_GROUP_NAME] == "pg-j-u"
    # Nobody would make it.
    assert names.POD_GROUP_NAME not in stored(Settings(), ownerReferences=[JOB])


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"ownerReferences": None},
        {"ownerReferences": [JOB], "annotations": {names.POD_GROUP_NAME: "mine"}},
        {"ownerReferences": [JOB], "annotations": {names.POD_GROUP_NAME: ""}},
        {"ownerReferences": [JOB], "annotations": {names.SKIP_POD_GROUPER: "true"}},
        {"ownerReferences": [JOB], "labels": {"jobset.sigs.k8s.io/jobset-name": "set"}},
        {"ownerReferences": [JOB], "labels": {"scheduling.x-k8s.io/pod-group": "gang"}},
        {"ownerReferences": [JOB], "annotations": {"scheduling.k8s.io/group-name": "gang"}},
    ],
)
def test_other_pods_stay_as_they_are(metadata: dict[str, Any]) -> None:
    made = new_pod(**metadata)
    assert grouped(made) is made


# Containers with a share request the extended resource by which a claim may give it, where a claim can.

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
