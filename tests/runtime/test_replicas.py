"""A replica of a component on a server that hangs where it is told to."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from aiohttp import web
from anyio.abc import TaskStatus
from typing_extensions import override

from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.http import CONNECTIONS
from kube.client.resources import PODS
from kube.events import EventRecorder
from runtime.replicas import Own, run_replica
from runtime.scheduler_pods import CONFIG, POOL, TAINT_RULES, SchedulerPods, Unsure
from runtime.settings.common import Replica as Options
from runtime.settings.declaration import declared
from runtime.settings.kinds import SWITCH
from runtime.settings.scheduler import SchedulerOptions
from runtime.versions import IMAGE, LABEL, NOWHERE, Component, components
from wire import names
from wire.api_groups import Lease, LeaseSpec
from wire.core import Condition, Container, ObjectMeta, ObjectReference, Pod, PodSpec, PodStatus

KAI = {
    "metadata": {"name": "binder", "namespace": "kai-scheduler", "uid": "u", "labels": {"app": "binder"}},
    "spec": {"containers": [{"name": "binder", "image": "kai-scheduler/binder:v0.14"}]},
    "status": {"phase": "Running"},
}


@dataclass(slots=True)
class Server:
    """Knows one Lease and no pods. Whoever asks for a single pod waits forever."""

    spec: dict[str, Any] | None = None
    version: int = 0
    asked: int = 0
    hanging: anyio.Event = field(default_factory=anyio.Event)
    #: Renewals while all connections of the work hang.
    renewals: int = 0
    renewed: anyio.Event = field(default_factory=anyio.Event)
    #: A KAI that comes once somebody holds the lease, and when it was given back.
    has_kai: bool = False
    given_back: anyio.Event = field(default_factory=anyio.Event)
    events: int = 0

    async def answer(self, request: web.Request) -> web.Response:
        if "/leases" in request.path:
            return await self._lease(request)
        if request.path.endswith("/pods"):
            is_there = self.has_kai and self.spec is not None and "kai-scheduler" in request.path
            items = [KAI] if is_there else []
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        if request.path.endswith("/events"):
            await anyio.sleep(0.02)
            self.events += 1
            return web.json_response({"metadata": {"name": "e"}}, status=201)
        self.asked += 1
        if self.asked >= CONNECTIONS:
            self.hanging.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def _lease(self, request: web.Request) -> web.Response:
        if request.path.endswith("/leases") and request.method == "GET":
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        name = request.path.rpartition("/leases")[2]
        if request.method == "GET" and (self.spec is None or "moorage" not in name):
            gone = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
            return web.json_response(gone, status=404)
        if request.method != "GET":
            told = msgspec.json.decode(await request.read())["spec"]
            self.spec = {name: value for name, value in {**(self.spec or {}), **told}.items() if value is not None}
            self.version += 1
            if told.get("holderIdentity", "somebody") is None:
                self.given_back.set()
            self.renewals += self.hanging.is_set()
            if self.renewals >= 3:
                self.renewed.set()
        metadata = {"name": "moorage-scheduler", "resourceVersion": str(self.version)}
        return web.json_response({"metadata": metadata, "spec": self.spec})


@dataclass(slots=True)
class Busy:
    """A component with more to ask than there are connections."""

    api: Api

    async def follow(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await anyio.sleep_forever()

    async def lead(self, *, anew: bool = True) -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(2 * CONNECTIONS):
                tasks.start_soon(self._ask, f"p{number}")

    async def _ask(self, name: str) -> None:
        await self.api.get(PODS, name, namespace="default")

    async def finish(self) -> None:
        return


class Idle:
    """A component that leads and asks nothing."""

    async def follow(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await anyio.sleep_forever()

    async def lead(self, *, anew: bool = True) -> None:
        await anyio.sleep_forever()

    async def finish(self) -> None:
        return


@dataclass(slots=True)
class Telling(Idle):
    """A component that reports much right before it is told to stop."""

    events: EventRecorder
    stop: anyio.Event

    @override
    async def lead(self, *, anew: bool = True) -> None:
        for number in range(100):
            regarding = ObjectReference(kind="Pod", name=f"p{number}", namespace="ns")
            self.events.record(regarding, reason="Scheduled", action="Binding", note="bound", is_final=True)
        self.stop.set()
        await anyio.sleep_forever()


@asynccontextmanager
async def serving(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.thorough
async def test_a_leader_renews_its_lease_while_every_connection_of_its_work_hangs(tmp_path: Path) -> None:
    server, stop = Server(), anyio.Event()
    token = tmp_path / "token"
    token.write_text("t")
    own = Own("scheduler", "kai-scheduler", SystemClock(), random.Random(1))
    async with serving(server.answer) as url, anyio.create_task_group() as tasks:
        # Who comes waits for one lease before it leads.
        short: dict[str, Any] = {"lease_duration_s": 3, "lease_renew_deadline_s": 2.5, "lease_renew_s": 0.1}
        options = Options(server=url, token_file=str(token), **short)

        async def run() -> None:
            await run_replica(options, stop, own=own, make=lambda api, *_: Busy(api))

        tasks.start_soon(run)
        with anyio.fail_after(120):
            await server.hanging.wait()
            await server.renewed.wait()
        stop.set()


@pytest.mark.parametrize("no_leader_election", [False, True])
async def test_beside_a_kai_that_starts_nobody_holds_the_lease(tmp_path: Path, no_leader_election: bool) -> None:
    server, stop = Server(has_kai=True), anyio.Event()
    token = tmp_path / "token"
    token.write_text("t")
    own = Own("scheduler", "kai-scheduler", SystemClock(), random.Random(1), kai_every_s=0.2)
    async with serving(server.answer) as url, anyio.create_task_group() as tasks:
        options = Options(server=url, token_file=str(token), no_leader_election=no_leader_election)

        async def run() -> None:
            await run_replica(options, stop, own=own, make=lambda *_: Idle())

        tasks.start_soon(run)
        with anyio.fail_after(120):
            await server.given_back.wait()
        assert server.spec is not None
        assert "holderIdentity" not in server.spec
        stop.set()


async def test_what_was_reported_last_is_written_before_the_process_ends(tmp_path: Path) -> None:
    server, stop = Server(), anyio.Event()
    token = tmp_path / "token"
    token.write_text("t")
    own = Own("scheduler", "kai-scheduler", SystemClock(), random.Random(1))
    async with serving(server.answer) as url:
        options = Options(server=url, token_file=str(token), no_leader_election=True)
        with anyio.fail_after(120):
            await run_replica(options, stop, own=own, make=lambda _, events, *__: Telling(events, stop))
    assert server.events == 100


# What pods of schedulers say of their settings.

VARIABLE = "MOORAGE_SCHEDULER_DEVICE_TAINT_RULES"
FLAG = "--device-taint-rules"
UIDS = itertools.count()
POOL_FLAG = "--partition-label-value"
POOL_VARIABLE = "MOORAGE_SCHEDULER_PARTITION_LABEL_VALUE"


def written(*arguments: str, phase: str = "Running", component: str = "scheduler", **more: Any) -> Pod:
    """A pod as the chart writes it."""
    meta = {
        "name": "s",
        "uid": f"uid-{next(UIDS)}",
        "namespace": more.pop("namespace", names.SYSTEM_NAMESPACE),
        **more.pop("metadata", {}),
    }
    container = {"name": component, "args": [component, *arguments], **more}
    labels = {"app.kubernetes.io/name": "moorage", "app.kubernetes.io/component": component}
    made = {"metadata": {**meta, "labels": labels}, "spec": {"containers": [container]}, "status": {"phase": phase}}
    return msgspec.convert(made, Pod)


def said(*pods: Pod, pool: str = "") -> bool | Unsure:
    found = SchedulerPods()
    for each in pods:
        found.note(each)
    return found.follow_taint_rules(pool, {each.metadata.uid for each in pods})


def test_these_are_settings_of_the_scheduler() -> None:
    found = {each.key: each for each in declared(SchedulerOptions)}
    assert found[TAINT_RULES].setting.kind is SWITCH
    assert (found[TAINT_RULES].default, found[POOL].default, found[CONFIG].default) == (False, "", "")
    assert (found[TAINT_RULES].flag, found[TAINT_RULES].variable("scheduler")) == (FLAG, VARIABLE)
    assert (found[POOL].flag, found[POOL].variable("scheduler")) == (POOL_FLAG, POOL_VARIABLE)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (written(), False),
        (written(FLAG), True),
        (written(f"{FLAG}=true"), True),
        (written(FLAG, "true"), True),
        (written(FLAG, "false", "--log-level=info"), False),
        (written(FLAG, "--log-level=info"), True),
        (written(f"{FLAG}=true", f"{FLAG}=false"), False),
        (written(f"{FLAG}=perhaps"), Unsure.ELSEWHERE),
        (written(f"{FLAG}-not=true"), False),
        (written(env=[{"name": VARIABLE, "value": "true"}]), True),
        (written(f"{FLAG}=false", env=[{"name": VARIABLE, "value": "true"}]), False),
        (
            written(env=[{"name": VARIABLE, "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]),
            Unsure.ELSEWHERE,
        ),
        (written(envFrom=[{"configMapRef": {"name": "c"}}]), Unsure.ELSEWHERE),
        (written("--config=/etc/moorage.yaml"), Unsure.ELSEWHERE),
        (written("--config=/etc/moorage.yaml", FLAG), Unsure.ELSEWHERE),
        (written("--config=/etc/moorage.yaml", FLAG, f"{POOL_FLAG}="), True),
        (written(args=[], command=["moorage", "scheduler", FLAG]), True),
    ],
)
def test_the_command_line_goes_before_the_environment_and_what_lies_elsewhere_is_not_known(
    pod: Pod, expected: bool | Unsure
) -> None:
    assert said(pod) is expected


@pytest.mark.parametrize(
    "pod",
    [
        written(FLAG, component="binder"),
        written(FLAG, namespace="team-a"),
        written(FLAG, phase="Succeeded"),
        written(FLAG, phase="Failed"),
        written(FLAG, metadata={"deletionTimestamp": "2026-11-27T04:00:00Z"}),
        written(FLAG, args=["sleep"]),
    ],
)
def test_pods_that_are_no_running_scheduler_say_nothing(pod: Pod) -> None:
    assert said(pod) is Unsure.UNSEEN
    assert said(pod, written()) is False


def test_pods_that_differ_say_nothing_as_while_they_are_replaced() -> None:
    assert said(written(), written(FLAG)) is Unsure.DIFFER


def test_each_node_pool_has_a_scheduler_of_its_own() -> None:
    pods = (written(), written(f"{POOL_FLAG}=blue", FLAG))
    assert [said(*pods, pool=pool) for pool in ("", "blue", "red")] == [False, True, Unsure.UNSEEN]


POOL_ELSEWHERE = {"name": POOL_VARIABLE, "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}


@pytest.mark.parametrize(
    "other",
    [
        written("--config=/etc/blue.yaml", f"{FLAG}=false"),
        written(f"{FLAG}=false", env=[POOL_ELSEWHERE]),
        written(f"{FLAG}=false", envFrom=[{"configMapRef": {"name": "c"}}]),
    ],
)
def test_a_pod_whose_node_pool_is_said_elsewhere_is_not_taken_for_one_of_the_default_pool(other: Pod) -> None:
    assert said(written(FLAG), other) is True
    assert said(written(f"{POOL_FLAG}=blue", FLAG), other) is Unsure.ELSEWHERE


def test_pods_that_a_list_broken_off_had_count_only_if_the_next_one_has_them_too() -> None:
    found, before, after = SchedulerPods(), written(), written(FLAG)
    found.note(before)
    found.note(after)
    assert found.follow_taint_rules("", {after.metadata.uid}) is True
    found.note(written(FLAG, phase="Succeeded", metadata={"uid": after.metadata.uid}))
    assert found.follow_taint_rules("", {after.metadata.uid}) is Unsure.UNSEEN


# Versions of components are read from labels of pods, from images, and from leases.


def pod(
    name: str,
    component: str,
    version: str = "",
    *,
    image: str = "r/moorage:0.1.0",
    is_ready: bool = False,
    phase: str = "Running",
) -> Pod:
    labels = {"app.kubernetes.io/component": component, "app.kubernetes.io/version": version}
    return Pod(
        metadata=ObjectMeta(name=name, labels={key: value for key, value in labels.items() if value}),
        spec=PodSpec(containers=[Container(name="main", image=image)]),
        status=PodStatus(phase=phase, conditions=[Condition(type="Ready", status=str(is_ready))]),
    )


def lease(component: str, host: str = "") -> Lease:
    holder = f"{host}_0123456789abcdef" if host else ""
    return Lease(metadata=ObjectMeta(name=f"moorage-{component}"), spec=LeaseSpec(holder_identity=holder))


def test_pods_of_one_version_are_counted_with_the_one_that_leads() -> None:
    pods = [pod("s-1", "scheduler", "1", is_ready=True), pod("s-2", "scheduler", "1")]
    assert components(pods, [lease("scheduler", "s-2")]) == [
        Component(name="scheduler", version="1", source=LABEL, image="r/moorage:0.1.0", pods=2, ready=1, leader="s-2")
    ]


def test_an_update_that_is_under_way_has_two_versions() -> None:
    pods = [pod("b-2", "binder", "2", image="r/m:2"), pod("b-1", "binder", "1", image="r/m:1")]
    found = components(pods, [lease("binder", "b-1")])
    assert [(each.version, each.leader) for each in found] == [("1", "b-1"), ("2", "")]


@pytest.mark.parametrize(
    ("image", "version", "source"),
    [
        ("moorage:0.2", "0.2", IMAGE),
        ("host:5000/moorage:0.2@sha256:0", "0.2", IMAGE),
        ("host:5000/moorage", "", ""),
        ("moorage@sha256:0", "", ""),
    ],
)
def test_without_a_label_the_tag_of_the_image_tells(image: str, version: str, source: str) -> None:
    (found,) = components([pod("a", "admission", image=image)], [])
    assert (found.version, found.source) == (version, source)


def test_what_runs_outside_of_pods_is_known_by_its_lease_alone() -> None:
    found = components([], [lease("scheduler", "laptop"), lease("binder"), lease("other", "x")])
    assert found == [Component(name="scheduler", version="", source=NOWHERE, leader="laptop")]


def test_pods_that_ended_do_not_count() -> None:
    assert components([pod("c", "crds", "1", phase="Succeeded")], []) == []
