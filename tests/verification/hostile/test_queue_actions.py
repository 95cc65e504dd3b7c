"""What administrators do to queues in hostile runs, on a running cluster."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from kube.client.resources import PODS, QUEUES
from tests.conftest import AnyioBackend
from tests.simulator.test_world import world
from verification.hostile.actions import Action, ChangePodGroup, CreatePod, CreatePodGroup
from verification.hostile.queue_actions import (
    CreateOwner,
    CreatePriorityClass,
    CreateQueue,
    DeleteOwner,
    DeleteQueue,
    EditQueue,
)

FREE = {"cpu": {"limit": -1.0}, "memory": {"limit": -1.0}}
EVERYTHING: tuple[Action, ...] = (
    CreateQueue(at_s=1.0, name="a", parent="b", priority=50, resources={"gpu": {"limit": 0.3}}),
    EditQueue(at_s=1.0, name="a", parent="", resources={"gpu": {"quota": -2}}),
    DeleteQueue(at_s=1.0, name="a"),
    CreatePriorityClass(at_s=1.0, name="train", value=50),
    CreateOwner(at_s=1.0, name="owner"),
    DeleteOwner(at_s=1.0, name="owner"),
    CreatePodGroup(at_s=1.0, name="g", minimum=2, queue="a", preemptibility="preemptible"),
    ChangePodGroup(at_s=1.0, name="g", queue="b", preemptibility="non-preemptible"),
)


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


def test_every_action_comes_back_from_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(EVERYTHING), type=tuple[Action, ...]) == EVERYTHING


@pytest.mark.parametrize("action", EVERYTHING[1:3] + EVERYTHING[4:], ids=lambda action: type(action).__name__)
async def test_what_is_not_there_or_not_allowed_is_no_error(action: Action) -> None:
    async with world("1x1x80GiB", checks_queues=True) as made:
        await action.perform(made)


async def test_a_queue_is_made_changed_and_deleted() -> None:
    async with world("1x1x80GiB") as made:
        for action in EVERYTHING[:2]:
            await action.perform(made)
        (queue,) = (await made.api.list(QUEUES)).items
        assert (queue.metadata.name, queue.spec.parent_queue, queue.spec.priority) == ("a", "", 50)
        resources = queue.spec.resources
        assert resources is not None
        assert resources.gpu is not None
        assert (resources.gpu.quota, resources.gpu.limit) == (-2, 0.3)
        await EVERYTHING[2].perform(made)
        assert (await made.api.list(QUEUES)).items == []


@pytest.mark.parametrize(("checks_queues", "limit"), [(True, 0.3), (False, -2)])
async def test_an_amount_without_meaning_is_stored_where_admission_is_not_asked(
    checks_queues: bool, limit: float
) -> None:
    async with world("1x1x80GiB", checks_queues=checks_queues) as made:
        await EVERYTHING[0].perform(made)
        await EditQueue(at_s=0, name="a", resources={"gpu": {"limit": -2}}).perform(made)
        (queue,) = (await made.api.list(QUEUES)).items
        assert queue.spec.resources is not None
        assert queue.spec.resources.gpu is not None
        assert queue.spec.resources.gpu.limit == limit


async def test_pods_are_in_their_queue_have_its_priority_and_go_with_their_owner() -> None:
    def of(name: str, **more: Any) -> CreatePod:
        labels = {"kai.scheduler/queue": "a"}
        return CreatePod(at_s=0, name=name, gpus=1, labels=labels, priority_class="train", owner="owner", **more)

    async with world("1x4x80GiB") as made:
        limited = CreateQueue(at_s=0, name="a", resources={**FREE, "gpu": {"limit": 1}})
        for action in (limited, EVERYTHING[3], EVERYTHING[4], of("p"), of("q")):
            await action.perform(made)
        await anyio.sleep(10)
        pods = (await made.api.list(PODS, namespace="team")).items
        assert sorted(bool(pod.spec.node_name) for pod in pods) == [False, True]
        assert {pod.spec.priority for pod in pods} == {50}
        await EVERYTHING[5].perform(made)
        await anyio.sleep(60)
        assert (await made.api.list(PODS, namespace="team")).items == []
