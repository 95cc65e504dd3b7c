"""A tenant rewrites what its placed pods are charged for: their queue, their group, whether they may be preempted.

Each on one machine of four GPUs, beside the team of another namespace, with queues of its own for each case.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final

import pytest
from kubernetes_asyncio import client
from typing_extensions import override

from tests.e2e.cluster import PATIENCE_S, Pod, eventually, pod, scene, scheduled_message, share
from tests.e2e.teams import Teams
from tests.e2e.tenant import Identity, tenant
from tests.e2e.workloads import Json
from tools.cluster.deployment import Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

_QUEUES: Final = (names.SCHEDULING_GROUP, "v2", "queues")
_GROUP: Final = {"apiVersion": f"{names.SCHEDULING_GROUP}/v2alpha2", "kind": "PodGroup"}
_OURS, _THEIRS = "charges", "theirs"
_RBAC: Final = "rbac.authorization.k8s.io"
#: As the chart has it where an administrator chooses whose pods budgets protect.
_PAST_BUDGETS: Final[Json] = {
    "apiVersion": f"{_RBAC}/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "moorage-scheduler-past-budgets"},
    "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}],
}
_numbers = itertools.count()


def _binding(role: Json) -> Json:
    """The binding of a role to the scheduler."""
    account = {"kind": "ServiceAccount", "name": "moorage-scheduler", "namespace": names.SYSTEM_NAMESPACE}
    name = role["metadata"]["name"]
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _RBAC, "kind": role["kind"], "name": name},
        "subjects": [account],
    }


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of their own: once there is a Queue, pods elsewhere have to name one."""
    with ControlPlane() as started:
        yield started


@pytest.fixture(scope="module")
def charging(plane: ControlPlane) -> Iterator[Deployment]:
    # All GPUs may be reserved: there is one node.
    scheduler = ["--disruption-budgets=within-quota", "--reserved-nodes-percent=100"]
    arguments = {"binder": ["--idle-s", "1"], "scheduler": scheduler}
    with Deployment(plane, Options(arguments=arguments)) as deployment:
        for each in (_PAST_BUDGETS, _binding(_PAST_BUDGETS)):
            plane.apply(json.dumps(each))
        yield deployment
        deployment.check()


class Rivals(Teams):
    """Queues, the tenant who attacks (``ours``), and the team beside whose queues it wants (``theirs``)."""

    def __init__(self, teams: Teams, moorage: Deployment, ours: Identity) -> None:
        super().__init__(teams.on, moorage)
        self.ours = self.theirs = ours
        self._case = 0

    @override
    def name(self, queue: str) -> str:
        """The queue's name in the cluster: each case has its own."""
        return f"case-{self._case}-{queue}" if queue else ""

    def begin(self, case: int, theirs: Identity) -> None:
        """Begin a case: no queue and no pod of an earlier one is there."""
        self._case, self.theirs = case, theirs

    async def queues(self, **gpu: dict[str, float]) -> None:
        """Create queues, and wait until the scheduler knows them."""
        for queue, amounts in gpu.items():
            await self.queue(queue, "", more=None, **amounts)
        for queue in gpu:
            await self.known(queue, is_there=True)

    async def runs(self, who: Identity, queue: str, name: str, *, group: str = "", **asked: Any) -> Pod:
        """Create a pod of a queue, or of a PodGroup in it, and wait until it runs."""
        await self.submits(who, queue, name, group=group, **asked)

        async def is_running() -> Pod | None:
            found = await _pod(who, name)
            return found if found["status"]["phase"] == "Running" else None

        return await eventually(is_running, f"pod {name} to run", within_s=PATIENCE_S)

    async def submits(self, who: Identity, queue: str, name: str, *, group: str = "", **asked: Any) -> None:
        """Create a pod of one GPU."""
        wanted = pod(name, gpus=1, **asked)
        if group:
            spec = {"minMember": 1, "queue": self.name(queue)}
            await who.create_custom("podgroups", "v2alpha2", {**_GROUP, "metadata": {"name": group}, "spec": spec})
            wanted["metadata"]["annotations"][names.POD_GROUP_NAME] = group
        else:
            self.of(queue, wanted)
        await who.create(wanted, scene=self.on.namespace)

    async def outcome(self, who: Identity, name: str) -> str:
        """Wait until a pod is placed or is told why not; return the reason, "" for one that is placed."""

        async def known() -> str | None:
            found = await _pod(who, name)
            return "" if found["spec"].get("nodeName") else scheduled_message(found) or None

        return await eventually(known, f"pod {name} to be decided on", within_s=PATIENCE_S)

    async def end(self) -> None:
        """Delete all pods, PodGroups and queues of a case."""
        for who in (self.ours, self.theirs):
            listed = await who.core.list_namespaced_pod(who.namespace)
            for each in listed.items:
                with contextlib.suppress(client.ApiException):  # it may have ended meanwhile
                    await self.on.core.delete_namespaced_pod(each.metadata.name, who.namespace)
            await self.on.custom.delete_collection_namespaced_custom_object(
                names.SCHEDULING_GROUP, "v2alpha2", who.namespace, "podgroups"
            )
            await eventually(lambda who=who: _is_empty(who), "the pods to go", within_s=PATIENCE_S)  # type: ignore[misc]
        for queue in (await self.on.custom.list_cluster_custom_object(*_QUEUES))["items"]:
            await self.on.custom.delete_cluster_custom_object(*_QUEUES, queue["metadata"]["name"])


async def _pod(who: Identity, name: str) -> Pod:
    answer = await who.core.read_namespaced_pod(name, who.namespace, _preload_content=False)
    found: Pod = json.loads(await answer.read())
    return found


async def _is_empty(who: Identity) -> bool | None:
    return not (await who.core.list_namespaced_pod(who.namespace)).items or None


@pytest.fixture(scope="module")
async def standing(plane: ControlPlane, charging: Deployment) -> AsyncIterator[Rivals]:
    async with scene(plane, _OURS, ["1x4x80GiB"], is_emptied=False) as on, tenant(plane, _OURS) as ours:
        yield Rivals(Teams(on, charging), charging, ours)


@pytest.fixture
async def at(plane: ControlPlane, standing: Rivals, charging: Deployment) -> AsyncIterator[Rivals]:
    """A case with a team of its own: one that ends what others were evicted for would wait in the next case."""
    charging.check()
    case = next(_numbers)
    theirs = f"{_THEIRS}-{case}"
    plane.rest().call("POST", "/api/v1/namespaces", {"metadata": {"name": theirs}})
    async with tenant(plane, theirs) as whoever:
        standing.begin(case, whoever)
        yield standing
        await standing.end()


# --- queues ------------------------------------------------------------------------------------------------------

Change = Callable[[Rivals], Awaitable[Any]]


def _patches_pod(annotations: Json | None = None, **labels: Callable[[Rivals], str | None]) -> Change:
    keys = {"queue": names.QUEUE_LABEL, "project": names.PROJECT_LABEL}

    async def change(at: Rivals) -> None:
        written = {keys[key]: value(at) for key, value in labels.items()}
        await at.ours.patch("placed", {"metadata": {"labels": written, "annotations": annotations or {}}})

    return change


async def _deletes_group(at: Rivals) -> None:
    await at.ours.custom.delete_namespaced_custom_object(
        names.SCHEDULING_GROUP, "v2alpha2", at.ours.namespace, "podgroups", "group"
    )


def _patches_group(**spec: Callable[[Rivals], Any]) -> Change:
    async def change(at: Rivals) -> None:
        patch = [{"op": "add", "path": f"/spec/{key}", "value": value(at)} for key, value in spec.items()]
        await at.ours.custom.patch_namespaced_custom_object(
            names.SCHEDULING_GROUP, "v2alpha2", at.ours.namespace, "podgroups", "group", patch
        )

    return change


async def _renames_group(at: Rivals) -> None:
    """Delete the group, and make one of its name in another queue."""
    await _deletes_group(at)
    spec = {"minMember": 1, "queue": at.name("b")}
    await at.ours.create_custom("podgroups", "v2alpha2", {**_GROUP, "metadata": {"name": "group"}, "spec": spec})


def _other(at: Rivals) -> str:
    return at.name("b")


def _none(at: Rivals) -> None:
    return None


#: Whether the pod is of a PodGroup, and how its owner takes it out of its queue.
MOVES: Final = {
    "relabelled": (False, _patches_pod(queue=_other)),
    "without a queue": (False, _patches_pod(queue=_none)),
    "in a project": (False, _patches_pod(queue=_none, project=_other)),
    "of a group that is not there": (
        False,
        _patches_pod({names.POD_GROUP_NAME: "nothing"}, queue=_none, project=_other),
    ),
    "its group deleted": (True, _deletes_group),
    "its group in another queue": (True, _patches_group(queue=_other)),
    "its group made again in another queue": (True, _renames_group),
    "of no group": (True, _patches_pod({names.POD_GROUP_NAME: None}, queue=_other)),
    "of another group": (True, _patches_pod({names.POD_GROUP_NAME: "nothing"}, queue=_other)),
}


@pytest.mark.parametrize("way", MOVES)
async def test_a_placed_pod_counts_for_the_queue_in_which_it_was_placed(at: Rivals, way: str) -> None:
    is_of_group, change = MOVES[way]
    await at.queues(a={"limit": 1}, b={"limit": 1})
    await at.runs(at.ours, "a", "placed", group="group" if is_of_group else "")
    with contextlib.suppress(client.ApiException):  # it may be refused, or change nothing
        await change(at)
    await at.submits(at.ours, "a", "second")
    assert "quota has reached the allowable limit of GPUs" in await at.outcome(at.ours, "second")
    await at.runs(at.theirs, "b", "honest")


@pytest.mark.parametrize("way", ["in a project", "of a group that is not there", "relabelled"])
async def test_a_placed_pod_is_charged_to_no_queue_that_its_namespace_may_not_name(at: Rivals, way: str) -> None:
    await at.queues(a={}, b={"limit": 1})
    await _bind(at, at.name("a"))
    await at.runs(at.ours, "a", "placed")
    with contextlib.suppress(client.ApiException):
        await MOVES[way][1](at)
    await at.runs(at.theirs, "b", "honest")
    await _bind(at, None)


async def _bind(at: Rivals, queue: str | None) -> None:
    """Have the namespace of the tenant name this queue only."""
    await at.on.core.patch_namespace(at.ours.namespace, {"metadata": {"annotations": {names.QUEUES: queue}}})

    async def is_so() -> bool | None:
        foreign = at.of("b", share("trial", "0.5"))
        try:
            await at.ours.core.create_namespaced_pod(at.ours.namespace, foreign, dry_run="All")
        except client.ApiException:
            return (queue is not None) or None
        return (queue is None) or None

    await eventually(is_so, "the namespace to be bound to its queue", within_s=PATIENCE_S)


# --- preemptibility ----------------------------------------------------------------------------------------------


async def _labels_pods(at: Rivals) -> None:
    for each in (await at.ours.core.list_namespaced_pod(at.ours.namespace)).items:
        patch = {"metadata": {"labels": {names.PREEMPTIBILITY_LABEL: "non-preemptible"}}}
        await at.ours.patch(each.metadata.name, patch)


#: How an owner has its running pods seen as such that nobody may evict.
FASTENED: Final = {
    "its pods labelled": (False, _labels_pods),
    "its group non-preemptible": (True, _patches_group(preemptibility=lambda _: "non-preemptible")),
    "its group of high priority": (True, _patches_group(priorityClassName=lambda _: "system-cluster-critical")),
    "its group deleted and its pods labelled": (True, _deletes_group),
}


@pytest.mark.parametrize("way", FASTENED)
async def test_a_queue_gets_its_quota_back_from_pods_that_were_preemptible_when_they_were_placed(
    at: Rivals, way: str
) -> None:
    is_of_group, change = FASTENED[way]
    await at.queues(a={"quota": 0}, b={"quota": 1, "weight": 0})
    await at.runs(at.ours, "a", "placed", group="group" if is_of_group else "")
    for number in range(3):
        name = f"more-{number}"
        wanted = pod(name, gpus=1)
        if is_of_group:
            wanted["metadata"]["annotations"][names.POD_GROUP_NAME] = "group"
        await at.ours.create(wanted if is_of_group else at.of("a", wanted))
    await at.on.running(4)
    with contextlib.suppress(client.ApiException):
        await change(at)
        if change is _deletes_group:
            await _labels_pods(at)
    await at.runs(at.theirs, "b", "owed")


# --- evictions ---------------------------------------------------------------------------------------------------


def _budget(number: int, values: int) -> Json:
    """A budget that lets no pod go. ``values``: those of labels that its selector names."""
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": [f"v{n}" for n in range(values)]}]}
    spec = {"maxUnavailable": 0, "selector": selector}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": f"b{number}"}, "spec": spec}


#: Budgets of a tenant, by the number of values in each one's selector; one plain budget: tests/e2e/test_past_budgets.
BUDGETS: Final = {"two, under which the API server evicts nobody": [1, 1], "one of many values": [1000]}


@pytest.mark.parametrize("way", BUDGETS)
async def test_where_an_administrator_says_so_budgets_protect_no_pod_above_the_quota(at: Rivals, way: str) -> None:
    await at.queues(a={"quota": 0}, b={"quota": 1, "weight": 0})
    budgets = [_budget(*each) for each in enumerate(BUDGETS[way])]
    for each in budgets:
        await at.ours.custom.create_namespaced_custom_object(
            "policy", "v1", at.ours.namespace, "poddisruptionbudgets", each
        )
    for number in range(4):
        await at.submits(at.ours, "a", f"fixed-{number}", labels={"app": "v0"})
    await at.on.running(4)
    await at.runs(at.theirs, "b", "owed")
    for each in budgets:
        await at.ours.custom.delete_namespaced_custom_object(
            "policy", "v1", at.ours.namespace, "poddisruptionbudgets", each["metadata"]["name"]
        )


async def test_a_tenant_who_gives_up_again_and_again_what_others_were_evicted_for_waits(at: Rivals) -> None:
    await at.queues(a={"quota": 0}, b={"quota": 1, "weight": 0})
    for number in range(4):
        await at.submits(at.theirs, "a", f"victim-{number}")
    told = ""
    for number in range(4):
        await _running(at.theirs, 4)
        await at.submits(at.ours, "b", f"taker-{number}")
        if told := await _taken(at, f"taker-{number}"):
            break
        await at.ours.core.delete_namespaced_pod(f"taker-{number}", at.ours.namespace)
        await at.submits(at.theirs, "a", f"victim-{number + 4}")
    assert "ended again and again soon after others were evicted for them" in told
    assert len(await _running(at.theirs, 4)) == 4


async def _running(who: Identity, count: int) -> list[str]:
    async def enough() -> list[str] | None:
        listed = (await who.core.list_namespaced_pod(who.namespace)).items
        found = [each.metadata.name for each in listed if each.status.phase == "Running"]
        return found if len(found) >= count else None

    return await eventually(enough, f"{count} pods of {who.namespace} to run", within_s=PATIENCE_S)


async def _taken(at: Rivals, name: str) -> str:
    """Wait until a pod is placed, or is told that nobody is evicted for it; return what it is told."""

    async def known() -> str | None:
        found = await _pod(at.ours, name)
        message = scheduled_message(found)
        return "" if found["spec"].get("nodeName") else message if "is evicted for it until" in message else None

    return await eventually(known, f"pod {name} to be placed or told", within_s=PATIENCE_S)


# --- what others read --------------------------------------------------------------------------------------------


async def test_a_victim_is_not_told_the_workload_of_another_namespace_that_took_its_place(at: Rivals) -> None:
    await at.queues(a={"quota": 0}, b={"quota": 4, "weight": 0})
    for number in range(4):
        await at.submits(at.ours, "a", f"victim-{number}")
    await at.on.running(4)
    owed = await at.runs(at.theirs, "b", "owed-by-name", group="secret-group")

    async def told() -> list[str] | None:
        listed = await at.ours.core.list_namespaced_event(at.ours.namespace, field_selector="reason=Evict")
        return [each.message for each in listed.items if each.involved_object.name.startswith("victim-")] or None

    for message in await eventually(told, "the event of the victim", within_s=PATIENCE_S):
        assert at.name("b") in message
        for secret in (_THEIRS, "secret-group", "owed-by-name", owed["metadata"]["uid"]):
            assert secret not in message


async def test_a_pod_that_waits_beside_a_reserve_is_not_told_whose_it_is(at: Rivals) -> None:
    await at.queues(a={"quota": 2}, b={"quota": 4})
    patience = {"metadata": {"annotations": {names.PATIENCE: "1s"}}}
    await at.on.custom.patch_cluster_custom_object(
        *_QUEUES,
        at.name("b"),
        [{"op": "add", "path": "/metadata/annotations", "value": patience["metadata"]["annotations"]}],
    )
    for number in range(2):
        labels = {names.PREEMPTIBILITY_LABEL: "non-preemptible"}
        await at.submits(at.ours, "a", f"fixed-{number}", labels=labels)
    await at.on.running(2)
    large = at.of("b", pod("secret-name", gpus=4))
    await at.theirs.create(large, scene=at.on.namespace)

    async def has_reserve() -> bool | None:
        return "its place is being freed" in scheduled_message(await _pod(at.theirs, "secret-name")) or None

    await eventually(has_reserve, "the large pod to have its node reserve", within_s=PATIENCE_S)
    await at.submits(at.ours, "a", "beside")
    message = await at.outcome(at.ours, "beside")
    assert "kept" in message
    assert "secret-name" not in message
    assert _THEIRS not in message


# --- pods that nobody sees ---------------------------------------------------------------------------------------


async def test_a_share_deleted_by_force_counts_for_its_queue_as_long_as_it_is_kept(at: Rivals) -> None:
    await at.queues(a={"limit": 1})
    endless = at.of("a", share("endless", "0.8"))
    endless["spec"]["terminationGracePeriodSeconds"] = 100_000
    await at.ours.create(endless)
    await at.on.running(1)
    await at.ours.core.delete_namespaced_pod("endless", at.ours.namespace, grace_period_seconds=0)
    await at.ours.create(at.of("a", share("second", "0.8")))
    assert "quota has reached the allowable limit of GPUs" in await at.outcome(at.ours, "second")


async def test_a_pod_whose_object_a_finalizer_keeps_counts_until_it_has_ended_and_no_longer(at: Rivals) -> None:
    await at.queues(a={"limit": 1})
    await at.runs(at.ours, "a", "kept", finalizers=["example.com/kept"])
    await at.submits(at.ours, "a", "second")
    assert "quota has reached the allowable limit of GPUs" in await at.outcome(at.ours, "second")
    await at.ours.core.delete_namespaced_pod("kept", at.ours.namespace)

    async def runs() -> bool | None:
        return (await _pod(at.ours, "second"))["status"]["phase"] == "Running" or None

    try:
        await eventually(runs, "pod second to run", within_s=PATIENCE_S)
        assert (await _pod(at.ours, "kept"))["status"]["phase"] == "Failed"
    finally:
        await at.ours.patch("kept", {"metadata": {"finalizers": None}})


# --- pods that grow ----------------------------------------------------------------------------------------------


async def test_a_pod_that_grows_in_place_counts_for_its_queue_with_what_it_asks_now(at: Rivals) -> None:
    """The API server lets a pod grow whose container's status has resources, as a kubelet that can resize writes."""
    limit = {"quota": 2000, "limit": 2000, "overQuotaWeight": 1}
    await at.queues(a={})
    await at.on.custom.patch_cluster_custom_object(
        *_QUEUES, at.name("a"), [{"op": "replace", "path": "/spec/resources/cpu", "value": limit}]
    )
    grows = at.of("a", pod("grows"))
    grows["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    await at.ours.create(grows)
    (name,) = await _running(at.ours, 1)
    statuses = (await _pod(at.ours, name))["status"]["containerStatuses"]
    statuses[0] |= {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}}
    await at.ours.patch(name, {"status": {"containerStatuses": statuses}}, subresource="status")
    await _resize(at, name, {"cpu": "50"}, annotations={names.CHARGED: "{}"})
    grown = await _pod(at.ours, name)
    assert grown["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "50"
    assert grown["metadata"]["annotations"][names.CHARGED] != "{}"
    second = at.of("a", pod("second"))
    second["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    await at.ours.create(second)
    assert "Limit is 2 cores, currently 50 cores allocated" in await at.outcome(at.ours, "second")


async def _resize(at: Rivals, name: str, requests: Json, **metadata: Json) -> None:
    """Grow a container, and try to write metadata by that: as an administrator, as ``edit`` may not resize."""
    body = {"metadata": metadata, "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}
    await at.on.core.patch_namespaced_pod_resize(name, at.ours.namespace, body)
