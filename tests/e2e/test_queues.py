"""Queues on the real control plane: who gets GPUs when many teams want them, and what the others are told.

Some stories begin with a pod that uses all GPUs, so that what is submitted waits, and is decided on together once that
pod is gone.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Iterator

import aiohttp
import anyio
import pytest

from tests.e2e.cluster import PATIENCE_S, eventually
from tests.e2e.teams import SetTeams, bound, teams
from tests.e2e.workloads import Json
from tools.cluster.deployment import GROUPING, Deployment, Options
from tools.cluster.plane import ControlPlane
from tools.ports import free_port
from wire import names

pytestmark = pytest.mark.cluster

_numbers = itertools.count()


@pytest.fixture(scope="module")
def queue_plane() -> Iterator[ControlPlane]:
    """A control plane of their own: once there is a Queue, pods elsewhere have to name one."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="module")
def queueing(queue_plane: ControlPlane) -> Iterator[Deployment]:
    # Who gets what comes free is shown here; who is evicted for others in test_preemption.py.
    arguments = {"binder": ["--idle-s", "1"], "scheduler": ["--preemption=false"]}
    options = Options(arguments=arguments, components=GROUPING)
    with Deployment(queue_plane, options) as deployment:
        yield deployment
        deployment.check()


@pytest.fixture
def set_teams(queue_plane: ControlPlane, queueing: Deployment) -> SetTeams:
    queueing.check()
    return lambda *shapes: teams(queue_plane, f"teams-{next(_numbers)}", shapes, queueing)


async def test_two_teams_share_two_to_one(set_teams: SetTeams) -> None:
    async with set_teams("1x6x80GiB") as at:
        await at.fill(6)
        await at.queue("a", weight=2)
        await at.queue("b", weight=1)
        await at.submit("b", 6)
        await at.submit("a", 6)
        await at.make_way()
        assert await at.served(6) == {"a": 4, "b": 2}


async def test_a_gang_hits_a_limit_whole_and_starts_whole_when_the_limit_is_raised(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.queue("a", limit=3)
        await at.gang("a", "two", 2)
        await at.on.running(2)
        await at.gang("a", "three", 3)
        text = await at.on.says("three-0", "quota has reached the allowable limit of GPUs")
        assert "Limit is 3 GPUs, currently 2 GPUs allocated and workload requested 3 GPUs" in text
        assert bound(await at.on.pods()) == ["two-0", "two-1"]
        await at.on.delete("two-0", "two-1")
        await at.on.running(3)


async def test_what_can_not_be_preempted_stays_within_quotas(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.queue("a", quota=1)
        fixed = {names.PREEMPTIBILITY_LABEL: "non-preemptible"}
        await at.submit("a", 1, **fixed)
        await at.on.running(1)
        (over,) = await at.submit("a", 1, **fixed)
        assert "Use a preemptible workload to go over quota" in await at.on.says(over, "is over quota")
        await at.submit("a", 2)
        await at.on.running(3)
        await at.stays(over)


async def test_pods_of_a_queue_that_is_deleted_run_on_and_new_ones_wait_for_it(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.queue("other")
        await at.queue("a")
        await at.submit("a", 1)
        await at.on.running(1)
        await at.remove("a")
        await at.known("a", is_there=False)
        (late,) = await at.submit("a", 1)
        await at.on.says(late, at.name("a"))
        assert len(bound(await at.on.pods())) == 1
        await at.queue("a")
        await at.on.running(2)


async def test_a_pod_that_is_moved_to_another_queue_is_served_there(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.queue("a", limit=1)
        await at.queue("b")
        await at.submit("a", 1)
        await at.on.running(1)
        (moved,) = await at.submit("a", 1)
        await at.on.says(moved, "allowable limit")
        patch = {"metadata": {"labels": {names.QUEUE_LABEL: at.name("b")}}}
        await at.on.core.patch_namespaced_pod(moved, at.on.namespace, patch)
        await at.on.running(2)


async def test_a_storm_of_jobs_never_passes_the_limit_of_its_queue(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.queue("a", limit=2)
        labels = {names.QUEUE_LABEL: at.name("a")}
        for number in range(10):
            await at.job(f"cron-{number}", 2, annotations={names.BATCH_MIN_MEMBER: "2"}, labels=labels)
        seen = 0
        for _ in range(5):
            running = await at.on.running(4)
            found = [name for name, each in running.items() if each["spec"].get("nodeName")]
            assert len(found) == 4
            job = found[0].rsplit("-", 1)[0]
            await at.end_job(job)
            seen += 1
            mine = [name for name in running if name.startswith(f"{job}-")]
            await at.on.gone(mine)
        assert seen == 5


async def test_the_page_top_and_inspect_agree_on_a_queue_that_only_the_workload_names(
    set_teams: SetTeams, queue_plane: ControlPlane
) -> None:
    async with set_teams("1x4x80GiB") as at:
        await at.queue("a", quota=2)
        await at.job("labelled", 3, labels={names.QUEUE_LABEL: at.name("a")})
        await at.on.running(3)
        own = ["--kubeconfig", str(queue_plane.kubeconfig_path)]
        told = json.loads(await _said("inspect", "queues", "-o", "json", *own))["queues"]
        assert {each["name"]: each["allocated"]["gpuNano"] for each in told} == {at.name("a"): 1_500_000_000}
        top = (await _said("top", "--once", "--by", "queue", *own)).splitlines()
        assert top[1].strip() == f"a {at.name('a')} 1.5"
        page = await _page(*own)
        assert {each["name"]: each["usedNano"] for each in page["queues"]} == {at.name("a"): 1_500_000_000}
        assert {each["queue"] for each in page["pods"]} == {at.name("a")}


async def _page(*arguments: str) -> Json:
    """What the page's process shows of a cluster."""
    port = free_port()
    command = [sys.executable, "-m", "cli.main", "ui", "--listen", f"127.0.0.1:{port}", *arguments]
    address = f"http://127.0.0.1:{port}"
    async with await anyio.open_process(command) as process, aiohttp.ClientSession(address) as session:

        async def shown() -> Json | None:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with session.get("/api/state") as answer:
                    changes: Json = (await answer.json())["changes"] if answer.status == 200 else {}
                    return changes if changes.get("pods") and changes.get("queues") else None
            return None

        found = await eventually(shown, "the page to have read the cluster", within_s=PATIENCE_S)
        process.terminate()
        return found


async def _said(*command: str) -> str:
    return (await anyio.run_process([sys.executable, "-m", "cli.main", *command])).stdout.decode()
