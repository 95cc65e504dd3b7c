from __future__ import annotations

import pytest

from admission.settings import Choices, Guard
from admission.validate import refusal_of_new, refusal_of_update
from tests.admission.pods import Raw, container, half, pod
from tests.values import there
from wire import names

NEGATIVE = "gpu-fraction annotation value must be a positive number smaller than 1.0"


def _with(raw: Raw, *, spec: Raw | None = None, annotations: dict[str, str] | None = None, **metadata: object) -> Raw:
    about = {**raw["metadata"], **metadata}
    if annotations is not None:
        about["annotations"] = annotations
    return {**raw, "metadata": about, "spec": {**raw["spec"], **(spec or {})}}


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({names.MPS: "true"}, "MPS is only supported with GPU fraction request"),
        ({names.GPU_FRACTION: "0.5", names.GPU_MEMORY: "100"}, "cannot request both GPU and GPU memory"),
        (
            {names.GPU_FRACTION_NUM_DEVICES: "2"},
            "cannot request multiple fractional devices without specifying fraction portion or gpu-memory",
        ),
        ({names.GPU_MEMORY: "2Gi"}, "gpu-memory annotation value must be a positive integer greater than 0"),
        ({names.GPU_FRACTION: "1"}, NEGATIVE),
        (
            {names.GPU_FRACTION: "0.5", names.GPU_FRACTION_CONTAINER_NAME: "x"},
            "failed to get fraction container ref: container with name x not found for fraction request",
        ),
    ],
)
def test_a_new_pod_is_refused_in_kais_words(annotations: dict[str, str], message: str) -> None:
    refusal = there(refusal_of_new(pod(annotations=annotations), choices=Choices(guard=Guard.INJECT)))
    assert refusal.startswith(message)


def test_a_refusal_names_field_value_and_what_is_allowed() -> None:
    refusal = there(refusal_of_new(pod(annotations={names.GPU_FRACTION: 'ü"'}), choices=Choices(guard=Guard.OFF)))
    assert refusal.startswith(NEGATIVE + ' (gpu-fraction is "ü\\""; allowed: a decimal number above 0 and below 1')


@pytest.mark.parametrize("text", ["yes", "True", "", " true"])
def test_whether_limits_must_be_enforced_is_said_by_one_of_three_words(text: str) -> None:
    words = f'{names.REQUIRE_ENFORCEMENT} is "{text}"; allowed: true, hard or false'
    insisting = pod(annotations={names.REQUIRE_ENFORCEMENT: text})
    refusal = there(refusal_of_new(insisting, choices=Choices()))
    assert words in refusal
    late = there(refusal_of_update(pod(annotations={names.REQUIRE_ENFORCEMENT: "true"}), insisting))
    assert words in late
    # One that came past the webhook can still be labelled and ungated.
    assert refusal_of_update(insisting, pod(annotations={**insisting["metadata"]["annotations"], "a": "b"})) is None


@pytest.mark.parametrize("text", ["true", "hard", "false"])
def test_a_pod_may_insist_on_enforcement_or_not(text: str) -> None:
    assert refusal_of_new(pod(annotations={names.REQUIRE_ENFORCEMENT: text}), choices=Choices()) is None


@pytest.mark.parametrize(("guard", "refused"), [(Guard.OFF, False), (Guard.INJECT, True), (Guard.REJECT, True)])
@pytest.mark.parametrize("resources", [{}, {"limits": {"nvidia.com/gpu": "1"}}])
def test_a_choice_of_devices_is_refused_where_the_guard_is_on(guard: Guard, refused: bool, resources: Raw) -> None:
    raw = pod(container(env=[{"name": names.ENV_VISIBLE_DEVICES, "value": "all"}], resources=resources))
    refusal = refusal_of_new(raw, choices=Choices(guard=guard))
    assert (refusal is not None) is refused


BROKEN = pod(annotations={names.GPU_FRACTION: "1.5"}, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])


@pytest.mark.parametrize(
    "after",
    [
        BROKEN,
        _with(BROKEN, spec={"schedulingGates": [], "nodeSelector": {"pool": "a"}}),
        _with(BROKEN, finalizers=[]),
        _with(BROKEN, labels={"a": "b"}),
        _with(BROKEN, annotations={names.GPU_FRACTION: "1.5", "note": "x"}),
    ],
    ids=["nothing", "ungated", "finalizers", "labels", "another annotation"],
)
def test_a_pod_that_was_let_in_may_change_in_all_but_its_asks(after: Raw) -> None:
    assert refusal_of_update(BROKEN, after) is None


def test_a_changed_ask_is_judged_anew() -> None:
    after = _with(half(), annotations={names.GPU_FRACTION: "2"})
    refusal = there(refusal_of_update(half(), after))
    assert refusal.startswith(NEGATIVE)
    assert refusal_of_update(half(), _with(half(), annotations={names.GPU_FRACTION: "0.7"})) is None
    assert refusal_of_update(half(), _with(half(), annotations={})) is None


READY = {
    "name": names.ENV_VISIBLE_DEVICES,
    "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{names.VISIBLE_DEVICES_PREFIX}c0']"}},
}
BY_MAP = {"name": names.ENV_VISIBLE_DEVICES, "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}
VOID = {"name": names.ENV_VISIBLE_DEVICES, "value": "void"}


@pytest.mark.parametrize(
    ("variables", "is_refused"),
    [([], True), ([VOID], True), ([READY, VOID], True), ([READY], False), ([BY_MAP], False)],
    ids=["none", "void", "the last one counts", "by annotation", "by ConfigMap"],
)
def test_no_share_comes_to_a_container_that_would_not_see_it(variables: list[Raw], is_refused: bool) -> None:
    """The pod waited for ever as one that the webhook had not seen, though it had. An ask may go and come back."""
    before = pod(container("main", env=variables))
    refusal = refusal_of_update(before, _with(before, annotations={names.GPU_FRACTION: "0.5"}))
    assert (refusal is not None) is is_refused
    if refusal is not None:
        assert "container main can't be given a share any more" in refusal
        assert '(annotation gpu-fraction is "0.5"; allowed: none)' in refusal


def test_a_share_moves_to_no_other_container() -> None:
    before = half(container("main", env=[READY]), container("beside", env=[VOID]))
    after = _with(before, annotations={names.GPU_FRACTION: "0.5", names.GPU_FRACTION_CONTAINER_NAME: "beside"})
    refusal = there(refusal_of_update(before, after))
    assert '(annotation gpu-fraction-container-name is "beside"; allowed: none)' in refusal
    assert refusal_of_update(before, _with(before, annotations={names.GPU_FRACTION: "0.7"})) is None


PLACED = [half(nodeName="n1"), half(annotations={names.GRANT: "{}"})]


@pytest.mark.parametrize("before", PLACED, ids=["bound", "granted"])
@pytest.mark.parametrize(
    ("annotations", "key"),
    [
        ({names.GPU_FRACTION: "0.1"}, names.GPU_FRACTION),
        ({}, names.GPU_FRACTION),
        ({names.GPU_FRACTION: "0.5", names.GPU_FRACTION_NUM_DEVICES: "1"}, names.GPU_FRACTION_NUM_DEVICES),
    ],
)
def test_after_placement_the_asks_are_fixed(before: Raw, annotations: dict[str, str], key: str) -> None:
    refusal = there(refusal_of_update(before, _with(before, annotations=annotations)))
    assert f"annotations {key} can't be changed" in refusal


def test_a_pod_that_is_being_deleted_is_let_go() -> None:
    before = half(nodeName="n1")
    after = _with(before, annotations={}, deletionTimestamp="2026-01-01T00:00:00Z")
    assert refusal_of_update(before, after) is None


ROOM = 262_144 - 4096
NO_ROOM = "the annotations leave no room for what is written when the pod is bound (metadata.annotations is"


def _full(spare: int) -> Raw:
    return pod(annotations={"n": "x" * (ROOM - 1 - spare)})


def test_a_new_pod_without_room_for_its_binding_is_refused() -> None:
    assert refusal_of_new(_full(0), choices=Choices(guard=Guard.INJECT)) is None
    refusal = there(refusal_of_new(_full(-1), choices=Choices(guard=Guard.INJECT)))
    assert refusal.startswith(f'{NO_ROOM} "{ROOM + 1} bytes"; allowed: at most {ROOM} bytes')


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        (_full(9), _full(-9), True),
        (_full(-9), _full(-10), True),
        (_full(-9), _full(-9), False),
        (_full(-9), _full(-8), False),
        (_with(_full(-9), spec={"nodeName": "n1"}), _with(_full(-10), spec={"nodeName": "n1"}), False),
        (_full(9), _with(_full(-9), deletionTimestamp="2026-01-01T00:00:00Z"), False),
    ],
    ids=["fills up", "grows on", "stays", "shrinks", "is placed", "is going"],
)
def test_a_waiting_pod_may_not_fill_the_room_for_its_binding(before: Raw, after: Raw, refused: bool) -> None:
    refusal = refusal_of_update(before, after)
    assert (refusal is not None) is refused
    assert refusal is None or refusal.startswith(NO_ROOM)


# --- words of other dialects: read once, when the pod comes ---------------------------------------------------------

LABEL = "clearml-injector/fraction"
SLICED = {
    names.GPU_RECORD: '{"version":1,"dialect":"hami","asks":[{"container":"c0","name":"main","memMib":3000}]}',
    names.HAMI_USE_TYPE: "A100",
}


@pytest.mark.parametrize(
    ("annotations", "labels", "key"),
    [
        ({**SLICED, names.HAMI_USE_TYPE: "H100"}, {}, "annotation nvidia.com/use-gputype"),
        ({names.GPU_RECORD: SLICED[names.GPU_RECORD]}, {}, "annotation nvidia.com/use-gputype"),
        ({**SLICED, names.GPU_FRACTION: "0.5"}, {}, "annotation gpu-fraction"),
        ({**SLICED, "nvidia.com/container.main.gpu-memory.limit": "8Gi"}, {}, "annotation nvidia.com/container.main."),
        (SLICED, {LABEL: "0.5"}, "label clearml-injector/fraction"),
        (SLICED, {"koordinator.sh/gpu-isolation-provider": "x"}, "label koordinator.sh/gpu-isolation-provider"),
    ],
)
@pytest.mark.parametrize("spec", [{}, {"nodeName": "n1"}], ids=["waits", "bound"])
def test_words_of_a_pod_with_a_record_are_fixed_when_it_comes(
    annotations: dict[str, str], labels: dict[str, str], key: str, spec: Raw
) -> None:
    before = _with(pod(annotations=SLICED), spec=spec)
    refusal = there(refusal_of_update(before, _with(before, annotations=annotations, labels=labels)))
    assert refusal.startswith(key)
    assert "was read when it came" in refusal
    assert "delete the pod and create it again" in refusal
    leaving = _with(before, annotations=annotations, labels=labels, deletionTimestamp="2026-01-01T00:00:00Z")
    assert refusal_of_update(before, leaving) is None


@pytest.mark.parametrize(
    ("annotations", "labels"),
    [
        ({**SLICED, "note": "x"}, {}),
        ({**SLICED, names.HAMI_ALLOCATED: "GPU-a,NVIDIA,3000,0:;"}, {}),
        ({**SLICED, "nvidia.com/container.main.gpus.devices": "GPU-a"}, {}),
        (SLICED, {"team": "a"}),
        (SLICED, {names.GPU_FRACTION: "0.5"}),
    ],
    ids=["another", "written back", "written back by KAI", "a label", "a word elsewhere"],
)
def test_what_is_no_word_of_a_dialect_may_change(annotations: dict[str, str], labels: dict[str, str]) -> None:
    before = pod(annotations=SLICED)
    assert refusal_of_update(before, _with(before, annotations=annotations, labels=labels)) is None


@pytest.mark.parametrize("before", [pod(), half()], ids=["plain", "of KAI"])
@pytest.mark.parametrize(
    ("annotations", "labels", "key"),
    [
        ({"nvidia.com/container.main.gpu-memory.request": "8Gi"}, {}, "annotation nvidia.com/container.main"),
        ({}, {LABEL: "0.5"}, "label clearml-injector/fraction"),
    ],
)
def test_words_that_came_too_late_are_refused_and_not_kept_unread(
    before: Raw, annotations: dict[str, str], labels: dict[str, str], key: str
) -> None:
    own = before["metadata"].get("annotations") or {}
    refusal = there(refusal_of_update(before, _with(before, annotations={**own, **annotations}, labels=labels)))
    assert refusal.startswith(key)


def test_words_that_ask_for_nothing_by_themselves_may_come_late() -> None:
    assert refusal_of_update(pod(), _with(pod(), annotations={names.HAMI_USE_TYPE: "A100"})) is None


def test_a_pod_that_came_past_the_door_may_change_in_all_else() -> None:
    spoken = pod(labels={LABEL: "0.5"})
    assert refusal_of_update(spoken, _with(spoken, labels={LABEL: "0.5", "team": "a"})) is None
    assert refusal_of_update(spoken, _with(spoken, labels={})) is None
