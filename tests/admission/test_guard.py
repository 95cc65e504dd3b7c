"""System priority classes are not for a tenant's GPU pods."""

from __future__ import annotations

import random
from typing import Any

import pytest

from admission import handover
from admission.raw_pod import asks_for_gpu
from admission.review import PodAdmission
from admission.settings import Guard, Settings
from tests.admission.pods import Raw, container, env, pod
from wire import names

VISIBLE = names.ENV_VISIBLE_DEVICES
WHOLE: Raw = {"limits": {"nvidia.com/gpu": "1"}}
NOT_ALLOWED = (
    "container main has an environment variable NVIDIA_VISIBLE_DEVICES defined with a value of all. This is forbidden "
    "due to conflicts with Nvidia's device plugin. The only values that are allowed are 'void' or 'none'"
)
NO_REFERENCE = (
    "container main has an environment variable NVIDIA_VISIBLE_DEVICES defined with a valueFrom reference. "
    "This is forbidden due to possible conflicts with Nvidia's device plugin"
)


def _entry(value: str) -> Raw:
    return {"name": VISIBLE, "value": value}


REFERENCE: Raw = {"name": VISIBLE, "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, False),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, False),
        ({"limits": {"nvidia.com/gpu": "1"}}, True),
        ({"requests": {"nvidia.com/gpu": 1}}, True),
        ({"limits": {"nvidia.com/gpu": "0"}}, False),
        ({"limits": {"nvidia.com/mig-1g.5gb": "1"}}, True),
        ({"limits": {"nvidia.com/mig-1g.10gb.me": "1"}}, True),
        ({"limits": {"nvidia.com/mig-1c.3g.20gb": "1"}}, True),
        ({"limits": {"nvidia.com/mig-1g.24gb.me.all": "1"}}, True),
        ({"limits": {"nvidia.com/mig-1g.24gb-me": "1"}}, True),
        ({"limits": {"nvidia.com/mig-7g.80gb": "0"}}, False),
        ({"limits": {"nvidia.com/mig-9g.bogus": "1"}}, False),
        ({"limits": {"nvidia.com/mig-1g.5gb.9": "1"}}, False),
        ({"limits": {"nvidiaxcom/mig-1g.5gb": "1"}}, False),
        ({"limits": {"nvidia.com/rdma_shared": "1"}}, False),
        ({"limits": {"nvidia.com/gpu.shared": "1"}}, False),
        ({"limits": {"nvidia.com/a100": "2"}}, True),
        ({"limits": {"nvidia.com/a100": "0"}}, False),
        ({"limits": {"amd.com/gpu": "1"}}, False),
        ({"limits": {"example.com/gpu-x": "1"}}, False),
        ({"limits": {"rdma/hca": "1"}}, False),
        ({"claims": [{"name": "gpu"}]}, False),
        ({"claims": []}, False),
        ({"requests": None, "limits": None}, False),
        ({"limits": {"nvidia.com/gpu": "1e99"}}, True),
    ],
)
def test_which_containers_get_a_gpu_from_nvidias_plugin(resources: Raw, expected: bool) -> None:
    assert asks_for_gpu(container(resources=resources), ("nvidia.com/a100",)) is expected


@pytest.mark.parametrize(
    ("entries", "resources", "guard", "expected"),
    [
        ([], {}, Guard.INJECT, {VISIBLE: "void"}),
        ([], {}, Guard.REJECT, {VISIBLE: "void"}),
        ([], {}, Guard.OFF, {}),
        ([_entry("all")], {}, Guard.INJECT, {VISIBLE: "void"}),
        ([_entry("")], {}, Guard.INJECT, {VISIBLE: "void"}),
        ([REFERENCE], {}, Guard.INJECT, {VISIBLE: "void"}),
        ([_entry("void"), _entry("all")], {}, Guard.INJECT, {VISIBLE: "void"}),
        ([_entry("none")], {}, Guard.INJECT, {VISIBLE: "none"}),
        ([_entry("all")], {}, Guard.OFF, {VISIBLE: "all"}),
        ([_entry("all")], {}, Guard.REJECT, {VISIBLE: "all"}),
        ([], WHOLE, Guard.INJECT, {}),
        ([_entry("all")], WHOLE, Guard.INJECT, {}),
        ([_entry("void")], WHOLE, Guard.INJECT, {VISIBLE: "void"}),
        ([_entry("all")], WHOLE, Guard.OFF, {VISIBLE: "all"}),
        ([], {"claims": [{"name": "c"}]}, Guard.INJECT, {VISIBLE: "void"}),
        ([_entry("0")], {"limits": {"amd.com/gpu": 1}}, Guard.INJECT, {VISIBLE: "void"}),
        ([], {"limits": {"nvidia.com/rdma_shared": 1}}, Guard.REJECT, {VISIBLE: "void"}),
        ([], {"limits": {"nvidia.com/gpu": "0"}}, Guard.INJECT, {VISIBLE: "void"}),
    ],
)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_what_becomes_of_the_variable(
    kind: str, entries: list[Raw], resources: Raw, guard: Guard, expected: dict[str, Any]
) -> None:
    raw = pod(initContainers=[container("i")])
    raw["spec"][kind][0] |= {"env": entries, "resources": resources}
    assert env(handover.guarded(raw, shared=set(), guard=guard), kind=kind) == expected


def test_a_void_stands_before_everything_that_may_refer_to_it() -> None:
    raw = pod(container(env=[{"name": "A", "value": "1"}], envFrom=[{"configMapRef": {"name": "all"}}]))
    result = handover.guarded(raw, shared=set(), guard=Guard.INJECT)
    assert result["spec"]["containers"][0]["env"] == [_entry("void"), {"name": "A", "value": "1"}]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], None),
        ([_entry("void")], None),
        ([_entry("none")], None),
        ([_entry("all")], NOT_ALLOWED),
        ([_entry("void"), _entry("all")], NOT_ALLOWED),
        ([REFERENCE], NO_REFERENCE),
        ([{"name": "OTHER", "value": "all"}], None),
    ],
)
@pytest.mark.parametrize("resources", [{}, WHOLE])
def test_what_is_refused_and_in_which_words(entries: list[Raw], resources: Raw, message: str | None) -> None:
    raw = pod(container(env=entries, resources=resources))
    assert handover.forbidden(raw, shared=set(), guard=Guard.INJECT) == message


@pytest.mark.parametrize("prefix", [None, "", "NVIDIA_", "NVIDIA_VISIBLE_DEVICE"])
def test_what_could_set_the_variable_unseen_is_refused_where_it_wins_over_the_device_plugin(prefix: str | None) -> None:
    sources = [{"prefix": "A_", "configMapRef": {"name": "m"}}, {"prefix": prefix, "secretRef": {"name": "s"}}]
    raw = pod(container(envFrom=sources, resources=WHOLE))
    assert handover.forbidden(raw, shared=set(), guard=Guard.INJECT) is None
    message = handover.forbidden(raw, shared=set(), guard=Guard.REJECT)
    assert message is not None
    assert message.startswith(
        "container main gets GPUs and takes its environment from an object that could set NVIDIA_"
    )
    assert f"(envFrom[1].prefix is '{prefix or ''}'; allowed: a prefix with which no key gives NVIDIA_" in message


@pytest.mark.parametrize(
    "given",
    [
        {"resources": WHOLE, "envFrom": [{"prefix": "NVIDIA_X", "configMapRef": {"name": "m"}}]},
        {"resources": WHOLE, "envFrom": [{"prefix": VISIBLE, "configMapRef": {"name": "m"}}]},
        {"resources": WHOLE, "envFrom": [{"configMapRef": {"name": "m"}}], "env": [_entry("void")]},
        {"envFrom": [{"configMapRef": {"name": "m"}}]},
        {"resources": WHOLE, "envFrom": None},
    ],
    ids=["other-prefix", "whole-name-as-prefix", "own-void", "no-gpu", "none"],
)
def test_what_can_not_set_the_variable_is_let_in(given: Raw) -> None:
    assert handover.forbidden(pod(container(**given)), shared=set(), guard=Guard.REJECT) is None


def test_a_container_with_a_share_is_neither_guarded_nor_refused() -> None:
    raw = pod(container(env=[REFERENCE]))
    assert handover.guarded(raw, shared={"c0"}, guard=Guard.INJECT) == raw
    assert handover.forbidden(raw, shared={"c0"}, guard=Guard.REJECT) is None


def test_only_new_ephemeral_containers_are_guarded() -> None:
    raw = pod(ephemeralContainers=[container("old"), container("new", env=[_entry("all")])])
    result = handover.guarded_ephemeral(raw, known={"old"}, guard=Guard.INJECT)
    assert env(result, kind="ephemeralContainers") == {}
    assert env(result, kind="ephemeralContainers", index=1) == {VISIBLE: "void"}
    assert handover.forbidden_ephemeral(raw, known={"old"}) == NOT_ALLOWED.replace("main", "new")
    assert handover.forbidden_ephemeral(raw, known={"old", "new"}) is None


@pytest.mark.parametrize("guard", [Guard.INJECT, Guard.REJECT])
@pytest.mark.parametrize(
    ("resources", "node", "is_refused"),
    [
        (WHOLE, "n1", True),
        ({"limits": {"nvidia.com/mig-1g.5gb": "1"}}, "n1", True),
        ({"limits": {"nvidia.com/a100": "1"}}, "n1", True),
        (WHOLE, "", False),
        ({}, "n1", False),
        ({"limits": {"nvidia.com/gpu": "0"}}, "n1", False),
    ],
)
def test_who_asks_for_gpus_brings_no_node_along(guard: Guard, resources: Raw, node: str, is_refused: bool) -> None:
    raw = pod(container(resources=resources), nodeName=node)
    said = handover.forbidden(raw, shared=set(), guard=guard, renamed=("nvidia.com/a100",))
    wanted = (
        "container main asks for GPUs on a node that no scheduler chose "
        "(spec.nodeName is 'n1'; allowed: none, where a container asks for GPUs)"
    )
    assert said == (wanted if is_refused else None)


@pytest.mark.parametrize(
    "resources",
    [
        {},
        {"limits": {"example.com/gpu-x": "1"}},
        {"limits": {"nvidia.com/rdma_shared": "1"}},
        {"limits": {"nvidia.com/mig-9g.bogus": "1"}},
        {"claims": [{"name": "x"}]},
    ],
)
@pytest.mark.parametrize("guard", [Guard.INJECT, Guard.REJECT])
def test_what_kubelet_ignores_on_a_node_that_lacks_it_keeps_no_container_unguarded(
    resources: Raw, guard: Guard
) -> None:
    raw = pod(container(resources=resources), nodeName="n1", runtimeClassName="nvidia")
    assert env(handover.guarded(raw, shared=set(), guard=guard)) == {VISIBLE: "void"}


CHOSEN = Settings(critical_namespaces=("team-a", "monitoring"))


@pytest.mark.parametrize("name", ["system-cluster-critical", "system-node-critical"])
@pytest.mark.parametrize(
    ("namespace", "limits", "settings", "is_allowed"),
    [
        ("team-a", "1", Settings(), False),
        ("team-a", None, Settings(), True),
        ("kube-system", "1", Settings(), True),
        ("team-a", "1", CHOSEN, True),
        ("kube-system", "1", CHOSEN, False),
    ],
    ids=["GPUs of a tenant", "no GPUs", "GPUs in kube-system", "a chosen namespace", "kube-system was not chosen"],
)
def test_a_system_priority_class_with_gpus_is_for_chosen_namespaces(
    name: str, namespace: str, limits: str | None, settings: Settings, is_allowed: bool
) -> None:
    resources = {"limits": {names.GPU_RESOURCE: limits}} if limits else {}
    container = {"name": "main", "image": "x", "resources": resources}
    spec = {"schedulerName": names.SCHEDULER_NAME, "priorityClassName": name, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace}, "spec": spec}
    request = {"uid": "1", "operation": "CREATE", "namespace": namespace, "object": pod}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    answer = PodAdmission(settings, rng=random.Random(1)).validating(review)["response"]

    assert answer["allowed"] is is_allowed
    assert is_allowed or name in answer["status"]["message"]
