"""Caches that follow a server through everything that may go wrong on the way equal a fresh list in the end.

Pods are made, changed, bound, deleted and made again under their names, while watches and lists are late, refused, cut,
garbled, expired or silent: before the real server by a proxy, and by the one in memory itself. Each seed has
each mishap at least once, in an order of its own.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from binder.core.reservation_pod import ReservationTemplate
from binder.watch.sinks import PodSink as BinderPodSink
from binder.watch.view import View
from kube.client import errors
from kube.client.api import Api
from kube.client.config import plain
from kube.client.http import HttpTransport
from kube.client.resources import PODS
from kube.client.retry import BackoffRange, Retry
from kube.client.transport import Transport
from kube.watch.reflector import Reflector, ReflectorSettings, Sink
from kube.watch.signal import Signal
from scheduler.core.cluster import Cluster as SchedulerCluster
from scheduler.core.model.settings import Settings
from scheduler.watch.cache import Cache
from scheduler.watch.sinks import PodSink
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from tests.contract.cluster import Cluster, pod
from tests.contract.conftest import NewCluster
from tools.faultyproxy import Deck, FaultyProxy, Kind, catalogue
from wire import names
from wire.core import Binding, ObjectMeta, ObjectReference, Pod

#: Pods have so few names that most are used again, and lists so small pages that there are several.
_NAMES = [f"p{number}" for number in range(16)]
_PAGE = 4
#: Their name on the server in memory.
_FOLLOWERS = "followers"
_WITHIN_S = 60.0
_SETTINGS = ReflectorSettings(
    watch_least_s=2, watch_most_s=4, silence_s=1.0, early_s=0.1, backoff=BackoffRange(first_s=0.02, most_s=0.2)
)
#: How many runs a test has, and what passes between two acts of users: a server in memory answers in no time.
_RUNS = {"memory": 4, "real": 1}
_PACE_S = {"memory": 0.01, "real": 0.0}


class Store:
    """A sink that keeps all of all pods."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}

    def keep(self, obj: Pod) -> Pod:
        return obj

    async def replace(self, kept: Sequence[Pod]) -> None:
        self.pods = {obj.metadata.uid: obj for obj in kept}

    def upsert(self, obj: Pod) -> None:
        self.pods[obj.metadata.uid] = obj

    def delete(self, obj: Pod) -> None:
        self.pods.pop(obj.metadata.uid, None)


class Told:
    """A sink that says when another one was told something."""

    def __init__(self, inner: Sink[Pod, Any], changed: Signal) -> None:
        self._inner = inner
        self._changed = changed

    def keep(self, obj: Pod) -> Any:
        return self._inner.keep(obj)

    async def replace(self, kept: Sequence[Any]) -> None:
        await self._inner.replace(kept)
        self._changed.set()

    def upsert(self, obj: Pod) -> None:
        self._inner.upsert(obj)
        self._changed.set()

    def delete(self, obj: Pod) -> None:
        self._inner.delete(obj)
        self._changed.set()


@dataclass(slots=True)
class Followers:
    """Everything of ours that follows pods."""

    store: Store = field(default_factory=Store)
    cache: Cache = field(default_factory=lambda: Cache(SchedulerCluster(Settings())))
    view: View = field(default_factory=lambda: View(on_request=lambda _: None))

    def sinks(self) -> list[Sink[Pod, Any]]:
        return [self.store, PodSink(self.cache), BinderPodSink(self.view, ReservationTemplate())]

    def state(self) -> dict[str, Any]:
        cluster = self.cache.cluster
        return {
            "store": {uid: _plain(obj) for uid, obj in self.store.pods.items()},
            "scheduler": {uid: cluster.pod(uid) for uid in cluster.pods_beside(())},
            "waiting": self.cache.waiting,
            "binder": self.view.pods,
        }


def _plain(obj: Pod) -> tuple[ObjectMeta, Any, Any]:
    """Without apiVersion and kind, which lists of built-in kinds leave out."""
    return obj.metadata, obj.spec, obj.status


@dataclass(slots=True)
class Users:
    """What people and other components do to the pods of a namespace, at random, as fast as they are answered."""

    api: Api
    namespace: str
    rng: random.Random
    pace_s: float

    async def act(self) -> None:
        name = self.rng.choice(_NAMES)
        act: Callable[[str], Any] = self.rng.choice(
            [self._make, self._make, self._label, self._tell, self._bind, self._end]
        )
        with suppress(errors.NotFound, errors.Conflict):
            await act(name)
        await anyio.sleep(self.pace_s)

    async def _make(self, name: str) -> None:
        await self.api.create(PODS, pod(name, schedulerName=names.SCHEDULER_NAME), namespace=self.namespace)

    async def _label(self, name: str) -> None:
        patch = {"metadata": {"labels": {"a": str(self.rng.randrange(100))}}}
        await self.api.patch(PODS, name, patch, namespace=self.namespace)

    async def _tell(self, name: str) -> None:
        said = [{"type": "PodScheduled", "status": "False", "message": str(self.rng.randrange(100))}]
        patch = {"status": {"conditions": said}}
        await self.api.patch(PODS, name, patch, namespace=self.namespace, subresource="status")

    async def _bind(self, name: str) -> None:
        target = ObjectReference(kind="Node", name=f"node-{self.rng.randrange(3)}")
        await self.api.bind(self.namespace, name, Binding(metadata=ObjectMeta(name=name), target=target))

    async def _end(self, name: str) -> None:
        await self.api.delete(PODS, name, namespace=self.namespace, grace_s=0)


def _dealt(fate: Deck, call: Call) -> Fault | None:
    if call.user != _FOLLOWERS:
        return None
    return replace(fate.deal(Kind.WATCH if call.verb == "watch" else Kind.READ), page=_PAGE)


@asynccontextmanager
async def through(cluster: Cluster, request: pytest.FixtureRequest, fate: Deck) -> AsyncIterator[Transport]:
    """A connection on which things go wrong."""
    if cluster.memory is not None:
        cluster.memory.faults.on_request.append(partial(_dealt, fate))
        cluster.memory.faults.on_strike.append(lambda _, fault: fate.struck(replace(fault, page=0)))
        yield cluster.memory.transport(_FOLLOWERS)
        return
    plane = request.getfixturevalue("real_server")
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(FaultyProxy(plane.url, ca_pem=plane.ca_pem, fate=fate, page=_PAGE))
        yield await stack.enter_async_context(HttpTransport(plain(proxy.url, token=plane.token)))


async def _until_equal(fresh: Sequence[Pod], followers: Followers, changed: Signal) -> None:
    expected = Followers()
    for sink in expected.sinks():
        await sink.replace([sink.keep(obj) for obj in fresh])
    while followers.state() != expected.state():
        await changed.wait()


@pytest.mark.parametrize("first_seed", range(4))
async def test_caches_equal_a_fresh_list_whatever_went_wrong_on_the_way(
    first_seed: int, backend: str, new_cluster: NewCluster, request: pytest.FixtureRequest
) -> None:
    for seed in range(first_seed * _RUNS[backend], (first_seed + 1) * _RUNS[backend]):
        print(f"seed {seed}")
        rng = random.Random(seed)
        cluster = await new_cluster()
        deck = Deck({kind: of for kind, of in catalogue(rng).items() if kind is not Kind.WRITE}, rng)
        users = Users(Api(cluster.transport, retry=Retry(rng)), cluster.namespace, rng, _PACE_S[backend])
        with anyio.fail_after(_WITHIN_S):
            async with through(cluster, request, deck) as transport:
                await _follow(Api(transport, retry=Retry(rng), timeout_s=5.0), users, deck)


async def _follow(api: Api, users: Users, deck: Deck) -> None:
    followers, changed = Followers(), Signal()
    async with anyio.create_task_group() as tasks:
        for number, sink in enumerate(followers.sinks()):
            reflector = Reflector(
                api, PODS, Told(sink, changed), namespace=users.namespace, rng=random.Random(number), settings=_SETTINGS
            )
            tasks.start_soon(reflector.run)
        while deck.left():
            await users.act()
        deck.calm()
        fresh = await users.api.list(PODS, namespace=users.namespace)
        await _until_equal(fresh.items, followers, changed)
        tasks.cancel_scope.cancel()
