"""etcd is restored from a snapshot: what the cluster is then, who is stopped, and what is judged meanwhile."""

from __future__ import annotations

import pytest

from kube.client.resources import PODS
from simulator.nodes.shape import KubeletSettings
from tests.verification.hostile.faults.grounds import NAMESPACE, Stage, stage
from verification.hostile.actions import Action, CreatePod
from verification.hostile.faults.objects import UNDONE, EtcdRestored, EtcdRestoredUnderWork, ReservationsDeleted
from verification.hostile.run import run
from verification.hostile.scenario import Scenario


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
