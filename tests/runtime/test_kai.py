"""Beside a KAI that works: it is found, and waited for."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kube.client.api import Api
from kube.client.resources import EVENTS, LEASES, PODS, Resource
from kube.client.retry import Retry
from kube.events import EventRecorder
from runtime.kai_beside import (
    ELSEWHERE_EVERY,
    EVERY_S,
    POD_GROUPER,
    BesideKai,
    Found,
    IfKaiStarts,
    Lookout,
    look_for_kai,
    sentence,
)
from simulator.apiserver.faults import Fault
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from wire import names
from wire.core import Namespace

VIRTUAL_TIME = True

BINDER = {"app": "binder"}
#: Pods can be made only where their service account is.
_ACCOUNTS = Resource(version="v1", plural="serviceaccounts", kind="ServiceAccount", namespaced=True, type=Namespace)
IMAGE = "registry:5000/team/kai-scheduler/binder:v0.14@sha256:00"


@pytest.fixture
async def api() -> Api:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), auto_namespaces=True)
    api = Api(server.transport(), retry=Retry(random.Random(1)))
    for namespace in ("kai-scheduler", "kai", "team"):
        await api.create(_ACCOUNTS, {"metadata": {"name": "default"}}, namespace=namespace)
    return api


async def make(api: Api, *, labels: Mapping[str, str], image: str, namespace: str, phase: str = "Running") -> None:
    pod: dict[str, Any] = {"metadata": {"name": "one", "labels": labels}, "spec": {"containers": []}}
    pod["spec"]["containers"] = [{"name": "main", "image": image}]
    await api.create(PODS, pod, namespace=namespace)
    await api.patch(PODS, "one", {"status": {"phase": phase}}, namespace=namespace, subresource="status")


@pytest.mark.parametrize(
    ("labels", "image", "namespace", "phase", "at_work", "elsewhere"),
    [
        (BINDER, IMAGE, "kai-scheduler", "Running", True, False),
        (BINDER, IMAGE, "kai-scheduler", "Pending", True, False),
        (BINDER, IMAGE, "kai-scheduler", "Succeeded", False, False),
        (BINDER, IMAGE, "kai", "Running", False, True),
        (BINDER, "key-binder", "team", "Running", False, False),
        (BINDER, "team/bookshop:binder", "kai-scheduler", "Running", False, False),
        ({"app": "kai-operator"}, "kai/operator", "kai-scheduler", "Running", True, False),
        ({"app": "kai-scheduler-default"}, "kai/scheduler:v0.15", "kai-scheduler", "Running", True, False),
        ({"app": "kai-scheduler-pool-a"}, "kai/scheduler:v0.15", "kai-scheduler", "Running", True, False),
        ({"app": "pod-grouper"}, "kai/podgrouper", "kai-scheduler", "Running", False, False),
        ({}, "kai/binder", "kai-scheduler", "Running", False, False),
    ],
)
async def test_kai_is_known_by_its_pods_and_only_an_administrator_can_make_such(
    api: Api, labels: dict[str, str], image: str, namespace: str, phase: str, at_work: bool, elsewhere: bool
) -> None:
    await make(api, labels=labels, image=image, namespace=namespace, phase=phase)
    said = (f"pod {namespace}/one",)
    assert await look_for_kai(api) == Found(said if at_work else (), said if elsewhere else ())


BINDERS = "2ad35f9c.kai.scheduler"


@pytest.mark.parametrize(("namespace", "at_work"), [("kai-scheduler", True), ("kai", False)])
async def test_kais_pod_grouper_is_in_the_way_of_what_groups_workloads_alone(
    api: Api, namespace: str, at_work: bool
) -> None:
    await make(api, labels={"app": "pod-grouper"}, image="kai/podgrouper:v0.15", namespace=namespace)
    said = (f"pod {namespace}/one",)
    assert await look_for_kai(api) == Found()
    assert await look_for_kai(api, POD_GROUPER) == (Found(said) if at_work else Found((), said))


async def test_the_lease_of_kais_pod_grouper_counts_for_what_groups_workloads_alone(api: Api) -> None:
    grouper = "54dff599.kai.scheduler"
    await api.create(LEASES, lease("a", grouper), namespace="kai-scheduler")
    alone, others = Lookout(api, POD_GROUPER), Lookout(api)
    for lookout in (alone, others):
        await lookout.look()
    await api.patch(LEASES, grouper, {"spec": {"holderIdentity": "b"}}, namespace="kai-scheduler")
    assert (await alone.look()).at_work == (f"lease kai-scheduler/{grouper}",)
    assert (await others.look()).at_work == ()


def lease(holder: str, name: str = BINDERS) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    return {"metadata": {"name": name, "namespace": "kai-scheduler"}, "spec": spec}


@pytest.mark.parametrize(
    ("name", "holder", "renewed_after_s", "is_at_work", "looked_s"),
    [
        (BINDERS, "kai", 4.5, True, 5),
        (BINDERS, "kai", None, False, 15),
        (BINDERS, "", None, False, 0),
        ("41fce092.run.ai", "kai", 4.5, True, 5),
        ("kai-scheduler", "kai", 4.5, True, 5),
        # A shard's.
        ("kai-scheduler-pool-a", "kai", 4.5, True, 5),
        ("moorage-scheduler", "ours", 4.5, False, 0),
        # KAI's pod-grouper touches neither pods nor GPUs.
        ("54dff599.kai.scheduler", "kai", 4.5, False, 0),
    ],
)
async def test_a_lease_is_kais_while_somebody_renews_it(
    api: Api, name: str, holder: str, renewed_after_s: float | None, is_at_work: bool, looked_s: float
) -> None:
    await api.create(LEASES, lease(holder, name), namespace="kai-scheduler")

    async def renew(after_s: float) -> None:
        await anyio.sleep(after_s)
        await api.patch(LEASES, name, lease("kai-again", name), namespace="kai-scheduler")

    started_s = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        if renewed_after_s is not None:
            tasks.start_soon(renew, renewed_after_s)
        found = await look_for_kai(api)
        took_s = anyio.current_time() - started_s
    assert found.at_work == ((f"lease kai-scheduler/{name}",) if is_at_work else ())
    assert took_s == pytest.approx(looked_s, abs=0.1)


@pytest.mark.parametrize("edit", [{"metadata": {"labels": {"team": "a"}}}, {"spec": {"leaseDurationSeconds": 20}}])
async def test_an_edit_of_a_lease_that_a_kai_left_is_no_renewal(api: Api, edit: dict[str, Any]) -> None:
    await api.create(LEASES, lease("kai"), namespace="kai-scheduler")
    lookout = Lookout(api)
    assert await lookout.look_at_leases() == ()
    await api.patch(LEASES, BINDERS, edit, namespace="kai-scheduler")
    assert await lookout.look_at_leases() == ()


async def test_a_later_time_is_a_renewal_by_the_same_holder(api: Api) -> None:
    await api.create(LEASES, lease("kai"), namespace="kai-scheduler")
    lookout = Lookout(api)
    await lookout.look_at_leases()
    renewed = {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    await api.patch(LEASES, BINDERS, renewed, namespace="kai-scheduler")
    assert await lookout.look_at_leases() == (f"lease kai-scheduler/{BINDERS}",)


def test_the_sentence_says_what_was_found_and_what_to_do() -> None:
    assert sentence(["pod kai-scheduler/binder-1"]) == (
        "KAI Scheduler is at work in this cluster (pod kai-scheduler/binder-1), and two can't share pods and GPUs: "
        "stop it first (docs/migrating/kai.md)"
    )


# A KAI that starts beside a replica of ours. In virtual time.

SHARD = "kai-scheduler-pool-a"


class Cluster:
    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.server = MemoryApiServer(clock=self.clock, rng=random.Random(1), auto_namespaces=True)
        self.api = Api(self.server.transport(), retry=Retry(random.Random(1), tries=1))

    async def start_kai(self, namespace: str = names.SYSTEM_NAMESPACE) -> None:
        await self.api.create(_ACCOUNTS, {"metadata": {"name": "default"}}, namespace=namespace)
        await make(self.api, labels=BINDER, image=IMAGE, namespace=namespace)

    async def renew_lease(self) -> None:
        """A shard's scheduler that runs outside of pods."""
        await self.api.create(LEASES, lease("kai-0", SHARD), namespace=names.SYSTEM_NAMESPACE)
        for number in range(1, 100):
            await anyio.sleep(5.0)
            await self.api.patch(LEASES, SHARD, lease(f"kai-{number}", SHARD), namespace=names.SYSTEM_NAMESPACE)

    async def events(self) -> list[tuple[str, str]]:
        listed: Any = await self.api.list(EVENTS, namespace=names.SYSTEM_NAMESPACE)
        return [(event.reason, event.note) for event in listed.items]


@asynccontextmanager
async def beside(cluster: Cluster, choice: IfKaiStarts = IfKaiStarts.STOP) -> AsyncIterator[BesideKai]:
    events = EventRecorder(cluster.api, clock=cluster.clock, controller="kai-scheduler", instance="one")
    made = BesideKai(cluster.api, events, lease="moorage-scheduler", choice=choice)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(events.run)
        tasks.start_soon(made.run)
        await anyio.sleep(60.0)
        assert not made.noticed.is_set()
        yield made
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("choice", IfKaiStarts)
async def test_its_pods_are_noticed_told_once_and_made_way_for_unless_told_otherwise(
    choice: IfKaiStarts, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    async with beside(cluster, choice) as made:
        await cluster.start_kai()
        await anyio.sleep(3 * EVERY_S)
        assert made.is_there
        assert made.noticed.is_set() == (choice is IfKaiStarts.STOP)
        (said,) = await cluster.events()
        assert said[0] == "KAIAtWork"
        assert "KAI Scheduler is at work in this cluster (pod kai-scheduler/one)" in said[1]
        assert ("stops until it has gone" in said[1]) == (choice is IfKaiStarts.STOP)
        (line,) = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert line.getMessage() == said[1]


async def test_the_lease_of_a_shard_that_is_renewed_is_noticed() -> None:
    cluster = Cluster()
    async with beside(cluster) as made, anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.renew_lease)
        with anyio.fail_after(3 * EVERY_S):
            await made.noticed.wait()
        tasks.cancel_scope.cancel()


async def test_a_lease_that_a_kai_left_behind_is_no_kai() -> None:
    cluster = Cluster()
    async with beside(cluster) as made:
        await cluster.api.create(LEASES, lease("kai-0", SHARD), namespace=names.SYSTEM_NAMESPACE)
        await anyio.sleep(60.0)
        assert not made.is_there


async def test_what_looks_like_one_elsewhere_is_told_and_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    async with beside(cluster) as made:
        await cluster.start_kai("team")
        await anyio.sleep(2 * ELSEWHERE_EVERY * EVERY_S)
        assert not made.is_there
        (line,) = [each.getMessage() for each in caplog.records if "look like a KAI" in each.getMessage()]
        assert "pod team/one" in line


async def test_it_is_gone_when_it_was_not_seen_for_a_while() -> None:
    cluster = Cluster()
    async with beside(cluster) as made:
        await cluster.start_kai()
        await made.noticed.wait()
        with anyio.move_on_after(300.0) as waited:
            await made.until_gone()
        assert waited.cancelled_caught
        await cluster.api.delete(PODS, "one", namespace=names.SYSTEM_NAMESPACE, grace_s=0)
        with anyio.fail_after(4 * EVERY_S):
            await made.until_gone()


async def test_pods_of_all_namespaces_are_listed_seldom() -> None:
    cluster = Cluster()
    async with beside(cluster):
        await anyio.sleep(ELSEWHERE_EVERY * EVERY_S)
        listed = [entry for entry in cluster.server.audit if (entry.verb, entry.resource) == ("list", "pods")]
        assert 1 <= len([entry for entry in listed if not entry.namespace]) <= 2
        assert len([entry for entry in listed if entry.namespace]) >= ELSEWHERE_EVERY


async def test_looks_without_an_answer_are_no_sign_that_it_has_gone() -> None:
    cluster = Cluster()
    async with beside(cluster) as made:
        await cluster.start_kai()
        await made.noticed.wait()
        await cluster.api.delete(PODS, "one", namespace=names.SYSTEM_NAMESPACE, grace_s=0)
        while made.is_there:  # noqa: ASYNC110 - virtual time
            await anyio.sleep(1.0)
        cluster.server.faults.on_request.append(lambda call: Fault(refuse_with=503) if call.verb == "list" else None)
        with anyio.move_on_after(100.0) as waited:
            await made.until_gone()
        assert waited.cancelled_caught


async def test_an_api_server_that_does_not_answer_tells_neither_of_a_kai_nor_of_its_end() -> None:
    cluster = Cluster()
    async with beside(cluster) as made:
        cluster.server.faults.on_request.append(lambda call: Fault(refuse_with=503) if call.verb == "list" else None)
        await anyio.sleep(60.0)
        assert not made.is_there
        cluster.server.faults.clear()
        await cluster.start_kai()
        await made.noticed.wait()
        cluster.server.faults.on_request.append(lambda call: Fault(refuse_with=503) if call.verb == "list" else None)
        await anyio.sleep(60.0)
        assert made.is_there
