"""The life of a TrainJob: the real Trainer 2 and JobSet (tools/controllers), a real control plane, simulated nodes."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.nodes.ground_truth import Started
from tests.controllers import stories
from tests.controllers.conftest import SetWorkloads
from tests.controllers.workloads import Json, Workloads, bound, busy, uids
from tests.e2e.cluster import Pod, scheduled_message
from tools.controllers.catalogue import JOBSET, TRAINER

pytestmark = [pytest.mark.cluster, pytest.mark.controllers, pytest.mark.nightly]

CONTROLLERS = (JOBSET, TRAINER)
NAME_LABEL = "jobset.sigs.k8s.io/jobset-name"
_ROLE = "jobset.sigs.k8s.io/replicatedjob-name"
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_INITIALIZERS = ("dataset-initializer", "model-initializer")
_NODE = "node"


def step(at: Workloads, name: str, *, after: tuple[str, ...] = (), **asked: Any) -> Json:
    """A replicated Job of a runtime: an initializer, or the trainer's nodes."""
    template = at.pod(**{"restartPolicy": "Never", **asked})
    template["spec"]["containers"][0]["name"] = name
    label = {_STEP: "trainer" if name == _NODE else name}
    waits = {"dependsOn": [{"name": each, "status": "Complete"} for each in after]} if after else {}
    spec = {"backoffLimit": 0, "template": template}
    return {"name": name, **waits, "template": {"metadata": {"labels": label}, "spec": spec}}


async def train(at: Workloads, *steps: Json, nodes: int = 2, restarts: int = 0, **spec: Any) -> None:
    """A ClusterTrainingRuntime of these steps, and a TrainJob of it."""
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": at.on.namespace},
        "spec": {
            "mlPolicy": {"numNodes": nodes},
            "template": {"spec": {"replicatedJobs": [*steps], "failurePolicy": {"maxRestarts": restarts}}},
        },
    }
    place = ("trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes")
    await at.on.custom.create_cluster_custom_object(*place, runtime)
    await at.create("train", {"runtimeRef": {"name": at.on.namespace}, **spec})


async def initialized(at: Workloads, *, ends: float = 1.0, **more: Any) -> None:
    """Two initializers, a GPU each, then two nodes, two GPUs each."""
    first = [step(at, each, gpus=1, ends=(ends, 0)) for each in _INITIALIZERS]
    source: Json = {"dataset": {"storageUri": "hf://team/data"}, "model": {"storageUri": "hf://team/model"}}
    await train(at, *first, step(at, _NODE, after=_INITIALIZERS, gpus=2), initializer=source, **more)


def of_role(pods: dict[str, Pod], *roles: str) -> dict[str, Pod]:
    return {name: found for name, found in pods.items() if found["metadata"]["labels"][_ROLE] in roles}


def nodes_run(pods: dict[str, Pod]) -> bool:
    running = [each for each in of_role(pods, _NODE).values() if each["status"].get("phase") == "Running"]
    return len(running) == len(of_role(pods, _NODE)) == 2


def nodes_wait(pods: dict[str, Pod]) -> bool:
    nodes = of_role(pods, _NODE)
    return len(nodes) == 2 and any("for gang scheduling" in scheduled_message(each) for each in nodes.values())


async def test_initializers_end_before_the_nodes_are_made_which_start_whole(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await initialized(at)
        await at.until("train", nodes_run, "the nodes to run")
        started = [each.pod.partition("train-")[2] for each in at.on.ground_truth.history if isinstance(each, Started)]
        assert sorted(name.rpartition("-initializer")[0] for name in started[:2]) == ["dataset", "model"]
        assert all(name.startswith(_NODE) for name in started[2:])


async def test_initializers_wait_whole_where_one_has_room(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await busy(at, 3)
        await initialized(at)
        await at.wait_whole("train", 2)
        await at.on.delete("other")
        await at.until("train", nodes_run, "the nodes to run")


async def test_nodes_wait_whole_where_one_has_room_after_their_initializers(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await busy(at, 2)
        await initialized(at)
        pods = await at.until("train", nodes_wait, "the nodes to wait")
        assert bound(of_role(pods, _NODE)) == []
        await at.on.delete("other")
        await at.until("train", nodes_run, "the nodes to run")


async def test_a_job_without_initializers_waits_whole_and_starts_whole(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await busy(at, 2)
        await train(at, step(at, _NODE, gpus=1), trainer={"numNodes": 3})
        await stories.starts_whole(at, "train", 3)


async def test_suspended_it_gives_its_place_back_and_resumed_it_waits_whole_for_it(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await train(at, step(at, _NODE, gpus=2))
        await stories.gives_its_place_back(at, "train", 2, to=2)


async def test_one_that_is_made_suspended_takes_nothing_until_it_is_resumed(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await initialized(at, suspend=True)
        await stories.takes_nothing(at, "train")
        await at.until("train", nodes_run, "the nodes to run")


async def test_suspended_after_its_initializers_it_resumes(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await initialized(at)
        before = await at.until("train", nodes_run, "the nodes to run")
        await at.patch("train", {"suspend": True})
        await at.until("train", lambda pods: not of_role(pods, _NODE), "the nodes to go")
        await at.patch("train", {"suspend": False})
        after = await at.until("train", nodes_run, "the nodes to run again")
        assert not uids(of_role(before, _NODE)) & uids(of_role(after, _NODE))


async def test_a_node_that_fails_brings_all_down_and_all_start_again_until_they_may_no_more(
    set_workloads: SetWorkloads,
) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await initialized(at, restarts=1)
        before = await at.until("train", nodes_run, "the nodes to run")
        at.kill(next(iter(of_role(before, _NODE).values())))

        def again(pods: dict[str, Pod]) -> bool:
            return nodes_run(pods) and not uids(pods) & uids(before)

        after = await at.until("train", again, "the nodes to run again")
        at.kill(next(iter(of_role(after, _NODE).values())))
        await at.condition("train", "Failed")
        # What it had is free, though the TrainJob is still there.
        await stories.frees(at, 4)


async def test_an_initializer_that_fails_fails_the_job_and_no_node_is_made(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        first = step(at, "dataset-initializer", gpus=1, ends=(1.0, 1))
        await train(at, first, step(at, _NODE, after=("dataset-initializer",), gpus=2))
        await at.condition("train", "Failed")
        assert of_role(await at.pods_of("train"), _NODE) == {}
        await stories.frees(at, 4)


async def test_over_its_gpus_are_free(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        first = step(at, "dataset-initializer", gpus=1, ends=(1.0, 0))
        await train(at, first, step(at, _NODE, after=("dataset-initializer",), gpus=2, ends=(2.0, 0)))
        await at.condition("train", "Complete")
        await stories.frees(at, 4)


async def test_shares_of_one_device_are_taken_and_given_back(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x2x80GiB") as at:
        await train(at, step(at, _NODE, fraction="0.5"), nodes=4)
        pods = await at.run_whole("train", 4)
        await stories.shares_devices(at, "train", pods, [2, 2])


@pytest.mark.parametrize("state", ["runs", "waits", "initializes", "suspended"])
async def test_deleted_nothing_is_left(set_workloads: SetWorkloads, state: str) -> None:
    async with set_workloads("1x3x80GiB" if state == "waits" else "1x4x80GiB") as at:
        await initialized(at, ends=600.0 if state == "initializes" else 1.0)
        if state == "initializes":
            await at.run_whole("train", 2)
        else:
            await at.until("train", nodes_wait if state == "waits" else nodes_run, "the nodes to be made")
        if state == "suspended":
            await at.patch("train", {"suspend": True})
            await at.until("train", lambda pods: not of_role(pods, _NODE), "the nodes to go")
        await stories.leaves_nothing(at, "train")
