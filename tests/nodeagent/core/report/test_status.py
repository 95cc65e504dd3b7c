from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from nodeagent.core.devices import Card
from nodeagent.core.mig_partitioning import CardReport
from nodeagent.core.report.devices import Annotations, Given, Held, Outcome, held, judge
from nodeagent.core.report.status import PAUSE_S, USE_PAUSE_S, Told, health_of, patch, status, write_at_s
from reservation.device import Device
from wire import names
from wire.core import Pod
from wire.crds.gpunode import AgentStatus, CardHealth, GpuNodeStatus, MigProfile, Missing, TenantStatus

CARDS = (
    Card(uuid="GPU-b", index=1, product="A100", mem_mib=40960, has_mig=True, slices=("MIG-y", "MIG-x")),
    Card(uuid="GPU-a", index=0, product="H100", mem_mib=81559, numa=1),
)
ONE = TenantStatus(pod_uid="u1", pod="team/one", card="GPU-a", memory_percent=50, sm_percent=5, enforced="kill")
TWO = TenantStatus(pod_uid="u2", pod="team/two", card="GPU-a", memory_percent=20)
AGENT = AgentStatus(version="1", plugin_mode="off")
TOLD = Told(
    cards=CARDS,
    health={"GPU-b": CardHealth(state="ill", reason="XID 79", since="2026-01-01T00:00:00Z")},
    tenants=(TWO, ONE),
    agent=AGENT,
)


def test_the_device_plugin_and_the_driver_know_first_that_a_gpu_is_not_well() -> None:
    well, healing, limiting = CardHealth(state="well"), CardHealth(state="healing"), CardHealth(state="ill", reason="M")
    lost = CardHealth(state="ill", reason="lost")
    for judged, is_lost, by_limiting, told in (
        (None, False, None, None),
        (well, False, None, well),
        (well, False, limiting, limiting),
        (None, False, limiting, limiting),
        (healing, False, limiting, healing),
        (well, True, limiting, lost),
        (healing, True, None, healing),
    ):
        found = health_of(
            {"g": "lost"} if is_lost else {},
            {} if by_limiting is None else {"g": by_limiting},
            {} if judged is None else {"g": judged},
        )
        assert found.get("g") == told


def test_all_is_said_in_the_order_of_cards_and_pods() -> None:
    said = msgspec.to_builtins(status(TOLD))
    assert said == {
        "gpus": 2,
        "healthy": 1,
        "cards": [
            {"uuid": "GPU-a", "memoryMiB": 81559, "product": "H100", "numa": 1},
            {
                "uuid": "GPU-b",
                "index": 1,
                "memoryMiB": 40960,
                "product": "A100",
                "health": {"state": "ill", "reason": "XID 79", "since": "2026-01-01T00:00:00Z"},
                "mig": True,
                "slices": ["MIG-x", "MIG-y"],
            },
        ],
        "tenants": [
            {
                "podUID": "u1",
                "pod": "team/one",
                "card": "GPU-a",
                "memoryPercent": 50,
                "smPercent": 5,
                "enforced": "kill",
            },
            {"podUID": "u2", "pod": "team/two", "card": "GPU-a", "memoryPercent": 20},
        ],
        "agent": {"version": "1", "pluginMode": "off"},
    }


def test_the_order_in_which_parts_speak_changes_nothing() -> None:
    assert status(replace(TOLD, cards=CARDS[::-1], tenants=(ONE, TWO))) == status(TOLD)


def _tenants(*tenants: TenantStatus) -> GpuNodeStatus:
    return status(replace(TOLD, tenants=tenants))


def _used(tenant: TenantStatus, percent: int) -> TenantStatus:
    return msgspec.structs.replace(tenant, memory_percent=percent, sm_percent=percent)


BEFORE = _tenants(ONE, TWO)


@pytest.mark.parametrize(
    ("wanted", "pause_s"),
    [
        (BEFORE, None),
        (_tenants(_used(ONE, 95), TWO), USE_PAUSE_S),
        (_tenants(msgspec.structs.replace(ONE, idle_since="2026-01-01T00:00:00Z"), TWO), USE_PAUSE_S),
        (_tenants(ONE), USE_PAUSE_S),
        (_tenants(ONE, TWO, _used(msgspec.structs.replace(TWO, pod="team/new"), 5)), USE_PAUSE_S),
        (_tenants(TWO), PAUSE_S),
        (_tenants(msgspec.structs.replace(ONE, enforced=""), TWO), PAUSE_S),
        (_tenants(ONE, msgspec.structs.replace(TWO, enforced="mps")), PAUSE_S),
        (status(replace(TOLD, health={})), PAUSE_S),
        (status(replace(TOLD, cards=CARDS[:1])), PAUSE_S),
        (status(replace(TOLD, agent=AgentStatus(version="2"))), PAUSE_S),
        (
            status(replace(TOLD, slices={"GPU-b": CardReport((MigProfile(name="3g.20gb", size=4, starts=[0, 4]),))})),
            PAUSE_S,
        ),
    ],
    ids=[
        "same",
        "use",
        "idle",
        "gone",
        "came",
        "limited-gone",
        "not-limited",
        "limited",
        "well",
        "card",
        "agent",
        "profile",
    ],
)
def test_use_is_written_every_five_minutes_and_everything_else_soon(
    wanted: GpuNodeStatus, pause_s: float | None
) -> None:
    assert write_at_s(wanted, BEFORE, 1000.0) == (None if pause_s is None else 1000.0 + pause_s)
    assert write_at_s(wanted, BEFORE, None) == (None if pause_s is None else 0.0)


def test_a_patch_takes_away_what_is_not_said_any_more_and_leaves_what_a_later_version_says() -> None:
    missing = AgentStatus(version="1", missing=[Missing(what="mps", why="off")])
    stored = msgspec.to_builtins(status(Told(cards=CARDS, agent=missing)))
    stored["agent"]["new"] = stored["new"] = 1
    wanted = status(Told(agent=AgentStatus(version="2")))
    for key, value in patch(wanted, "2026-01-01T00:00:00Z")["status"].items():
        if key == "agent":
            stored["agent"] = {**stored["agent"], **value}
        else:
            stored[key] = value
    left = {key: value for key, value in stored.items() if value is not None}
    left["agent"] = {key: value for key, value in left["agent"].items() if value is not None}
    assert left == {
        "gpus": 0,
        "healthy": 0,
        "new": 1,
        "agent": {"version": "2", "pluginMode": "", "new": 1},
        "reportedAt": "2026-01-01T00:00:00Z",
    }
    stored_again = msgspec.convert(left, GpuNodeStatus)
    assert msgspec.structs.replace(stored_again, reported_at=None) == wanted


def test_lists_are_no_longer_than_the_api_server_takes() -> None:
    cards = [Card(uuid=f"GPU-{index}", index=index) for index in range(100)]
    tenants = [TenantStatus(pod_uid=str(number), pod=f"team/{number}") for number in range(2000)]
    said = status(Told(cards=cards, tenants=tenants))
    assert (said.gpus, len(said.cards or ()), len(said.tenants or ())) == (100, 64, 1024)


GPU, MIG = names.GPU_RESOURCE, "nvidia.com/mig-3g.40gb"
A, B, SLICE = Device("GPU-a", 3, 81559), Device("GPU-b", None, None), Device("MIG-x", None, 40192)
DEVICES = {each.uuid: each for each in (A, B, SLICE)}
OF_A = {names.RESERVE_FOR_GPU_INDEX: "GPU-a", names.DEVICE_INDEX: "3", names.DEVICE_MEMORY: "81559"}
OF_B = {names.RESERVE_FOR_GPU_INDEX: "GPU-b"}
DEVICE_REPORTER = {names.DEVICE_REPORTER: names.REPORTER_KUBELET}
WITHDRAWAL: Annotations = {names.DEVICE_REPORTER: None}


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
        ({}, given("GPU-a"), Outcome.TOLD, {**OF_A, **DEVICE_REPORTER}),
        ({}, given("GPU-a::7"), Outcome.TOLD, {**OF_A, **DEVICE_REPORTER}),
        (
            {},
            given("GPU-b"),
            Outcome.TOLD,
            {
                names.RESERVE_FOR_GPU_INDEX: "GPU-b",
                names.DEVICE_INDEX: None,
                names.DEVICE_MEMORY: None,
                **DEVICE_REPORTER,
            },
        ),
        ({names.RESERVE_FOR_GPU_INDEX: "no uuid"}, given("GPU-a"), Outcome.TOLD, {**OF_A, **DEVICE_REPORTER}),
        (OF_A, given("GPU-a"), Outcome.TOLD, {**OF_A, **DEVICE_REPORTER}),
        ({**OF_A, **DEVICE_REPORTER}, given("GPU-a"), Outcome.AGREES, None),
        ({}, None, Outcome.UNKNOWN_POD, None),
        ({}, [], Outcome.NO_DEVICE, None),
        ({}, given(), Outcome.NO_DEVICE, None),
        ({}, given("GPU-a", resource="nvidia.com/gpu.shared"), Outcome.NO_DEVICE, None),
        ({}, given("GPU-a", "GPU-b"), Outcome.UNCLEAR, None),
        ({}, given("0"), Outcome.UNKNOWN_DEVICE, None),
        ({}, given("GPU-other-machines"), Outcome.UNKNOWN_DEVICE, None),
        (OF_B, given("GPU-a"), Outcome.TOLD, {**OF_A, **DEVICE_REPORTER}),
        ({**OF_B, **DEVICE_REPORTER}, given("GPU-a"), Outcome.TOLD, {**OF_A, **DEVICE_REPORTER}),
        (OF_A, given("GPU-other-machines"), Outcome.UNKNOWN_DEVICE, None),
        ({**OF_A, **DEVICE_REPORTER}, given("GPU-other-machines"), Outcome.WITHDRAWN, WITHDRAWAL),
        ({**OF_A, **DEVICE_REPORTER}, given("GPU-a", "GPU-b"), Outcome.WITHDRAWN, WITHDRAWAL),
        ({**OF_A, **DEVICE_REPORTER}, [], Outcome.WITHDRAWN, WITHDRAWAL),
        ({**OF_A, **DEVICE_REPORTER}, None, Outcome.UNKNOWN_POD, None),
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
        ({**OF_A, **DEVICE_REPORTER}, Outcome.AGREES, None),
        (OF_B, Outcome.CONTRADICTED, None),
        ({**OF_B, **DEVICE_REPORTER}, Outcome.WITHDRAWN, WITHDRAWAL),
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
        **DEVICE_REPORTER,
    }
    assert judge(reservation, reservation, given("GPU-a"), DEVICES).outcome is Outcome.NO_DEVICE


def test_a_driver_that_fails_takes_nothing_back_that_kubelet_still_says() -> None:
    told = pod({**OF_A, **DEVICE_REPORTER})
    assert judge(told, told, given("GPU-a"), {}).outcome is Outcome.AGREES
    assert judge(told, told, given("GPU-b"), {}).outcome is Outcome.WITHDRAWN
    assert judge(pod(), pod(), given("GPU-a"), {}).outcome is Outcome.UNKNOWN_DEVICE


def test_the_word_of_a_kubelet_that_knows_the_pod_no_more_is_taken_back_after_a_time() -> None:
    told = pod({**OF_A, **DEVICE_REPORTER})
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
