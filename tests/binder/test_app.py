"""The binder's terms: what it does when it ceases to lead."""

from __future__ import annotations

import logging
import random
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import yaml

from binder.app import Binder
from binder.watch.sinks import RequestSink
from gpu.book import Entry, Tenant
from gpu.reservation import Reservation
from kube import books
from kube.client.api import Api
from kube.client.fence import WriteFence
from kube.client.resources import CONFIG_MAPS, EVENTS, PODS
from kube.client.retry import Retry
from kube.events import EventRecorder
from kube.lead.lease import LeaderElection
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from tests.binder.cluster import BINDER, HALF, RESERVATIONS, TEAM, Cluster, cluster
from wire import names

#: As long as a process may take to end when it has lost its lease (docs/replicas.md).
ENDS_WITHIN_S = 5.0


@pytest.mark.parametrize("turns", range(12))
async def test_a_term_ends_though_a_request_is_seen_so_many_turns_of_the_loop_after_it_was_lost(turns: int) -> None:
    async with cluster(started=False) as it, anyio.create_task_group() as tasks:
        fence = WriteFence()
        api = Api(it.server.transport(BINDER), retry=Retry(random.Random(3)), fence=fence)
        events = EventRecorder(api, clock=it.clock, controller=BINDER, instance="binder-0")
        binder = Binder(api, settings=it.settings, clock=it.clock, rng=random.Random(4), events=events)
        await tasks.start(binder.follow)
        term, over = anyio.CancelScope(), anyio.Event()

        async def lead() -> None:
            with term:
                await binder.lead()
            over.set()

        tasks.start_soon(lead)
        await anyio.sleep(1.0)
        it.server.faults.on_watch_line.append(lambda _call, _line: 3600.0)
        request = await it.hand_over(await it.pod(), "g")
        fence.close()
        term.cancel()
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        RequestSink(binder.view).upsert(request)
        with anyio.fail_after(ENDS_WITHIN_S):
            await over.wait()
        assert it.writes(BINDER) == []
        tasks.cancel_scope.cancel()


async def test_what_was_seen_between_two_terms_is_begun_in_the_next() -> None:
    async with cluster(started=False) as it, anyio.create_task_group() as tasks:
        api = Api(it.server.transport(BINDER), retry=Retry(random.Random(3)))
        events = EventRecorder(api, clock=it.clock, controller=BINDER, instance="binder-0")
        binder = Binder(api, settings=it.settings, clock=it.clock, rng=random.Random(4), events=events)
        await tasks.start(binder.follow)
        with anyio.move_on_after(1.0):
            await binder.lead()
        await it.hand_over(await it.pod(), "g")
        await anyio.sleep(10.0)
        assert not await it.is_bound()
        tasks.start_soon(binder.lead)
        await it.until(it.is_bound, limit_s=10.0)
        tasks.cancel_scope.cancel()


# The binder does nothing that its role does not allow, and its role allows nothing that it never does.

Right = tuple[str, str, str]
ROOT = Path(__file__).parents[2]


def granted(path: str) -> set[Right]:
    """(namespace or "" for all, verb, resource/subresource) of all roles in a file."""
    documents: list[dict[str, Any]] = [d for d in yaml.safe_load_all((ROOT / path).read_text()) if d]
    return {
        (document["metadata"].get("namespace", ""), verb, resource)
        for document in documents
        for rule in document.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def lead_for_a_while(it: Cluster) -> None:
    """Take part in the binder's election under its identity, as a process does (runtime/replicas.py)."""
    api, rng = Api(it.server.transport(BINDER), retry=Retry(random.Random(5))), random.Random(6)
    election = LeaderElection(
        api, namespace=names.SYSTEM_NAMESPACE, name="moorage-binder", identity="x", clock=it.clock, rng=rng
    )
    await election.one_term(partial(anyio.sleep, 5.0))


async def test_the_binders_role_is_exactly_what_it_does() -> None:
    async with cluster(idle_s=1.0, contended_s=1.0) as it:
        await lead_for_a_while(it)
        # First share with ConfigMaps, a second share, a withdrawal, a crash, an end, a lost and an idle reservation,
        # and a device that is ill.
        annotations: dict[str, Any] = {names.SHARED_GPU_CONFIGMAP: "prefix"}
        pod = await it.pod("p", **annotations)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod.metadata.uid}
        earlier = {"metadata": {"name": "prefix-0", "ownerReferences": [owner]}, "data": {"earlier": "1"}}
        await it.api.create(CONFIG_MAPS, earlier, namespace=TEAM)
        await it.hand_over(pod, "g")
        await it.until(it.is_bound)
        await it.bound("q")
        await it.hand_over(await it.pod("r"), "g")
        await it.until(it.is_fenced, "r")
        it.kubelet.silent.add("node-1")
        await it.hand_over(await it.pod("s"), "h")
        await it.until(it.is_fenced, "s")
        it.kubelet.silent.clear()
        await it.api.delete(PODS, (await it.reservation()).metadata.name, namespace=RESERVATIONS, grace_s=0)
        await anyio.sleep(10)
        await it.bound("t", "i")
        await it.fall_ill("i")
        await anyio.sleep(10)
        for name in ("p", "q", "t"):
            await it.kubelet.status(name, namespace=TEAM, phase="Succeeded")
        await anyio.sleep(30)
        assert await it.reservations() == []
        allowed = granted("binder/rbac.yaml")
        used: set[Right] = set()
        for entry in it.server.audit:
            if entry.user == BINDER:
                resource = f"{entry.resource}/{entry.subresource}" if entry.subresource else entry.resource
                everywhere, here = ("", entry.verb, resource), (entry.namespace, entry.verb, resource)
                assert everywhere in allowed or here in allowed, entry
                used.add(everywhere if everywhere in allowed else here)
        # Needed for rare moments only: an entry whose request is looked for, an event reported twice.
        rare = {("", "get", "bindrequests"), ("", "patch", "events")}
        # The process looks for a KAI beside the binder (runtime/kai_beside.py); tests/runtime/test_kai.py does so.
        beside = {(names.SYSTEM_NAMESPACE, "list", "leases")}
        assert allowed - used <= rare | beside


@pytest.mark.parametrize("verb", ["get", "patch"])
def test_the_reservation_process_may_touch_pods_of_its_namespace_only(verb: str) -> None:
    rights = granted("reservation/rbac.yaml")
    assert (RESERVATIONS, verb, "pods") in rights
    assert len(rights) == 2


# A right that is missing: said once, asked for ever more rarely, and used when it is there.

HOUR_S = 3600.0


def _forbid_fences(it: Cluster) -> list[Call]:
    """From now on; returns the list of those that are asked for."""
    asked: list[Call] = []

    def rule(call: Call) -> Fault | None:
        if (call.user, call.verb, call.subresource) != (BINDER, "patch", "status"):
            return None
        asked.append(call)
        return Fault(refuse_with=403)

    it.server.faults.on_request.append(rule)
    return asked


def _told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.thorough
async def test_a_fence_that_is_forbidden_is_told_once_and_asked_for_every_five_minutes_in_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster() as it:
        asked = _forbid_fences(it)
        it.kubelet.rejects = 1
        await it.hand_over(await it.pod(), "g")
        await anyio.sleep(HOUR_S)
        before = len(asked)
        await anyio.sleep(HOUR_S)
        assert 11 <= len(asked) - before <= 13
        assert before <= 25
        assert len(_told(caplog)) == 1
        notes = [event for event in (await it.api.list(EVENTS, namespace=TEAM)).items if event.reason == "BindingError"]
        assert len(notes) == 1
        assert "before the binder may patch pods/status" in notes[0].note
        assert notes[0].regarding is not None
        assert notes[0].regarding.name == "p"
        it.server.faults.clear()
        await it.until(it.is_fenced, limit_s=301)
        await anyio.sleep(5)
        assert await it.requests() == []


async def test_an_entry_whose_fence_is_forbidden_does_not_keep_the_others_from_being_taken_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster() as it:
        await it.bound()
        await _abandoned(it, "q")
        asked = _forbid_fences(it)
        await anyio.sleep(60)
        await it.kubelet.status("p", namespace=TEAM, phase="Succeeded")
        await anyio.sleep(20)
        assert await it.tenants() == {"q"}
        await anyio.sleep(HOUR_S)
        before = len(asked)
        await anyio.sleep(HOUR_S)
        assert 10 <= len(asked) - before <= 13
        assert len(_told(caplog)) == 1
        it.server.faults.clear()
        await it.until(_is_fenced, it, "q", limit_s=310)


async def _is_fenced(it: Cluster, name: str) -> bool:
    return names.FENCED in ((await it.get(name)).metadata.annotations or {})


async def _abandoned(it: Cluster, name: str) -> None:
    """A direct entry whose scheduler died."""
    pod = (await it.pod(name)).metadata
    held = await books.read(it.api, RESERVATIONS, (await it.reservation()).metadata.name)
    assert held is not None
    entry = Entry(HALF, "direct", pod.resource_version, 0, f"{TEAM}/{name}")
    assert isinstance(await books.join(it.api, held, [Tenant(pod.uid, entry)]), Reservation)
