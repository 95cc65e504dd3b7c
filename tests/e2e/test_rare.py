"""What Moorage does seldom, on the real control plane: so that the rights for it are known to be needed, and enough.

What can't be made to happen from outside at a given moment is done here by our own code under our own identities.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from kubernetes_asyncio import client

from gpu.grant import BoundMetadata
from kube import binding
from kube.client import config
from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.errors import NotFound
from kube.client.http import HttpTransport
from kube.client.resources import CONFIG_MAPS, LEASES, PODS
from kube.client.retry import Retry
from kube.events import EventRecorder, EventSettings
from kube.lead.secondary import Secondary
from scheduler.background.queue_use import QueueUse
from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from scheduler.core.preemption.eviction_history import PIECES, Hour, Piece, Taken
from scheduler.core.preemption.nomination_record import Record
from scheduler.core.queues.use_over_time import UsePeriod
from scheduler.preemption.nomination_record import NominationRecord, Wrote
from scheduler.watch.cache import Cache
from scheduler.watch.secondary import budgets
from simulator.nodes.api_access import Reporter
from tests.e2e.cluster import PATIENCE_S, Pod, Scene, eventually, pod, share
from tests.e2e.conftest import SetScene
from tests.e2e.crowd import Crowd
from tests.e2e.tenant import identity
from tools.cluster.deployment import BINDER, PODGROUPER, SCHEDULER, Deployment
from tools.cluster.plane import ControlPlane
from tools.manifests import lease
from wire import names
from wire.core import ObjectReference

pytestmark = pytest.mark.cluster


@pytest.fixture
async def impatient(moorage: Deployment) -> AsyncIterator[Deployment]:
    """A scheduler that soon evicts what is left of a broken gang; afterwards the usual one again."""
    for arguments in (["--default-staleness-grace-period", "2s"], []):
        moorage.stop(SCHEDULER)
        moorage.start(SCHEDULER, *arguments)
        if arguments:
            yield moorage


async def _told(scene: Scene, reason: str) -> list[str]:
    """What the events of a namespace say for this reason, once there are any."""

    async def found() -> list[str] | None:
        events = await client.CoreV1Api(scene.core.api_client).list_namespaced_event(scene.namespace)
        return [event.message for event in events.items if event.reason == reason] or None

    return await eventually(found, f"an event {reason}", within_s=PATIENCE_S)


async def test_what_is_left_of_a_gang_that_lost_a_member_is_evicted(set_scene: SetScene, impatient: Deployment) -> None:
    async with set_scene(["1x2x80GiB"]) as scene:
        await scene.create_gang("gang", 2, share("stays", "0.5"), share("goes", "0.5"))
        await scene.running(2)
        await scene.delete("goes")

        async def is_evicted() -> bool | None:
            return not await scene.pods() or None

        await eventually(is_evicted, "the rest of the gang to go", within_s=PATIENCE_S)
        expected = "Workload doesn't meet the minimum required number of pods (2), evicting remaining pod: "
        assert await _told(scene, "Evict") == [f"{expected}{scene.namespace}/stays"]


@pytest.fixture
async def keeping(moorage: Deployment) -> AsyncIterator[Deployment]:
    """A binder that keeps idle reservations; afterwards the usual one again."""
    for arguments in (["--idle-s", "600"], []):
        moorage.stop(BINDER)
        moorage.start(BINDER, *arguments)
        if arguments:
            yield moorage


async def test_a_whole_gpu_that_waits_gets_the_device_of_an_idle_reservation(
    set_scene: SetScene, keeping: Deployment
) -> None:
    async with set_scene(["1x1x80GiB"]) as scene:
        await scene.create(share("share", "0.5"))
        await scene.running(1)
        await scene.create(pod("whole", gpus=1))
        await scene.says("whole", "GPU")
        await scene.delete("share")
        await scene.gone(["share"])
        await scene.running(1)

        async def is_taken() -> bool | None:
            return await scene.reservations() == [] or None

        await eventually(is_taken, "the idle reservation to go", within_s=PATIENCE_S)


@pytest.fixture
async def healing(moorage: Deployment) -> AsyncIterator[Deployment]:
    """A binder that moves tenants soon; afterwards the usual one again."""
    for arguments in (["--contended-s", "2"], []):
        moorage.stop(BINDER)
        moorage.start(BINDER, *arguments)
        if arguments:
            yield moorage


async def test_a_share_whose_device_was_given_to_a_stranger_is_evicted(
    set_scene: SetScene, healing: Deployment, control_plane: ControlPlane
) -> None:
    """The policies let nobody else take a reservation away, so the binder's own identity does it here."""
    async with set_scene(["1x1x80GiB"]) as scene:
        await scene.create(share("share", "0.5"))
        await scene.running(1)
        (lost,) = await scene.reservations()
        stranger = pod("stranger", gpus=1)
        stranger["spec"]["schedulerName"] = "mine"
        (stranger["spec"]["nodeName"],) = scene.nodes.kubelets
        # Every five seconds it looks for what is lost, and would ask for the device before the stranger does.
        healing.pause(BINDER)
        try:
            async with _api(control_plane, BINDER) as api:
                name, namespace = lost["metadata"]["name"], names.RESERVATION_NAMESPACE
                await api.patch(PODS, name, {"metadata": {"finalizers": None}}, namespace=namespace)
                await api.delete(PODS, name, namespace=namespace, grace_s=0)
            await scene.create(stranger)
            await scene.running(2)
        finally:
            healing.go_on(BINDER)

        async def is_evicted() -> bool | None:
            return set(await scene.pods()) == {"stranger"} or None

        await eventually(is_evicted, "the share to go", within_s=PATIENCE_S)
        (note,) = await _told(scene, "GPUMoved")
        assert note.endswith("was lost by the pod's reservation and given to another pod")


async def test_an_entry_that_can_not_bind_any_more_is_taken_out_of_its_book(
    crowd: Crowd, control_plane: ControlPlane
) -> None:
    """As an attempt leaves it whose process died: its pod was changed since, so no Binding of it can land."""
    first = await crowd.runs(await crowd.tenant.create(share("first", "0.6")))
    gated = share("ghost", "0.4")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    ghost = (await crowd.tenant.create(gated))["metadata"]
    group = first["metadata"]["labels"][names.GPU_GROUP_LABEL]
    left = {"nano": 1, "attempt": "left", "rv": "1", "since": 0, "pod": f"{crowd.tenant.namespace}/ghost"}
    token = control_plane.service_account_token(names.SYSTEM_NAMESPACE, "moorage-binder")
    async with identity(control_plane, token, names.RESERVATION_NAMESPACE) as binder:

        async def is_added() -> bool | None:
            """Into the book as it is: the neighbour may come into it meanwhile."""
            held = (await _reservation(crowd, group))["metadata"]
            book = json.dumps({**json.loads(held["annotations"][names.TENANTS]), ghost["uid"]: left})
            version = {"resourceVersion": held["resourceVersion"]}
            try:
                await binder.patch(held["name"], {"metadata": {**version, "annotations": {names.TENANTS: book}}})
            except client.ApiException as error:
                if error.status != 409:
                    raise
                return None
            return True

        await eventually(is_added, "the entry to be added", within_s=PATIENCE_S)

    async def is_out() -> bool | None:
        found = await _reservation(crowd, group)
        return ghost["uid"] not in json.loads(found["metadata"]["annotations"][names.TENANTS]) or None

    await eventually(is_out, "the entry to be taken out", within_s=PATIENCE_S)


async def _reservation(crowd: Crowd, group: str) -> Pod:
    found = await crowd.scene.reservations()
    return next(one for one in found if one["metadata"]["labels"].get(names.GPU_GROUP_LABEL) == group)


@asynccontextmanager
async def _api(plane: ControlPlane, component: str, *, account: str = "") -> AsyncIterator[Api]:
    """Calls as a component makes them."""
    ca_file = anyio.Path(plane.folder / "rare-ca.pem")
    await ca_file.write_text(plane.ca_pem)
    token = plane.service_account_token(names.SYSTEM_NAMESPACE, account or f"moorage-{component}")
    credentials = config.plain(plane.url, ca_file=str(ca_file), token=token)
    async with HttpTransport(credentials, user_agent=f"moorage-{component}") as transport:
        yield Api(transport, retry=Retry(random.Random(1)))


async def _gated(crowd: Crowd) -> dict[str, Any]:
    gated = share("fenced", "0.5")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    metadata: dict[str, Any] = (await crowd.tenant.create(gated))["metadata"]
    return metadata


@pytest.mark.parametrize("component", [SCHEDULER, BINDER])
async def test_after_a_fence_no_binding_of_before_is_taken(
    crowd: Crowd, control_plane: ControlPlane, component: str
) -> None:
    meta = await _gated(crowd)
    one, before = binding.Identity(crowd.tenant.namespace, "fenced", meta["uid"]), meta["resourceVersion"]
    text = binding.FenceText(because="Rare: tried", message="tried")
    (node, *_) = crowd.scene.nodes.kubelets
    async with _api(control_plane, component) as api:
        fenced = await binding.fence(api, one, rv=before, attempt="rare", text=text, clock=SystemClock())
        assert fenced is not None
        assert (fenced.metadata.annotations or {})[names.FENCED] == "rare"
        again = await binding.fence(api, one, rv=before, attempt="rarer", text=text, clock=SystemClock())
        assert again is None
        await crowd.tenant.patch("fenced", {"spec": {"schedulingGates": []}})
        late = await binding.post(api, one, rv=before, node=node, metadata=BoundMetadata(labels={}, annotations={}))
        assert isinstance(late, binding.NotAccepted)


async def test_a_simulated_node_that_met_another_writer_reads_the_pod_anew(
    crowd: Crowd, control_plane: ControlPlane
) -> None:
    meta = await _gated(crowd)
    async with _api(control_plane, "nodes", account="moorage-simulator") as api:
        seen = await api.get(PODS, "fenced", namespace=crowd.tenant.namespace)
        await crowd.tenant.patch("fenced", {"metadata": {"labels": {"team": "a"}}})
        line = Reporter(api, anyio.CapacityLimiter(1), 0.1)
        written = await line.write_status(seen, lambda one: {"message": one.metadata.resource_version})
        assert written is not None
        assert written.metadata.uid == meta["uid"]
        assert (written.metadata.labels or {})["team"] == "a"


@pytest.mark.parametrize("component", [SCHEDULER, BINDER])
async def test_an_event_that_is_said_again_becomes_a_series(
    control_plane: ControlPlane, moorage: Deployment, component: str
) -> None:
    """The components' own recorder under their own identities; they themselves wait a minute before a second write."""
    about = ObjectReference(api_version="v1", kind="Pod", name=f"rare-{component}", namespace="default", uid="u")
    async with _api(control_plane, component) as api:
        events = EventRecorder(
            api, clock=SystemClock(), controller=component, instance="rare", settings=EventSettings(bundle_s=0.1)
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(events.run)
            for _ in range(2):
                events.record(about, reason="Rare", action="Testing", note="again")
                written = events.counts.written

                async def is_written(before: int = written) -> bool | None:
                    return events.counts.written > before or None

                await eventually(is_written, "the event to be written", within_s=PATIENCE_S)
            tasks.cancel_scope.cancel()
        assert (events.counts.written, events.counts.refused) == (2, 0)


@pytest.mark.parametrize("theirs", ["41fce092.run.ai", "2ad35f9c.kai.scheduler", "kai-scheduler"])
@pytest.mark.parametrize("component", [SCHEDULER, BINDER])
async def test_replicas_of_before_an_upgrade_may_still_read_kais_leases(
    control_plane: ControlPlane, moorage: Deployment, component: str, theirs: str
) -> None:
    """They ask for each by its name; refused, they would not start again."""
    moorage.check()
    async with _api(control_plane, component) as api:
        with pytest.raises(NotFound):
            await api.get(LEASES, theirs, namespace=names.SYSTEM_NAMESPACE)


@pytest.mark.parametrize("component", [SCHEDULER, BINDER, PODGROUPER])
async def test_who_leads_first_may_make_the_lease(
    control_plane: ControlPlane, moorage: Deployment, component: str
) -> None:
    """Here all leases are there from the start, as where there is none the first leader waits for a possible other."""
    moorage.check()
    async with _api(control_plane, component) as api:
        made = await api.create(LEASES, lease(f"rare-{component}"), namespace=names.SYSTEM_NAMESPACE)
    path = f"/apis/coordination.k8s.io/v1/namespaces/{names.SYSTEM_NAMESPACE}/leases/{made.metadata.name}"
    control_plane.rest().call("DELETE", path)


class _Leaping:
    """A clock that is ten minutes ahead each time it is read."""

    def __init__(self) -> None:
        self._now_ns = SystemClock().now_ns()

    def now_ns(self) -> int:
        self._now_ns += 600 * 10**9
        return self._now_ns


async def test_the_scheduler_may_keep_what_queues_used_over_time(
    control_plane: ControlPlane, moorage: Deployment
) -> None:
    """It writes every five minutes, so its own code does it here, as fast as it can."""
    moorage.check()
    async with _api(control_plane, SCHEDULER) as api:
        counting = QueueUse(api, Cache(Cluster(Settings())), clock=_Leaping(), period=UsePeriod(tick_s=1))

        async def record() -> str | None:
            try:
                found = await api.get(CONFIG_MAPS, names.QUEUE_USE, namespace=names.SYSTEM_NAMESPACE)
            except NotFound:
                return None
            return (found.data or {}).get("use")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(counting.run)
            created = await eventually(record, "the record to be created", within_s=PATIENCE_S)

            async def is_patched() -> bool | None:
                return await record() != created or None

            await eventually(is_patched, "the record to be written again", within_s=PATIENCE_S)
            tasks.cancel_scope.cancel()


async def test_the_scheduler_may_keep_who_is_evicted_for_whom_and_follow_budgets(
    control_plane: ControlPlane, moorage: Deployment
) -> None:
    """Only with --preemption, so its own code does it here."""
    moorage.check()
    async with _api(control_plane, SCHEDULER) as api:
        record, cache = NominationRecord(api), Cache(Cluster(Settings()))
        await record.read()
        for evicted in ({"owner": (1,)}, {"owner": (1, 2)}):  # it is created, then patched
            hour = Hour(tuple(Piece(at, {"team": Taken(evicted)}) for at in range(PIECES)))
            assert await record.write(Record(evicted=evicted), hour, {}) is Wrote.WRITTEN
        async with anyio.create_task_group() as tasks:
            await tasks.start(Secondary(api, (budgets(cache),), rng=random.Random(1)).run)

            async def is_followed() -> bool | None:
                return cache.preemption.budgets.is_current or None

            await eventually(is_followed, "budgets to be listed and watched", within_s=PATIENCE_S)
            tasks.cancel_scope.cancel()
