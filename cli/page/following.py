"""Keeps the page's objects in step with an API server, by the reflectors that all components use."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import anyio
import msgspec
from anyio.abc import TaskStatus

from cli.page.drawing import draw_event, draw_queue
from cli.page.objects import Objects, kept, newest
from cli.page.values import EventLine, QueueLine
from kube.api import Api
from kube.reflector import Reflector
from kube.resources import BIND_REQUESTS, EVENTS, NODES, POD_GROUPS, PODS, QUEUES, Resource
from wire.core import Node, ObjectMeta, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue
from wire.events import Event

T = TypeVar("T", bound=msgspec.Struct)
H = TypeVar("H")
Key = TypeVar("Key")

#: Bookmarks come about once a minute, so after so long something is wrong.
SILENT_AFTER_S: Final = 90.0


class Held(Generic[T, H, Key]):
    """A sink (kube/reflector.py) that puts objects under keys; ``keep`` makes nothing of what is not wanted.

    ``choose``: those of a whole list that are put, and in which order.
    """

    def __init__(
        self,
        *,
        keep: Callable[[T], H | None],
        key: Callable[[T], Key],
        key_of: Callable[[H], Key],
        put: Callable[[H], None],
        drop: Callable[[Key], None],
        known: Mapping[Key, Any],
        choose: Callable[[list[H]], list[H]] = lambda there: there,
    ) -> None:
        self.keep: Final = keep
        self._key = key
        self._key_of = key_of
        self._put = put
        self._drop = drop
        self._known = known
        self._choose = choose

    async def replace(self, kept: Sequence[H | None]) -> None:
        """Take a whole list."""
        there = self._choose([each for each in kept if each is not None])
        listed = {self._key_of(each) for each in there}
        for key in [key for key in self._known if key not in listed]:
            self._drop(key)
        for each in there:
            self._put(each)

    def upsert(self, obj: T) -> None:
        """Take an object that is new or changed."""
        made = self.keep(obj)
        if made is None:
            self._drop(self._key(obj))
        else:
            self._put(made)

    def delete(self, obj: T) -> None:
        """Take an object's end."""
        self._drop(self._key(obj))


def sinks(objects: Objects) -> tuple[tuple[Resource[Any], Held[Any, Any, Any]], ...]:
    """All that a page is made of, and what takes it; first what it needs."""
    return (
        (NODES, _nodes(objects)),
        (PODS, _pods(objects)),
        (BIND_REQUESTS, _requests(objects)),
        (POD_GROUPS, _groups(objects)),
        (QUEUES, _queues(objects)),
        (EVENTS, _events(objects)),
    )


class Following:
    """Six watches. Without nodes and pods there is no page; the rest is missed where it can't be read."""

    def __init__(self, api: Api, objects: Objects, *, rng: random.Random) -> None:
        self._objects = objects
        followed = [Reflector(api, kind, sink, rng=rng) for kind, sink in sinks(objects)]
        self._needed, self._wanted = followed[:2], followed[2:]
        self.is_in_step = False

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow until cancelled. Started once nodes and pods are there."""
        async with anyio.create_task_group() as tasks:
            for each in (*self._needed, *self._wanted):
                tasks.start_soon(each.run)
            for each in self._needed:
                await each.synced.wait()
            self.is_in_step = True
            task_status.started()

    def troubles(self) -> tuple[str, ...]:
        """What can't be read now, and why; a kind that the cluster does not have is not missed.

        And why what is read is written down no more, where it was to be.
        """
        recording = (self._objects.trouble,) if self._objects.trouble else ()
        return recording + tuple(
            f"{each.resource.plural}: {each.trouble}"
            for each in (*self._needed, *self._wanted)
            if each.trouble and not each.is_unknown
        )

    def silent_s(self) -> int:
        """For how many seconds nothing was heard of nodes and pods, 0 while that is usual."""
        since = anyio.current_time() - min(each.heard_at for each in self._needed)
        return int(since) if self.is_in_step and since > SILENT_AFTER_S else 0


def _name(obj: Node) -> str:
    return obj.metadata.name


def _uid(obj: Pod) -> str:
    return obj.metadata.uid


def _itself(obj: H) -> H:
    return obj


def _placed(meta: ObjectMeta) -> tuple[str, str]:
    return meta.namespace, meta.name


def _nodes(objects: Objects) -> Held[Node, Node, str]:
    return Held(
        keep=_itself, key=_name, key_of=_name, put=objects.put_node, drop=objects.drop_node, known=objects.nodes
    )


def _pods(objects: Objects) -> Held[Pod, Pod, str]:
    return Held(keep=kept, key=_uid, key_of=_uid, put=objects.put_pod, drop=objects.drop_pod, known=objects.pods)


def _requests(objects: Objects) -> Held[BindRequest, BindRequest, tuple[str, str]]:
    def key(request: BindRequest) -> tuple[str, str]:
        return _placed(request.metadata)

    return Held(
        keep=_itself,
        key=key,
        key_of=key,
        put=objects.put_request,
        drop=objects.drop_request,
        known=objects.requests,
    )


def _queues(objects: Objects) -> Held[Queue, QueueLine, str]:
    def key(queue: Queue) -> str:
        return queue.metadata.name

    def key_of(line: QueueLine) -> str:
        return line.name

    return Held(
        keep=draw_queue, key=key, key_of=key_of, put=objects.put_queue, drop=objects.drop_queue, known=objects.queues
    )


def _groups(objects: Objects) -> Held[PodGroup, PodGroup, tuple[str, str]]:
    def key(group: PodGroup) -> tuple[str, str]:
        return _placed(group.metadata)

    return Held(keep=_itself, key=key, key_of=key, put=objects.put_group, drop=objects.drop_group, known=objects.groups)


def _events(objects: Objects) -> Held[Event, EventLine, str]:
    def key(event: Event) -> str:
        return "/".join(_placed(event.metadata))

    def key_of(line: EventLine) -> str:
        return line.key

    def put(line: EventLine) -> None:
        objects.put_event(line)

    return Held(
        keep=draw_event,
        key=key,
        key_of=key_of,
        put=put,
        drop=objects.drop_event,
        known=objects.events,
        choose=newest,
    )
