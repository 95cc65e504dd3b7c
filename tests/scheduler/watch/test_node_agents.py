"""Pods that a kubelet could not align: their successors keep off its node for a while."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
import pytest

from gpu.node_use import State
from kube.client import errors
from kube.client.api import Api
from kube.client.clock import monotonic_ns
from kube.client.resources import GPU_NODES, NAMESPACES, PODS
from kube.client.retry import Retry
from kube.client.transport import Response
from kube.events import EventRecorder
from scheduler.app import Scheduler
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Bind
from scheduler.core.model.settings import Settings
from scheduler.core.topology.topologies import Topologies
from scheduler.settings import PartitioningSettings, SchedulerSettings
from scheduler.watch.cache import Cache, RefusingNodes
from scheduler.watch.secondary import NodeUses
from scheduler.watch.sinks import KueueTopologies
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import NOTHING, Fault
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.types import MOORAGE
from simulator.clock import VirtualClock
from simulator.installation import SERVICE_ACCOUNTS
from tests.background import in_background
from tests.kube.scripted import Answer, ScriptedTransport, api_over, hang, ok, refusal
from tests.scheduler.core.objects import next_rv, node, pod
from tests.scheduler.watch.lists import cache, listed
from wire import names
from wire.core import Pod


async def test_reports_and_agents_are_followed_and_forgotten() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), extra_types=MOORAGE)
    api = Api(server.transport(), retry=Retry(random.Random(1)))
    uses = NodeUses(api, rng=random.Random(2))
    where = names.NODE_NAMESPACE
    async with in_background(server.run) as tasks:
        await api.create(NAMESPACES, {"metadata": {"name": where}})
        account = {"metadata": {"name": names.NODE_AGENT_SERVICE_ACCOUNT}}
        await api.create(SERVICE_ACCOUNTS, account, namespace=where)
        await api.create(GPU_NODES, {"metadata": {"name": "n1"}})
        assert uses.use_on("n1") is None
        await tasks.start(uses.run)
        await uses.catch_up()
        await anyio.sleep(5)

        def state() -> State | None:
            use = uses.use_on("n1")
            return None if use is None else use.state

        assert (state(), uses.use_on("n2")) == (State.STALE, None)
        container = {"name": "c", "image": "i"}
        spec = {"nodeName": "n1", "serviceAccountName": names.NODE_AGENT_SERVICE_ACCOUNT, "containers": [container]}
        await api.create(PODS, {"metadata": {"name": "agent"}, "spec": spec}, namespace=where)
        await api.create(PODS, {"metadata": {"name": "other"}, "spec": {"containers": [container]}}, namespace=where)
        status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await api.patch(PODS, "agent", status, namespace=where, subresource="status")
        await anyio.sleep(5)
        assert state() is State.CURRENT
        await api.delete(PODS, "agent", namespace=where, grace_s=0)
        await anyio.sleep(5)
        assert state() is State.STALE
        await api.delete(GPU_NODES, "n1")
        await anyio.sleep(5)
        assert state() is None


async def test_where_the_kind_is_not_served_nobody_waits_and_nothing_is_known() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1))
    uses = NodeUses(Api(server.transport(), retry=Retry(random.Random(1))), rng=random.Random(2))
    async with in_background(server.run) as tasks:
        await tasks.start(uses.run)
        await anyio.sleep(600)
        assert uses.use_on("n1") is None


@pytest.mark.parametrize("partitions", [True, False])
async def test_gpu_nodes_are_watched_once_whether_or_not_slices_are_made(partitions: bool) -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), extra_types=MOORAGE, auto_namespaces=True)
    api = Api(server.transport(), retry=Retry(random.Random(1)))
    settings = SchedulerSettings(partitioning=PartitioningSettings() if partitions else None, follows_use=True)
    events = EventRecorder(api, clock=clock, controller="scheduler", instance="a")
    scheduler = Scheduler(api, settings=settings, clock=clock, rng=random.Random(2), events=events)
    watched: list[str] = []

    def count(call: Call) -> Fault:
        watched.extend([call.verb] if call.kind.plural == "gpunodes" else [])
        return NOTHING

    server.faults.on_request.append(count)
    await api.create(GPU_NODES, {"metadata": {"name": "n1"}})
    watched.clear()
    async with in_background(server.run) as tasks:
        await tasks.start(scheduler.follow)
        await anyio.sleep(5)
        assert sorted(watched) == ["list", "watch"]
        assert scheduler.uses is not None
        use = scheduler.uses.use_on("n1")
        assert (use is not None and use.state) is State.STALE
        await api.delete(GPU_NODES, "n1")
        await anyio.sleep(5)
        assert scheduler.uses.use_on("n1") is None


_OWNER = ("apps/v1", "ReplicaSet")


def _refused(name: str, on: str, *, reason: str = names.TOPOLOGY_AFFINITY_ERROR, owned: bool = True) -> Pod:
    made = msgspec.to_builtins(pod(name, gpus=1, owner=_OWNER if owned else None, bound_to=on))
    made["status"] |= {"phase": names.FAILED, "reason": reason}
    made["metadata"]["resourceVersion"] = next_rv()
    return msgspec.convert(made, Pod)


def _goes_to(made: Cache, name: str) -> str:
    entries: Any = made.cluster.decide(monotonic_ns()).entries
    return next((e.placement.node for e in entries if isinstance(e, Bind) and e.placement.name == name), "")


@pytest.mark.parametrize(
    ("refused", "node_of_next"),
    [
        (_refused("p-1", "n1"), "n2"),
        (_refused("p-1", "n2"), "n1"),
        (_refused("p-1", "n1", reason="OutOfcpu"), "n1"),
        (_refused("p-1", "n1", owned=False), "n1"),
    ],
    ids=["on-n1", "on-n2", "another-reason", "no-controller"],
)
async def test_the_next_pod_of_a_controller_keeps_off_the_node_that_could_not_align_the_last(
    refused: Pod, node_of_next: str
) -> None:
    made, sink = cache()
    for name in ("n1", "n2"):
        made.cluster.upsert_node(node(name))
    await listed(sink, refused)
    made.note_pod(pod("p-2", gpus=1, owner=_OWNER))
    assert _goes_to(made, "p-2") == node_of_next


async def test_pods_of_others_go_there() -> None:
    made, sink = cache()
    made.cluster.upsert_node(node("n1"))
    await listed(sink, _refused("p-1", "n1"))
    made.note_pod(pod("other", gpus=1))
    assert _goes_to(made, "other") == "n1"


def test_each_refusal_counts_once() -> None:
    made = RefusingNodes()
    for uid in ("p1", "p1", "p2"):
        made.note(uid, "ns", "job", "n1")
    made.note("p3", "ns", "job", "n2")
    assert dict(made.of("job")) == {"n1": 2, "n2": 1}
    assert dict(made.of("none")) == {}


def test_no_more_controllers_and_nodes_are_remembered_than_may_be() -> None:
    made = RefusingNodes()
    for number in range(5000):
        made.note(f"p{number}", f"ns-{number % 100}", f"job-{number}", "n1")
    assert not made.of("job-0")
    assert made.of("job-4999")
    for number in range(70):
        made.note(f"q{number}", "ns", "job", f"n{number}")
    assert len(made.of("job")) == 64
    assert "n69" in made.of("job")


def test_a_namespace_with_any_number_of_controllers_has_no_other_forgotten() -> None:
    made = RefusingNodes()
    made.note("p", "quiet", "job", "n1")
    for number in range(5000):
        made.note(f"p{number}", "loud", f"job-{number}", "n1")
    assert dict(made.of("job")) == {"n1": 1}
    assert sum(bool(made.of(f"job-{number}")) for number in range(5000)) == 512


@pytest.mark.parametrize(
    "other", [{"namespace": "other"}, {"ownerReferences": [{"kind": "K", "name": "o", "uid": "o"}]}]
)
async def test_pods_that_fail_with_the_uid_of_anothers_controller_keep_its_pods_off_no_node(
    other: dict[str, Any],
) -> None:
    made, sink = cache()
    for name in ("n1", "n2"):
        made.cluster.upsert_node(node(name))
    forged = msgspec.to_builtins(_refused("p-1", "n1"))
    forged["metadata"] |= other
    for owner in forged["metadata"]["ownerReferences"]:
        owner["controller"] = True
    await listed(sink, msgspec.convert(forged, Pod))
    made.note_pod(pod("p-2", gpus=1, owner=_OWNER))
    assert _goes_to(made, "p-2") == "n1"


# Kueue's Topologies are read where they are served, and nothing of that holds up a scheduler.

NEWEST, OLDER = (f"/apis/kueue.x-k8s.io/{version}/topologies" for version in ("v1beta2", "v1beta1"))
AGAIN_S = 60
UNREAD = "topologies.kueue.x-k8s.io"


def served(*names: str) -> Response:
    """A list of Topologies of one level, as Kueue's objects are: without aliases."""
    items = [{"metadata": {"name": name}, "spec": {"levels": [{"nodeLabel": "example.com/rack"}]}} for name in names]
    return ok({"metadata": {"resourceVersion": "7"}, "items": items})


NO_KIND = refusal(404, "NotFound")
NO_RIGHT = refusal(403, "Forbidden")
DOWN = errors.Unreachable("cut")
NO_SENSE = ok({"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "odd"}, "spec": {"levels": 3}}]})


async def looked(*answers: Answer, times: int = 1) -> tuple[Topologies, ScriptedTransport]:
    """Follow until they were looked at so often; what is known then, and what was asked."""
    transport, cache = ScriptedTransport(deque(answers)), Cache(Cluster(Settings()))
    async with anyio.create_task_group() as tasks:
        await tasks.start(KueueTopologies(api_over(transport), cache).run)
        await anyio.sleep(AGAIN_S * (times - 0.5))
        tasks.cancel_scope.cancel()
    return cache.cluster.topologies, transport


@pytest.mark.parametrize(
    ("answers", "known", "unread", "asked"),
    [
        pytest.param([served("a", "b")], "a b", "", [NEWEST], id="newest"),
        pytest.param([NO_KIND, served("a")], "a", "", [NEWEST, OLDER], id="older"),
        pytest.param([NO_KIND, NO_KIND], "", "", [NEWEST, OLDER], id="no-kueue"),
        pytest.param([NO_RIGHT], "", UNREAD, [NEWEST], id="no-right"),
        pytest.param([NO_SENSE], "", "", [NEWEST], id="one-does-not-decode"),
    ],
)
async def test_the_newest_version_that_is_served_is_read(
    answers: Sequence[Answer], known: str, unread: str, asked: Sequence[str]
) -> None:
    found, transport = await looked(*answers)
    assert " ".join(sorted(each.name for each in found.of_kueue.all())) == known
    assert found.not_read() == unread
    assert [request.path for request in transport.requests] == asked


@pytest.mark.parametrize(
    ("then", "known", "unread"),
    [
        pytest.param([served("b")], "b", "", id="others"),
        pytest.param([NO_KIND, NO_KIND], "", "", id="kueue-is-gone"),
        pytest.param([NO_RIGHT], "a", UNREAD, id="no-right-any-more"),
    ],
)
async def test_they_are_read_again_every_minute(then: Sequence[Answer], known: str, unread: str) -> None:
    found, _ = await looked(served("a"), *then, times=2)
    assert " ".join(each.name for each in found.of_kueue.all()) == known
    assert found.not_read() == unread


async def test_an_api_server_that_does_not_answer_holds_the_start_up_for_two_seconds_only() -> None:
    began_s, cache = anyio.current_time(), Cache(Cluster(Settings()))
    async with anyio.create_task_group() as tasks:
        await tasks.start(KueueTopologies(api_over(ScriptedTransport(deque([hang]))), cache).run)
        assert anyio.current_time() - began_s == pytest.approx(2)
        tasks.cancel_scope.cancel()
    assert cache.cluster.topologies.not_read() == UNREAD


async def test_a_right_that_is_missing_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    await looked(NO_RIGHT, NO_RIGHT, times=2)
    (said,) = caplog.messages
    assert "allow the verb list on them in the ClusterRole" in said
