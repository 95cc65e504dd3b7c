"""The life of a JobSet: the real controller (tools/controllers/jobset), a real control plane, simulated nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from simulator.nodes.ground_truth import Started
from tests.controllers import stories
from tests.controllers.conftest import SetWorkloads
from tests.controllers.workloads import Json, Workloads, bound, busy, uids
from tests.e2e.cluster import Pod, scheduled_message
from tools.controllers.catalogue import JOBSET

pytestmark = [pytest.mark.cluster, pytest.mark.controllers]

CONTROLLERS = (JOBSET,)
NAME_LABEL = "jobset.sigs.k8s.io/jobset-name"
_ROLE = "jobset.sigs.k8s.io/replicatedjob-name"
_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"


def job(name: str, template: Json, *, replicas: int = 1, pods: int = 1, backoff: int = 0) -> Json:
    """A replicated Job, each replica with so many pods."""
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": backoff, "template": template}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def never(at: Workloads, **asked: Any) -> Json:
    return at.pod(**{"restartPolicy": "Never", **asked})


def of_role(pods: dict[str, Pod], role: str) -> dict[str, Pod]:
    return {name: found for name, found in pods.items() if found["metadata"]["labels"][_ROLE] == role}


async def make(at: Workloads, name: str, *jobs: Json, **spec: Any) -> None:
    await at.create(name, {"replicatedJobs": list(jobs), **spec})


async def train(at: Workloads, *, backoff: int = 0, restarts: int = 0, **asked: Any) -> None:
    """A driver and two replicas of two workers: five pods, a GPU each."""
    jobs = (
        job("driver", never(at, gpus=1, **asked), backoff=backoff),
        job("workers", never(at, gpus=1, **asked), replicas=2, pods=2, backoff=backoff),
    )
    await make(at, "train", *jobs, failurePolicy={"maxRestarts": restarts})


async def test_it_waits_whole_where_a_part_has_room_and_starts_whole(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x8x80GiB") as at:
        await busy(at, 4)
        await train(at)
        await at.wait_whole("train", 5)
        (group,) = (await at.groups()).values()
        parts = {part["name"]: part.get("minMember") for part in group["spec"]["subGroups"]}
        assert parts == {
            "driver": None,
            "driver-replica-0": 1,
            "workers": None,
            "workers-replica-0": 2,
            "workers-replica-1": 2,
        }
        await at.on.delete("other")
        await at.run_whole("train", 5)


async def test_shares_of_one_device_are_taken_and_given_back(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x2x80GiB") as at:
        await make(at, "small", job("workers", never(at, fraction="0.5"), replicas=2, pods=2))
        pods = await at.run_whole("small", 4)
        await stories.shares_devices(at, "small", pods, [2, 2])


async def test_suspended_it_gives_its_place_back_and_resumed_it_waits_whole_for_it(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x8x80GiB") as at:
        await train(at)
        await stories.gives_its_place_back(at, "train", 5, to=4)


async def test_one_that_is_made_suspended_takes_nothing_until_it_is_resumed(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x8x80GiB") as at:
        await make(at, "train", job("workers", never(at, gpus=1), replicas=2, pods=2), suspend=True)
        await stories.takes_nothing(at, "train")
        await at.run_whole("train", 4)


async def test_a_container_that_died_is_started_again_in_its_pod(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x8x80GiB") as at:
        await train(at, restartPolicy="OnFailure", backoff=6)
        before = await at.run_whole("train", 5)
        (victim, *_) = of_role(before, "workers")
        await stories.restarts_in_its_pod(at, "train", victim, before)


async def test_a_member_that_its_job_replaces_joins_those_that_run(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x5x80GiB") as at:
        await train(at, backoff=6)
        before = await at.run_whole("train", 5)
        victim = next(iter(of_role(before, "workers").values()))
        at.kill(victim)

        def replaced(pods: dict[str, Pod]) -> bool:
            running = [each for each in pods.values() if each["status"].get("phase") == "Running"]
            return len(running) == 5 and len(uids(pods) - uids(before)) == 1

        after = await at.until("train", replaced, "a new member to run")
        assert uids(before) - uids(after) <= {victim["metadata"]["uid"]}


async def test_a_member_that_fails_its_job_brings_all_down_and_all_start_again_until_it_may_no_more(
    set_workloads: SetWorkloads,
) -> None:
    async with set_workloads("1x5x80GiB") as at:
        await train(at, restarts=1)
        before = await at.run_whole("train", 5)
        at.kill(next(iter(of_role(before, "workers").values())))
        again = await at.run_whole("train", 5, without=uids(before))
        assert {found["metadata"]["labels"][_ATTEMPT] for found in again.values()} == {"1"}
        at.kill(next(iter(of_role(again, "driver").values())))
        await at.condition("train", "Failed")

        def over(pods: dict[str, Pod]) -> bool:
            return all(each["status"]["phase"] in {"Succeeded", "Failed"} for each in pods.values())

        await at.until("train", over, "no pod of a failed JobSet to run")
        # What it had is free, though the JobSet is still there.
        await stories.frees(at, 5)


async def test_in_order_one_part_runs_before_the_next_is_made(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x8x80GiB") as at:
        jobs = (job("driver", never(at, gpus=1)), job("workers", never(at, gpus=1), replicas=2, pods=2))
        await make(at, "train", *jobs, startupPolicy={"startupPolicyOrder": "InOrder"})
        await at.run_whole("train", 5)
        assert _starts(at)[0].startswith(f"{at.on.namespace}/train-driver-")


async def test_in_order_a_later_part_without_room_waits_and_the_first_runs_on(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await busy(at, 1)
        jobs = (job("driver", never(at, gpus=1)), job("worker", never(at, gpus=3)))
        await make(at, "train", *jobs, startupPolicy={"startupPolicyOrder": "InOrder"})

        def driver_alone(pods: dict[str, Pod]) -> bool:
            waits = [scheduled_message(each) for each in of_role(pods, "worker").values()]
            return len(pods) == 2 and set(bound(pods)) == set(of_role(pods, "driver")) and all(waits)

        await at.until("train", driver_alone, "the driver to run and the worker to say why it waits")
        await at.on.delete("other")
        await at.run_whole("train", 2)


async def test_where_the_driver_decides_it_is_over_with_the_driver(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x8x80GiB") as at:
        jobs = (
            job("driver", never(at, gpus=1, ends=(2.0, 0))),
            job("workers", never(at, gpus=1), replicas=2, pods=2),
        )
        decides = {"operator": "Any", "targetReplicatedJobs": ["driver"]}
        await make(at, "train", *jobs, successPolicy=decides)
        await at.condition("train", "Completed")
        await at.until("train", lambda pods: set(pods) == set(of_role(pods, "driver")), "the workers to go")
        # Its GPUs are free, though the JobSet is still there.
        await stories.frees(at, 8)


async def test_where_all_have_to_succeed_those_that_ended_give_their_gpus_back(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x3x80GiB") as at:
        jobs = (
            job("driver", never(at, gpus=1)),
            job("workers", never(at, gpus=1, ends=(2.0, 0)), pods=2),
        )
        await make(at, "train", *jobs)

        def ended(pods: dict[str, Pod]) -> bool:
            phases = [each["status"].get("phase") for each in of_role(pods, "workers").values()]
            return phases == ["Succeeded", "Succeeded"]

        await at.until("train", ended, "the workers to succeed")
        await busy(at, 2)
        (driver,) = of_role(await at.pods_of("train"), "driver").values()
        assert driver["status"]["phase"] == "Running"
        await at.on.delete("other")


async def test_over_it_is_deleted_after_its_time_with_all_that_was_made_for_it(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        ended = job("workers", never(at, fraction="0.5", ends=(1.0, 0)), pods=2)
        await make(at, "train", ended, ttlSecondsAfterFinished=5)
        await at.condition("train", "Completed")
        await at.nothing_left()


@pytest.mark.parametrize("state", ["runs", "waits", "suspended"])
async def test_deleted_nothing_is_left(set_workloads: SetWorkloads, state: str) -> None:
    async with set_workloads("1x5x80GiB" if state == "runs" else "1x4x80GiB") as at:
        await train(at)
        await stories.ends_deleted(at, "train", 5, state)


def _starts(at: Workloads) -> Sequence[str]:
    """The pods of the scene by when their first container started."""
    return [record.pod for record in at.on.ground_truth.history if isinstance(record, Started)]
