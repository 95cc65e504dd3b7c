"""What users and administrators do, as data and on a running cluster."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from kube.client import errors
from kube.client.resources import (
    BIND_REQUESTS,
    GPU_NODES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_GROUPS,
    PODS,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from simulator.world import World
from tests.simulator.apiserver.calls import send
from tests.simulator.mig.stage import NODE, stage
from tests.simulator.test_world import world
from verification.hostile.actions import (
    MAIN,
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
from verification.hostile.device_actions import (
    BIG_CLASS,
    SLOW_CLASS,
    AskLayout,
    ClaimAction,
    CreateClaimTemplate,
    CreateDeviceClasses,
    CreateExtendedClass,
    CreateResourceClaim,
    CreateStorageClasses,
    CreateVolume,
    CreateVolumeClaim,
    DeleteClaimsOf,
    DeleteClass,
    DeleteResourceClaim,
    DeleteVolumeClaim,
    ExtendedAction,
    ForgeClaim,
    Offered,
    OfferGpus,
    PublishDevices,
    RunDriver,
    Want,
    WithdrawDevices,
    WithdrawLayouts,
)
from verification.hostile.queue_actions import (
    CreateBudget,
    CreateOwner,
    CreatePriorityClass,
    CreateQueue,
    DeleteBudget,
    DeleteOwner,
    DeleteQueue,
    EditBudget,
    EditQueue,
    MoveGroup,
    MoveNode,
    MovePod,
    MoveQueue,
)
from wire import names

VIRTUAL_TIME = True

# What users do, as data and on a running cluster.

HALF = {"gpu-fraction": "0.5"}


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


# What users do with ResourceClaims and volumes in hostile runs: pods get what they ask, and nothing is an error.

DEVICES = (Offered(name="d0"), Offered(name="d1", is_big=True), Offered(name="d2", shared_gib=16))
WANTS = (Want(), Want(cls=BIG_CLASS), Want(part_gib=4), Want(count=0, tolerates=True), Want(otherwise=BIG_CLASS))
EACH: tuple[ClaimAction, ...] = (
    CreateDeviceClasses(at_s=0),
    PublishDevices(at_s=0, node="node-0", devices=DEVICES, generation=2, slices=2),
    RunDriver(at_s=0, until_s=10, takes_s=1.0, seed=1),
    WithdrawDevices(at_s=0, node="node-0"),
    CreateClaimTemplate(at_s=0, name="t", wants=WANTS),
    CreateResourceClaim(at_s=0, name="c", wants=WANTS),
    DeleteResourceClaim(at_s=0, name="c"),
    CreateStorageClasses(at_s=0),
    CreateVolume(at_s=0, name="pv", node="node-0"),
    CreateVolumeClaim(at_s=0, name="v", cls=SLOW_CLASS, is_shared=True),
    DeleteVolumeClaim(at_s=0, name="v"),
)


async def test_every_action_comes_back_from_json_and_may_come_twice_or_in_vain() -> None:
    assert {type(each) for each in EACH} == set(ClaimAction.__args__)
    assert msgspec.json.decode(msgspec.json.encode(EACH), type=tuple[Action, ...]) == EACH
    async with world("1x1x80GiB") as made:
        for action in (*reversed(EACH), *EACH, *EACH):
            await action.perform(made)


async def _perform(made: World, *actions: Action) -> None:
    for action in actions:
        await action.perform(made)
    await anyio.sleep(30)


async def test_pods_with_claims_by_name_from_templates_and_of_volumes_run() -> None:
    async with world("2x1x80GiB") as made:
        await _perform(
            made,
            CreateDeviceClasses(at_s=0),
            CreateStorageClasses(at_s=0),
            PublishDevices(at_s=0, node="node-1", devices=DEVICES),
            CreateClaimTemplate(at_s=0, name="t", wants=(Want(cls=BIG_CLASS), Want(part_gib=4))),
            CreateResourceClaim(at_s=0, name="c", wants=(Want(),)),
            CreateVolumeClaim(at_s=0, name="v"),
            CreatePod(at_s=0, name="p", templates=("t",), volumes=("v",)),
            CreatePod(at_s=0, name="q", claims=("c",)),
        )
        assert {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in made.pods} == {
            "p": "node-1",
            "q": "node-1",
        }
        claims = (await made.api.list(RESOURCE_CLAIMS, namespace="team")).items
        given = {each.device for claim in claims for each in claim.status.allocation.devices.results or ()}  # type: ignore[union-attr]
        assert given == {"d0", "d1", "d2"}
        (volume,) = (await made.api.list(PERSISTENT_VOLUME_CLAIMS, namespace="team")).items
        assert volume.spec.volume_name


async def test_pods_of_a_pod_group_of_kubernetes_share_the_claim_that_was_made_for_it() -> None:
    async with world("2x1x80GiB") as made:
        await _perform(
            made,
            CreateDeviceClasses(at_s=0),
            PublishDevices(at_s=0, node="node-1", devices=DEVICES),
            CreateClaimTemplate(at_s=0, name="t", wants=(Want(count=5),)),
            CreateResourceClaim(at_s=0, name="of-g", wants=(Want(),), pod_group="g"),
            *(CreatePod(at_s=0, name=name, templates=("t",), workload_group="g", group="gang") for name in "pq"),
            CreatePod(at_s=0, name="other", templates=("t",), workload_group="h"),
            CreatePodGroup(at_s=0, name="gang", minimum=2),
        )
        nodes = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in made.pods}
        assert nodes == {"p": "node-1", "q": "node-1", "other": None}
        claim = await made.api.get(RESOURCE_CLAIMS, "of-g", namespace="team")
        assert sorted(each.name for each in claim.status.reserved_for or ()) == ["p", "q"]


async def test_a_driver_that_publishes_again_removes_what_was_before() -> None:
    async with world("1x1x80GiB") as made:
        for generation in (1, 2):
            await _perform(
                made, PublishDevices(at_s=0, node="node-0", devices=DEVICES, generation=generation, slices=2)
            )
        listed = (await made.api.list(RESOURCE_SLICES)).items
        assert sorted(each.metadata.name for each in listed) == ["node-0-2-0", "node-0-2-1"]
        await _perform(made, WithdrawDevices(at_s=0, node="node-0"))
        assert (await made.api.list(RESOURCE_SLICES)).items == []


# What is done about claims for extended resources in hostile runs: pods get what they ask, and nothing is an error.

RESOURCE = "example.com/accelerator"
CLASS = CreateExtendedClass(at_s=0, name="big", resource=RESOURCE, is_big=True)
POD = CreatePod(at_s=0, name="p", limits={MAIN: {RESOURCE: "1"}})
EXTENDED_ACTIONS_DEVICES = PublishDevices(
    at_s=0, node="node-0", devices=(Offered(name="d0"), Offered(name="d1", is_big=True))
)
EXTENDED_ACTIONS_EACH: tuple[ExtendedAction, ...] = (
    CLASS,
    DeleteClaimsOf(at_s=0, pod="p"),
    ForgeClaim(at_s=0, name="forged", pod="p", cls="big"),
    DeleteClass(at_s=0, name="big"),
)


async def _claims(made: World) -> dict[str, list[str]]:
    """Devices of each claim, by its name."""
    return {
        claim.metadata.name: [each.device for each in claim.status.allocation.devices.results or ()]
        if claim.status.allocation is not None
        else []
        for claim in (await made.api.list(RESOURCE_CLAIMS, namespace="team")).items
    }


async def test_every_action_comes_back_from_json_and_may_come_twice_or_in_vain_in_extended_actions() -> None:
    assert {type(each) for each in EXTENDED_ACTIONS_EACH} == set(ExtendedAction.__args__)
    assert (
        msgspec.json.decode(msgspec.json.encode(EXTENDED_ACTIONS_EACH), type=tuple[Action, ...])
        == EXTENDED_ACTIONS_EACH
    )
    async with world("1x0") as made:
        for action in (
            *reversed(EXTENDED_ACTIONS_EACH),
            *EXTENDED_ACTIONS_EACH,
            POD,
            *EXTENDED_ACTIONS_EACH,
            *EXTENDED_ACTIONS_EACH,
        ):
            await action.perform(made)


async def test_a_pod_gets_a_device_of_the_class_that_stands_for_what_it_asks() -> None:
    async with world("1x0") as made:
        await _perform(made, CLASS, EXTENDED_ACTIONS_DEVICES, POD)
        assert [*(await _claims(made)).values()] == [["d1"]]
        assert [pod["spec"].get("nodeName") for pod in made.pods] == ["node-0"]


async def test_a_claim_that_is_forged_for_a_pod_that_waits_is_removed_and_the_pod_gets_its_own() -> None:
    async with world("1x0") as made:
        await _perform(
            made, POD, ForgeClaim(at_s=0, name="forged", pod="p", cls="big"), CLASS, EXTENDED_ACTIONS_DEVICES
        )
        ((name, devices),) = (await _claims(made)).items()
        assert (name != "forged", devices) == (True, ["d1"])


async def test_claims_of_the_named_pod_alone_are_deleted() -> None:
    async with world("1x0") as made:
        await _perform(made, POD, ForgeClaim(at_s=0, name="forged", pod="p", cls="big"))
        await DeleteClaimsOf(at_s=0, pod="q").perform(made)
        found = await _claims(made)
        await DeleteClaimsOf(at_s=0, pod="p").perform(made)
        assert (len(found), await _claims(made)) == (len(found), {})


# What administrators do with MIG slices in hostile runs.


@pytest.mark.parametrize(
    "action",
    [
        AskLayout(at_s=0, node="none", attempt="a", slices=("1g.10gb@0",)),
        WithdrawLayouts(at_s=0, node="none"),
        OfferGpus(at_s=0, node="none"),
    ],
)
async def test_what_is_not_there_is_no_error_and_every_action_comes_back_from_json(action: Action) -> None:
    async with stage() as on:
        await action.perform(on.world)
    assert msgspec.json.decode(msgspec.json.encode((action,)), type=tuple[Action, ...]) == (action,)


async def test_a_layout_is_asked_for_and_made() -> None:
    async with stage("1g.10gb@0") as on:
        await anyio.sleep(10)
        slices = ("2g.20gb@0", "3g.40gb@4")
        await AskLayout(at_s=0, node=NODE, attempt="a", slices=slices).perform(on.world)
        await anyio.sleep(30)
        assert on.spots == list(slices)


async def test_what_is_asked_is_taken_back() -> None:
    async with stage("1g.10gb@0") as on:
        await anyio.sleep(10)
        await AskLayout(at_s=0, node=NODE, attempt="a", slices=("7g.80gb@0",)).perform(on.world)
        await WithdrawLayouts(at_s=0, node=NODE).perform(on.world)
        assert (await on.world.api.get(GPU_NODES, NODE)).spec.mig is None
        await anyio.sleep(30)
        assert on.spots == ["1g.10gb@0"]


@pytest.mark.parametrize("is_offered", [True, False])
async def test_a_node_is_offered_or_not(is_offered: bool) -> None:
    async with stage() as on:
        await OfferGpus(at_s=0, node=NODE, is_offered=is_offered).perform(on.world)
        labels = (await on.world.api.get(NODES, NODE)).metadata.labels or {}
        assert (names.NODE_MIG in labels) == is_offered


# What people do about node pools in hostile runs.


@pytest.mark.parametrize(
    "action",
    [
        MoveNode(at_s=0, node="none", pool="a"),
        MovePod(at_s=0, pod="none", pool="a"),
        MoveGroup(at_s=0, group="none", pool="a"),
        MoveQueue(at_s=0, queue="none", pool="a"),
    ],
)
async def test_what_is_not_there_is_no_error_and_every_action_comes_back_from_json_in_pool_actions(
    action: Action,
) -> None:
    async with world("1x1x80GiB") as made:
        await action.perform(made)
    assert msgspec.json.decode(msgspec.json.encode((action,)), type=tuple[Action, ...]) == (action,)


@pytest.mark.parametrize("pool", ["a", ""])
async def test_nodes_pods_and_gangs_get_a_pool_and_lose_it(pool: str) -> None:
    async with world("1x1x80GiB") as made:
        labels = {names.NODE_POOL_LABEL: "b"}
        await CreatePodGroup(at_s=0, name="g", minimum=1, labels=labels).perform(made)
        await CreatePod(at_s=0, name="p", labels=labels).perform(made)
        moves = MoveNode(at_s=0, node="node-0", pool=pool), MovePod(at_s=0, pod="p", pool=pool)
        for move in (*moves, MoveGroup(at_s=0, group="g", pool=pool)):
            await move.perform(made)
        found = (
            await made.api.get(NODES, "node-0"),
            await made.api.get(PODS, "p", namespace="team"),
            await made.api.get(POD_GROUPS, "g", namespace="team"),
        )
        assert [(each.metadata.labels or {}).get(names.NODE_POOL_LABEL, "") for each in found] == [pool] * 3


# What administrators do to queues in hostile runs, on a running cluster.

FREE = {"cpu": {"limit": -1.0}, "memory": {"limit": -1.0}}
QUEUE_ACTIONS_EVERYTHING: tuple[Action, ...] = (
    CreateQueue(at_s=1.0, name="a", parent="b", priority=50, resources={"gpu": {"limit": 0.3}}),
    EditQueue(at_s=1.0, name="a", parent="", resources={"gpu": {"quota": -2}}),
    DeleteQueue(at_s=1.0, name="a"),
    CreatePriorityClass(at_s=1.0, name="train", value=50),
    CreateOwner(at_s=1.0, name="owner"),
    DeleteOwner(at_s=1.0, name="owner"),
    CreatePodGroup(at_s=1.0, name="g", minimum=2, queue="a", preemptibility="preemptible"),
    ChangePodGroup(at_s=1.0, name="g", queue="b", preemptibility="non-preemptible"),
)


def test_every_action_comes_back_from_json_in_queue_actions() -> None:
    assert (
        msgspec.json.decode(msgspec.json.encode(QUEUE_ACTIONS_EVERYTHING), type=tuple[Action, ...])
        == QUEUE_ACTIONS_EVERYTHING
    )


@pytest.mark.parametrize(
    "action", QUEUE_ACTIONS_EVERYTHING[1:3] + QUEUE_ACTIONS_EVERYTHING[4:], ids=lambda action: type(action).__name__
)
async def test_what_is_not_there_or_not_allowed_is_no_error(action: Action) -> None:
    async with world("1x1x80GiB", checks_queues=True) as made:
        await action.perform(made)


async def test_a_queue_is_made_changed_and_deleted() -> None:
    async with world("1x1x80GiB") as made:
        for action in QUEUE_ACTIONS_EVERYTHING[:2]:
            await action.perform(made)
        (queue,) = (await made.api.list(QUEUES)).items
        assert (queue.metadata.name, queue.spec.parent_queue, queue.spec.priority) == ("a", "", 50)
        resources = queue.spec.resources
        assert resources is not None
        assert resources.gpu is not None
        assert (resources.gpu.quota, resources.gpu.limit) == (-2, 0.3)
        await QUEUE_ACTIONS_EVERYTHING[2].perform(made)
        assert (await made.api.list(QUEUES)).items == []


@pytest.mark.parametrize(("checks_queues", "limit"), [(True, 0.3), (False, -2)])
async def test_an_amount_without_meaning_is_stored_where_admission_is_not_asked(
    checks_queues: bool, limit: float
) -> None:
    async with world("1x1x80GiB", checks_queues=checks_queues) as made:
        await QUEUE_ACTIONS_EVERYTHING[0].perform(made)
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
        for action in (limited, QUEUE_ACTIONS_EVERYTHING[3], QUEUE_ACTIONS_EVERYTHING[4], of("p"), of("q")):
            await action.perform(made)
        await anyio.sleep(10)
        pods = (await made.api.list(PODS, namespace="team")).items
        assert sorted(bool(pod.spec.node_name) for pod in pods) == [False, True]
        assert {pod.spec.priority for pod in pods} == {50}
        await QUEUE_ACTIONS_EVERYTHING[5].perform(made)
        await anyio.sleep(60)
        assert (await made.api.list(PODS, namespace="team")).items == []


# Budgets that users make in hostile runs, counted by the disruption controller of the simulated cluster.

BUDGET = "/apis/policy/v1/namespaces/team/poddisruptionbudgets/b"
MADE = CreateBudget(at_s=0, name="b", least=1, labels={"team": "a"})


@pytest.mark.parametrize("action", [EditBudget(at_s=0, name="b", least=1), DeleteBudget(at_s=0, name="b")])
async def test_what_is_not_there_is_no_error_and_every_action_comes_back_from_json_in_preemption_actions(
    action: Action,
) -> None:
    async with world("1x1x80GiB") as made:
        await action.perform(made)
    assert msgspec.json.decode(msgspec.json.encode((MADE, action)), type=tuple[Action, ...]) == (MADE, action)


async def _status(made: Any) -> dict[str, Any]:
    await anyio.sleep(1)
    answer = await send(made.server.transport(), "GET", BUDGET)
    status: dict[str, Any] = msgspec.json.decode(answer.body)["status"]
    return status


async def test_a_budget_is_counted_as_its_pods_come_and_go_and_forbids_evictions() -> None:
    async with world("1x4x80GiB") as made:
        for name in ("p", "q"):
            await CreatePod(at_s=0, name=name, gpus=1, labels={"team": "a"}).perform(made)
        await MADE.perform(made)
        await anyio.sleep(10)
        assert (await _status(made))["disruptionsAllowed"] == 1
        await made.api.evict("team", "p")
        status = await _status(made)
        assert (status["disruptionsAllowed"], status["currentHealthy"]) == (0, 1)
        with pytest.raises(errors.TooManyRequests):
            await made.api.evict("team", "q")
        await EditBudget(at_s=0, name="b", least=0).perform(made)
        assert (await _status(made))["disruptionsAllowed"] == 1
        await made.api.evict("team", "q")
        await anyio.sleep(60)
        status = await _status(made)
        assert (status["disruptionsAllowed"], status["expectedPods"]) == (0, 0)
        assert not status.get("disruptedPods")
        assert (await made.api.list(PODS, namespace="team")).items == []
