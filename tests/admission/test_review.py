from __future__ import annotations

import copy
import logging
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.envelope import MalformedReview, diff
from admission.namespaces import NamespaceChoices
from admission.review import PodAdmission
from admission.settings import Choices, Guard, HandOver, Settings
from gpu.dialects.settings import DialectSettings, MetagpuSettings
from tests.admission.pods import Raw, apply, container, env, half, patched, pod, review
from wire import names
from wire.core import Namespace, ObjectMeta

ALL: Raw = {"name": names.ENV_VISIBLE_DEVICES, "value": "all"}


def _admission(
    guard: Guard = Guard.INJECT, hand_over: HandOver = HandOver.ANNOTATIONS, *, sharing: bool = True
) -> PodAdmission:
    choices = Choices(guard=guard, dialects=DialectSettings(sharing=sharing))
    return PodAdmission(Settings(choices=choices, hand_over=hand_over), rng=random.Random(1))


def _message(answer: Raw) -> str:
    response = answer["response"]
    assert response["allowed"] is False
    assert (response["status"]["code"], response["status"]["reason"]) == (403, "Forbidden")
    return str(response["status"]["message"])


@pytest.mark.parametrize("hand_over", HandOver)
def test_what_mutation_makes_passes_validation_and_needs_no_second_patch(hand_over: HandOver) -> None:
    admission = _admission(hand_over=hand_over)
    made = patched(half(), admission.mutating(review(half())))
    assert made != half()
    assert admission.validating(review(made))["response"]["allowed"] is True
    again = PodAdmission(admission.settings, rng=random.Random(1)).mutating(review(made))
    assert "patch" not in again["response"]


def test_an_answer_bears_the_uid_of_its_request() -> None:
    answer = _admission().mutating(review(half()))
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert answer["response"]["uid"] == "7f0c1a52-0000-4000-8000-000000000001"


def test_a_pod_of_another_scheduler_is_allowed_without_a_patch() -> None:
    raw = pod(container(env=[ALL]), scheduler="default-scheduler", annotations={names.GPU_FRACTION: "7"})
    for judge in (_admission().mutating, _admission().validating):
        assert judge(review(raw))["response"] == {"uid": review(raw)["request"]["uid"], "allowed": True}


def test_both_webhooks_refuse_a_malformed_ask() -> None:
    raw = pod(annotations={names.GPU_MEMORY: "-1"})
    for judge in (_admission().mutating, _admission().validating):
        assert _message(judge(review(raw))).startswith("gpu-memory annotation value must be a positive integer")


def test_who_makes_a_pod_is_warned_of_what_was_understood_otherwise() -> None:
    asked = pod(container(resources={"limits": {names.GPU_RESOURCE: "4"}}), labels={"clearml-injector/fraction": "0.5"})
    assert _admission().mutating(review(asked))["response"]["warnings"] == [
        "nvidia.com/gpu of container main is '4', read as 0.5: a count of whole GPUs beside a share is not read"
    ]
    assert "warnings" not in _admission().mutating(review(half()))["response"]


def test_who_brings_a_node_along_is_warned_that_no_share_comes_with_it() -> None:
    """Static pods and copies do. Such a pod runs, and sees no GPU."""
    answer = _admission().mutating(review(half(nodeName="n1")))["response"]
    assert answer["warnings"] == [
        "spec.nodeName is 'n1': no scheduler chose it, so the pod runs there without its share of a GPU"
    ]
    assert "warnings" not in _admission().mutating(review(pod(nodeName="n1")))["response"]


@pytest.mark.parametrize(
    ("ignored", "warning"),
    [
        ({"annotations": {"gpu_fraction": "0.5"}}, "gpu_fraction means nothing; write gpu-fraction"),
        (
            {"annotations": {"kai.scheduler/gpu-memory": "9"}},
            "kai.scheduler/gpu-memory means nothing; write gpu-memory",
        ),
        ({"labels": {"gpu-fraction": "0.5"}}, "gpu-fraction means nothing as a label; it is an annotation"),
    ],
)
def test_a_key_that_looks_like_a_request_and_has_no_effect_is_warned_of(ignored: Raw, warning: str) -> None:
    assert _admission().mutating(review(pod(annotations=ignored.get("annotations"), labels=ignored.get("labels"))))[
        "response"
    ]["warnings"] == [warning]


def test_a_review_warns_of_eight_keys_without_effect_at_most() -> None:
    many = pod(annotations={f"n{number}.example/gpu-fraction": "0.5" for number in range(50)})
    assert len(_admission().mutating(review(many))["response"]["warnings"]) == 8


def test_a_warning_is_no_longer_than_the_api_server_passes_on() -> None:
    resource = f"{'a' * 250}.b/metagpu"
    dialects = DialectSettings(metagpu=MetagpuSettings(resource=resource))
    admission = PodAdmission(Settings(choices=Choices(dialects=dialects)), rng=random.Random(1))
    asked = pod(container(resources={"limits": {resource: "50"}}), labels={"clearml-injector/fraction": "0.5"})
    (warning,) = admission.mutating(review(asked))["response"]["warnings"]
    assert len(warning) == 256
    assert warning.endswith("...")


def test_where_sharing_is_switched_off_both_webhooks_refuse_shares_and_nothing_else() -> None:
    admission = _admission(sharing=False)
    for judge in (admission.mutating, admission.validating):
        assert _message(judge(review(half()))).startswith(
            "attempting to create a pod team-a/trainer with gpu sharing request, while GPU sharing is disabled"
        )
        assert judge(review(pod(container(resources={"limits": {names.GPU_RESOURCE: "1"}}))))["response"]["allowed"]


def test_a_pod_that_had_its_share_before_sharing_was_switched_off_may_change_and_go() -> None:
    labelled = half(labels={"team": "a"}, metadata={"name": "trainer", "finalizers": ["x"]})
    request = review(labelled, operation="UPDATE", old=half())
    assert _admission(sharing=False).validating(request)["response"]["allowed"]


@pytest.mark.parametrize(("guard", "value"), [(Guard.INJECT, "void"), (Guard.OFF, "all")])
def test_an_ephemeral_container_is_guarded_when_it_is_added(guard: Guard, value: str) -> None:
    old = half(ephemeralContainers=[container("a", env=[ALL])])
    new = half(ephemeralContainers=[container("a", env=[ALL]), container("b", env=[ALL])])
    request = review(new, operation="UPDATE", old=old, subresource="ephemeralcontainers")
    made = patched(new, _admission(guard).mutating(request))
    assert env(made, kind="ephemeralContainers") == {names.ENV_VISIBLE_DEVICES: "all"}
    assert env(made, kind="ephemeralContainers", index=1) == {names.ENV_VISIBLE_DEVICES: value}
    assert made["spec"]["containers"] == new["spec"]["containers"]


@pytest.mark.parametrize(("guard", "allowed"), [(Guard.INJECT, False), (Guard.REJECT, False), (Guard.OFF, True)])
def test_an_ephemeral_container_that_chooses_devices_is_refused(guard: Guard, allowed: bool) -> None:
    new = half(ephemeralContainers=[container("b", env=[ALL])])
    request = review(new, operation="UPDATE", old=half(), subresource="ephemeralcontainers")
    assert _admission(guard).validating(request)["response"]["allowed"] is allowed


def test_an_update_is_never_mutated_and_judged_by_what_changed() -> None:
    new = pod(annotations={names.GPU_FRACTION: "0.5"}, nodeName="n1")
    old = pod(annotations={names.GPU_FRACTION: "0.9"}, nodeName="n1")
    request = review(new, operation="UPDATE", old=old)
    assert _admission().mutating(request)["response"]["allowed"] is True
    assert "patch" not in _admission().mutating(request)["response"]
    assert "gpu-fraction can't be changed any more" in _message(_admission().validating(request))


def _namespace(name: str, *, label: str | None = None, annotation: str | None = None) -> Namespace:
    labels = None if label is None else {names.VISIBLE_DEVICES_GUARD: label}
    annotations = None if annotation is None else {names.VISIBLE_DEVICES_GUARD: annotation}
    return Namespace(metadata=ObjectMeta(name=name, labels=labels, annotations=annotations))


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        (_namespace("team-a"), "void"),
        (_namespace("other", label="off"), "void"),
        (_namespace("team-a", label="off"), "all"),
        (_namespace("team-a", annotation="off"), "all"),
        (_namespace("team-a", label="inject", annotation="off"), "void"),
    ],
)
async def test_a_namespace_says_how_it_is_guarded(namespace: Namespace, expected: str) -> None:
    choices = NamespaceChoices(Choices())
    await choices.replace([choices.keep(namespace)])
    admission = PodAdmission(Settings(), rng=random.Random(1), choices_of=choices)
    raw = pod(container(env=[ALL]))
    assert env(patched(raw, admission.mutating(review(raw)))) == {names.ENV_VISIBLE_DEVICES: expected}


def test_a_namespace_says_how_dialects_are_read_in_it() -> None:
    choices = NamespaceChoices(Choices(dialects=DialectSettings(metagpu=MetagpuSettings(units=50))))
    annotations = {names.DIALECTS: '{"aliyun": {"unit_mib": 1}}', names.VISIBLE_DEVICES_GUARD: "off"}
    choices.upsert(Namespace(metadata=ObjectMeta(name="team-a", annotations=annotations)))
    admission = PodAdmission(Settings(), rng=random.Random(1), choices_of=choices)
    raw = pod(container(resources={"limits": {"aliyun.com/gpu-mem": "500"}}))
    for namespace, mib in (("team-a", 500), ("team-b", 500 * 1024)):
        made = patched(raw, admission.mutating(review(raw, namespace=namespace)))
        assert f'"memMib":{mib}' in made["metadata"]["annotations"][names.GPU_RECORD]
    units = pod(container(resources={"limits": {"cnvrg.io/metagpu": "25"}}))
    made = patched(units, admission.mutating(review(units)))
    assert '"nano":500000000' in made["metadata"]["annotations"][names.GPU_RECORD]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"aliyun": {"unit_mib": 5}}', 'aliyun.unit_mib is "5"; allowed: 1024 for GiB or 1 for MiB'),
        ('{"replicas": {}}', "replicas is a setting of the cluster"),
        ("{", "moorage.dev/dialects is not YAML"),
    ],
)
def test_a_namespace_whose_dialects_can_not_be_understood_refuses_its_pods(text: str, said: str) -> None:
    choices = NamespaceChoices(Choices())
    choices.upsert(Namespace(metadata=ObjectMeta(name="team-a", annotations={names.DIALECTS: text})))
    admission = PodAdmission(Settings(), rng=random.Random(1), choices_of=choices)
    for judge in (admission.mutating, admission.validating):
        message = _message(judge(review(half())))
        assert message.startswith("the annotation moorage.dev/dialects of the namespace team-a can't be read: ")
        assert said in message
        assert judge(review(half(), namespace="team-b"))["response"]["allowed"]


async def test_a_namespace_that_changes_its_mind_is_heard() -> None:
    choices = NamespaceChoices(Choices())
    choices.upsert(_namespace("a", label="off"))
    assert choices("a") == Choices(guard=Guard.OFF)
    choices.upsert(_namespace("a"))
    assert choices("a") == Choices()
    choices.upsert(_namespace("a", label="reject"))
    choices.delete(_namespace("a", label="reject"))
    assert choices("a") == Choices()
    choices.upsert(_namespace("a", label="reject"))
    await choices.replace([])
    assert choices("a") == Choices()


def test_a_namespace_that_can_not_be_understood_is_not_guessed_at() -> None:
    choices = NamespaceChoices(Choices())
    choices.upsert(_namespace("team-a", label="Off"))
    admission = PodAdmission(Settings(), rng=random.Random(1), choices_of=choices)
    for judge in (admission.mutating, admission.validating):
        message = _message(judge(review(half())))
        assert 'moorage.dev/visible-devices-guard is "Off"; allowed: off, inject, reject' in message


@pytest.mark.parametrize(
    "change",
    [
        {"apiVersion": "admission.k8s.io/v1beta1"},
        {"kind": "Pod"},
        {"request": None},
        {"request": {}},
        {"request": {"uid": 1, "operation": "CREATE", "object": {}}},
        {"request": {"uid": "1", "operation": "CREATE"}},
        {"request": {"uid": "1", "operation": "CREATE", "object": []}},
        {"request": {"uid": "1", "operation": "CREATE", "object": {"spec": 1}}},
        {"request": {"uid": "1", "operation": "CREATE", "object": half(labels={"a": 1})}},
        {"request": {"uid": "1", "operation": "CREATE", "object": half({"name": "a", "env": [1]})}},
        {"request": {"uid": "1", "operation": "CREATE", "object": half({"name": "a", "env": {}})}},
        {"request": {"uid": "1", "operation": "CREATE", "object": half({"name": "a", "volumeMounts": [1]})}},
        {"request": {"uid": "1", "operation": "CREATE", "object": half(volumes=["x"])}},
    ],
)
def test_what_is_no_review_of_a_pod_is_malformed(change: Raw) -> None:
    broken = {**review(half()), **change}
    for judge in (_admission().mutating, _admission().validating):
        with pytest.raises(MalformedReview):
            judge(copy.deepcopy(broken))


def test_a_pod_without_containers_is_left_to_the_api_server() -> None:
    raw = pod()
    raw["spec"]["containers"] = None
    assert _admission().mutating(review(raw))["response"] == {"uid": review(raw)["request"]["uid"], "allowed": True}


_junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
_places = [
    (),
    ("metadata",),
    ("metadata", "annotations"),
    ("metadata", "labels"),
    ("metadata", "ownerReferences"),
    ("metadata", "name"),
    ("spec",),
    ("spec", "volumes"),
    ("spec", "containers"),
    ("spec", "initContainers"),
    ("spec", "ephemeralContainers"),
    ("spec", "runtimeClassName"),
    ("spec", "containers", 0),
    ("spec", "containers", 0, "env"),
    ("spec", "containers", 0, "envFrom"),
    ("spec", "containers", 0, "resources"),
    ("spec", "containers", 0, "volumeMounts"),
    ("spec", "containers", 0, "name"),
]


@given(
    junk=_junk,
    place=st.sampled_from(_places),
    hand_over=st.sampled_from(HandOver),
    subresource=st.sampled_from(["", "ephemeralcontainers"]),
    operation=st.sampled_from(["CREATE", "UPDATE", "DELETE"]),
)
def test_junk_anywhere_is_answered_or_malformed_but_never_breaks(
    junk: Any, place: tuple[Any, ...], hand_over: HandOver, subresource: str, operation: str
) -> None:
    raw: Any = half(container(env=[ALL], envFrom=[]), volumes=[])
    if place:
        owner = raw
        for step in place[:-1]:
            owner = owner[step]
        owner[place[-1]] = junk
    else:
        raw = junk
    request = review(raw, operation=operation, old=half(), subresource=subresource)
    admission = _admission(hand_over=hand_over)
    for judge in (admission.mutating, admission.validating):
        try:
            answer = judge(request)
        except MalformedReview:
            continue
        assert answer["response"]["allowed"] in {True, False}


def test_gpus_under_another_name_are_left_to_the_plugin_on_a_node_that_a_scheduler_chooses() -> None:
    admission = PodAdmission(Settings(gpu_resources=("nvidia.com/gpu.shared",)), rng=random.Random(1))
    raw = pod(container(resources={"limits": {"nvidia.com/gpu.shared": "1"}}))
    assert "patch" not in admission.mutating(review(raw))["response"]
    assert admission.validating(review(raw))["response"]["allowed"] is True
    assert env(patched(raw, _admission().mutating(review(raw)))) == {names.ENV_VISIBLE_DEVICES: "void"}
    raw["spec"]["nodeName"] = "n1"
    assert "asks for GPUs on a node that no scheduler chose" in _message(admission.validating(review(raw)))
    assert _admission(Guard.OFF).validating(review(raw))["response"]["allowed"]


def test_what_is_decided_about_a_new_pod_is_a_line_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    admission = _admission()
    admission.mutating(review(half()))
    refused = pod(annotations={names.GPU_MEMORY: "-1"})
    answer = admission.validating(review(refused))
    admission.mutating(review(pod(container(), scheduler="default-scheduler")))
    admitted, told = [(record.event, record.fields["pod"], record.getMessage()) for record in caplog.records]  # type: ignore[attr-defined]
    assert admitted == ("pod.admitted", "team-a/trainer", "admitted")
    assert told == ("pod.refused", "team-a/trainer", _message(answer))


_keys = st.sampled_from(["a", "b", "x/y", "x~y", "~1", ""]) | st.text(max_size=4)
_json = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=12,
)


@given(before=st.dictionaries(_keys, _json, max_size=5), after=st.dictionaries(_keys, _json, max_size=5))
def test_a_difference_applied_gives_the_other_side(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert apply(before, diff(before, after)) == after


@given(value=_json)
def test_equal_sides_have_no_difference(value: object) -> None:
    assert diff(value, value) == []


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        ({}, {"a/b": 1}, [{"op": "add", "path": "/a~1b", "value": 1}]),
        ({"a~b": 1}, {}, [{"op": "remove", "path": "/a~0b"}]),
        ({"a": [1, 2]}, {"a": [1, 3]}, [{"op": "replace", "path": "/a/1", "value": 3}]),
        ({"a": [1]}, {"a": [0, 1]}, [{"op": "replace", "path": "/a", "value": [0, 1]}]),
        ({"a": None}, {"a": {}}, [{"op": "replace", "path": "/a", "value": {}}]),
    ],
)
def test_only_what_differs_is_named(before: object, after: object, operations: list[dict[str, Any]]) -> None:
    assert diff(before, after) == operations
