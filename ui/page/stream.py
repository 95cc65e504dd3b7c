"""What the page shows at each revision, and what changed since an earlier one. No I/O, no clock.

A frame draws what is marked and nothing else; the last frames are kept, so that a reader who was away for a moment
receives what it missed, and not everything again.

A node of which some pods may not be read: what can be said of its devices, and what can't. Pure.

Who may read some namespaces alone is shown their pods, and nothing is idle: somebody else may be there. What is left
of a shared device is known where its reservation pod may be read: the book on it (gpu/book.py) names all tenants.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

import msgspec

from gpu.share import NANO_PER_DEVICE
from scheduler.core.report.node_view import Kind
from ui.inspect.values import UnusableView
from ui.page.counts import QueueCounts
from ui.page.drawing import draw_group, draw_node, draw_path, draw_queue, draw_unusable, draw_waiting
from ui.page.objects import Key, Objects
from ui.page.values import (
    Changes,
    Device,
    EventLine,
    GroupLine,
    NodeCard,
    PodLine,
    PodPath,
    QueueLine,
    Tenant,
    UnusableLine,
)

#: A device of which nobody who may be read has a share.
UNKNOWN: Final = "unknown"


def as_far_as_known(card: NodeCard | None, namespaces: Collection[str] | None) -> NodeCard | None:
    """Take back what was concluded from what is not seen: what is idle, left or stranded, and that books are gone.

    ``namespaces``: those whose pods were read; None: all, so there is nothing to take back.
    """
    if card is None or namespaces is None:
        return card
    return msgspec.structs.replace(
        card,
        is_partly_known=True,
        unknown_nano=max(0, card.gpus * NANO_PER_DEVICE - card.used_nano),
        idle_nano=0,
        pieces_nano=0,
        stranded_nano=0,
        devices=tuple(_device(device, namespaces) for device in card.devices),
    )


def _device(device: Device, namespaces: Collection[str]) -> Device:
    if device.kind == Kind.FREE.value:
        return msgspec.structs.replace(device, kind=UNKNOWN, free_nano=0)
    if device.kind == Kind.SHARED.value and not device.reservation:
        return msgspec.structs.replace(device, is_partly_known=True, free_nano=0, closed=())
    return msgspec.structs.replace(device, tenants=tuple(_tenant(tenant, namespaces) for tenant in device.tenants))


def _tenant(tenant: Tenant, namespaces: Collection[str]) -> Tenant:
    """The book tells of others' pods how much they have, and not whether they have come, nor their queues."""
    if tenant.namespace in namespaces:
        return tenant
    return Tenant(nano=tenant.nano, mem_mib=tenant.mem_mib, is_hidden=True)


K = TypeVar("K")
V = TypeVar("V")

#: Revisions that a reader may be behind and still get only the changes: a minute and more, at four a second.
MOST_FRAMES: Final = 300
#: And the lines of all these changes: a reader further behind reads the whole, which is less.
MOST_LINES: Final = 20_000
#: This many pods that wait cost what a node costs: about 0.25 ms together.
_PODS_PER_TURN: Final = 16
#: No revision that was ever sent is longer; Python refuses to read numbers of thousands of digits.
_MOST_DIGITS: Final = 18


class Frame(msgspec.Struct, frozen=True):
    """What changed with a revision."""

    revision: int
    changes: Changes


class Frames:
    """Draws ``objects``. ``epoch`` tells this run from others: a revision of another one means nothing here.

    ``most``: the number of revisions that are kept.
    """

    def __init__(self, objects: Objects, epoch: str, *, most: int = MOST_FRAMES) -> None:
        self.objects = objects
        self.epoch = epoch
        self.revision = 0
        self.nodes: dict[str, NodeCard] = {}
        #: By UID.
        self.pods: dict[str, PodLine] = {}
        self.groups: dict[Key, GroupLine] = {}
        self.queues: dict[str, QueueLine] = {}
        #: By cause.
        self.unusable: dict[str, UnusableLine] = {}
        self._unusable: dict[str, UnusableLine] = {}
        self._counts = QueueCounts(objects)
        self._pods_of: dict[str, frozenset[str]] = {}
        self._frames: deque[Frame] = deque()
        self._lines = 0
        self._most = most

    # --- drawing -----------------------------------------------------------------------------------------------------

    def note_unusable(self, found: Iterable[UnusableView]) -> None:
        """Show these free GPUs that fit no pod with the next frame. They are counted elsewhere (watch.py)."""
        self._unusable = {line.cause: line for line in map(draw_unusable, found)}

    def draw(self) -> Iterator[None]:
        """Draw all that is marked and make it a frame; yields after a node or some pods, so that others may get a turn.

        What changes in between is marked again, for the next frame.
        """
        marks = self.objects.take_marks()
        nodes, pods = _News(self.nodes), _News(self.pods)
        for name in marks.nodes:
            self._draw_node(name, nodes, pods)
            yield
        for number, uid in enumerate(marks.pods, 1):
            self._draw_pod(uid, pods)
            if number % _PODS_PER_TURN == 0:
                yield
        groups = _News(self.groups)
        for key in marks.groups:
            group = self.objects.groups.get(key)
            groups.put(key, draw_group(group, self.objects.members(key)) if group else None)
        queues = _News(self.queues)
        yield from self._counts.update(marks)
        self._draw_queues(queues)
        unusable = _News(self.unusable)
        for cause in {**self.unusable, **self._unusable}:
            unusable.put(cause, self._unusable.get(cause))
        events = self.objects.events
        changes = Changes(
            nodes=tuple(nodes.put_in.values()),
            gone_nodes=tuple(nodes.gone),
            pods=tuple(pods.put_in.values()),
            gone_pods=tuple(pods.gone),
            events=tuple(events[key] for key in marks.events if key in events),
            gone_events=tuple(key for key in marks.events if key not in events),
            groups=tuple(groups.put_in.values()),
            gone_groups=tuple(f"{namespace}/{name}" for namespace, name in groups.gone),
            queues=tuple(queues.put_in.values()),
            gone_queues=tuple(queues.gone),
            unusable=tuple(unusable.put_in.values()),
            gone_unusable=tuple(unusable.gone),
        )
        if changes:
            self.revision += 1
            self._keep(Frame(self.revision, changes))

    def _keep(self, frame: Frame) -> None:
        self._frames.append(frame)
        self._lines += len(frame.changes)
        while len(self._frames) > self._most or (self._lines > MOST_LINES and len(self._frames) > 1):
            self._lines -= len(self._frames.popleft().changes)

    def _draw_node(self, name: str, nodes: _News[str, NodeCard], pods: _News[str, PodLine]) -> None:
        """Draw a node and its pods. One that it knew and knows no more is marked itself."""
        objects = self.objects
        drawn = draw_node(
            objects.nodes.get(name), objects.pods_for(name), objects.headed_to(name), objects.use_on(name)
        )
        nodes.put(name, as_far_as_known(drawn.card, objects.namespaces))
        here = frozenset(line.uid for line in drawn.pods)
        for line in drawn.pods:
            pods.put(line.uid, line)
        self._pods_of.pop(name, None)
        if here:
            self._pods_of[name] = here

    def _draw_pod(self, uid: str, pods: _News[str, PodLine]) -> None:
        """Draw a pod that no node draws, or see that it is gone."""
        pod = self.objects.pods.get(uid)
        if pod is None:
            pods.put(uid, None)
        elif uid in self.objects.marks.pods:
            return  # it changed meanwhile, was bound, say: till it is drawn, with the next frame, it is shown as it was
        elif not any(uid in self._pods_of.get(where, ()) for where in self._places(uid)):
            pods.put(uid, None if pod.spec.node_name else draw_waiting(pod))

    def _draw_queues(self, queues: _News[str, QueueLine]) -> None:
        """Draw all queues: a pod of one changes the shares of others. What came meanwhile is drawn the next time."""
        views = {view.name: view for view in self._counts.views()}
        is_counted = self.objects.namespaces is None
        for name in [name for name in self.queues if name not in views]:
            queues.put(name, None)
        for name, view in views.items():
            if (queue := self.objects.queues.get(name)) is not None:
                queues.put(name, draw_queue(queue, view if is_counted else None))

    def _places(self, uid: str) -> list[str]:
        pod = self.objects.pods[uid]
        request = self.objects.requests.get((pod.metadata.namespace, pod.metadata.name))
        return [pod.spec.node_name, *([request.spec.selected_node] if request else [])]

    # --- telling -----------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The name of what is shown now."""
        return f"{self.epoch}-{self.revision}"

    def whole(self) -> Changes:
        """Everything, as if it were new."""
        return Changes(
            nodes=tuple(self.nodes[name] for name in sorted(self.nodes)),
            pods=tuple(self.pods.values()),
            events=tuple(self.objects.events.values()),
            groups=tuple(self.groups.values()),
            queues=tuple(self.queues[name] for name in sorted(self.queues)),
            unusable=tuple(self.unusable.values()),
        )

    def since(self, known: str) -> list[Frame] | None:
        """What changed since an ``id``; None for one that nobody knows (any more): then the whole has to be read."""
        epoch, _, number = known.rpartition("-")
        if epoch != self.epoch or not (number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS):
            return None
        behind = self.revision - int(number)
        if not 0 <= behind <= len(self._frames):
            return None
        return list(islice(self._frames, len(self._frames) - behind, None))

    def path(self, namespace: str, name: str) -> PodPath | None:
        """All of one pod; None if there is none of that name."""
        objects = self.objects
        pod = objects.pod(namespace, name)
        if pod is None:
            return None
        request = objects.requests.get((namespace, name))
        where = pod.spec.node_name or (request.spec.selected_node if request else "")
        return draw_path(
            pod,
            node=objects.nodes.get(where),
            beside=objects.pods_on(where) if where else (),
            requests=[request] if request else [],
            events=[event for event in objects.events.values() if _is_about(event, namespace, name)],
        )


def _is_about(event: EventLine, namespace: str, name: str) -> bool:
    return (event.namespace, event.pod) == (namespace, name)


class _News(Generic[K, V]):
    """Puts what was drawn into what is shown, and remembers what is new by it."""

    def __init__(self, shown: dict[K, V]) -> None:
        self._shown = shown
        self.put_in: dict[K, V] = {}
        self.gone: dict[K, None] = {}

    def put(self, key: K, value: V | None) -> None:
        """Show this; None: nothing."""
        if value is None:
            if self._shown.pop(key, None) is not None:
                self.gone[key] = None
                self.put_in.pop(key, None)
        elif self._shown.get(key) != value:
            self._shown[key] = value
            self.put_in[key] = value
            self.gone.pop(key, None)
