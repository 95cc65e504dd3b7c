"""What KAI does and its users object to, on the real control plane: Moorage does otherwise, or can be set to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import anyio
import pytest

from tests.e2e.cluster import PATIENCE_S, Pod, eventually, pod, scheduled_message
from tests.e2e.teams import SetTeams, Teams, teams
from tests.e2e.workloads import Json
from tools.cluster.deployment import ADMISSION, BINDER, SCHEDULER, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

_numbers = itertools.count()


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of their own: once there is a Queue, pods elsewhere have to name one."""
    with ControlPlane() as started:
        yield started


@pytest.fixture(scope="module")
def moorage(plane: ControlPlane) -> Iterator[Deployment]:
    arguments = {BINDER: ["--idle-s", "1"], SCHEDULER: ["--distinct-gpus"]}
    with Deployment(plane, Options(arguments=arguments, components=(ADMISSION, BINDER, SCHEDULER))) as deployment:
        yield deployment
        deployment.check()


@pytest.fixture
def set_teams(plane: ControlPlane, moorage: Deployment) -> SetTeams:
    moorage.check()
    return lambda *shapes: teams(plane, f"objections-{next(_numbers)}", shapes, moorage)


def _at(made: Pod, node: str) -> Pod:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"nodeSelectorTerms": [term]}
    made["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return made


async def _set_of(at: Teams, name: str, queue: str, replicas: int, **spec: Json) -> None:
    """A ReplicaSet of pods of one GPU: one that is moved comes again."""
    made = at.of(queue, pod(name, gpus=1, labels={"app": name}))
    template = {"metadata": {"labels": made["metadata"]["labels"]}, "spec": {**made["spec"], **spec}}
    template["spec"].setdefault("nodeSelector", {"scene": at.on.namespace})
    body = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    await at.make({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": body})


async def test_no_pod_is_moved_for_a_queue_above_its_share(set_teams: SetTeams) -> None:
    """Once nobody else asks for more, the queue is within its share, and the same pod is moved."""
    async with set_teams("4x2x80GiB") as at:
        nodes = [f"{at.on.namespace}-{number}" for number in range(4)]
        await at.queue("pre", quota=1)
        await at.queue("mid", quota=5)
        for queue in ("pre", "mid"):
            await at.known(queue, is_there=True)
        await at.on.create(*(_at(at.of("pre", pod(f"pre-{n}", gpus=2)), nodes[n]) for n in range(2)))
        for number in (2, 3):
            field = {"key": "kubernetes.io/hostname", "operator": "In", "values": [nodes[number]]}
            prefer = [{"weight": 100, "preference": {"matchExpressions": [field]}}]
            affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": prefer}}
            await _set_of(at, f"mid-{number}", "mid", 1, affinity=affinity)
        pods = await at.on.running(4)
        mine = {name: each["metadata"]["uid"] for name, each in pods.items() if name.startswith("mid-")}
        assert sorted(pods[name]["spec"]["nodeName"] for name in mine) == nodes[2:]
        await _set_of(at, "more", "mid", 4, nodeSelector={"example.com/hall": "two"})

        async def more_wait() -> bool | None:
            waiting = [
                scheduled_message(each) for name, each in (await at.on.pods()).items() if name.startswith("more-")
            ]
            return len([said for said in waiting if said]) == 4 or None

        await eventually(more_wait, "all four to wait, before which the queue asks for no more", within_s=PATIENCE_S)
        await at.on.create(at.of("pre", pod("late", gpus=2)))
        await at.on.says("late", "The best node lacks 1 GPU(s)")
        await anyio.sleep(10)
        pods = await at.on.pods()
        assert {name: pods[name]["metadata"]["uid"] for name in mine} == mine
        assert not [name for name in mine if "deletionTimestamp" in pods[name]["metadata"]]
        await at.end_set("ReplicaSet", "more")

        async def runs() -> bool | None:
            return (await at.on.pod("late"))["status"]["phase"] == "Running" or None

        await eventually(runs, "the late pod to run in the place of one that is moved", within_s=PATIENCE_S)
        for number in (2, 3):
            await at.end_set("ReplicaSet", f"mid-{number}")


async def test_several_gpus_are_not_given_where_two_may_be_one_card(set_teams: SetTeams) -> None:
    async with set_teams("1x4x80GiB") as at:
        sliced = {"metadata": {"labels": {names.NODE_GPU_COUNT: "2", names.NODE_GPU_REPLICAS: "2"}}}
        await at.on.core.patch_node(f"{at.on.namespace}-0", sliced)
        await at.queue("a", quota=4)
        await at.known("a", is_there=True)
        await at.on.create(at.of("a", pod("two", gpus=2)))
        await at.on.says("two", "offer each GPU several times, so several of them may be the same one")
        await at.on.create(at.of("a", pod("one", gpus=1)))
        await at.on.running(1)
