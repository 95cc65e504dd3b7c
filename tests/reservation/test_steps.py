from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from reservation.device import Device, Unreadable
from reservation.steps import (
    MAX_CALLS,
    Action,
    Answer,
    Call,
    Event,
    Exit,
    Hold,
    NoAnswer,
    ReadDevice,
    Stopped,
    Wait,
    Waited,
    start,
    step,
)

ENVIRON = {"POD_NAMESPACE": "res", "POD_NAME": "gpu-reservation-1", "POD_UID": "u1"}
PATH = "/api/v1/namespaces/res/pods/gpu-reservation-1"
DEVICE = Device(uuid="GPU-a", minor=3, mem_mib=46068)
IDENTITY = {
    "run.ai/reserve_for_gpu_index": "GPU-a",
    "moorage.dev/device": "3",
    "moorage.dev/device-memory-mib": "46068",
}
HELD = Hold(
    "pod res/gpu-reservation-1 holds run.ai/reserve_for_gpu_index=GPU-a, moorage.dev/device=3, "
    "moorage.dev/device-memory-mib=46068"
)


def pod(uid: str = "u1", annotations: Mapping[str, str] | None = None) -> Answer:
    metadata: dict[str, Any] = {"uid": uid}
    if annotations is not None:
        metadata["annotations"] = annotations
    return Answer(200, json.dumps({"metadata": metadata}).encode())


def status(code: int, message: str = "", *, retry_after_s: float = 0.0) -> Answer:
    return Answer(code, json.dumps({"message": message}).encode(), retry_after_s)


def patch(annotations: Mapping[str, str | None], uid: str = "u1") -> Call:
    body = json.dumps({"metadata": {"uid": uid, "annotations": annotations}}).encode()
    return Call("PATCH", PATH, {"timeout": "4s"}, body)


def drive(*events: Event, environ: Mapping[str, str] = ENVIRON) -> list[Action]:
    """All actions after start, one per event."""
    state, action = start(environ)
    assert action == Call("GET", PATH)
    actions = []
    for event in events:
        state, action = step(state, event)
        actions.append(action)
    return actions


@pytest.mark.parametrize(
    ("events", "actions"),
    [
        pytest.param([pod(), DEVICE, pod()], [ReadDevice(), patch(IDENTITY), HELD], id="a new pod is told its device"),
        pytest.param(
            [pod(annotations=IDENTITY), DEVICE], [ReadDevice(), HELD], id="what stands there is not rewritten"
        ),
        pytest.param(
            [pod(annotations={"run.ai/reserve_for_gpu_index": "GPU-a"}), DEVICE],
            [ReadDevice(), patch(IDENTITY)],
            id="an identity by something that writes the UUID only is completed",
        ),
        pytest.param(
            [pod(annotations=IDENTITY | {"run.ai/reserve_for_gpu_index": "GPU-b"}), DEVICE],
            [ReadDevice(), patch(IDENTITY)],
            id="another UUID is overwritten",
        ),
        pytest.param(
            [pod(annotations=IDENTITY), Device(uuid="GPU-a", minor=None, mem_mib=None)],
            [
                ReadDevice(),
                patch(
                    {
                        "run.ai/reserve_for_gpu_index": "GPU-a",
                        "moorage.dev/device": None,
                        "moorage.dev/device-memory-mib": None,
                    }
                ),
            ],
            id="what the driver no longer tells is taken away",
        ),
        pytest.param(
            [
                pod(annotations={"run.ai/reserve_for_gpu_index": "GPU-a"}),
                Device(uuid="GPU-a", minor=None, mem_mib=None),
            ],
            [ReadDevice(), Hold("pod res/gpu-reservation-1 holds run.ai/reserve_for_gpu_index=GPU-a")],
            id="what the driver never told is not missed",
        ),
        pytest.param(
            [pod(), Unreadable("found 2 devices, 1 was expected")],
            [ReadDevice(), Exit(1, "found 2 devices, 1 was expected")],
            id="a device that can't be read ends it",
        ),
        pytest.param(
            [pod("u2")],
            [Exit(1, "pod res/gpu-reservation-1 was replaced: its UID is u2, mine is u1")],
            id="a successor of the pod is left alone",
        ),
        pytest.param(
            [pod(), DEVICE, status(409), pod("u2")],
            [
                ReadDevice(),
                patch(IDENTITY),
                Call("GET", PATH),
                Exit(1, "pod res/gpu-reservation-1 was replaced: its UID is u2, mine is u1"),
            ],
            id="a conflict by a successor ends it",
        ),
        pytest.param(
            [pod(), DEVICE, status(409), pod(), pod()],
            [ReadDevice(), patch(IDENTITY), Call("GET", PATH), patch(IDENTITY), HELD],
            id="a conflict by other writers is followed by another write, without a second look at the device",
        ),
        pytest.param(
            [pod(), DEVICE, status(409), pod(annotations=IDENTITY)],
            [ReadDevice(), patch(IDENTITY), Call("GET", PATH), HELD],
            id="a write that landed after all is recognised",
        ),
        pytest.param(
            [pod(), DEVICE, status(403, "policy says no")],
            [
                ReadDevice(),
                patch(IDENTITY),
                Exit(1, "unable to patch pod res/gpu-reservation-1: HTTP 403 policy says no"),
            ],
            id="a refused write ends it",
        ),
        pytest.param(
            [status(409, "odd")],
            [Exit(1, "unable to get pod res/gpu-reservation-1: HTTP 409 odd")],
            id="a conflict on reading makes no sense and ends it",
        ),
        pytest.param(
            [Answer(404, b"<html>")],
            [Exit(1, "unable to get pod res/gpu-reservation-1: HTTP 404")],
            id="an answer that is no Status is told by its code",
        ),
    ],
)
def test_each_event_has_its_answer(events: list[Event], actions: list[Action]) -> None:
    assert drive(*events) == actions


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"metadata": {}}', b'{"metadata": {"uid": "u1", "annotations": 1}}']
)
def test_an_answer_that_is_not_a_pod_ends_it(body: bytes) -> None:
    (action,) = drive(Answer(200, body))
    assert isinstance(action, Exit)
    assert action.code == 1
    assert action.message.startswith("unable to get pod res/gpu-reservation-1: the answer is not a pod (")


def test_without_a_uid_in_the_environment_the_first_read_counts() -> None:
    environ = {key: value for key, value in ENVIRON.items() if key != "POD_UID"}
    actions = drive(pod("u7"), DEVICE, status(409), pod("u8"), environ=environ)
    assert actions[1] == patch(IDENTITY, uid="u7")
    assert actions[3] == Exit(1, "pod res/gpu-reservation-1 was replaced: its UID is u8, mine is u7")


@pytest.mark.parametrize("failure", [NoAnswer("refused"), status(500), status(503), status(504), status(429)])
@pytest.mark.parametrize("before", [[], [pod(), DEVICE]], ids=["read", "write"])
def test_a_server_that_is_away_is_asked_again_with_longer_pauses_and_not_for_ever(
    before: list[Event], failure: Event
) -> None:
    state, action = start(ENVIRON)
    for event in before:
        state, action = step(state, event)
    repeated, pauses = action, []
    while action == repeated:
        state, action = step(state, failure)
        if isinstance(action, Wait):
            longest = min(0.25 * 2 ** (state.calls_made - 1), 8.0)
            assert longest / 2 < action.seconds <= longest
            pauses.append(action.seconds)
            state, action = step(state, Waited())
    assert isinstance(action, Exit)
    assert action.code == 1
    assert action.message.endswith(f"(gave up after {MAX_CALLS} calls)")
    assert len(pauses) == (MAX_CALLS - 2 if before else MAX_CALLS - 1)
    assert sum(pauses) < 30


def test_endless_conflicts_end_it() -> None:
    # Reads and writes in turn: the eighth call is a write again.
    conflicts: list[Event] = [pod(), DEVICE, *[status(409, "busy"), pod()] * 3, status(409, "busy")]
    told = "unable to patch pod res/gpu-reservation-1: HTTP 409 busy (gave up after 8 calls)"
    assert drive(*conflicts)[-1] == Exit(1, told)


def test_the_servers_wish_for_patience_is_granted_up_to_30_seconds() -> None:
    (granted,) = drive(status(429, retry_after_s=30.0))
    assert isinstance(granted, Wait)
    assert granted.seconds == 30.0
    (refused,) = drive(status(429, "busy", retry_after_s=31.0))
    assert refused == Exit(1, "unable to get pod res/gpu-reservation-1: HTTP 429 busy (gave up after 1 calls)")


def test_pods_that_start_together_do_not_come_back_together() -> None:
    def first_pause_s(name: str) -> float:
        state, _ = start(ENVIRON | {"POD_NAME": name})
        _, action = step(state, NoAnswer("refused"))
        assert isinstance(action, Wait)
        return action.seconds

    pauses = [first_pause_s(f"gpu-reservation-{number}") for number in range(1000)]
    slots = [sum(1 for pause in pauses if lowest <= pause < lowest + 0.0125) for lowest in (0.125, 0.175, 0.225)]
    assert all(50 <= count <= 150 for count in slots)


@pytest.mark.parametrize(
    "before",
    [[], [pod()], [pod(), DEVICE], [pod(), DEVICE, pod()], [NoAnswer("away")]],
    ids=["reading", "asking", "writing", "holding", "pausing"],
)
def test_it_can_be_stopped_at_any_point(before: list[Event]) -> None:
    assert drive(*before, Stopped())[-1] == Exit(0)


@pytest.mark.parametrize("missing", ["POD_NAMESPACE", "POD_NAME"])
def test_a_missing_or_empty_variable_is_refused_by_name(missing: str) -> None:
    told = Exit(1, f"{missing} is not set: the pod must pass it by the downward API")
    assert start({key: value for key, value in ENVIRON.items() if key != missing})[1] == told
    assert start(ENVIRON | {missing: ""})[1] == told


def test_names_can_not_leave_their_place_in_the_path() -> None:
    _, action = start(ENVIRON | {"POD_NAME": "../../secrets?x"})
    assert action == Call("GET", "/api/v1/namespaces/res/pods/..%2F..%2Fsecrets%3Fx")
