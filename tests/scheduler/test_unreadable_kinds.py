"""Kinds that may not be listed, or that the API server does not serve: what depends on them waits, all else goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kube.client.resources import JOBS
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.world import World
from tests.quick import few
from tests.scheduler.stage import TEAM, bound, create, create_gang, pod, settle, share, stage, waits_because

#: The kinds that the scheduler reads and can do without.
SECONDARY = (
    "namespaces",
    "configmaps",
    "jobs",
    "topologies",
    "storageclasses",
    "csinodes",
    "volumeattachments",
    "persistentvolumes",
    "persistentvolumeclaims",
)
_READS = ("list", "watch")
REQUIRED = ("nodes", "podgroups", "bindrequests", "pods")
START_S = 60.0


class Refusal:
    """Refuses lists and watches of some kinds to the scheduler while ``is_on``."""

    def __init__(self, *plurals: str, code: int = 403, verbs: tuple[str, ...] = _READS) -> None:
        self.is_on = True
        self._plurals, self._verbs, self._fault = plurals, verbs, Fault(refuse_with=code)

    def __call__(self, call: Call) -> Fault | None:
        is_meant = call.user == "scheduler" and call.verb in self._verbs and call.kind.plural in self._plurals
        return self._fault if self.is_on and is_meant else None


def refusing(refusal: Refusal) -> Callable[[World], None]:
    return lambda world: world.server.faults.on_request.append(refusal)


async def job(world: World, name: str, **annotations: str) -> str:
    container = {"name": "main", "image": "cuda-app"}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    body = {"metadata": {"name": name, "annotations": annotations}, "spec": {"template": template}}
    return (await world.api.create(JOBS, body, namespace=TEAM)).metadata.uid


def of_job(name: str, uid: str, job: str) -> dict[str, Any]:
    made = pod(name, gpus=1)
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": True}
    ]
    return made


def with_claim(name: str) -> dict[str, Any]:
    return pod(name, gpus=1, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])


@pytest.mark.parametrize("code", few([403, 404, 401, 500], 4))
@pytest.mark.parametrize("plural", SECONDARY)
async def test_pods_that_do_not_depend_on_a_kind_start_though_it_cannot_be_listed(plural: str, code: int) -> None:
    with anyio.fail_after(START_S):
        async with stage("1x4x80GiB", before=refusing(Refusal(plural, code=code))) as world:
            await create(world, pod("whole", gpus=1), share("half"))
            await create_gang(world, "gang", 2, pod("member-1", gpus=1), pod("member-2", gpus=1))
            await settle(20)
            assert bound(world) == {"whole", "half", "member-1", "member-2"}


async def test_none_of_these_kinds_can_be_listed_and_pods_start() -> None:
    with anyio.fail_after(START_S):
        async with stage("1x4x80GiB", before=refusing(Refusal(*SECONDARY))) as world:
            await create(world, pod("whole", gpus=1), share("half"))
            await settle(20)
            assert bound(world) == {"whole", "half"}


async def test_a_kind_that_does_not_answer_holds_up_the_start_for_no_more_than_half_a_minute() -> None:
    def lost(call: Call) -> Fault | None:
        is_meant = call.user == "scheduler" and call.verb in _READS and call.kind.plural in SECONDARY
        return Fault(lost="request") if is_meant else None

    async with stage("1x4x80GiB", before=lambda world: world.server.faults.on_request.append(lost)) as world:
        await create(world, pod("whole", gpus=1))
        await settle(41)
        assert bound(world) == {"whole"}


@pytest.mark.parametrize("plural", REQUIRED)
async def test_without_what_safety_rests_on_nothing_is_decided(plural: str) -> None:
    refusal, made = Refusal(plural), list[World]()

    def begin(world: World) -> None:
        made.append(world)
        world.server.faults.on_request.append(refusal)

    async def run() -> None:
        async with stage("1x4x80GiB", before=begin):
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await settle(20)
        (world,) = made
        await create(world, pod("whole", gpus=1))
        await settle(60)
        assert bound(world) == set()
        refusal.is_on = False
        await settle(60)
        assert bound(world) == {"whole"}
        tasks.cancel_scope.cancel()


async def test_a_pod_of_a_job_waits_while_jobs_cannot_be_read_and_starts_when_they_can() -> None:
    refusal = Refusal("jobs")
    async with stage("1x4x80GiB", before=refusing(refusal)) as world:
        await create(world, of_job("alone", await job(world, "plain"), "plain"))
        asks = await job(world, "train", **{"kai.scheduler/batch-min-member": "2"})
        await create(world, of_job("member", asks, "train"), pod("whole", gpus=1))
        await settle(300)
        assert bound(world) == {"whole"}
        for name in ("alone", "member"):
            assert "can't read jobs.batch" in waits_because(world, name)
        refusal.is_on = False
        await settle(60)
        assert bound(world) == {"whole", "alone"}
        assert "batch-min-member" in waits_because(world, "member")


async def test_when_jobs_cannot_be_read_any_more_pods_of_known_jobs_start_and_those_of_new_ones_wait() -> None:
    refusal = Refusal("jobs")
    refusal.is_on = False
    async with stage("1x8x80GiB", before=refusing(refusal)) as world:
        known = await job(world, "known")
        await settle(1)
        refusal.is_on = True
        world.server.cut_watches()
        await create(world, of_job("of-known", known, "known"))
        asks = await job(world, "train", **{"kai.scheduler/batch-min-member": "2"})
        await create(world, of_job("member", asks, "train"), pod("whole", gpus=1))
        await settle(300)
        assert bound(world) == {"of-known", "whole"}
        assert "can't read jobs.batch" in waits_because(world, "member")
        refusal.is_on = False
        await settle(60)
        assert "batch-min-member" in waits_because(world, "member")


async def test_a_pod_with_a_claim_waits_while_claims_cannot_be_read() -> None:
    refusal = Refusal("persistentvolumeclaims")
    async with stage("1x4x80GiB", before=refusing(refusal)) as world:
        await create(world, with_claim("mounts"))
        await settle(60)
        assert "can't read persistentvolumeclaims" in waits_because(world, "mounts")
        refusal.is_on = False
        await settle(60)
        assert waits_because(world, "mounts") == 'persistentvolumeclaim "data" not found'


async def test_a_new_leader_begins_its_term_though_jobs_cannot_be_listed_any_more() -> None:
    refusal = Refusal("jobs")
    refusal.is_on = False
    async with stage("1x4x80GiB", before=refusing(refusal)) as world:
        await create(world, pod("before", gpus=1))
        await settle(10)
        refusal.is_on = True
        await world.restart(world.scheduler)
        await create(world, pod("whole", gpus=1))
        await settle(20)
        assert bound(world) == {"before", "whole"}


async def test_it_says_once_what_cannot_be_read_what_to_do_and_what_waits(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="kube")
    refusal = Refusal("jobs")
    async with stage("1x4x80GiB", before=refusing(refusal)):
        await settle(600)
        told = [record for record in caplog.records if "jobs" in record.getMessage()]
        assert [record.levelname for record in told] == ["WARNING"]
        said = told[0].getMessage()
        for part in ("jobs.batch can't be listed and watched", "verbs list and watch", "ClusterRole", "pods of Jobs"):
            assert part in said
        refusal.is_on = False
        await settle(60)
        assert [record.getMessage() for record in caplog.records][-1] == "jobs.batch can be read again"
