"""The life of a LeaderWorkerSet: the real controller (tools/controllers/lws), a real control plane, simulated nodes."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.nodes.ground_truth import Started
from tests.controllers import stories
from tests.controllers.conftest import SetWorkloads
from tests.controllers.workloads import Workloads, bound, busy, uids
from tests.e2e.cluster import Pod, scheduled_message
from tests.e2e.grouped import group_of
from tools.controllers.catalogue import LWS

pytestmark = [pytest.mark.cluster, pytest.mark.controllers]

CONTROLLERS = (LWS,)
NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"
_GROUP = "leaderworkerset.sigs.k8s.io/group-index"


async def serve(at: Workloads, groups: int, *, size: int = 3, restarts: str = "", starts: str = "") -> None:
    """Groups of a leader and workers, a GPU each."""
    template: dict[str, Any] = {"size": size, "workerTemplate": at.pod(gpus=1)}
    if restarts:
        template["restartPolicy"] = restarts
    spec = {"replicas": groups, "leaderWorkerTemplate": template, **({"startupPolicy": starts} if starts else {})}
    await at.create("llm", spec)


def by_group(pods: dict[str, Pod]) -> dict[str, dict[str, Pod]]:
    """The pods of each group."""
    found: dict[str, dict[str, Pod]] = {}
    for name, each in pods.items():
        found.setdefault(each["metadata"]["labels"][_GROUP], {})[name] = each
    return found


async def test_each_group_is_a_gang_of_its_own(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x8x80GiB") as at:
        await serve(at, 2)
        groups = by_group(await at.run_whole("llm", 6))
        names = [{group_of(each) for each in pods.values()} for pods in groups.values()]
        assert [len(one) for one in names] == [1, 1]
        minimum = {name: group["spec"]["minMember"] for name, group in (await at.groups()).items()}
        assert minimum == dict.fromkeys(set.union(*names), 3)


async def test_a_group_without_room_for_all_waits_whole_beside_one_that_runs(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x6x80GiB") as at:
        await busy(at, 1)
        await serve(at, 2)

        def one_runs(pods: dict[str, Pod]) -> bool:
            running = sorted(len(bound(group)) for group in by_group(pods).values())
            return len(pods) == 6 and running == [0, 3]

        await at.until("llm", one_runs, "one group to run and one to wait")
        await at.on.delete("other")
        await at.run_whole("llm", 6)


async def test_scaled_up_a_new_group_starts_whole_and_scaled_down_its_gpus_are_free(
    set_workloads: SetWorkloads,
) -> None:
    async with set_workloads("1x6x80GiB") as at:
        await serve(at, 1)
        first = await at.run_whole("llm", 3)
        await at.patch("llm", {"replicas": 2})
        both = await at.run_whole("llm", 6)
        assert uids(first) < uids(both)
        await at.patch("llm", {"replicas": 1})
        assert uids(await at.run_whole("llm", 3)) == uids(first)
        await stories.frees(at, 3)


async def test_scaled_to_none_it_gives_all_back_and_scaled_up_again_it_waits_whole_for_it(
    set_workloads: SetWorkloads,
) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await serve(at, 1)
        await at.run_whole("llm", 3)
        await at.patch("llm", {"replicas": 0})
        await at.until("llm", lambda pods: not pods, "all pods to go")
        await busy(at, 2)
        await at.patch("llm", {"replicas": 1})
        await stories.starts_whole(at, "llm", 3)


async def test_a_container_that_died_brings_its_group_down_which_starts_again_whole(
    set_workloads: SetWorkloads,
) -> None:
    async with set_workloads("1x6x80GiB") as at:
        await serve(at, 2)
        before = by_group(await at.run_whole("llm", 6))
        at.kill(before["0"]["llm-0-2"])
        after = by_group(await at.run_whole("llm", 6, without=uids(before["0"])))
        assert uids(after["1"]) == uids(before["1"])


async def test_where_none_is_asked_for_a_container_that_died_is_started_again_in_its_pod(
    set_workloads: SetWorkloads,
) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await serve(at, 1, restarts="None")
        before = await at.run_whole("llm", 3)
        await stories.restarts_in_its_pod(at, "llm", "llm-0-1", before)


async def test_a_leader_that_is_deleted_takes_its_workers_along_and_all_start_again(
    set_workloads: SetWorkloads,
) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await serve(at, 1)
        before = await at.run_whole("llm", 3)
        await at.on.delete("llm-0")
        await at.run_whole("llm", 3, without=uids(before))


async def test_where_workers_wait_for_their_leader_it_runs_before_they_are_made(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await serve(at, 1, starts="LeaderReady")
        await at.run_whole("llm", 3)
        started = [each.pod for each in at.on.ground_truth.history if isinstance(each, Started)]
        assert started[0] == f"{at.on.namespace}/llm-0"


async def test_workers_without_room_for_all_wait_whole_while_their_leader_runs(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await busy(at, 1)
        await serve(at, 1, starts="LeaderReady")

        def leader_alone(pods: dict[str, Pod]) -> bool:
            waits = [scheduled_message(each) for name, each in pods.items() if name != "llm-0"]
            return len(waits) == 2 and all("for gang scheduling" in said for said in waits) and bound(pods) == ["llm-0"]

        await at.until("llm", leader_alone, "the leader to run and both workers to wait")
        await at.on.delete("other")
        await at.run_whole("llm", 3)


async def test_a_new_template_is_rolled_out_group_by_group(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x6x80GiB") as at:
        await serve(at, 2)
        before = await at.run_whole("llm", 6)
        template = at.pod(gpus=1)
        template["spec"]["containers"][0]["image"] = "cuda-app:2"
        await at.patch("llm", {"leaderWorkerTemplate": {"workerTemplate": template}})
        after = await at.run_whole("llm", 6, without=uids(before))
        assert {each["spec"]["containers"][0]["image"] for each in after.values()} == {"cuda-app:2"}


@pytest.mark.parametrize("gpus", [3, 2], ids=["runs", "waits"])
async def test_deleted_nothing_is_left(set_workloads: SetWorkloads, gpus: int) -> None:
    async with set_workloads(f"1x{gpus}x80GiB") as at:
        await serve(at, 1)
        await (at.run_whole("llm", 3) if gpus == 3 else at.wait_whole("llm", 3))
        await stories.leaves_nothing(at, "llm")


async def test_shares_of_one_device_are_taken_and_given_back(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x2x80GiB") as at:
        template = {"size": 2, "workerTemplate": at.pod(fraction="0.5")}
        await at.create("llm", {"replicas": 2, "leaderWorkerTemplate": template})
        pods = await at.run_whole("llm", 4)
        await stories.shares_devices(at, "llm", pods, [2, 2])
