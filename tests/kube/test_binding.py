"""Binding, reading and fencing a pod on the in-memory API server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import anyio
import pytest

from gpu.attempts import fences
from gpu.grant import BoundMetadata
from kube import binding
from kube.binding import Accepted, FenceText, Identity, NotAccepted
from kube.client.api import Api
from kube.client.errors import Conflict
from kube.client.resources import PODS
from kube.client.retry import Retry
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import NOTHING, Fault, once
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from tests.values import of_kind, there
from wire.core import Pod

VIRTUAL_TIME = True

METADATA = BoundMetadata({"runai-gpu-group": "g"}, {"received-resource-type": "Fraction"})
TEXT = FenceText("DeviceTaken: full", "Failed to bind pod team/p to node n: full")


class Team:
    def __init__(self, server: MemoryApiServer, clock: VirtualClock) -> None:
        self.server = server
        self.clock = clock
        self.api = Api(server.transport("binder"), retry=Retry(random.Random(1)))

    async def pod(self, **spec: object) -> Pod:
        body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
        return await self.api.create(PODS, body, namespace="team")

    async def post(self, pod: Pod, rv: str = "") -> Accepted | NotAccepted:
        rv = rv or pod.metadata.resource_version
        return await binding.post(self.api, identity(pod), rv=rv, node="n", metadata=METADATA)

    async def fence(self, pod: Pod, attempt: str = "a") -> Pod | None:
        rv = pod.metadata.resource_version
        return await binding.fence(self.api, identity(pod), rv=rv, attempt=attempt, text=TEXT, clock=self.clock)

    async def get(self) -> Pod:
        return await self.api.get(PODS, "p", namespace="team")


@pytest.fixture
async def team() -> AsyncIterator[Team]:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(2), auto_namespaces=True)
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.run)
        path = "/api/v1/namespaces/team/serviceaccounts"
        body = b'{"metadata": {"name": "default"}}'
        await server.transport().request("POST", path, query={}, body=body, timeout_s=1)
        yield Team(server, clock)
        tasks.cancel_scope.cancel()


def identity(pod: Pod) -> Identity:
    return Identity("team", pod.metadata.name, pod.metadata.uid)


async def test_one_write_binds_and_says_all(team: Team) -> None:
    pod = await team.pod()
    assert await team.post(pod) == Accepted()
    bound = await team.get()
    assert bound.spec.node_name == "n"
    assert (bound.metadata.labels, bound.metadata.annotations) == (METADATA.labels, METADATA.annotations)
    assert [entry.subresource for entry in team.server.audit if entry.verb == "create"][-1] == "binding"


async def test_a_pod_that_changed_or_is_bound_or_another_is_not_bound(team: Team) -> None:
    pod = await team.pod()
    assert isinstance(await team.post(pod, rv="1"), NotAccepted)
    other = Identity("team", "p", "another")
    rv = pod.metadata.resource_version
    refused = of_kind(NotAccepted, await binding.post(team.api, other, rv=rv, node="n", metadata=METADATA))
    assert not refused.is_unknown
    assert not (await team.get()).spec.node_name
    await team.post(pod)
    assert isinstance(await team.post(await team.get()), NotAccepted)


@pytest.mark.parametrize("lost", ["request", "answer"])
async def test_a_binding_without_answer_may_have_landed(team: Team, lost: str) -> None:
    pod = await team.pod()
    fault = Fault(lost="request") if lost == "request" else Fault(lost="answer")
    team.server.faults.on_request.append(lambda call: fault if call.subresource == "binding" else NOTHING)
    posted = of_kind(NotAccepted, await team.post(pod))
    assert posted.is_unknown
    found = there(await binding.read(team.api, identity(pod)))
    assert bool(found.spec.node_name) is (lost == "answer")


async def test_a_later_pod_of_that_name_is_not_the_one_that_is_read(team: Team) -> None:
    pod = await team.pod()
    await team.api.delete(PODS, "p", namespace="team", grace_s=0)
    assert await binding.read(team.api, identity(pod)) is None
    await team.pod()
    assert await binding.read(team.api, identity(pod)) is None


async def test_after_the_fence_no_binding_at_the_old_version_lands(team: Team) -> None:
    pod = await team.pod()

    def late(call: Call) -> Fault:
        return Fault(lost="request", lands_after_s=30.0) if call.subresource == "binding" else NOTHING

    team.server.faults.on_request.append(late)
    await team.post(pod)
    assert await team.fence(pod) is not None
    await anyio.sleep(60)
    assert not (await team.get()).spec.node_name


async def test_a_second_fence_for_the_same_reason_in_the_same_second_is_one_as_well(team: Team) -> None:
    pod = await team.pod()
    for _ in range(2):
        rv = pod.metadata.resource_version
        fenced = there(await team.fence(pod, binding.named_at("plan", rv)))
        assert isinstance(await team.post(pod, rv), NotAccepted)
        pod = fenced


async def test_a_second_fence_does_not_hide_the_first(team: Team) -> None:
    pod = await team.pod()
    once = there(await team.fence(pod, "a"))
    twice = there(await team.fence(once, "b"))
    assert fences(twice.metadata.annotations) == ("b", "a")


async def test_the_fence_tells_the_scheduler_and_people_why_and_keeps_other_conditions(team: Team) -> None:
    pod = await team.pod()
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    patch = {"status": {"conditions": [condition]}}
    pod = await team.api.patch(PODS, "p", patch, namespace="team", subresource="status")
    fenced = there(await team.fence(pod))
    assert fenced.metadata.annotations == {"moorage.dev/fenced": "a", "moorage.dev/fenced-because": "DeviceTaken: full"}
    told = {c.type: (c.status, c.reason, c.message) for c in fenced.status.conditions or ()}
    assert told == {
        "PodScheduled": ("False", "Unschedulable", "no room"),
        "PodBound": ("False", "BindingError", "Failed to bind pod team/p to node n: full"),
    }
    again = there(await team.fence(fenced))
    assert sorted(c.type for c in again.status.conditions or ()) == ["PodBound", "PodScheduled"]


async def test_a_pod_at_another_version_is_not_fenced(team: Team) -> None:
    pod = await team.pod()
    await team.api.patch(PODS, "p", {"metadata": {"labels": {"x": "y"}}}, namespace="team")
    before = len(team.server.write_log)
    assert await team.fence(pod) is None
    assert len(team.server.write_log) == before
    await team.api.delete(PODS, "p", namespace="team", grace_s=0)
    assert await team.fence(pod) is None


@pytest.mark.parametrize("meetings", [0, 1, 4, 5])
async def test_a_bound_pod_is_told_though_others_write_its_status_too(team: Team, meetings: int) -> None:
    pod = await team.pod()
    await team.post(pod)
    left = iter(range(meetings))

    def meet(call: Call) -> Fault:
        is_ours = call.verb == "patch" and call.subresource == "status"
        return Fault(refuse_with=409) if is_ours and next(left, None) is not None else NOTHING

    team.server.faults.on_request.append(meet)
    await binding.tell_bound(team.api, identity(pod), node="n", clock=team.clock)
    told = [c for c in (await team.get()).status.conditions or () if c.type == "PodBound"]
    assert [(c.status, c.reason, c.message) for c in told] == (
        [("True", "Bound", "Pod bound successfully to node n")] if meetings < 5 else []
    )


async def test_a_pod_that_is_not_bound_there_is_told_nothing(team: Team) -> None:
    pod = await team.pod()
    before = len(team.server.write_log)
    await binding.tell_bound(team.api, identity(pod), node="n", clock=team.clock)
    await binding.tell_bound(team.api, Identity("team", "p", "another"), node="n", clock=team.clock)
    assert len(team.server.write_log) == before


async def test_a_fence_that_is_refused_though_the_pod_did_not_change_is_not_answered(team: Team) -> None:
    pod = await team.pod()
    refused = once(Fault(refuse_with=409), when=lambda call: call.verb == "patch")
    team.server.faults.on_request.append(refused)
    with pytest.raises(Conflict):
        await team.fence(pod)
    assert await team.fence(pod) is not None


async def test_a_condition_that_somebody_wrote_meanwhile_is_kept_when_a_bound_pod_is_told(team: Team) -> None:
    pod = await team.pod()
    await team.post(pod)
    left = iter([1])

    def slow(call: Call) -> Fault:
        is_ours = call.verb == "patch" and call.subresource == "status" and call.user == "binder"
        return Fault(delay_s=1.0) if is_ours and next(left, None) else NOTHING

    team.server.faults.on_request.append(slow)
    other = Api(team.server.transport("kubelet"), retry=Retry(random.Random(1)))
    async with anyio.create_task_group() as tasks:

        async def tell() -> None:
            await binding.tell_bound(team.api, identity(pod), node="n", clock=team.clock)

        tasks.start_soon(tell)
        await anyio.sleep(0.5)
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await other.patch(PODS, "p", ready, namespace="team", subresource="status")
    found = {condition.type for condition in (await team.get()).status.conditions or ()}
    assert {"Ready", "PodBound"} <= found
