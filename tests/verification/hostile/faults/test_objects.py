"""Objects that are deleted, held back or restored under us: what goes with them, and that work goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kube.client import errors
from kube.client.resources import CONFIG_MAPS, LEASES, NAMESPACES, PODS, QUEUES
from kube.lead.lease import LeaseSettings
from scheduler.core.model.settings import Settings
from scheduler.settings import SchedulerSettings
from simulator.nodes.shape import KubeletSettings
from tests.verification.hostile.faults.grounds import NAMESPACE, Stage, stage
from verification.hostile.actions import Action, CreatePod
from verification.hostile.faults.ground import Timed
from verification.hostile.faults.objects import (
    KEEPS,
    UNDONE,
    EtcdRestored,
    EtcdRestoredUnderWork,
    EvictionsFail,
    EvictionsRefused,
    EvictionsSlow,
    LeaseDeleted,
    NamespaceDeleted,
    NominationConflict,
    NominationsDeleted,
    NomineeGoes,
    QueueVanishes,
    ReservationsDeleted,
    TwoBudgets,
    VictimStays,
)
from verification.hostile.run import run
from verification.hostile.scenario import Scenario
from wire import names


async def test_with_its_namespace_a_pod_and_its_reservation_go_and_meanwhile_nothing_comes() -> None:
    async with stage(kubelet=KubeletSettings(stop_s=5.0)) as on:
        await on.pod("p", gpu_fraction="0.5")
        await on.until(10)
        on.strike(NamespaceDeleted(at_s=10, for_s=1))
        await on.until(11)
        with pytest.raises(errors.Forbidden, match="is being terminated"):
            await on.pod("q", gpu_fraction="0.5")
        await on.until(60)
        assert on.world.pods == []
        await on.pod("q", gpu_fraction="0.5")
        await on.until(90)
        assert await on.phase("q") == "Running"


async def test_the_reservations_namespace_goes_and_is_installed_again() -> None:
    async with stage() as on:
        await on.pod("p", gpu_fraction="0.5")
        await on.until(10)
        before = await on.world.api.get(NAMESPACES, names.RESERVATION_NAMESPACE)
        on.strike(ReservationsDeleted(at_s=10, for_s=30))
        await on.until(39)
        assert (await on.ground.reservations(), await on.phase("p")) == ([], "Running")
        await on.until(60)
        assert len(await on.ground.reservations()) == 1
        after = await on.world.api.get(NAMESPACES, names.RESERVATION_NAMESPACE)
        assert after.metadata.uid != before.metadata.uid
        await on.pod("q", gpu_fraction="0.5")
        await on.until(120)
        assert await on.phase("q") == "Running"


LEASE = LeaseSettings(duration_s=60, renew_deadline_s=45.0, retry_s=20.0, poll_s=15.0)


async def test_a_lease_goes_again_and_again_and_somebody_leads_in_the_end() -> None:
    async with stage(schedulers=2, election=LEASE) as on:
        before = await on.world.api.get(LEASES, "moorage-scheduler", namespace=names.SYSTEM_NAMESPACE)
        on.strike(LeaseDeleted(at_s=0, for_s=100, role="scheduler", every_s=30.0))
        await on.until(1)
        with pytest.raises(errors.NotFound):
            await on.world.api.get(LEASES, "moorage-scheduler", namespace=names.SYSTEM_NAMESPACE)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(300)
        after = await on.world.api.get(LEASES, "moorage-scheduler", namespace=names.SYSTEM_NAMESPACE)
        assert after.metadata.uid != before.metadata.uid
        assert await on.phase("p") == "Running"


async def test_without_an_election_there_is_no_lease_to_delete() -> None:
    async with stage() as on:
        await LeaseDeleted(at_s=0, for_s=3, role="binder", every_s=1.0).strike(on.ground)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(40)
        assert await on.phase("p") == "Running"


POD = f"/api/v1/namespaces/{NAMESPACE}/pods/p"


async def evicted(on: Stage, user: str = "scheduler") -> int:
    return (await on.request(user, path=f"{POD}/eviction", body={"metadata": {"name": "p"}}, timeout_s=60)).status


async def has_pod(on: Stage) -> bool:
    return (await on.request("user", "GET", POD)).status == 200


async def running(on: Stage) -> None:
    await on.pod("p", gpus=1)
    await on.until(20)
    assert await on.phase("p") == "Running"


async def test_evictions_take_their_time_there_and_back() -> None:
    async with stage() as on:
        await running(on)
        on.strike(EvictionsSlow(at_s=30, for_s=30, there_s=9.0, back_s=9.0))
        await on.until(31)
        begun = on.now_s
        assert await evicted(on) == 201
        assert 1.0 < on.now_s - begun < 18.0


async def test_a_pod_that_is_evicted_stays_until_its_finalizer_is_taken_off() -> None:
    async with stage() as on:
        await running(on)
        on.strike(VictimStays(at_s=30, for_s=60))
        await on.until(31)
        assert (await on.read("p")).metadata.finalizers == [KEEPS]
        assert await evicted(on) == 201
        await on.until(80)
        assert (await on.read("p")).metadata.deletion_timestamp
        await on.until(92)
        assert not await has_pod(on)


async def test_a_pod_that_nobody_evicts_has_its_finalizer_for_a_time() -> None:
    async with stage() as on:
        await running(on)
        on.strike(VictimStays(at_s=30, for_s=10))
        await on.until(41)
        assert not (await on.read("p")).metadata.finalizers
        assert await on.phase("p") == "Running"


async def test_a_finalizer_that_a_restored_etcd_brings_back_is_taken_off() -> None:
    async with stage() as on:
        await running(on)
        on.strike(VictimStays(at_s=30, for_s=10))
        on.strike(EtcdRestored(at_s=35, for_s=60, undone_s=10))
        await on.until(34)
        assert (await on.read("p")).metadata.finalizers == [KEEPS]
        await on.until(60)
        assert not (await on.read("p")).metadata.finalizers


@pytest.mark.parametrize(
    ("fault", "status", "goes"),
    [
        (EvictionsRefused(at_s=30, for_s=10), 429, False),
        (EvictionsRefused(at_s=30, for_s=10, user="binder"), 201, True),
        (EvictionsFail(at_s=30, for_s=10), 500, False),
        (EvictionsFail(at_s=30, for_s=10, done_per_mille=1000), 500, True),
    ],
)
async def test_evictions_are_refused_for_a_time_and_nothing_else_is(fault: Timed, status: int, goes: bool) -> None:
    async with stage() as on:
        await running(on)
        on.strike(fault)
        await on.until(31)
        assert await evicted(on) == status
        assert (await on.request("scheduler", name="anything")).status == 201
        await on.until(39)
        assert await has_pod(on) is not goes
        await on.until(41)
        assert await evicted(on) == (404 if goes else 201)


#: For a record that a test writes: a scheduler that makes room has one of its own.
_MAKES_NONE = SchedulerSettings(decisions=Settings(preemption=False))
RECORD = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps/{names.NOMINATIONS}"


async def written(on: Stage, *nominees: str) -> None:
    """A record with a nomination for each of these pods (UIDs)."""
    nominations = [{"id": uid, "places": [[f"={uid}", "node-0"]], "victims": []} for uid in nominees]
    data = {"nominations": json.dumps({"nominations": nominations, "evicted": {}})}
    body = {"metadata": {"name": names.NOMINATIONS}, "data": data}
    await on.world.api.create(CONFIG_MAPS, body, namespace=names.SYSTEM_NAMESPACE)


async def is_there(on: Stage, kind: Any, name: str, namespace: str = "") -> bool:
    try:
        await on.world.api.get(kind, name, namespace=namespace)
    except errors.NotFound:
        return False
    return True


async def waiting(on: Stage, name: str, queue: str = "") -> str:
    """A pod that fits nowhere; its UID."""
    container = {"name": "main", "image": "work", "resources": {"limits": {"nvidia.com/gpu": "64"}}}
    spec = {"schedulerName": "kai-scheduler", "containers": [container]}
    labels = {names.QUEUE_LABEL: queue} if queue else {}
    body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
    return (await on.world.api.create(PODS, body, namespace=NAMESPACE)).metadata.uid


async def test_writes_of_the_record_are_conflicts_for_a_time_and_no_others_are() -> None:
    async with stage() as on:
        await written(on)
        on.strike(NominationConflict(at_s=10, for_s=10))
        await on.until(11)
        patch = {"data": {"other": "x"}}
        assert (await on.request("scheduler", "PATCH", RECORD, body=patch)).status == 409
        assert (await on.request("scheduler", name="anything")).status == 201
        await on.until(21)
        assert (await on.request("scheduler", "PATCH", RECORD, body=patch)).status == 200


async def test_the_record_is_deleted_as_often_as_it_comes() -> None:
    async with stage() as on:
        on.strike(NominationsDeleted(at_s=5, for_s=10, every_s=1))
        for at_s in (6.5, 9.5):
            await on.until(at_s)
            await written(on)
            await on.until(at_s + 1.5)
            assert not await is_there(on, CONFIG_MAPS, names.NOMINATIONS, names.SYSTEM_NAMESPACE)
        await on.until(16)
        await written(on)
        await on.until(20)
        assert await is_there(on, CONFIG_MAPS, names.NOMINATIONS, names.SYSTEM_NAMESPACE)


async def test_who_room_is_made_for_is_deleted_and_nobody_else() -> None:
    async with stage(scheduler=_MAKES_NONE) as on:
        uid = await waiting(on, "h")
        await waiting(on, "other")
        await written(on, uid)
        on.strike(NomineeGoes(at_s=5, for_s=5))
        await on.until(7)
        assert not await is_there(on, PODS, "h", NAMESPACE)
        assert await is_there(on, PODS, "other", NAMESPACE)


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_the_queue_of_who_room_is_made_for_goes_and_comes_back(is_made_again: bool) -> None:
    spec = {"resources": {"gpu": {"quota": 1, "limit": -1, "overQuotaWeight": 1}}}
    async with stage(scheduler=_MAKES_NONE) as on:
        for name in ("a", "b"):
            await on.world.api.create(QUEUES, {"metadata": {"name": name}, "spec": spec})
        await written(on, await waiting(on, "h", "a"))
        on.strike(QueueVanishes(at_s=5, for_s=10))
        await on.until(7)
        assert (await is_there(on, QUEUES, "a"), await is_there(on, QUEUES, "b")) == (False, True)
        if is_made_again:
            await on.world.api.create(QUEUES, {"metadata": {"name": "a"}, "spec": spec})
        await on.until(16)
        queue = await on.world.api.get(QUEUES, "a")
        assert queue.spec.resources is not None
        assert queue.spec.resources.gpu is not None
        assert queue.spec.resources.gpu.quota == 1


async def test_nobody_can_be_evicted_under_two_budgets_for_a_time() -> None:
    async with stage() as on:
        await on.pod("p", gpus=1)
        await on.until(20)
        on.strike(TwoBudgets(at_s=20, for_s=10))
        await on.until(22)
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/p/eviction"
        answer = await on.request("scheduler", path=path, body={"metadata": {"name": "p"}})
        assert (answer.status, b"more than one PodDisruptionBudget" in answer.body) == (500, True)
        await on.until(31)
        assert (await on.request("scheduler", path=path, body={"metadata": {"name": "p"}})).status == 201


def there(on: Stage) -> set[str]:
    """Names of the users' pods."""
    return {raw["metadata"]["name"] for raw in on.world.pods if raw["metadata"]["namespace"] == NAMESPACE}


def runs(on: Stage) -> set[str]:
    """Names of users' pods that run on machines."""
    return {r.pod.split("/")[1] for r in on.world.nodes.ground_truth.running if r.pod.startswith(NAMESPACE)}


async def undone(on: Stage) -> None:
    """At 20 s ``goes`` runs and ``waits`` does not fit; until 40 s ``comes`` takes the place of ``goes``."""
    await on.pod("waits", gpus=2)
    await on.pod("goes", gpu_fraction="0.5")
    await on.until(21)
    await on.world.api.delete(PODS, "goes", namespace=NAMESPACE)
    await on.pod("comes", gpu_fraction="0.5")
    await on.until(39.9)
    assert (there(on), runs(on)) == ({"comes", "waits"}, {"comes"})


@pytest.mark.parametrize("kind", [EtcdRestored, EtcdRestoredUnderWork])
async def test_after_a_restore_the_cluster_is_what_it_was_and_work_goes_on(
    kind: type[EtcdRestored | EtcdRestoredUnderWork],
) -> None:
    async with stage("1x1x40GiB") as on:
        on.strike(kind(at_s=20, for_s=60, undone_s=20))
        await undone(on)
        await on.until(40.1)
        assert there(on) == {"goes", "waits"}
        await on.until(140)
        assert (await on.phase("goes"), await on.phase("waits"), runs(on)) == ("Running", "Pending", {"goes"})
        await on.world.api.delete(PODS, "goes", namespace=NAMESPACE)
        await on.pod("later", gpu_fraction="0.5")
        await on.until(200)
        assert await on.phase("later") == "Running"


async def test_components_are_stopped_until_the_machines_run_what_is_there() -> None:
    async with stage("1x1x40GiB") as on:
        for kubelet in on.world.nodes.kubelets.values():
            on.world.server.faults.on_watch_line.append(lambda call, _: 5.0 if call.user == "system:nodes" else 0.0)
            assert kubelet.is_answering
        on.strike(EtcdRestored(at_s=20, for_s=60, undone_s=20))
        await undone(on)
        await on.until(40.1)
        assert runs(on) == {"comes"}
        assert not any(component.is_running for component in on.world.components.values())
        await on.until(81)
        assert runs(on) == {"goes"}
        assert all(component.is_running for component in on.world.components.values())


async def test_what_is_undone_is_judged_again_when_the_machines_have_caught_up() -> None:
    async with stage("1x1x40GiB") as on:
        on.strike(EtcdRestored(at_s=20, for_s=60, undone_s=20))
        await undone(on)
        findings = on.world.checker.findings
        await on.until(40.05)
        findings.add("S1", 0.0, "in the window")
        findings.add("S9", 0.0, "is promised always")
        await on.until(81)
        findings.add("S1", 0.0, "after it")
        assert [violation.text for violation in findings.found.values()] == ["is promised always", "after it"]


async def test_where_a_machine_does_not_catch_up_it_is_not_judged_later_either() -> None:
    async with stage("1x1x40GiB") as on:
        on.strike(EtcdRestored(at_s=20, for_s=60, undone_s=20))
        await undone(on)
        for kubelet in on.world.nodes.kubelets.values():
            kubelet.freeze()
        await on.until(81)
        on.world.checker.findings.add("S2", 0.0, "nobody can know")
        assert on.world.checker.findings.all_held
        assert all(component.is_running for component in on.world.components.values())


def _are_stopped(on: Stage) -> bool:
    return not any(component.is_running for component in on.world.components.values())


async def test_components_wait_for_a_machine_that_ended_what_the_snapshot_has_and_is_cut_off() -> None:
    """Nothing runs there, so nothing runs that the API server lacks; but a reservation runs by its status."""
    async with stage("1x1x40GiB") as on:
        (kubelet,) = on.world.nodes.kubelets.values()
        await on.pod("goes", gpu_fraction="0.5")
        on.strike(EtcdRestored(at_s=20, for_s=60, undone_s=20))
        await on.until(21)
        await on.world.api.delete(PODS, "goes", namespace=NAMESPACE)
        await on.until(39)
        assert on.world.nodes.ground_truth.running == ()
        kubelet.freeze()
        await on.until(50)
        assert (there(on), await on.phase("goes"), runs(on)) == ({"goes"}, "Running", set())
        assert _are_stopped(on)
        kubelet.thaw()
        await on.until(60)
        assert runs(on) == {"goes"}
        assert not _are_stopped(on)


async def test_components_wait_for_a_machine_that_still_ends_a_pod_whose_deletion_is_undone() -> None:
    async with stage("1x1x40GiB", kubelet=KubeletSettings(stop_s=30)) as on:
        await on.pod("goes", gpu_fraction="0.5")
        on.strike(EtcdRestored(at_s=20, for_s=60, undone_s=20))
        await on.until(39)
        await on.world.api.delete(PODS, "goes", namespace=NAMESPACE)
        await on.until(68)
        assert (await on.phase("goes"), runs(on)) == ("Running", {"goes"})
        assert _are_stopped(on)
        await on.until(75)
        assert runs(on) == set()
        assert not _are_stopped(on)


async def test_requests_that_are_on_their_way_are_lost_with_the_api_server() -> None:
    async with stage() as on:
        call = on.world.server.call(
            "POST",
            "/api/v1/namespaces/team/configmaps",
            query={},
            body=b'{"metadata":{"name":"c"}}',
            content_type="application/json",
            user="binder",
            groups=(),
        )
        on.world.server.answer_later(call, 5.0)
        await on.until(1)
        on.strike(EtcdRestored(at_s=2, for_s=20, undone_s=1))
        await on.until(10)
        assert not await on.exists()


def test_a_restore_is_a_mark_that_runs_reach() -> None:
    actions: tuple[Action, ...] = (CreatePod(at_s=3, name="p", annotations={"gpu-fraction": "0.5"}),)
    fault = EtcdRestored(at_s=2, for_s=60, undone_s=10)
    outcome = run(Scenario(seed=1, shapes=("1x1x40GiB",), actions=actions, faults=(fault,), calm_s=70))
    assert (outcome.violations, "binding undone" in outcome.marks) == ((), False)
    earlier = (CreatePod(at_s=1.999, name="p", annotations={"gpu-fraction": "0.5"}),)
    outcome = run(Scenario(seed=1, shapes=("1x1x40GiB",), actions=earlier, faults=(fault,), calm_s=70))
    assert (outcome.violations, "binding undone" in outcome.marks) == ((), True)


def test_the_documented_way_promises_everything_afterwards() -> None:
    assert EtcdRestored.unpromised == frozenset()
    assert EtcdRestoredUnderWork.unpromised == UNDONE


async def test_what_a_snapshot_lacks_of_the_installation_is_made_again() -> None:
    """The snapshot is taken while the namespace of the reservations is gone, and restored when it is back."""
    async with stage() as on:
        on.strike(ReservationsDeleted(at_s=1, for_s=10))
        on.strike(EtcdRestored(at_s=5, for_s=40, undone_s=20))
        await on.until(50)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(80)
        assert await on.phase("p") == "Running"
