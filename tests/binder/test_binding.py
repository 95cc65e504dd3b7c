"""From BindRequest to bound pod."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from gpu import grant as grants
from gpu.grant import DeviceGrant
from kube.client.resources import BIND_REQUESTS, EVENTS, PODS
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import NOTHING, Fault
from tests.binder.cluster import BINDER, HALF, KUBELET, TEAM, cluster
from wire import names


async def test_a_first_share_costs_six_writes() -> None:
    async with cluster() as it:
        pod = await it.pod()
        await it.hand_over(pod, "g")
        await it.until(it.is_bound)
        await anyio.sleep(5)
        assert sorted(it.writes(BINDER)) == [
            "create events",
            "create pods",
            "create pods/binding",
            "delete bindrequests",
        ]
        # With the scheduler's BindRequest and the reservation process's identity (kubelet's status is not ours): six.
        assert it.writes(KUBELET) == ["patch pods/status", "patch pods"]


async def test_in_a_burst_the_first_are_bound_before_the_last_are_begun() -> None:
    async with cluster(make_at_once=2) as it:
        it.server.faults.on_request.append(
            lambda call: (
                Fault(delay_s=3.0) if (call.user, call.subresource) == (BINDER, "") and call.verb == "create" else None
            )
        )
        for number in range(6):
            await it.hand_over(await it.pod(f"p{number}"), f"g{number}")
        await it.until(it.is_bound, "p0")
        assert len(await it.reservations()) < 6
        for number in range(6):
            await it.until(it.is_bound, f"p{number}")


async def test_a_bound_pod_carries_all_that_it_was_given() -> None:
    async with cluster() as it:
        pod = await it.bound()
        held = await it.reservation()
        assert pod.spec.node_name == "node-1"
        assert pod.metadata.labels == {"runai-gpu-group": "g"}
        annotations = pod.metadata.annotations or {}
        assert annotations["received-resource-type"] == "Fraction"
        assert annotations["moorage.dev/visible-devices.c0"] == "GPU-0"
        assert annotations["moorage.dev/gpu-portion"] == "0.50"
        grant = grants.read(annotations)
        assert grant is not None
        assert grant.devices == (DeviceGrant("g", held.metadata.uid, "GPU-0", HALF),)
        assert await it.requests() == []
        (event,) = (await it.api.list(EVENTS, namespace=TEAM)).items
        assert event.reason == "Scheduled"
        assert event.note == "Successfully assigned pod team/p to node node-1 at node-pool default"
        assert event.regarding is not None
        assert event.regarding.uid == pod.metadata.uid


async def test_the_reservation_pod_is_kais() -> None:
    async with cluster() as it:
        await it.bound()
        held = await it.reservation()
        assert held.metadata.name.startswith("gpu-reservation-")
        assert held.metadata.labels == {"app": "kai-resource-reservation", "runai-gpu-group": "g"}
        assert held.metadata.finalizers == [names.BOOK_FINALIZER]
        assert held.spec.node_name == "node-1"
        assert held.spec.service_account_name == "kai-resource-reservation"
        (container,) = held.spec.containers
        assert container.resources.limits == container.resources.requests == {"nvidia.com/gpu": "1"}
        assert await it.tenants() == {"p"}


async def test_pods_of_one_decision_enter_the_book_in_one_write() -> None:
    async with cluster() as it:
        for name in ("p", "q"):
            await it.hand_over(await it.pod(name), "g")
        await it.until(it.is_bound, "q")
        await it.until(it.is_bound)
        assert await it.tenants() == {"p", "q"}
        assert it.writes(BINDER).count("create pods") == 1
        assert it.writes(BINDER).count("patch pods") == 0


async def test_a_third_that_does_not_fit_is_withdrawn_and_the_others_are_not() -> None:
    async with cluster() as it:
        for name in ("p", "q", "r"):
            await it.hand_over(await it.pod(name), "g")
        await it.until(it.is_fenced, "r")
        await anyio.sleep(5)
        assert [await it.is_bound(name) for name in ("p", "q", "r")] == [True, True, False]
        annotations = (await it.get("r")).metadata.annotations or {}
        assert annotations[names.FENCED_BECAUSE] == "DeviceTaken: group g: 500000000 nano-GPU asked, 0 free"
        (condition,) = [c for c in (await it.get("r")).status.conditions or () if c.type == "PodBound"]
        assert (condition.status, condition.reason) == ("False", "BindingError")
        assert condition.message.startswith("Failed to bind pod team/r to node node-1: failed to reserve GPUs for pod")
        assert await it.tenants() == {"p", "q"}
        assert await it.requests() == []


async def test_two_devices_are_bound_together() -> None:
    async with cluster() as it:
        pod = await it.bound("p", "g", "h")
        assert pod.metadata.labels == {"runai-gpu-group/g": "g", "runai-gpu-group/h": "h"}
        shown = (pod.metadata.annotations or {})["moorage.dev/visible-devices.c0"].split(",")
        given = [(await it.reservation(group)).metadata.uid for group in ("g", "h")]
        assert shown == [it.kubelet.given[uid] for uid in given]
        assert await it.tenants("g") == await it.tenants("h") == {"p"}


async def test_a_gang_is_bound_only_when_all_devices_are_known() -> None:
    async with cluster() as it:
        await it.node("node-2")
        it.kubelet.silent.add("node-2")
        for i, node in enumerate(["node-1", "node-2"]):
            pod = await it.pod(f"p{i}")
            await it.hand_over(pod, f"g{i}", node=node, plan="plan", members=3)
        whole = await it.pod("w", fraction="")
        await it.hand_over(whole, plan="plan", members=3)
        await anyio.sleep(20)
        assert not [name for name in ("p0", "p1", "w") if await it.is_bound(name)]
        it.kubelet.silent.clear()
        for name in ("p0", "p1", "w"):
            await it.until(it.is_bound, name)
        await anyio.sleep(5)
        assert await it.requests() == []
        assert (await it.get("w")).metadata.annotations == {"received-resource-type": "Regular"}


async def test_a_gang_with_one_silent_device_is_withdrawn_whole() -> None:
    async with cluster() as it:
        await it.node("node-2")
        it.kubelet.silent.add("node-2")
        for i, node in enumerate(["node-1", "node-2"]):
            await it.hand_over(await it.pod(f"p{i}"), f"g{i}", node=node, plan="plan", members=2)
        for name in ("p0", "p1"):
            await it.until(it.is_fenced, name)
        await anyio.sleep(5)
        because = [((await it.get(n)).metadata.annotations or {})[names.FENCED_BECAUSE] for n in ("p0", "p1")]
        assert because == ["GangFailed: ", "ReservationSilent: group g1"]
        assert await it.tenants("g0") == set()


async def test_a_gang_that_stays_incomplete_is_withdrawn() -> None:
    async with cluster() as it:
        await it.hand_over(await it.pod(), "g", plan="plan", members=2)
        await it.until(it.is_fenced)
        assert ((await it.get()).metadata.annotations or {})[names.FENCED_BECAUSE] == "GangLate: "


async def test_a_pod_that_is_touched_between_join_and_bind_is_renewed() -> None:
    async with cluster() as it:
        it.kubelet.start_s = 3.0
        pod = await it.pod()
        await it.hand_over(pod, "g")
        await anyio.sleep(1)
        touched = await it.api.patch(PODS, "p", {"metadata": {"labels": {"mine": "1"}}}, namespace=TEAM)
        await it.until(it.is_bound)
        (entry,) = (await it.book()).entries.values()
        assert entry.rv == touched.metadata.resource_version
        assert (await it.get()).metadata.labels == {"mine": "1", "runai-gpu-group": "g"}


async def test_a_pod_that_asks_for_something_else_meanwhile_is_withdrawn() -> None:
    async with cluster() as it:
        it.kubelet.start_s = 3.0
        await it.hand_over(await it.pod(), "g")
        await anyio.sleep(1)
        await it.api.patch(PODS, "p", {"metadata": {"annotations": {"gpu-fraction": "0.9"}}}, namespace=TEAM)
        await it.until(it.is_fenced)
        await anyio.sleep(20)
        assert not await it.is_bound()
        assert await it.reservations() == []


@pytest.mark.parametrize("how", ["request", "pod", "recreated"])
async def test_what_is_taken_back_while_its_device_is_learned_leaves_nothing(how: str) -> None:
    async with cluster() as it:
        it.kubelet.start_s = 3.0
        await it.hand_over(await it.pod(), "g")
        await anyio.sleep(1)
        if how == "request":
            await it.api.delete(BIND_REQUESTS, "p", namespace=TEAM)
        else:
            await it.api.delete(PODS, "p", namespace=TEAM)
        if how == "recreated":
            await it.pod()
        await anyio.sleep(30)
        assert await it.reservations() == []
        assert await it.requests() == []
        if how == "recreated":
            later = await it.get()
            assert not later.spec.node_name
            assert names.FENCED not in (later.metadata.annotations or {})


@pytest.mark.parametrize("lost", ["request", "answer"])
async def test_a_binding_without_answer_is_settled_by_reading(lost: Any) -> None:
    async with cluster() as it:
        struck: list[Call] = []

        def once(call: Call) -> Fault:
            if call.subresource == "binding" and not struck:
                struck.append(call)
                return Fault(lost=lost)
            return NOTHING

        it.server.faults.on_request.append(once)
        await it.bound()
        await anyio.sleep(15)
        assert struck
        assert await it.tenants() == {"p"}
        assert await it.requests() == []


async def test_a_binding_that_lands_after_the_withdrawal_is_refused() -> None:
    async with cluster() as it:

        def late(call: Call) -> Fault:
            return Fault(lost="request", lands_after_s=300.0) if call.subresource == "binding" else NOTHING

        it.server.faults.on_request.append(late)
        await it.hand_over(await it.pod(), "g")
        await it.until(it.is_fenced)
        await anyio.sleep(400)
        assert not await it.is_bound()
        assert await it.reservations() == []


async def test_with_nothing_to_do_nothing_is_done_but_one_look_at_the_cluster_policy() -> None:
    async with cluster() as it:
        await it.bound()
        await anyio.sleep(60)
        before = [entry for entry in it.server.audit if entry.user == BINDER and entry.verb != "watch"]
        await anyio.sleep(200)
        after = [entry for entry in it.server.audit if entry.user == BINDER and entry.verb != "watch"]
        done = [(entry.verb, entry.resource) for entry in after[len(before) :]]
        assert done == [("list", "clusterpolicies")]


async def test_what_ended_long_ago_is_forgotten() -> None:
    async with cluster() as it:
        for i in range(3):
            pod = await it.bound(f"p{i}", f"g{i}")
            await it.api.delete(PODS, pod.metadata.name, namespace=TEAM, grace_s=0)
        await anyio.sleep(240)
        view = it.binder.view
        assert await it.reservations() == []
        assert not view.pods
        assert not view.reservations
        assert not view.verified
        assert not view.dirty
        private = {name: getattr(view, name) for name in ("_requests", "_dropped", "_foreign", "_tenancies", "_bound")}
        assert not any(private.values()), private
        assert not view.subscriptions._signals
        assert not it.binder._units
        assert not it.binder._collector._notes
        assert not it.binder._collector._clearing._unbound_since
        assert len(view.gone_pods) == len(view._lost) == 0


async def test_a_request_of_another_making_is_left_alone() -> None:
    async with cluster() as it:
        pod = await it.pod()
        foreign = {
            "metadata": {
                "name": "p",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod.metadata.uid}],
            },
            "spec": {"podName": "p", "selectedNode": "node-1", "selectedGPUGroups": ["g"]},
        }
        await it.api.create(BIND_REQUESTS, foreign, namespace=TEAM)
        await it.bound("q", "h")
        assert await it.requests() == ["p"]
        assert not await it.is_bound()
        assert len(await it.reservations()) == 1
