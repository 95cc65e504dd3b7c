"""The life of Kubeflow's training jobs: the real training-operator, a real control plane, simulated nodes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controllers import stories
from tests.controllers.conftest import SetWorkloads
from tests.controllers.workloads import Json, Workloads, bound, busy, uids
from tests.e2e.cluster import Pod
from tools.controllers.catalogue import TRAINING_OPERATOR

pytestmark = [pytest.mark.cluster, pytest.mark.controllers, pytest.mark.nightly]

CONTROLLERS = (TRAINING_OPERATOR,)
NAME_LABEL = "training.kubeflow.org/job-name"
_ROLE = "training.kubeflow.org/replica-type"
#: Of each kind the field of its replicas, the container that it looks for, and pods by role.
_OTHERS: dict[str, tuple[str, str, dict[str, int]]] = {
    "TFJob": ("tfReplicaSpecs", "tensorflow", {"Chief": 1, "PS": 1, "Worker": 2}),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost", {"Master": 1, "Worker": 3}),
    "JAXJob": ("jaxReplicaSpecs", "jax", {"Worker": 4}),
    "PaddleJob": ("paddleReplicaSpecs", "paddle", {"Master": 1, "Worker": 3}),
    "MPIJob": ("mpiReplicaSpecs", "mpi", {"Launcher": 1, "Worker": 3}),
}


def role(at: Workloads, replicas: int | None, container: str = "pytorch", **asked: Any) -> Json:
    """Pods of one role, a GPU each; ``restarts``: what is done about one that failed."""
    restarts = asked.pop("restarts", "Never")
    template = at.pod(**({"gpus": 1} | asked))
    template["spec"]["containers"][0]["name"] = container
    number = {} if replicas is None else {"replicas": replicas}
    return {**number, "restartPolicy": restarts, "template": template}


async def train(at: Workloads, *, master: Json | None = None, policy: Json | None = None, **asked: Any) -> None:
    """A PyTorchJob of a master and two workers."""
    roles = {"Master": role(at, 1, **asked) if master is None else master, "Worker": role(at, 2, **asked)}
    await at.create("train", {"pytorchReplicaSpecs": roles, "runPolicy": policy or {}})


def of_role(pods: dict[str, Pod], wanted: str) -> dict[str, Pod]:
    return {name: found for name, found in pods.items() if found["metadata"]["labels"][_ROLE] == wanted}


async def test_it_waits_whole_where_a_part_has_room_and_starts_whole(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await busy(at, 2)
        await train(at)
        await at.wait_whole("train", 3)
        (group,) = (await at.groups()).values()
        assert {part["name"]: part["minMember"] for part in group["spec"]["subGroups"]} == {"master": 1, "worker": 2}
        await at.on.delete("other")
        await at.run_whole("train", 3)


@pytest.mark.parametrize("name", _OTHERS)
async def test_other_kinds_wait_whole_and_start_whole(set_workloads: SetWorkloads, name: str) -> None:
    field, container, roles = _OTHERS[name]
    async with set_workloads("1x4x80GiB") as on:
        at = on.of(next(each for each in TRAINING_OPERATOR.kinds if each.name == name))
        await busy(at, 1)
        await at.create("train", {field: {each: role(at, count, container) for each, count in roles.items()}})
        await stories.starts_whole(at, "train", 4)


async def test_a_role_that_does_not_say_how_many_is_one_pod(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x2x80GiB") as at:
        roles = {"Master": role(at, 1), "Worker": role(at, None)}
        await at.create("train", {"pytorchReplicaSpecs": roles, "runPolicy": {}})
        await at.run_whole("train", 2)


async def test_where_fewer_are_enough_it_starts_with_those(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await busy(at, 1)
        await train(at, policy={"schedulingPolicy": {"minAvailable": 2}})

        def two_run(pods: dict[str, Pod]) -> bool:
            running = [each for each in pods.values() if each["status"].get("phase") == "Running"]
            return (len(pods), len(running)) == (3, 2)

        await at.until("train", two_run, "two of three pods to run")
        await at.on.delete("other")
        await at.run_whole("train", 3)


async def test_suspended_it_gives_its_place_back_and_resumed_it_waits_whole_for_it(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await train(at)
        await stories.gives_its_place_back(at, "train", 3, to=2, where=stories.IN_RUN_POLICY)


async def test_one_that_is_made_suspended_takes_nothing_until_it_is_resumed(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await train(at, policy={"suspend": True})
        await stories.takes_nothing(at, "train", stories.IN_RUN_POLICY)
        await at.run_whole("train", 3)


async def test_a_container_that_died_is_started_again_in_its_pod(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await train(at, restarts="OnFailure")
        before = await at.run_whole("train", 3)
        (victim, *_) = of_role(before, "worker")
        await stories.restarts_in_its_pod(at, "train", victim, before)


@pytest.mark.parametrize("dies", ["worker", "master"])
async def test_a_member_whose_exit_code_may_be_retried_is_replaced_and_the_others_run_on(
    set_workloads: SetWorkloads, dies: str
) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await train(at, restarts="ExitCode")
        before = await at.run_whole("train", 3)
        (victim, *_) = of_role(before, dies).values()
        at.kill(victim)
        after = await at.run_whole("train", 3, without=[victim["metadata"]["uid"]])
        assert uids(before) - uids(after) == {victim["metadata"]["uid"]}


async def test_a_member_that_may_not_restart_fails_the_job_and_its_gpus_are_free(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await train(at, policy={"cleanPodPolicy": "Running"})
        before = await at.run_whole("train", 3)
        at.kill(next(iter(of_role(before, "worker").values())))
        await at.condition("train", "Failed")
        await stories.frees(at, 3)


async def test_it_is_over_with_its_master_and_its_gpus_are_free(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await train(at, master=role(at, 1, ends=(2.0, 0)), policy={"cleanPodPolicy": "Running"})
        await at.condition("train", "Succeeded")
        await at.until("train", lambda pods: set(pods) == set(of_role(pods, "master")), "the workers to go")
        await stories.frees(at, 3)


async def test_elastic_workers_above_the_minimum_come_and_go(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await busy(at, 2)
        elastic = {"minReplicas": 1, "maxReplicas": 3, "rdzvBackend": "c10d"}
        await at.create(
            "train", {"pytorchReplicaSpecs": {"Worker": role(at, 3)}, "elasticPolicy": elastic, "runPolicy": {}}
        )
        await at.until("train", lambda pods: len(pods) == 3 and len(bound(pods)) == 1, "one of three to start")
        await at.on.delete("other")
        three = await at.run_whole("train", 3)
        await at.patch("train", {"pytorchReplicaSpecs": {"Worker": role(at, 1)}})
        assert uids(await at.run_whole("train", 1)) < uids(three)
        await stories.frees(at, 2)
        await at.patch("train", {"pytorchReplicaSpecs": {"Worker": role(at, 2)}})
        await at.run_whole("train", 2)


async def test_over_it_is_deleted_after_its_time_with_all_that_was_made_for_it(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        await train(at, ends=(1.0, 0), policy={"ttlSecondsAfterFinished": 3})
        await at.condition("train", "Succeeded")
        await at.nothing_left()


async def test_shares_of_one_device_are_taken_and_given_back(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x2x80GiB") as at:
        half: dict[str, Any] = {"gpus": 0, "fraction": "0.5"}
        roles = {"Master": role(at, 1, **half), "Worker": role(at, 3, **half)}
        await at.create("small", {"pytorchReplicaSpecs": roles, "runPolicy": {}})
        pods = await at.run_whole("small", 4)
        await stories.shares_devices(at, "small", pods, [2, 2])


@pytest.mark.parametrize("state", ["runs", "waits", "suspended"])
async def test_deleted_nothing_is_left(set_workloads: SetWorkloads, state: str) -> None:
    async with set_workloads("1x3x80GiB" if state == "runs" else "1x2x80GiB") as at:
        await train(at)
        await stories.ends_deleted(at, "train", 3, state, stories.IN_RUN_POLICY)
