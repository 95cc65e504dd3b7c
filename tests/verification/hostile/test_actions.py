"""What users do, as data and on a running cluster."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from kube.client.resources import BIND_REQUESTS, POD_GROUPS, PODS
from simulator.world import World
from tests.conftest import AnyioBackend
from tests.simulator.test_world import world
from verification.hostile.actions import (
    Action,
    ChangePodGroup,
    CreatePod,
    CreatePodGroup,
    DeleteBindRequest,
    DeletePod,
    DeletePodGroup,
    DeleteReservation,
    EditPod,
    EvictPod,
    UngatePod,
)

HALF = {"gpu-fraction": "0.5"}


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


EVERYTHING: tuple[Action, ...] = (
    CreatePod(at_s=1.0, name="p", annotations=HALF, containers=("main", "aside"), init_containers=("prepare",)),
    DeletePod(at_s=1.0, name="p", grace_s=0),
    EvictPod(at_s=1.0, name="p"),
    EditPod(at_s=1.0, name="p", annotations={"gpu-fraction": None}, labels={"a": "b"}, when_bound_s=0.1),
    UngatePod(at_s=1.0, name="p"),
    CreatePodGroup(at_s=1.0, name="g", minimum=2),
    ChangePodGroup(at_s=1.0, name="g", minimum=3, annotations={"moorage.dev/plan": "{}"}),
    DeletePodGroup(at_s=1.0, name="g"),
    DeleteBindRequest(at_s=1.0, pod="p", wait_s=0.1),
    DeleteReservation(at_s=1.0, number=3, wait_s=0.1),
)


def test_every_action_comes_back_from_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(EVERYTHING), type=tuple[Action, ...]) == EVERYTHING


def test_a_field_that_nobody_knows_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `graze_s`"):
        msgspec.json.decode(b'{"type":"delete-pod","at_s":1,"name":"p","graze_s":0}', type=Action)


@pytest.mark.parametrize("action", EVERYTHING[1:], ids=lambda action: type(action).__name__)
async def test_what_is_not_there_is_no_reason_to_fail(action: Action) -> None:
    async with world("1x1x1GiB") as running:
        await action.perform(running)


def find(running: World, name: str) -> dict[str, Any]:
    return next(pod for pod in running.pods if pod["metadata"]["name"] == name)


async def test_a_pod_ends_after_its_time_and_for_good() -> None:
    async with world("1x1x1GiB") as running:
        await CreatePod(at_s=0, name="p", annotations=HALF, run_s=3.0).perform(running)
        await anyio.sleep(60)
        assert find(running, "p")["status"]["phase"] == "Succeeded"


async def test_the_same_name_is_insisted_on_until_it_is_free() -> None:
    async with world("1x1x1GiB") as running:
        await CreatePod(at_s=0, name="p").perform(running)
        await anyio.sleep(5)
        first = find(running, "p")["metadata"]["uid"]
        await DeletePod(at_s=0, name="p").perform(running)
        await CreatePod(at_s=0, name="p", gpus=1, insist_s=30.0).perform(running)
        await anyio.sleep(1)
        assert find(running, "p")["metadata"]["uid"] != first


async def test_a_gated_pod_waits_for_its_user() -> None:
    async with world("1x1x1GiB") as running:
        await CreatePod(at_s=0, name="p", gated=True).perform(running)
        await anyio.sleep(5)
        assert not find(running, "p")["spec"].get("nodeName")
        await UngatePod(at_s=0, name="p").perform(running)
        await anyio.sleep(5)
        assert find(running, "p")["spec"]["nodeName"] == "node-0"


async def test_a_pod_placed_by_hand_goes_past_the_scheduler() -> None:
    async with world("2x1x1GiB") as running:
        await CreatePod(at_s=0, name="p", gpus=1, node="node-1", scheduler="default-scheduler").perform(running)
        await anyio.sleep(5)
        assert find(running, "p")["status"]["phase"] == "Running"
        assert not [entry for entry in running.server.audit if entry.subresource == "binding"]


async def test_forged_keys_are_stripped_at_creation_and_refused_later() -> None:
    forged = {"moorage.dev/grant": "{}", **HALF}
    async with world("1x1x1GiB") as running:
        await CreatePod(at_s=0, name="p", annotations=forged, labels={"runai-gpu-group": "mine"}).perform(running)
        await anyio.sleep(5)
        before = find(running, "p")["metadata"]
        assert before["labels"]["runai-gpu-group"] != "mine"
        await EditPod(at_s=0, name="p", annotations={"moorage.dev/grant": None}).perform(running)
        await EditPod(at_s=0, name="p", labels={"runai-gpu-group": None}).perform(running)
        assert find(running, "p")["metadata"] == before


async def test_a_hand_over_is_deleted_under_the_binder() -> None:
    async with world("1x1x1GiB") as running:
        async with anyio.create_task_group() as group:
            group.start_soon(DeleteBindRequest(at_s=0, pod="p").perform, running)
            group.start_soon(CreatePod(at_s=0, name="p", annotations=HALF).perform, running)
        deleted = [
            e for e in running.server.audit if (e.user, e.verb, e.resource) == ("user", "delete", "bindrequests")
        ]
        assert [entry.code for entry in deleted] == [200]
        assert await running.until_idle()
        assert find(running, "p")["status"]["phase"] == "Running"
        assert not (await running.api.list(BIND_REQUESTS)).items


async def test_a_pod_groups_minimum_is_the_users_but_not_its_plan() -> None:
    async with world("1x1x1GiB") as running:
        await CreatePodGroup(at_s=0, name="g", minimum=2).perform(running)
        await ChangePodGroup(at_s=0, name="g", annotations={"moorage.dev/plan": "{}"}).perform(running)
        await ChangePodGroup(at_s=0, name="g", minimum=5).perform(running)
        group = await running.api.get(POD_GROUPS, "g", namespace="team")
        assert group.spec.min_member == 5
        assert not group.metadata.annotations
        await DeletePodGroup(at_s=0, name="g").perform(running)
        assert not (await running.api.list(POD_GROUPS)).items


async def test_a_reservation_with_tenants_is_not_deleted_by_hand() -> None:
    async with world("1x1x1GiB") as running:
        await CreatePod(at_s=0, name="p", annotations=HALF).perform(running)
        assert await running.until_idle()
        await DeleteReservation(at_s=0, number=7, grace_s=0).perform(running)
        (held,) = (await running.api.list(PODS, namespace="kai-resource-reservation")).items
        assert held.metadata.deletion_timestamp is None
