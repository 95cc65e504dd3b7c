"""The whole cluster before the checker: what is judged at rest fires when somebody does not do his part."""

from __future__ import annotations

import contextlib
import random

import anyio
import pytest

from admission.settings import HandOver
from admission.settings import Settings as AdmissionSettings
from kube.client.api import Api
from kube.client.errors import Refused, Unreachable
from kube.client.resources import CONFIG_MAPS, PODS
from kube.client.retry import Retry
from scheduler.app import Scheduler
from scheduler.core.model.preemption import PreemptionFacts
from simulator.apiserver.faults import Fault
from simulator.audit import L1_S
from simulator.checks.evictions import Bounds
from simulator.checks.violations import HELD, LIVENESS
from simulator.nodes.containers import RUN_S
from simulator.world import World
from tests.simulator.test_world import HALF, pods, world

VIRTUAL_TIME = True


async def rested(running: World) -> set[str]:
    """Judge rest; return what is broken."""
    await running.judge_rest()
    return {violation.invariant for violation in running.checker.findings.found.values()}


async def test_a_cluster_at_rest_holds_and_says_that_it_was_judged() -> None:
    async with world("1x2x1GiB", "1x1x2GiB") as running:
        await running.apply(pods(7, HALF) + pods(2, limits="nvidia.com/gpu: 1", prefix="whole"))
        assert await running.until_idle()
        assert await rested(running) == set()
        assert [running.checker.report[invariant] for invariant in LIVENESS] == [HELD] * len(LIVENESS)


async def test_without_a_scheduler_what_fits_waits_and_is_forgotten() -> None:
    async with world("1x1x1GiB") as running:
        running.scheduler.crash()
        await running.apply(pods(1, HALF))
        assert await rested(running) == {"L1", "L3", "S10"}


async def test_a_pod_whose_user_took_his_ask_back_is_not_forgotten() -> None:
    by_config_maps = AdmissionSettings(hand_over=HandOver.CONFIG_MAPS)
    async with world("1x1x1GiB", admission=by_config_maps) as running:
        running.scheduler.crash()
        await running.apply(pods(1, HALF))
        await running.api.patch(PODS, "p-0", {"metadata": {"annotations": {"gpu-fraction": None}}}, namespace="default")
        await running.restart(running.scheduler)
        assert await running.until_idle()
        assert await rested(running) == set()


async def _says(running: World, message: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    patch = {"status": {"conditions": [condition]}}
    await running.api.patch(PODS, "p-0", patch, namespace="default", subresource="status")


@pytest.mark.parametrize(
    ("for_s", "broken"), [(200.0, set[str]()), (2 * L1_S, {"L3"})], ids=["for a while", "for good"]
)
async def test_a_pod_that_backs_off_is_judged_when_it_is_at_rest(for_s: float, broken: set[str]) -> None:
    """An excluded node is tried again late, so a cluster at rest may be looked at just after an attempt failed."""
    async with world("1x1x1GiB") as running:
        running.scheduler.crash()
        await running.apply(pods(1, limits="nvidia.com/gpu: 2"))
        await _says(running, "The last attempt failed, trying again soon: DeviceClaimed: somebody has it")

        async def go_on() -> None:
            await anyio.sleep(for_s)
            lacking = "1 node(s) didn't have enough resources: GPUs."
            await _says(running, f"no nodes with enough resources were found: {lacking}")

        async with anyio.create_task_group() as group:
            group.start_soon(go_on)
            assert await rested(running) == broken
            group.cancel_scope.cancel()


async def test_freed_room_that_nobody_takes_breaks_l4() -> None:
    async with world("1x1x1GiB") as running:
        await running.apply(pods(2, limits="nvidia.com/gpu: 1"))
        assert await running.until_idle()
        running.scheduler.crash()
        assert await rested(running) == {"L4"}


async def test_writes_with_nothing_to_do_break_l5() -> None:
    async with world("1x1x1GiB") as running:
        restless = Api(running.server.transport("binder"), retry=Retry(random.Random(1)))

        async def write_now_and_then() -> None:
            for number in range(100):
                await anyio.sleep(60)
                await restless.create(CONFIG_MAPS, {"metadata": {"name": f"c-{number}"}}, namespace="default")

        async with anyio.create_task_group() as group:
            group.start_soon(write_now_and_then)
            assert await rested(running) == {"L5"}
            group.cancel_scope.cancel()


async def test_decisions_with_nothing_to_do_break_l5() -> None:
    async with world("1x1x1GiB") as running:
        (scheduler,) = running.running.values()
        assert isinstance(scheduler, Scheduler)

        async def change_once_a_second() -> None:
            for second in range(10_000):
                await anyio.sleep(1)
                scheduler.cache.cluster.note_preemption_facts(PreemptionFacts(version=second))
                scheduler.cache.wake.set()

        async with anyio.create_task_group() as group:
            group.start_soon(change_once_a_second)
            assert await rested(running) == {"L5"}
            group.cancel_scope.cancel()


async def test_what_follows_the_end_of_a_program_does_not_break_l5() -> None:
    """It ends after L1 to L3 were judged: then its share and its reservation are given back."""
    async with world("1x1x1GiB") as running:
        (pod,) = pods(1, HALF, f'{RUN_S}: "700"')
        pod.body["spec"]["restartPolicy"] = "Never"
        await running.apply([pod])
        await anyio.sleep(60)
        assert await rested(running) == set()
        assert "L5" not in running.checker.findings.judged


@pytest.mark.parametrize(
    ("fault", "tries", "broken"),
    [
        (Fault(refuse_with=500), Bounds().attempts, False),
        (Fault(refuse_with=500), Bounds().attempts + 1, True),
        (Fault(refuse_with=500, carried_out=True), Bounds().attempts, False),
        (Fault(lost="request", breaks=True), Bounds().attempts + 1, True),
        (Fault(lost="request", breaks=True, lands_after_s=1), Bounds().attempts, False),
    ],
    ids=["as many as allowed", "one more", "carried out, and counted once", "lost on the way", "late, counted once"],
)
async def test_attempts_that_a_fault_keeps_from_the_server_count_for_l2(fault: Fault, tries: int, broken: bool) -> None:
    async with world("1x1x1GiB") as running:
        running.server.faults.on_request.append(lambda call: fault if call.subresource == "binding" else None)
        restless = running.server.transport("binder")
        path = "/api/v1/namespaces/default/pods/p-0/binding"
        for _ in range(tries):
            with contextlib.suppress(Unreachable):
                await restless.request("POST", path, query={}, body=b"{}", timeout_s=5)
        await anyio.sleep(2)
        assert running.checker.findings.broken("L2") is broken


@pytest.mark.parametrize("is_older", [False, True], ids=["of this version", "of an older one, which can't read all"])
async def test_a_ledger_that_forgot_a_device_breaks_s12(is_older: bool) -> None:
    async with world("1x2x1GiB") as running:
        await running.apply(pods(1, HALF))
        assert await running.until_idle()
        assert running.auditor.look_at_ledgers()
        assert running.checker.findings.all_held
        scheduler = running.running["scheduler"]
        assert isinstance(scheduler, Scheduler)
        running.components["scheduler"].is_older = is_older
        scheduler.cache.cluster.ledger.table.free[:, 0] += 1
        assert running.auditor.look_at_ledgers()
        assert running.checker.findings.broken("S12") is not is_older


async def test_ledgers_are_compared_of_themselves_after_changes() -> None:
    async with world("1x2x1GiB") as running:
        await running.apply(pods(1, HALF))
        await anyio.sleep(5)
        compared = running.checker.comparisons
        assert compared > 0
        await anyio.sleep(60)
        assert running.checker.comparisons == compared
        await running.apply(pods(1, prefix="q"))
        await anyio.sleep(5)
        assert running.checker.comparisons > compared


async def test_ledgers_are_not_looked_at_while_events_are_on_their_way() -> None:
    async with world("1x1x1GiB") as running:
        running.server.faults.on_watch_line.append(lambda call, _: 9.0 if call.user == "scheduler" else 0.0)
        await running.apply(pods(1))
        await anyio.sleep(1)
        assert not running.auditor.look_at_ledgers()
        await anyio.sleep(60)
        assert running.auditor.look_at_ledgers()


async def test_a_restart_is_told_when_what_is_promised_of_it_is_broken() -> None:
    async with world("1x1x1GiB") as running:
        await running.restart(running.binder)
        assert running.finish()["S10"] == HELD
        running.checker.findings.add("S1", 0.0, "a device is given twice")
        assert "binder/2 was started" in running.finish()["S10"]


@pytest.mark.parametrize(
    ("annotations", "told"),
    [
        ({"moorage.dev/grant": "{}"}, "only the scheduler and the binder may write moorage.dev/grant"),
        ({"gpu-fraction": "0.1"}, "can't be changed any more"),
    ],
)
async def test_the_policies_of_the_api_server_hold(annotations: dict[str, str], told: str) -> None:
    async with world("1x1x1GiB") as running:
        await running.apply(pods(1, HALF))
        assert await running.until_idle()
        with pytest.raises(Refused, match=told):
            await running.api.patch(PODS, "p-0", {"metadata": {"annotations": annotations}}, namespace="default")
