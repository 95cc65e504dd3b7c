"""Two schedulers and two binders on the real control plane: handed over, killed, stopped, cut off, or unelected.

Leases are short (3 s), so that a test need not wait for long. A jump of the machine's clock can't be had here without
moving it for everybody: that is tested in virtual time (tests/scheduler/test_leaders.py).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import anyio
import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import PATIENCE_S, Pod, Scene, eventually, pod, scene, share
from tests.e2e.judge import judged
from tests.whole import IS_WHOLE
from tools.cluster.deployment import ADMISSION, BINDER, SCHEDULER, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

DURATION_S = 3.0
LEASE = ["--lease-duration-s", "3", "--lease-renew-deadline-s", "2", "--lease-renew-s", "0.5", "--lease-poll-s", "0.5"]
REPLICAS = {SCHEDULER: (SCHEDULER, "scheduler-2"), BINDER: (BINDER, "binder-2")}
#: In make test-all each story is that of one role, turn about: both have the same election, tried in virtual time.
_BOTH = (SCHEDULER, BINDER)
SCHEDULERS_TURN = _BOTH if IS_WHOLE else (SCHEDULER,)
BINDERS_TURN = _BOTH if IS_WHOLE else (BINDER,)
EVERYBODY = (*REPLICAS[BINDER], *REPLICAS[SCHEDULER])
#: Beside that, this many times what a pod takes while nobody is killed: both take longer on a busy machine.
BUSY = 4
#: As long as a process may take to end when it has lost its lease and can run again (docs/replicas.md), if it is busy.
ENDS_WITHIN_S = 5.0 * BUSY
SAFE = ("S1", "S2", "S3", "S4", "S5")
#: What kubelet says of a pod whose whole GPU two schedulers had given away.
CLASHED = "UnexpectedAdmissionError"

_LEADS = re.compile(r"(\S+_[0-9a-f]{16}) leads")
_numbers = itertools.count()


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of their own: one cluster has one Moorage."""
    audited = {"level": "Metadata", "verbs": ["create", "patch", "update", "delete"], "stages": ["ResponseComplete"]}
    users = [f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:moorage-{role}" for role in REPLICAS]
    rules = [{**audited, "users": users}, {"level": "None"}]
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}
    with ControlPlane(audit_policy=json.dumps(policy)) as started:
        yield started


@pytest.fixture(scope="module")
def replicated(plane: ControlPlane) -> Iterator[Deployment]:
    arguments = {SCHEDULER: LEASE, BINDER: [*LEASE, "--idle-s", "1"]}
    options = Options(arguments=arguments, components=(ADMISSION, *EVERYBODY), apart=EVERYBODY)
    with Deployment(plane, options) as deployment:
        yield deployment


@dataclass(slots=True)
class Stage:
    """A scene, and the replicas that work on it."""

    plane: ControlPlane
    scene: Scene
    moorage: Deployment

    async def leader(self, role: str) -> str:
        """The replica that holds the lease, once somebody holds it and works."""

        async def found() -> str | None:
            leases = await client.CoordinationV1Api(self.scene.core.api_client).list_namespaced_lease(
                names.SYSTEM_NAMESPACE, field_selector=f"metadata.name=moorage-{role}"
            )
            holder = leases.items[0].spec.holder_identity if leases.items else ""
            return next((name for name in REPLICAS[role] if holder and f"{holder} leads" in self._log(name)), None)

        return await eventually(found, f"a {role} to lead", within_s=PATIENCE_S)

    def _log(self, replica: str) -> str:
        return self.moorage.log(replica) if replica in self.moorage.running else ""

    async def bound(self, *pods: Pod, within_s: float = PATIENCE_S) -> float:
        """Create pods and wait until they are bound; after how long they were."""
        began_at = anyio.current_time()
        await self.scene.create(*pods)
        wanted = {each["metadata"]["name"] for each in pods}

        async def all_bound() -> bool | None:
            found = await self.scene.pods()
            return wanted <= {name for name, each in found.items() if each["spec"].get("nodeName")} or None

        await eventually(all_bound, f"{sorted(wanted)} to be bound", within_s=within_s)
        return anyio.current_time() - began_at

    async def ended(self, replica: str, *, within_s: float = ENDS_WITHIN_S) -> None:
        """Wait until a process has ended by itself."""

        async def is_over() -> bool | None:
            return self.moorage.running[replica].process.poll() is not None or None

        await eventually(is_over, f"{replica} to end", within_s=within_s)

    async def has_said(self, replicas: Sequence[str], text: str) -> None:
        """Wait until one of these replicas has written this into its log."""

        async def is_said() -> bool | None:
            return any(text in self._log(replica) for replica in replicas) or None

        await eventually(is_said, f"one of {replicas} to say {text!r}", within_s=PATIENCE_S)

    async def metric(self, replica: str, name: str) -> float:
        """What a replica shows of a metric without labels."""
        async with aiohttp.ClientSession() as session, session.get(self.moorage.metrics_url(replica)) as answer:
            lines = (await answer.text()).splitlines()
        (value,) = [line.split()[1] for line in lines if line.split()[0] == name]
        return float(value)

    async def lease_events(self) -> list[Any]:
        """Events about the leases."""
        listed = await client.EventsV1Api(self.scene.core.api_client).list_namespaced_event(names.SYSTEM_NAMESPACE)
        return [event for event in listed.items if event.regarding.kind == "Lease"]

    async def start_missing(self, *arguments: str) -> None:
        """Start the replicas that don't run."""
        for replica in EVERYBODY:
            child = self.moorage.running.get(replica)
            if child is not None and child.process.poll() is not None:
                self.moorage.kill(replica)
                child = None
            if child is None:
                self.moorage.start(replica, *arguments)
        for role in () if arguments else REPLICAS:
            await self.leader(role)

    def writes(self, replica: str) -> list[str]:
        """What the present process of a replica has written so far, but for events and Leases.

        Its User-Agent tells it from the others and from its earlier processes: they all have one service account.
        """
        identity = _LEADS.findall(self.moorage.log(replica))[-1]
        written = []
        for line in self.plane.audit_log_path.read_text().splitlines():
            entry = json.loads(line)
            of = entry["objectRef"]
            if entry["userAgent"].endswith(f"/{identity}") and of["resource"] not in {"events", "leases"}:
                what = [of["resource"], of.get("name", ""), of.get("subresource", "")]
                written.append(f"{entry['requestReceivedTimestamp']} {entry['verb']} {'/'.join(what)}")
        return written

    async def has_run(self) -> None:
        """Wait until all pods of the scene run."""
        await self.scene.running(len(await self.scene.pods()))


@pytest.fixture
async def stage(plane: ControlPlane, replicated: Deployment) -> AsyncIterator[Stage]:
    """A scene of two machines, on which nothing may be over-committed whatever happens to whom."""
    async with scene(plane, f"leaders-{next(_numbers)}", ["2x5x80GiB"]) as made, judged(plane, made, *SAFE):
        it = Stage(plane, made, replicated)
        await it.start_missing()
        yield it
        await it.start_missing()
        await made.empty()


async def load(it: Stage) -> None:
    """Eight halves, two whole GPUs and a gang, at once: eight of ten GPUs."""
    await it.scene.create(
        *(share(f"half-{i}", "0.5") for i in range(8)), *(pod(f"whole-{i}", gpus=1) for i in range(2))
    )
    await it.scene.create_gang("gang", 4, *(share(f"member-{i}", "0.5") for i in range(4)))


@pytest.mark.parametrize("role", BINDERS_TURN)
async def test_after_a_kill_pods_are_bound_again_within_twice_the_lease(stage: Stage, role: str) -> None:
    usual_s = await stage.bound(share("before", "0.5"))
    leader = await stage.leader(role)
    await load(stage)
    stage.moorage.kill(leader)
    fresh = pod("fresh", gpus=1) if role == SCHEDULER else share("fresh", "0.9")
    took_s = await stage.bound(fresh, within_s=2 * DURATION_S + BUSY * usual_s)
    print(f"{role}: bound {took_s:.2f} s after its leader was killed")
    await stage.has_run()


@pytest.mark.parametrize("role", SCHEDULERS_TURN)
async def test_a_leader_that_goes_on_after_its_lease_writes_nothing_and_ends(stage: Stage, role: str) -> None:
    leader = await stage.leader(role)
    await load(stage)
    stage.moorage.pause(leader)
    try:
        await stage.has_run()
        written = stage.writes(leader)
    finally:
        stage.moorage.go_on(leader)
    await stage.ended(leader)
    assert stage.moorage.running[leader].process.returncode == 0
    assert written
    assert stage.writes(leader) == written
    assert await stage.leader(role) != leader


@pytest.mark.parametrize("role", BINDERS_TURN)
async def test_a_leader_that_is_cut_off_ends_and_what_it_had_sent_breaks_nothing_when_it_comes_late(
    stage: Stage, role: str
) -> None:
    leader = await stage.leader(role)
    await load(stage)
    stage.moorage.cut_off(leader)
    try:
        await stage.has_run()
        await stage.ended(leader)
    finally:
        # What the proxy holds of the leader's last writes arrives now, and nobody is there any more to make others.
        stage.moorage.mend(leader)
    assert stage.moorage.running[leader].process.returncode == 0
    assert await stage.leader(role) != leader
    await stage.bound(share("later", "0.5"), pod("later-whole", gpus=1))
    await stage.has_run()


@asynccontextmanager
async def unelected(it: Stage) -> AsyncIterator[None]:
    """All replicas work at once."""
    for replica in EVERYBODY:
        it.moorage.kill(replica)
    await it.start_missing("--no-leader-election")
    yield
    for replica in EVERYBODY:
        it.moorage.kill(replica)


async def test_two_schedulers_and_two_binders_at_once_by_mistake_break_nothing(stage: Stage) -> None:
    async with unelected(stage):
        await load(stage)
        for replicas in REPLICAS.values():
            await stage.has_said(replicas, "works without leader election")

        async def all_settled() -> dict[str, Pod] | None:
            found = await stage.scene.pods()
            return found if {each["status"]["phase"] for each in found.values()} <= {"Running", "Failed"} else None

        pods = await eventually(all_settled, "all pods to run or to be refused", within_s=PATIENCE_S)
        refused = {
            name: each["status"].get("reason") for name, each in pods.items() if each["status"]["phase"] == "Failed"
        }
        assert set(refused) <= {"whole-0", "whole-1"}
        assert set(refused.values()) <= {CLASHED}
        for number in range(5):
            await stage.scene.delete(f"half-{number}")
            await stage.bound(share(f"again-{number}", "0.5"))


KAI = {
    "metadata": {"name": "binder", "labels": {"app": "binder"}},
    "spec": {
        "nodeSelector": {"none": "such"},
        "containers": [{"name": "binder", "image": "registry.example/kai-scheduler/binder:v0.14"}],
    },
}


async def test_nobody_starts_beside_a_live_kai_and_those_that_work_stop_until_it_has_gone(stage: Stage) -> None:
    pods, rest = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/pods", stage.plane.rest()
    started = [await stage.leader(role) for role in REPLICAS]
    late = [replica for replica in EVERYBODY if replica not in started]
    rest.call("POST", pods, KAI)
    try:
        for replica in late:
            stage.moorage.kill(replica)
            stage.moorage.start(replica)
            await stage.ended(replica, within_s=PATIENCE_S)
            assert stage.moorage.running[replica].process.returncode == 2
            assert "KAI Scheduler is at work in this cluster (pod kai-scheduler/binder)" in stage.moorage.log(replica)
        for replica in started:
            await stage.has_said([replica], "this replica stops until it has gone")
            assert await stage.metric(replica, "moorage_kai_at_work") == 1.0
        with pytest.raises(AssertionError, match="to be bound"):
            await stage.bound(share("after", "0.5"), within_s=5)

        async def is_told() -> bool | None:
            return "KAIAtWork" in {event.reason for event in await stage.lease_events()} or None

        await eventually(is_told, "an event KAIAtWork", within_s=PATIENCE_S)
    finally:
        rest.call("DELETE", f"{pods}/binder", {"gracePeriodSeconds": 0})
    for replica in started:
        await stage.ended(replica, within_s=PATIENCE_S)
        assert stage.moorage.running[replica].process.returncode == 0
    await stage.start_missing()
    await stage.bound(share("later", "0.5"))
    assert (await stage.scene.pod("after"))["spec"]["nodeName"]
