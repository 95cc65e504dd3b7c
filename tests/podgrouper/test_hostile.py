"""Random histories of workloads, under an API server that loses, delays, repeats and refuses, and replicas that die.

Afterwards everything goes well for a while. Then each workload has one PodGroup, with the minimum that it has now, and
each of its pods names it. Nothing else may be written on pods.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from kube.client import errors
from kube.client.resources import POD_GROUPS, PODS
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault, sometimes
from tests.podgrouper.cluster import LEAST, USER, Cluster, Replica, cluster
from tests.podgrouper.objects import NAMESPACE, obj, pod
from wire import names
from wire.core import Status

pytestmark = pytest.mark.thorough

SEEDS = range(60)
FAULTS = [
    Fault(name="500", refuse_with=500),
    Fault(name="500, carried out", refuse_with=500, carried_out=True),
    Fault(name="429", refuse_with=429),
    Fault(name="409", refuse_with=409),
    Fault(name="lost", lost="request", breaks=True),
    Fault(name="lost and late", lost="request", lands_after_s=3.0),
    Fault(name="answer lost", lost="answer", breaks=True),
    Fault(name="late", delay_s=2.0),
    Fault(name="late answer", answer_delay_s=4.0),
]
QUIET_S = 240.0


class History:
    """What is done to a cluster, drawn from a seed."""

    def __init__(self, on: Cluster, rng: random.Random) -> None:
        self.on, self._rng = on, rng
        #: Job -> its least number, and its pods.
        self.jobs: dict[str, tuple[dict[str, Any], int]] = {}
        self.pods: dict[str, str] = {}
        self._replicas: list[Replica] = []
        self._made = 0

    async def run(self, steps: int) -> None:
        await self._start()
        does = (self._job, self._pod, self._pod, self._pod, self._edit, self._delete_pod, self._delete_group)
        further = (self._kill, self._second, self._cut, self._bind)
        for _ in range(steps):
            await self._rng.choice((*does, *further))()
            await self.on.settle(self._rng.choice((0.0, 0.01, 0.3, 2.0)))

    async def _start(self) -> None:
        self._replicas.append(await self.on.start())

    async def _job(self) -> None:
        name, least = f"j{len(self.jobs)}", self._rng.randint(1, 4)
        body = obj("batch/v1", "Job", name, spec={"parallelism": 4}, annotations={LEAST: str(least)})
        self.jobs[name] = (await self.on.owner(body), least)

    async def _pod(self) -> None:
        if self.jobs:
            job = self._rng.choice(sorted(self.jobs))
            self._made += 1
            self.pods[f"p{self._made}"] = job
            await self.on.pod(pod(self.jobs[job][0], name=f"p{self._made}"))

    async def _edit(self) -> None:
        if self.jobs:
            name = self._rng.choice(sorted(self.jobs))
            least = self._rng.randint(1, 4)
            self.jobs[name] = (self.jobs[name][0], least)
            await self.on.edit(self.jobs[name][0], {"metadata": {"annotations": {LEAST: str(least)}}})

    async def _delete_pod(self) -> None:
        if self.pods:
            name = self._rng.choice(sorted(self.pods))
            del self.pods[name]
            await self.on.api.delete(PODS, name, namespace=NAMESPACE, grace_s=0)

    async def _delete_group(self) -> None:
        groups = sorted(await self.on.groups())
        if groups:
            await self.on.api.delete(POD_GROUPS, self._rng.choice(groups), namespace=NAMESPACE)

    async def _bind(self) -> None:
        """As a scheduler does: only pods that name their PodGroup."""
        for name in self.pods:
            found = await self.on.get(name)
            if not found.spec.node_name and (found.metadata.annotations or {}).get(names.POD_GROUP_NAME):
                await self.on.bind(name)
                return

    async def _kill(self) -> None:
        self._replicas.pop(0).kill()
        if not self._replicas:
            await self._start()

    async def _second(self) -> None:
        if len(self._replicas) < 2:
            await self._start()

    async def _cut(self) -> None:
        self.on.server.cut_watches()

    async def end(self) -> None:
        """A last pod for each workload that has one, so that what was edited is seen."""
        for name in sorted(set(self.pods.values())):
            self._made += 1
            self.pods[f"p{self._made}"] = name
            await self.on.pod(pod(self.jobs[name][0], name=f"p{self._made}"))

    async def judge(self) -> None:
        groups = await self.on.groups()
        for name in set(self.pods.values()):
            body, least = self.jobs[name]
            group = groups[f"pg-{name}-{body['metadata']['uid']}"]
            assert group.spec.min_member == least, name
        for name, job in self.pods.items():
            found = await self.on.get(name)
            uid = self.jobs[job][0]["metadata"]["uid"]
            assert found.metadata.annotations == {names.POD_GROUP_NAME: f"pg-{job}-{uid}"}, name


def is_ours(call: Call) -> bool:
    return call.user.startswith(USER)


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_goes_wrong_every_pod_is_grouped_in_the_end(seed: int) -> None:
    rng = random.Random(seed)
    async with cluster(started=False, reread_s=5.0) as on:
        faults = on.server.faults
        for fault in FAULTS:
            # Reads of lists end in a watch's own back-off; that is the reflector's business.
            when = (lambda call: is_ours(call) and call.verb != "watch") if fault.refuse_with else is_ours
            faults.on_request.append(sometimes(rng, rng.choice((0, 20, 60)), fault, when=when))
        faults.on_watch_line.append(lambda *_: rng.choice((0.0, 0.0, 0.0, 1.5)))
        faults.on_watch_repeat.append(lambda *_: rng.choice((0, 0, 2)))
        history = History(on, rng)
        await history.run(60)
        faults.clear()
        await on.settle(QUIET_S)
        await history.end()
        await on.settle(QUIET_S)
        await history.judge()
        done = [on.writes(f"{USER}-{number}" if number > 1 else USER) for number in range(1, 80)]
        await on.settle(600)
        assert [on.writes(f"{USER}-{number}" if number > 1 else USER) for number in range(1, 80)] == done


def test_what_is_drawn_covers_what_can_go_wrong() -> None:
    assert {errors.ServerError, errors.TooManyRequests, errors.Conflict} <= {
        type(errors.refused(fault.refuse_with, Status())) for fault in FAULTS if fault.refuse_with
    }
