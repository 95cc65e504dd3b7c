from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nodeagent.core.report.devices import Annotations, Given, Held, Outcome, held, judge
from reservation.device import Device
from wire import names
from wire.core import Pod

GPU, MIG = names.GPU_RESOURCE, "nvidia.com/mig-3g.40gb"
A, B, SLICE = Device("GPU-a", 3, 81559), Device("GPU-b", None, None), Device("MIG-x", None, 40192)
DEVICES = {each.uuid: each for each in (A, B, SLICE)}
OF_A = {names.RESERVE_FOR_GPU_INDEX: "GPU-a", names.DEVICE_INDEX: "3", names.DEVICE_MEMORY: "81559"}
OF_B = {names.RESERVE_FOR_GPU_INDEX: "GPU-b"}
WITNESS = {names.WITNESS: names.WITNESS_KUBELET}
WITHDRAWAL: Annotations = {names.WITNESS: None}


def raw(annotations: dict[str, str] | None = None, *, resource: str = GPU, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": names.RESERVATION_NAMESPACE,
            "name": "r",
            "uid": "u",
            "annotations": {names.TENANTS: "{}", **(annotations or {})},
        },
        "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"limits": {resource: "1"}}}]},
        "status": {"phase": "Pending", "startTime": "2026-01-01T00:00:00Z", **status},
    }


def read(found: dict[str, Any]) -> Held:
    return held(msgspec.convert(found, Pod))


def pod(annotations: dict[str, str] | None = None, **more: Any) -> Held:
    return read(raw(annotations, **more))


def given(*ids: str, resource: str = GPU) -> Given:
    return [("example.com/nic", ["nic-1"]), (resource, ids)]


@pytest.mark.parametrize(
    ("annotations", "answer", "outcome", "write"),
    [
        ({}, given("GPU-a"), Outcome.TOLD, {**OF_A, **WITNESS}),
        ({}, given("GPU-a::7"), Outcome.TOLD, {**OF_A, **WITNESS}),
        (
            {},
            given("GPU-b"),
            Outcome.TOLD,
            {
                names.RESERVE_FOR_GPU_INDEX: "GPU-b",
                names.DEVICE_INDEX: None,
                names.DEVICE_MEMORY: None,
                **WITNESS,
            },
        ),
        ({names.RESERVE_FOR_GPU_INDEX: "no uuid"}, given("GPU-a"), Outcome.TOLD, {**OF_A, **WITNESS}),
        (OF_A, given("GPU-a"), Outcome.TOLD, {**OF_A, **WITNESS}),
        ({**OF_A, **WITNESS}, given("GPU-a"), Outcome.AGREES, None),
        ({}, None, Outcome.UNKNOWN_POD, None),
        ({}, [], Outcome.NO_DEVICE, None),
        ({}, given(), Outcome.NO_DEVICE, None),
        ({}, given("GPU-a", resource="nvidia.com/gpu.shared"), Outcome.NO_DEVICE, None),
        ({}, given("GPU-a", "GPU-b"), Outcome.UNCLEAR, None),
        ({}, given("0"), Outcome.UNKNOWN_DEVICE, None),
        ({}, given("GPU-other-machines"), Outcome.UNKNOWN_DEVICE, None),
        (OF_B, given("GPU-a"), Outcome.TOLD, {**OF_A, **WITNESS}),
        ({**OF_B, **WITNESS}, given("GPU-a"), Outcome.TOLD, {**OF_A, **WITNESS}),
        (OF_A, given("GPU-other-machines"), Outcome.UNKNOWN_DEVICE, None),
        ({**OF_A, **WITNESS}, given("GPU-other-machines"), Outcome.WITHDRAWN, WITHDRAWAL),
        ({**OF_A, **WITNESS}, given("GPU-a", "GPU-b"), Outcome.WITHDRAWN, WITHDRAWAL),
        ({**OF_A, **WITNESS}, [], Outcome.WITHDRAWN, WITHDRAWAL),
        ({**OF_A, **WITNESS}, None, Outcome.UNKNOWN_POD, None),
    ],
)
def test_until_a_container_has_run_the_newest_word_of_kubelet_is_told(
    annotations: dict[str, str], answer: Given, outcome: Outcome, write: Annotations | None
) -> None:
    verdict = judge(pod(annotations), pod(annotations), answer, DEVICES)
    assert (verdict.outcome, verdict.write) == (outcome, write)


RUNS = [{"name": "c", "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}}]
FAILS = [{"name": "c", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]


@pytest.mark.parametrize("containers", [RUNS, FAILS], ids=["runs", "keeps failing"])
@pytest.mark.parametrize(
    ("annotations", "outcome", "write"),
    [
        ({}, Outcome.LEFT_TO_PROCESS, None),
        ({names.RESERVE_FOR_GPU_INDEX: "no uuid"}, Outcome.LEFT_TO_PROCESS, None),
        (OF_A, Outcome.AGREES, None),
        ({**OF_A, **WITNESS}, Outcome.AGREES, None),
        (OF_B, Outcome.CONTRADICTED, None),
        ({**OF_B, **WITNESS}, Outcome.WITHDRAWN, WITHDRAWAL),
    ],
)
def test_once_a_container_has_run_its_process_alone_tells_the_device(
    annotations: dict[str, str], outcome: Outcome, write: Annotations | None, containers: list[Any]
) -> None:
    reservation = pod(annotations, containerStatuses=containers)
    verdict = judge(reservation, reservation, given("GPU-a"), DEVICES)
    assert (verdict.outcome, verdict.write) == (outcome, write)


def test_a_slice_is_told_with_its_own_memory_and_no_index() -> None:
    reservation = pod(resource=MIG)
    verdict = judge(reservation, reservation, given("MIG-x", resource=MIG), DEVICES)
    assert verdict.write == {
        names.RESERVE_FOR_GPU_INDEX: "MIG-x",
        names.DEVICE_INDEX: None,
        names.DEVICE_MEMORY: "40192",
        **WITNESS,
    }
    assert judge(reservation, reservation, given("GPU-a"), DEVICES).outcome is Outcome.NO_DEVICE


def test_a_driver_that_fails_takes_nothing_back_that_kubelet_still_says() -> None:
    told = pod({**OF_A, **WITNESS})
    assert judge(told, told, given("GPU-a"), {}).outcome is Outcome.AGREES
    assert judge(told, told, given("GPU-b"), {}).outcome is Outcome.WITHDRAWN
    assert judge(pod(), pod(), given("GPU-a"), {}).outcome is Outcome.UNKNOWN_DEVICE


def test_the_word_of_a_kubelet_that_knows_the_pod_no_more_is_taken_back_after_a_time() -> None:
    told = pod({**OF_A, **WITNESS})
    assert judge(told, told, None, DEVICES, asked_for_s=4.9).write is None
    assert judge(told, told, None, DEVICES, asked_for_s=5.0).write == WITHDRAWAL
    assert judge(pod(OF_A), pod(OF_A), None, DEVICES, asked_for_s=5.0).write is None


def _successor() -> Held:
    found = raw()
    found["metadata"]["uid"] = "another"
    return read(found)


def _leaving() -> Held:
    found = raw()
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return read(found)


OVER = [pod(phase="Failed"), pod(phase="Succeeded"), _leaving()]


@pytest.mark.parametrize("after", [None, _successor(), *OVER], ids=["gone", "successor", "failed", "ended", "leaving"])
def test_an_answer_about_a_pod_that_went_meanwhile_counts_for_nothing(after: Held | None) -> None:
    verdict = judge(pod(), after, given("GPU-a"), DEVICES)
    assert (verdict.outcome, verdict.write) == (Outcome.UNKNOWN_POD, None)


@pytest.mark.parametrize("before", [pod(startTime=None), *OVER], ids=["not-admitted", "failed", "ended", "leaving"])
def test_no_answer_counts_to_a_question_that_was_asked_too_early_or_too_late(before: Held) -> None:
    with pytest.raises(ValueError, match="before kubelet had admitted it"):
        judge(before, pod(), given("GPU-a"), DEVICES)
