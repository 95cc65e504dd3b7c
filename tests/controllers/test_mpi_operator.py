"""The life of an MPIJob v2beta1: the real MPI operator, a real control plane, simulated nodes."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.nodes.ground_truth import Started
from tests.controllers import stories
from tests.controllers.conftest import SetWorkloads
from tests.controllers.workloads import Json, Workloads, bound, busy, uids
from tests.e2e.cluster import Pod, scheduled_message
from tools.controllers.catalogue import MPI_OPERATOR

pytestmark = [pytest.mark.cluster, pytest.mark.controllers, pytest.mark.nightly]

CONTROLLERS = (MPI_OPERATOR,)
NAME_LABEL = "training.kubeflow.org/job-name"
_ROLE = "training.kubeflow.org/job-role"
_WAITS: Json = {"launcherCreationPolicy": "WaitForWorkersReady"}


def role(at: Workloads, replicas: int, **asked: Any) -> Json:
    """Pods of one role, a GPU each; ``restarts``: what is done about one that failed."""
    restarts = asked.pop("restarts", "Never")
    return {"replicas": replicas, "restartPolicy": restarts, "template": at.pod(**{"gpus": 1, **asked})}


async def train(at: Workloads, *, launcher: Json | None = None, workers: int = 2, **spec: Any) -> None:
    """A launcher and workers."""
    asked = {"restarts": spec.pop("restarts")} if "restarts" in spec else {}
    roles = {"Launcher": launcher or role(at, 1), "Worker": role(at, workers, **asked)}
    await at.create("train", {"mpiReplicaSpecs": roles, **spec})


def of_role(pods: dict[str, Pod], wanted: str) -> dict[str, Pod]:
    return {name: found for name, found in pods.items() if found["metadata"]["labels"][_ROLE] == wanted}


async def test_it_waits_whole_where_a_part_has_room_and_starts_whole(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await busy(at, 2)
        await train(at)
        await stories.starts_whole(at, "train", 3)


async def test_a_launcher_alone_runs(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x1x80GiB") as at:
        alone = role(at, 1)
        del alone["replicas"]
        await at.create("train", {"mpiReplicaSpecs": {"Launcher": alone}, "runLauncherAsWorker": True})
        await at.run_whole("train", 1)


async def test_where_the_launcher_waits_for_its_workers_they_start_whole_before_it(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await busy(at, 2)
        await train(at, **_WAITS)
        await stories.starts_whole(at, "train", 3, waiting=2)
        started = [each.pod for each in at.on.ground_truth.history if isinstance(each, Started)]
        assert started[-1].startswith(f"{at.on.namespace}/train-launcher-")


async def test_a_launcher_without_room_waits_while_its_workers_run_on(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await busy(at, 1)
        await train(at, **_WAITS)

        def waits(pods: dict[str, Pod]) -> bool:
            launchers = of_role(pods, "launcher").values()
            return len(pods) == 3 and all(map(scheduled_message, launchers)) and len(bound(pods)) == 2

        workers = of_role(await at.until("train", waits, "the launcher to say why it waits"), "worker")
        await at.on.delete("other")
        assert uids(workers) < uids(await at.run_whole("train", 3))


async def test_suspended_it_gives_its_place_back_and_resumed_it_waits_whole_for_it(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await train(at)
        await stories.gives_its_place_back(at, "train", 3, to=2, where=stories.IN_RUN_POLICY)


@pytest.mark.parametrize("waits", [{}, _WAITS], ids=["at startup", "after its workers"])
async def test_one_that_is_made_suspended_takes_nothing_until_it_is_resumed(
    set_workloads: SetWorkloads, waits: Json
) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await train(at, runPolicy={"suspend": True}, **waits)
        await stories.takes_nothing(at, "train", stories.IN_RUN_POLICY)
        await at.run_whole("train", 3)


async def test_a_container_that_died_is_started_again_in_its_pod(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await train(at, restarts="OnFailure")
        before = await at.run_whole("train", 3)
        (victim, *_) = of_role(before, "worker")
        await stories.restarts_in_its_pod(at, "train", victim, before)


async def test_a_worker_that_is_deleted_is_replaced_and_the_others_run_on(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await train(at)
        before = await at.run_whole("train", 3)
        (victim, *_) = of_role(before, "worker")
        await at.on.delete(victim)
        after = await at.run_whole("train", 3, without=[before[victim]["metadata"]["uid"]])
        assert uids(before) - uids(after) == {before[victim]["metadata"]["uid"]}


async def test_a_launcher_that_died_is_replaced_until_it_may_no_more(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await train(at, runPolicy={"backoffLimit": 1, "cleanPodPolicy": "Running"})
        before = await at.run_whole("train", 3)
        (launcher,) = of_role(before, "launcher").values()
        at.kill(launcher)

        def replaced(pods: dict[str, Pod]) -> bool:
            running = [each for each in pods.values() if each["status"].get("phase") == "Running"]
            return len(running) == 3 and len(uids(pods) - uids(before)) == 1

        after = await at.until("train", replaced, "a new launcher to run")
        (again,) = (each for each in of_role(after, "launcher").values() if each["status"]["phase"] == "Running")
        at.kill(again)
        await at.condition("train", "Failed")
        await stories.frees(at, 3)


async def test_it_is_over_with_its_launcher_and_its_gpus_are_free(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await train(at, launcher=role(at, 1, ends=(2.0, 0)), runPolicy={"cleanPodPolicy": "Running"})
        await at.condition("train", "Succeeded")
        await at.until("train", lambda pods: set(pods) == set(of_role(pods, "launcher")), "the workers to go")
        await stories.frees(at, 3)


async def test_scaled_up_new_workers_join_and_scaled_down_their_gpus_are_free(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await train(at, workers=1)
        first = await at.run_whole("train", 2)
        await at.patch("train", {"mpiReplicaSpecs": {"Worker": role(at, 3)}})
        assert uids(first) < uids(await at.run_whole("train", 4))
        await at.patch("train", {"mpiReplicaSpecs": {"Worker": role(at, 1)}})
        assert uids(await at.run_whole("train", 2)) == uids(first)
        await stories.frees(at, 2)


async def test_shares_of_one_device_are_taken_and_given_back(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x2x80GiB") as at:
        half: dict[str, Any] = {"gpus": 0, "fraction": "0.5"}
        roles = {"Launcher": role(at, 1, **half), "Worker": role(at, 3, **half)}
        await at.create("small", {"mpiReplicaSpecs": roles})
        pods = await at.run_whole("small", 4)
        # The operator hides the GPUs of a launcher that is no worker.
        await stories.shares_devices(at, "small", of_role(pods, "worker"), [1, 2])


@pytest.mark.parametrize("state", ["runs", "waits", "suspended"])
async def test_deleted_nothing_is_left(set_workloads: SetWorkloads, state: str) -> None:
    async with set_workloads("1x3x80GiB" if state == "runs" else "1x2x80GiB") as at:
        await train(at)
        await stories.ends_deleted(at, "train", 3, state, stories.IN_RUN_POLICY)
