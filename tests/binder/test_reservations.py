"""What becomes of reservation pods and of the entries in their books."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from gpu import grant, record
from gpu import reservation as reservations
from gpu.book import Entry, Tenant
from gpu.limits import MemoryCaps
from gpu.request import ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest
from gpu.translation import Cards, Translation
from kube import books
from kube.client.errors import NotFound
from kube.client.resources import EVENTS, NODES, PODS
from scheduler.core.filters.taints import tolerates
from sharing.entries import LONGEST_SILENCE_S
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import NOTHING, Fault
from tests.binder.cluster import BINDER, HALF, RESERVATIONS, TEAM, Cluster, cluster
from wire import names
from wire.core import Taint

SLICE = "nvidia.com/mig-1g.10gb"


async def because(it: Cluster, name: str = "p") -> str:
    await it.until(it.is_fenced, name)
    return ((await it.get(name)).metadata.annotations or {})[names.FENCED_BECAUSE]


async def ended(it: Cluster, name: str = "p") -> None:
    await it.kubelet.status(name, namespace=TEAM, phase="Succeeded")


# --- reservations that do not come to life ---------------------------------------------------------------------------


async def test_a_rejected_reservation_fails_the_attempt_and_goes_at_once() -> None:
    async with cluster() as it:
        it.kubelet.rejects = 1
        await it.hand_over(await it.pod(), "g")
        assert await because(it) == "ReservationFailed: group g on node node-1"
        await anyio.sleep(3)
        assert await it.reservations() == []


async def test_a_deleted_reservation_fails_the_attempt() -> None:
    async with cluster() as it:
        it.kubelet.silent.add("node-1")
        await it.hand_over(await it.pod(), "g")
        await anyio.sleep(1)
        await it.api.delete(PODS, (await it.reservation()).metadata.name, namespace=RESERVATIONS, grace_s=0)
        assert (await because(it)).startswith("ReservationLost")
        await anyio.sleep(3)
        assert await it.reservations() == []


async def test_a_silent_reservation_is_waited_for_only_so_long() -> None:
    async with cluster(learn_timeout_s=40.0) as it:
        it.kubelet.silent.add("node-1")
        started = anyio.current_time()
        await it.hand_over(await it.pod(), "g")
        assert await because(it) == "ReservationSilent: group g"
        assert 39 < anyio.current_time() - started < 45
        it.kubelet.silent.clear()
        await anyio.sleep(30)
        assert await it.reservations() == []


async def test_a_device_that_two_reservations_name_is_not_bound() -> None:
    async with cluster() as it:
        it.kubelet.uuids = ["GPU-same", "GPU-same"]
        await it.bound("p", "g")
        await it.hand_over(await it.pod("q"), "h")
        assert (await because(it, "q")).startswith("DeviceClaimed: device GPU-same is also held by reservation pod")
        assert not await it.is_bound("q")


async def test_a_device_whose_old_reservation_is_still_going_is_waited_for() -> None:
    """kubelet frees the device with the old pod's containers, before the pod itself is gone."""
    async with cluster() as it:
        it.kubelet.uuids = ["GPU-same", "GPU-same"]
        gone = await it.bound("p", "g")
        await it.api.delete(PODS, gone.metadata.name, namespace=TEAM, grace_s=0)
        old = await it.reservation("g")
        patch = {"metadata": {"finalizers": [*(old.metadata.finalizers or ()), "example.com/slow"]}}
        await it.api.patch(PODS, old.metadata.name, patch, namespace=RESERVATIONS)
        await it.api.delete(PODS, old.metadata.name, namespace=RESERVATIONS)
        await it.hand_over(await it.pod("q"), "h")
        await anyio.sleep(10)
        assert not await it.is_bound("q")
        assert not await it.is_fenced("q")
        await it.api.patch(PODS, old.metadata.name, {"metadata": {"finalizers": []}}, namespace=RESERVATIONS)
        await it.until(it.is_bound, "q")


async def test_a_reservation_that_restarts_before_the_binding_is_waited_for() -> None:
    async with cluster() as it:
        it.kubelet.silent.add("node-1")
        await it.hand_over(await it.pod(), "g")
        await anyio.sleep(1)
        held = (await it.reservation()).metadata
        waiting = [{"name": "resource-reservation", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
        await it.kubelet.status(held.name, phase="Running", containerStatuses=waiting)
        await it.kubelet.tell(held.name, "GPU-before")
        await anyio.sleep(5)
        assert not await it.is_bound()
        running = [{"name": "resource-reservation", "state": {"running": {}}}]
        await it.kubelet.tell(held.name, "GPU-after")
        await it.kubelet.status(held.name, containerStatuses=running)
        await it.until(it.is_bound)
        shown = ((await it.get()).metadata.annotations or {})["moorage.dev/visible-devices.c0"]
        assert shown == "GPU-after"


# --- idle ------------------------------------------------------------------------------------------------------------


async def test_an_idle_reservation_goes_after_its_time_and_not_before() -> None:
    async with cluster(idle_s=10.0) as it:
        await it.bound()
        await ended(it)
        await it.until(_is_empty, it)
        emptied = anyio.current_time()
        await anyio.sleep(9)
        assert (await it.reservation()).metadata.deletion_timestamp is None
        await it.until(_no_reservations, it)
        assert 10 <= anyio.current_time() - emptied < 12
        # An end: leave. Once per device: away, finalizer.
        assert it.writes(BINDER)[-3:] == ["patch pods", "delete pods", "patch pods"]


async def _is_empty(it: Cluster) -> bool:
    return not await it.tenants()


async def _no_reservations(it: Cluster) -> bool:
    return not await it.reservations()


async def test_an_idle_reservation_of_a_cordoned_node_goes_at_once() -> None:
    async with cluster(idle_s=1000.0) as it:
        await it.bound()
        await ended(it)
        await anyio.sleep(20)
        assert len(await it.reservations()) == 1
        await it.api.patch(NODES, "node-1", {"spec": {"unschedulable": True}})
        await it.until(_no_reservations, it, limit_s=2)


async def test_an_idle_reservation_that_a_late_watch_shows_as_it_was_is_read_and_goes() -> None:
    async with cluster(idle_s=10.0) as it:
        await it.bound()
        await ended(it)
        await it.until(_is_empty, it)
        it.server.faults.on_watch_line.append(lambda call, _: 600.0 if call.user == BINDER else 0.0)
        name, refused = (await it.reservation()).metadata.name, list[int]()
        it.server.faults.on_answer.append(
            lambda call, code: refused.append(code) if (call.verb, call.name, code) == ("delete", name, 409) else None
        )
        await it.api.patch(PODS, name, {"metadata": {"annotations": {"note": "changed"}}}, namespace=RESERVATIONS)
        await anyio.sleep(60)
        assert await it.reservations() == []
        assert len(refused) <= 2  # as it was, and as it was before it departs


async def test_a_tenant_who_joins_while_the_reservation_is_taken_away_wins() -> None:
    async with cluster(idle_s=10.0) as it:
        await it.bound()
        await ended(it)
        await it.until(_is_empty, it)
        pod = await it.pod("q")

        def slow_delete(call: Call) -> Fault:
            is_it = call.verb == "delete" and call.namespace == RESERVATIONS and call.user == BINDER
            return Fault(delay_s=5.0) if is_it else NOTHING

        it.server.faults.on_request.append(slow_delete)
        await anyio.sleep(12)
        await it.hand_over(pod, "g")
        await it.until(it.is_bound, "q")
        await anyio.sleep(30)
        assert await it.tenants() == {"q"}
        assert (await it.reservation()).metadata.deletion_timestamp is None


async def test_an_idle_reservation_serves_the_next_share_at_once() -> None:
    async with cluster(idle_s=10.0) as it:
        await it.bound()
        await ended(it)
        await it.until(_is_empty, it)
        before = (await it.reservation()).metadata.uid
        await it.bound("q")
        assert (await it.reservation()).metadata.uid == before


# --- the end of tenants ----------------------------------------------------------------------------------------------


async def test_pods_that_ended_leave_in_one_write() -> None:
    async with cluster() as it:
        for name in ("p", "q"):
            await it.hand_over(await it.pod(name), "g")
        await it.until(it.is_bound, "q")
        await it.until(it.is_bound)
        await anyio.sleep(2)
        it.kill()
        await ended(it, "p")
        await ended(it, "q")
        before = len(it.writes(BINDER))
        await it.start()
        await it.until(_is_empty, it)
        assert it.writes(BINDER)[before:] == ["patch pods"]


async def test_a_pod_that_is_killed_by_force_keeps_its_share_for_its_grace() -> None:
    async with cluster() as it:
        await it.bound()
        await it.api.delete(PODS, "p", namespace=TEAM, grace_s=0)
        await anyio.sleep(145)
        assert await it.tenants() == {"p"}
        await anyio.sleep(25)
        assert await it.reservations() == [] or await it.tenants() == set()


async def test_a_pod_that_is_killed_by_force_keeps_its_share_on_a_node_that_the_binder_has_not_seen_yet() -> None:
    async with cluster() as it:
        await it.bound()
        it.binder.view.machines.clear()
        await it.api.delete(PODS, "p", namespace=TEAM, grace_s=0)
        await anyio.sleep(25)
        assert await it.tenants() == {"p"}


async def test_a_pod_that_vanished_while_nobody_looked_is_waited_for_in_full() -> None:
    """It may run, though the binder never saw it do so."""
    async with cluster() as it:
        await it.bound()
        it.kill()
        await it.api.delete(PODS, "p", namespace=TEAM, grace_s=0)
        await it.start()
        await anyio.sleep(165)
        assert await it.tenants() == {"p"}
        await anyio.sleep(40)
        assert await it.reservations() == []


async def test_a_terminating_pod_keeps_its_share() -> None:
    async with cluster() as it:
        await it.bound()
        await it.api.delete(PODS, "p", namespace=TEAM)
        await anyio.sleep(60)
        assert (await it.get()).metadata.deletion_timestamp is not None
        assert await it.tenants() == {"p"}


async def test_a_direct_entry_that_nobody_carries_on_is_fenced_and_taken_out() -> None:
    async with cluster() as it:
        await it.bound()
        pod = (await it.pod("q")).metadata
        since = it.clock.now_ns() // 10**9
        held = await books.read(it.api, RESERVATIONS, (await it.reservation()).metadata.name)
        assert held is not None
        entry = Entry(HALF, "direct", pod.resource_version, since, "team/q")
        await books.join(it.api, held, [Tenant(pod.uid, entry)])
        await anyio.sleep(10)
        assert await it.tenants() == {"p", "q"}
        await anyio.sleep(15)
        assert await it.tenants() == {"p"}
        assert ((await it.get("q")).metadata.annotations or {})[names.FENCED] == "direct"


# --- lost, foreign, incomplete ---------------------------------------------------------------------------------------


async def test_a_lost_reservation_with_tenants_is_made_anew_with_its_book() -> None:
    async with cluster() as it:
        await it.bound()
        lost = (await it.reservation()).metadata
        entries = (await it.book()).entries
        it.kubelet.uuids = ["GPU-0"]
        await it.api.delete(PODS, lost.name, namespace=RESERVATIONS, grace_s=0)
        await anyio.sleep(5)
        again = await it.reservation()
        assert again.metadata.uid != lost.uid
        assert again.metadata.name == lost.name
        book = (await it.book()).entries
        assert {uid: (e.nano, e.attempt) for uid, e in book.items()} == {
            uid: (e.nano, e.attempt) for uid, e in entries.items()
        }
        await it.bound("q")
        assert await it.tenants() == {"p", "q"}


async def test_no_taint_takes_a_reservation_from_a_tenant_who_came_later_and_tolerates_it() -> None:
    async with cluster() as it:
        await it.bound()
        await it.hand_over(await it.pod("q", tolerations=[{"key": "spot", "operator": "Exists"}]), "g")
        await it.until(it.is_bound, "q")
        taint = Taint(key="spot", effect="NoExecute")
        for name, namespace in (("p", TEAM), ("q", TEAM), ((await it.reservation()).metadata.name, RESERVATIONS)):
            stays = tolerates((await it.get(name, namespace)).spec.tolerations or (), taint)
            assert stays is (name != "p")


async def test_no_reservation_is_made_where_no_device_plugin_has_gpus() -> None:
    """As on a node whose GPUs are handed out by DRA: kubelet would let it run without one."""
    async with cluster() as it:
        await it.api.patch(NODES, "node-1", {"status": {"capacity": {"cpu": "8"}}}, subresource="status")
        await it.hand_over(await it.pod(), "g")
        why = "ReservationNotJoinable: group g: no device plugin of node node-1 has nvidia.com/gpu"
        assert await because(it) == why
        assert "create pods" not in it.writes(BINDER)


async def test_a_slice_is_asked_of_kubelet_by_its_name_and_asked_for_again_when_it_is_lost() -> None:
    async with cluster() as it:
        await it.api.patch(NODES, "node-1", {"status": {"capacity": {SLICE: "2"}}}, subresource="status")
        it.kubelet.uuids = ["MIG-0", "MIG-0"]
        for name in ("p", "q"):
            await it.hand_over(await it.pod(name), "g", resource=SLICE)
        await it.until(it.is_bound, "q")
        assert await it.tenants() == {"p", "q"}
        lost = await it.reservation()
        assert lost.spec.containers[0].resources.limits == {SLICE: "1"}
        given = grant.read((await it.get("p")).metadata.annotations)
        assert given is not None
        assert [(device.uuid, device.resource) for device in given.devices] == [("MIG-0", SLICE)]
        await it.api.delete(PODS, lost.metadata.name, namespace=RESERVATIONS, grace_s=0)
        await anyio.sleep(5)
        again = await it.reservation()
        assert again.metadata.uid != lost.metadata.uid
        assert again.spec.containers[0].resources.limits == {SLICE: "1"}
        assert await it.tenants() == {"p", "q"}


async def test_no_reservation_is_made_for_a_slice_that_the_node_has_not() -> None:
    async with cluster() as it:
        await it.api.patch(NODES, "node-1", {"status": {"capacity": {names.GPU_RESOURCE: "8"}}}, subresource="status")
        await it.hand_over(await it.pod(), "g", resource=SLICE)
        assert await because(it) == f"ReservationNotJoinable: group g: no device plugin of node node-1 has {SLICE}"


async def test_a_group_of_cards_is_not_joined_for_a_slice() -> None:
    async with cluster() as it:
        await it.bound("p")
        await it.hand_over(await it.pod("q"), "g", resource=SLICE)
        why = f"ReservationNotJoinable: group g: it holds one of {names.GPU_RESOURCE}, and {SLICE} was asked"
        assert await because(it, "q") == why
        assert await it.tenants() == {"p"}


async def test_karpenter_is_kept_from_a_node_while_a_device_of_it_has_tenants_and_no_longer() -> None:
    async with cluster(idle_s=60.0) as it:

        async def is_kept() -> str:
            return ((await it.reservation()).metadata.annotations or {})[names.DO_NOT_DISRUPT]

        await it.bound()
        assert await is_kept() == "true"
        await it.kubelet.status("p", namespace=TEAM, phase="Succeeded")
        await anyio.sleep(5)
        assert await is_kept() == "false"
        await it.bound("q")
        assert await is_kept() == "true"


async def test_a_device_that_was_lost_with_its_reservation_takes_no_new_tenants() -> None:
    async with cluster() as it:
        await it.bound()
        it.kubelet.uuids = ["GPU-another"]
        await it.api.delete(PODS, (await it.reservation()).metadata.name, namespace=RESERVATIONS, grace_s=0)
        await anyio.sleep(5)
        await it.hand_over(await it.pod("q"), "g")
        assert await because(it, "q") == "DeviceClaimed: pod team/p of group g uses device GPU-0"
        events = [event for event in (await it.api.list(EVENTS, namespace=TEAM)).items if event.reason == "GPULost"]
        assert [event.note for event in events] == [
            "GPU GPU-0 was lost by its reservation, which holds GPU-another now"
        ]


async def test_a_reservation_that_can_not_be_made_anew_is_tried_ever_more_rarely() -> None:
    async with cluster() as it:
        await it.bound()
        it.kubelet.rejects = 10**6
        await it.api.delete(PODS, (await it.reservation()).metadata.name, namespace=RESERVATIONS, grace_s=0)
        await anyio.sleep(600)
        assert it.writes(BINDER).count("create pods") < 20


async def test_a_departing_reservation_keeps_its_book_while_a_vanished_tenant_may_run() -> None:
    async with cluster() as it:
        await it.bound()
        await it.api.delete(PODS, "p", namespace=TEAM, grace_s=0)
        await it.api.delete(PODS, (await it.reservation()).metadata.name, namespace=RESERVATIONS, grace_s=0)
        await anyio.sleep(135)
        assert await it.tenants() == {"p"}
        await anyio.sleep(40)
        assert await it.reservations() == []


async def test_reservations_of_a_node_that_is_gone_for_good_go_too() -> None:
    async with cluster() as it:
        await it.bound()
        await it.api.delete(NODES, "node-1")
        await it.api.delete(PODS, "p", namespace=TEAM, grace_s=0)
        await anyio.sleep(LONGEST_SILENCE_S)
        assert await it.tenants() == {"p"}
        await anyio.sleep(220)
        assert (await it.reservations()) == []


async def _kais(it: Cluster, *tenants: dict[str, str]) -> None:
    """A reservation pod and tenants that ask this, as KAI leaves them: labels only, no book."""
    spec: dict[str, Any] = {"nodeName": "node-1", "containers": [{"name": "main", "image": "work"}]}
    labels = {"runai-gpu-group": "g"}
    held = {"name": "gpu-reservation-node-1-abcde", "labels": {**labels, "app": "kai-resource-reservation"}}
    held_spec = {**spec, "serviceAccountName": names.RESERVATION_SERVICE_ACCOUNT}
    await it.api.create(PODS, {"metadata": held, "spec": held_spec}, namespace=RESERVATIONS)
    for number, asked in enumerate(tenants):
        tenant = {"name": f"old-{number}", "labels": labels, "annotations": asked}
        tenant_spec = {**spec, "schedulerName": "kai-scheduler"}
        await it.api.create(PODS, {"metadata": tenant, "spec": tenant_spec}, namespace=TEAM)


@pytest.mark.parametrize(
    ("asked", "nano"), [({"gpu-fraction": "0.25"}, 250_000_000), ({"gpu-memory": "100"}, 1_000_000_000)]
)
async def test_a_reservation_of_kais_is_adopted_with_its_tenants(asked: dict[str, str], nano: int) -> None:
    async with cluster(started=False) as it:
        await _kais(it, asked)
        await it.start()
        await anyio.sleep(2)
        (entry,) = (await it.book()).entries.values()
        assert (entry.nano, entry.pod) == (nano, "team/old-0")


async def test_tenants_of_kais_that_ask_memory_are_charged_by_their_nodes_cards_and_others_join() -> None:
    async with cluster(started=False) as it:
        await it.api.patch(NODES, "node-1", {"metadata": {"labels": {names.NODE_GPU_MEMORY: "40000"}}})
        await _kais(it, {"gpu-memory": "10000"}, {"gpu-memory": "10000"})
        await it.start()
        await it.bound("q")
        charged = {entry.pod: entry.nano for entry in (await it.book()).entries.values()}
        assert charged == {"team/old-0": HALF // 2, "team/old-1": HALF // 2, "team/q": HALF}


async def test_tenants_in_kais_newer_words_are_charged_and_keep_their_mode() -> None:
    asked = "nvidia.com/container.main.gpu-memory.request"
    mode = "nvidia.com/container.main.gpu-compute.mode"
    async with cluster(started=False) as it:
        await it.api.patch(NODES, "node-1", {"metadata": {"labels": {names.NODE_GPU_MEMORY: "40960"}}})
        await _kais(it, {asked: "10Gi", mode: "time-slicing"}, {asked: "10Gi", mode: "time-slicing"})
        await it.start()
        await anyio.sleep(2)
        entries = (await it.book()).entries.values()
        assert {entry.pod: (entry.nano, entry.mode) for entry in entries} == {
            "team/old-0": (HALF // 2, "time-slicing"),
            "team/old-1": (HALF // 2, "time-slicing"),
        }


async def test_a_device_that_kai_gave_away_more_than_once_is_joined_when_enough_tenants_have_ended() -> None:
    async with cluster(started=False) as it:
        await _kais(it, *[{"gpu-fraction": "0.4"}] * 3)
        await it.start()
        await anyio.sleep(5)
        assert names.TENANTS not in ((await it.reservation()).metadata.annotations or {})
        assert len((await it.api.list(PODS, namespace=TEAM)).items) == 3
        await it.api.delete(PODS, "old-1", namespace=TEAM, grace_s=0)
        await anyio.sleep(60)
        assert await it.tenants() == {"old-0", "old-2"}


async def test_a_reservation_that_tells_an_index_as_kais_older_ones_is_shared_and_moves_nobody() -> None:
    """Kubelet names the device by its UUID, which nobody was given."""
    async with cluster(started=False) as it:
        it.kubelet.uuids = ["0"]
        await _kais(it, {"gpu-fraction": "0.25"})
        await anyio.sleep(2)
        await it.fall_ill(health="Healthy")
        await it.start()
        joined = await it.bound("q")
        assert (joined.metadata.annotations or {})["moorage.dev/visible-devices.c0"] == "0"
        await anyio.sleep(600)
        assert await it.tenants() == {"old-0", "q"}
        assert not {"create pods/eviction", "delete pods"} & set(it.writes(BINDER))


async def test_an_adopted_reservation_can_be_shared() -> None:
    async with cluster(started=False) as it:
        await _kais(it, {"gpu-fraction": "0.25"})
        await it.start()
        await it.bound("q")
        assert await it.tenants() == {"old-0", "q"}


async def test_a_bound_pod_that_the_book_does_not_know_is_charged() -> None:
    async with cluster() as it:
        await it.bound()
        labels = {"runai-gpu-group": "g"}
        stray = {"name": "stray", "labels": labels, "annotations": {"gpu-fraction": "0.5"}}
        spec = {"nodeName": "node-1", "schedulerName": "kai-scheduler", "containers": [{"name": "m", "image": "w"}]}
        await it.api.create(PODS, {"metadata": stray, "spec": spec}, namespace=TEAM)
        await anyio.sleep(2)
        assert await it.tenants() == {"p", "stray"}


async def test_a_bound_pod_that_the_book_does_not_know_is_capped_as_it_was() -> None:
    async with cluster(memory_caps=MemoryCaps.ALL) as it:
        await it.bound()
        before = reservations.read(await it.reservation())
        lost = {"metadata": {"annotations": {names.TENANTS: "{}"}}}
        await it.api.patch(PODS, before.name, lost, namespace=RESERVATIONS)
        await anyio.sleep(2)
        after = reservations.read(await it.reservation())
        assert before.book is not None
        assert after.book is not None
        caps = [[entry.cap_nano for entry in book.entries.values()] for book in (before.book, after.book)]
        assert caps == [[500_000_000], [500_000_000]]


async def test_a_book_that_can_not_be_read_is_left_alone() -> None:
    async with cluster() as it:
        await it.bound()
        name = (await it.reservation()).metadata.name
        await it.api.patch(PODS, name, {"metadata": {"annotations": {names.TENANTS: "[]"}}}, namespace=RESERVATIONS)
        await it.hand_over(await it.pod("q"), "g")
        assert await because(it, "q") == "ReservationNotJoinable: group g: it has no book that can be read"
        assert ((await it.reservation()).metadata.annotations or {})[names.TENANTS] == "[]"


async def test_a_server_that_is_away_for_a_while_costs_only_time() -> None:
    async with cluster() as it:
        until_s = anyio.current_time() + 60

        def away(call: Call) -> Fault:
            is_down = call.user == BINDER and anyio.current_time() < until_s
            return Fault(refuse_with=503) if is_down else NOTHING

        pod = await it.pod()
        it.server.faults.on_request.append(away)
        await it.hand_over(pod, "g")
        await it.until(it.is_bound)
        assert anyio.current_time() > until_s
        with pytest.raises(NotFound):
            await it.api.get(PODS, "no such", namespace=TEAM)


@pytest.mark.parametrize(
    ("cards", "index", "opened_for"),
    [(Cards(uuids=("GPU-7", "GPU-8")), -1, "GPU-7,GPU-8"), (Cards(), 3, "3"), (Cards(not_uuids=("GPU-7",)), -1, None)],
)
async def test_a_new_reservation_says_which_device_its_first_tenant_names(
    cards: Cards, index: int, opened_for: str | None
) -> None:
    ask = FractionAsk(HALF, index=index)
    request = GpuRequest((ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0), (ask,)),))
    recorded: dict[str, Any] = {
        names.GPU_RECORD: record.render(Translation(dialect="hami", request=request, cards=cards))
    }
    async with cluster() as it:
        it.kubelet.silent = {"node-1"}
        await it.hand_over(await it.pod(fraction="", **recorded), "g")
        await anyio.sleep(5)
        held = await it.reservation()
        assert (held.metadata.annotations or {}).get(names.OPENED_FOR) == opened_for
