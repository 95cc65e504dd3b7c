"""Keeps the page's objects in step with an API server, makes frames of their changes, and counts stranded GPUs.

Objects are followed by the reflectors that all components use.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
from anyio.abc import TaskStatus

from kube.client.api import Api
from kube.client.resources import BIND_REQUESTS, EVENTS, GPU_NODES, NODES, POD_GROUPS, PODS, QUEUES, Resource
from kube.watch.reflector import Reflector
from kube.watch.signal import Signal
from ui.inspect.survey import unusable_views
from ui.inspect.values import UnusableView
from ui.leaders import Leaders
from ui.page.drawing import draw_event
from ui.page.objects import Objects, kept, kept_queue, newest, placed
from ui.page.stream import Frames
from ui.page.values import EventLine
from wire import names
from wire.api_groups import Event
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.gpunode import GpuNode
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

#: Four a second: more than anybody reads, and a burst of changes is drawn once.
FRAMES_EVERY_S: Final = 0.25
#: Nodes that are drawn before other tasks get a turn (some ms).
_NODES_PER_TURN: Final = 4


class Publishing:
    """The frames of objects, which are made by ``make`` and wake this when they change.

    The rate of frames is limited. A new one wakes the readers that wait for it.
    """

    def __init__(
        self, epoch: str, *, every_s: float = FRAMES_EVERY_S, make: Callable[[Callable[[], None]], Objects] = Objects
    ) -> None:
        self.wake = Signal()
        self.objects = make(self.wake.set)
        self.frames = Frames(self.objects, epoch)
        self._every_s = every_s
        self._next = anyio.Event()
        #: Set when all that was there has been drawn, which may be nothing.
        self.begun = anyio.Event()

    async def run(self) -> None:
        """Draw until cancelled; the first frame at once."""
        while True:
            before = self.frames.revision
            for number, _ in enumerate(self.frames.draw(), 1):
                if number % _NODES_PER_TURN == 0:
                    await anyio.lowlevel.checkpoint()
            if self.frames.revision != before:
                self._tell()
            self.begun.set()
            await anyio.sleep(self._every_s)
            await self.wake.wait()

    def note_unusable(self, found: Iterable[UnusableView]) -> None:
        """Show these free GPUs that fit no pod from the next frame on."""
        self.frames.note_unusable(found)
        self.wake.set()

    async def wait_beyond(self, revision: int) -> None:
        """Wait until there is a newer frame."""
        while self.frames.revision <= revision:
            await self._next.wait()

    def _tell(self) -> None:
        told, self._next = self._next, anyio.Event()
        told.set()


#: It is counted this often at most, and in this part of the time.
UNUSABLE_EVERY_S: Final = 5.0
_PART: Final = 20


class Unusable:
    """Counts free GPUs that fit no pod, now and then, from all that is followed (docs/packing.md).

    All nodes and pods have to be counted for it, so it is done in a thread, and for a small part of the time.
    ``found``: as of the last count. ``tell`` is called with it after each count.
    """

    def __init__(self, objects: Objects, tell: Callable[[Sequence[UnusableView]], None] = lambda _: None) -> None:
        self._objects = objects
        self._tell = tell
        self.found: Sequence[UnusableView] = ()

    async def run(self) -> None:
        """Count until cancelled."""
        while True:
            took_s = 0.0
            if self._knows_all:
                self.found, took_s = await anyio.to_thread.run_sync(_timed, *self._there())
                self._tell(self.found)
            await anyio.sleep(max(UNUSABLE_EVERY_S, _PART * took_s))

    def count(self) -> None:
        """Count once, while nothing else goes on."""
        if self._knows_all:
            self.found = unusable_views(*self._there())
            self._tell(self.found)

    @property
    def _knows_all(self) -> bool:
        """Whether all pods are followed."""
        return self._objects.namespaces is None

    def _there(self) -> tuple[Sequence[Node], Sequence[Pod], Sequence[BindRequest]]:
        """Objects are never changed, only replaced: what is listed here stays as it is."""
        objects = self._objects
        return tuple(objects.nodes.values()), tuple(objects.pods.values()), tuple(objects.requests.values())


def _timed(
    nodes: Sequence[Node], pods: Sequence[Pod], requests: Sequence[BindRequest]
) -> tuple[Sequence[UnusableView], float]:
    """Count, and return the CPU time that it took as well, in seconds."""
    began = time.thread_time()
    return unusable_views(nodes, pods, requests), time.thread_time() - began


T = TypeVar("T", bound=msgspec.Struct)
H = TypeVar("H")
Key = TypeVar("Key")

#: Bookmarks come about once a minute, so after so long something is wrong.
SILENT_AFTER_S: Final = 90.0
_LOOK_AGAIN_S: Final = 0.02
#: As the API has it: no namespace, or all of them.
_ALL: Final = ""


class Held(Generic[T, H, Key]):
    """A sink (kube/watch/reflector.py) that puts objects under keys; ``keep`` makes nothing of what is not wanted.

    ``known``: keys of those that a whole list would have. ``choose``: those of it that are put, and in which order.
    """

    def __init__(
        self,
        *,
        keep: Callable[[T], H | None],
        key: Callable[[T], Key],
        key_of: Callable[[H], Key],
        put: Callable[[H], None],
        drop: Callable[[Key], None],
        known: Callable[[], Iterable[Key]],
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
        for key in [key for key in self._known() if key not in listed]:
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


#: A kind of objects, and what takes them.
Sinks = Sequence[tuple[Resource[Any], Held[Any, Any, Any]]]


def sinks(objects: Objects) -> Sinks:
    """All that a page is made of, and what takes it."""
    return (NODES, _nodes(objects)), (QUEUES, _queues(objects)), *_of_namespace(objects, _ALL)


def _of_namespace(objects: Objects, where: str) -> Sinks:
    """What there is of a namespace, pods first."""
    return (
        (PODS, _pods(objects, where)),
        (BIND_REQUESTS, _requests(objects, where)),
        (POD_GROUPS, _groups(objects, where)),
        (EVENTS, _events(objects, where)),
    )


class Following:
    """Watches of six or seven kinds. There is no page without nodes and pods; others are missed where they can't be.

    ``namespaces``: follow these alone, by four watches each, for who may not read all. Nodes, and the pods that hold
    devices for shares, are missed there, too, where they can't be read. ``leaders``: whose leases are read, too; None:
    nobody's. ``has_use``: follow what agents report of their nodes, too.
    """

    def __init__(
        self,
        api: Api,
        objects: Objects,
        *,
        rng: random.Random,
        namespaces: Sequence[str] = (),
        leaders: Leaders | None = None,
        has_use: bool = False,
    ) -> None:
        self._api = api
        self._objects = objects
        self._leaders = leaders
        self._namespaces = namespaces
        objects.namespaces = frozenset(namespaces) or None

        def following(taken: Sinks, where: str) -> list[Reflector[Any]]:
            return [Reflector(api, resource, sink, namespace=where, rng=rng) for resource, sink in taken]

        nodes = following([(NODES, _nodes(objects))], _ALL)
        each = [following(_of_namespace(objects, where), where) for where in namespaces or [_ALL]]
        held = names.RESERVATION_NAMESPACE
        holders = following([(PODS, _pods(objects, held))], held) if held not in namespaces else []
        self._needed = [*([] if namespaces else nodes), *(pods for pods, *_ in each)]
        #: Of some namespaces: what they stand on. Missed where it can't be read, but waited for until that is known.
        self._beneath = [*nodes, *holders] if namespaces else []
        of_cluster: list[tuple[Resource[Any], Held[Any, Any, Any]]] = [(QUEUES, _queues(objects))]
        if has_use:
            of_cluster.append((GPU_NODES, _gpu_nodes(objects)))
        self._wanted = [one for _, *rest in each for one in rest] + following(of_cluster, _ALL)
        self.is_in_step = False

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow until cancelled. Started once nodes and pods are there, or can't be and need not."""
        async with anyio.create_task_group() as tasks:
            for each in self._all():
                tasks.start_soon(each.run)
            if self._leaders is not None:
                tasks.start_soon(self._leaders.follow, self._api)
            for each in self._needed:
                await each.synced.wait()
            await _settled(self._beneath)
            self.is_in_step = True
            task_status.started()

    async def begun(self) -> None:
        """Wait until it is in step, or something that it can't do without can't be read."""
        await _settled(self._needed)
        while not (self.is_in_step or any(each.trouble for each in self._needed)):  # noqa: ASYNC110 - as below
            await anyio.sleep(_LOOK_AGAIN_S)

    async def settled(self) -> None:
        """Wait until everything has been read, or can't be."""
        await _settled(self._all())
        while not (self._leaders is None or self._leaders.is_settled):  # noqa: ASYNC110 - as below
            await anyio.sleep(_LOOK_AGAIN_S)

    def _all(self) -> list[Reflector[Any]]:
        return [*self._needed, *self._beneath, *self._wanted]

    def troubles(self) -> tuple[str, ...]:
        """What can't be read now, and why; a kind that the cluster does not have is not missed.

        And why what is read is written down no more, where it was to be.
        """
        recording = (self._objects.trouble,) if self._objects.trouble else ()
        left_out = (f"pods of other namespaces than {', '.join(self._namespaces)}",) if self._namespaces else ()
        unread = (
            f"{each.resource.plural}: {each.trouble}" for each in self._all() if each.trouble and not each.is_unknown
        )
        leases = (self._leaders.trouble,) if self._leaders and self._leaders.trouble else ()
        return (*recording, *left_out, *unread, *leases)

    def idle(self) -> tuple[str, ...]:
        """Which of the components do not work, in sentences."""
        return self._leaders.warnings() if self._leaders else ()

    @property
    def has_nodes(self) -> bool:
        """Whether nodes can be read."""
        return not any(each.resource is NODES and each.trouble for each in self._beneath)

    def silent_s(self) -> int:
        """For how many seconds nothing was heard of nodes and pods, 0 while that is usual."""
        since = anyio.current_time() - min(each.heard_at for each in self._needed)
        return int(since) if self.is_in_step and since > SILENT_AFTER_S else 0


async def _settled(followed: Sequence[Reflector[Any]]) -> None:
    for each in followed:
        while not (each.synced.is_set() or each.trouble):  # noqa: ASYNC110 - a reflector tells nobody of its troubles
            await anyio.sleep(_LOOK_AGAIN_S)


def _name(obj: Node | GpuNode | Queue) -> str:
    return obj.metadata.name


def _uid(obj: Pod) -> str:
    return obj.metadata.uid


def _placed(obj: BindRequest | PodGroup) -> tuple[str, str]:
    return placed(obj.metadata)


def _itself(obj: H) -> H:
    return obj


def _nodes(objects: Objects) -> Held[Node, Node, str]:
    return Held(
        keep=_itself,
        key=_name,
        key_of=_name,
        put=objects.put_node,
        drop=objects.drop_node,
        known=lambda: objects.nodes,
    )


def _pods(objects: Objects, where: str) -> Held[Pod, Pod, str]:
    def known() -> Iterable[str]:
        return (uid for uid, pod in objects.pods.items() if where in {_ALL, pod.metadata.namespace})

    return Held(keep=kept, key=_uid, key_of=_uid, put=objects.put_pod, drop=objects.drop_pod, known=known)


def _requests(objects: Objects, where: str) -> Held[BindRequest, BindRequest, tuple[str, str]]:
    return Held(
        keep=_itself,
        key=_placed,
        key_of=_placed,
        put=objects.put_request,
        drop=objects.drop_request,
        known=lambda: (each for each in objects.requests if where in {_ALL, each[0]}),
    )


def _gpu_nodes(objects: Objects) -> Held[GpuNode, GpuNode, str]:
    return Held(
        keep=_itself,
        key=_name,
        key_of=_name,
        put=objects.put_gpu_node,
        drop=objects.drop_gpu_node,
        known=lambda: objects.gpu_nodes,
    )


def _queues(objects: Objects) -> Held[Queue, Queue, str]:
    return Held(
        keep=kept_queue,
        key=_name,
        key_of=_name,
        put=objects.put_queue,
        drop=objects.drop_queue,
        known=lambda: objects.queues,
    )


def _groups(objects: Objects, where: str) -> Held[PodGroup, PodGroup, tuple[str, str]]:
    return Held(
        keep=_itself,
        key=_placed,
        key_of=_placed,
        put=objects.put_group,
        drop=objects.drop_group,
        known=lambda: (each for each in objects.groups if where in {_ALL, each[0]}),
    )


def _events(objects: Objects, where: str) -> Held[Event, EventLine, str]:
    def key(event: Event) -> str:
        return "/".join(placed(event.metadata))

    def key_of(line: EventLine) -> str:
        return line.key

    def is_listed(key: str) -> bool:
        return where in {_ALL, key.partition("/")[0]}

    def choose(there: list[EventLine]) -> list[EventLine]:
        """Beside those of other namespaces, which are not in this list."""
        return newest([*(line for key, line in objects.events.items() if not is_listed(key)), *there])

    return Held(
        keep=draw_event,
        key=key,
        key_of=key_of,
        put=objects.put_event,
        drop=objects.drop_event,
        known=lambda: filter(is_listed, objects.events),
        choose=choose,
    )
