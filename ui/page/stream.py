"""What the page shows at each revision, and what changed since an earlier one. No I/O, no clock.

A frame draws what is marked and nothing else; the last frames are kept, so that a reader who was away for a moment
receives what it missed, and not everything again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from itertools import islice
from typing import Final, Generic, TypeVar

import msgspec

from gpu.share import NANO_PER_DEVICE
from scheduler.conditions.messages import told
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pod_groups import pod_group_record, queue_record
from scheduler.core.convert.pods import bind_request_record, pod_record
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord
from scheduler.core.model.seen_pods import as_elsewhere
from scheduler.core.model.settings import NodePool, Settings
from scheduler.core.nodes.node_usage import Charge
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.tree import Row, Tree
from scheduler.core.report.node_view import Kind
from scheduler.core.report.queue_view import QueueView, queue_views
from ui.inspect.values import UnusableView
from ui.page.drawing import draw_group, draw_node, draw_path, draw_queue, draw_unusable, draw_waiting
from ui.page.objects import Key, Marks, Objects
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
from ui.queues.pools import pool_of
from wire.core import Pod

#: A device of which nobody who may be read has a share.
UNKNOWN: Final = "unknown"


def as_far_as_known(card: NodeCard | None, namespaces: Collection[str] | None) -> NodeCard | None:
    """Take back what was concluded from what is not seen: what is idle, left or stranded, and that books are gone.

    ``namespaces``: those whose pods were read; None: all, so there is nothing to take back.

    A reader of some namespaces alone is shown their pods, and nothing is idle: somebody else may be there. What is left
    of a shared device is known where its reservation pod may be read: the book on it (gpu/book.py) names all tenants.
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
            objects.nodes.get(name),
            objects.pods_for(name),
            objects.headed_to(name),
            objects.use_on(name),
            groups=objects.groups,
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
            pods.put(uid, None if pod.spec.node_name else draw_waiting(pod, self.objects.groups))

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
            groups=objects.groups,
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


# --- queues ----------------------------------------------------------------------------------------------------------
_SETTINGS: Final = Settings()
#: Pods or nodes that are counted before other tasks run: about 50 us each.
_COUNTED_PER_TURN: Final = 64
_NO_GROUP: Final = ("", None)


class QueueCounts:
    """Counts of ``objects``, as of what was marked when they were last brought up to date.

    Queues divide the nodes of their node pool. Pods of a pool without nodes and Queues count in none: anybody can write
    such a label.

    They are counted by the scheduler's core: each pod has a row in its sums, counted again when something about it was
    marked; shares are divided again when a sum has changed. So a change costs that of its pods and one division. Rows
    know no earlier version of an object, so a recorded run may be shown backwards as well.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        #: By the value of the pool's label, "" for what has none.
        self._pools: dict[str, Queues] = {}
        self._nodes: dict[str, NodeRecord] = {}
        #: By UID: of pods that count, here or off what queues divide.
        self._pods: dict[str, PodRecord] = {}
        #: In which pool each of them counts.
        self._counted_in: dict[str, str] = {}
        self._groups: dict[Key, tuple[str, PodGroupRecord]] = {}
        #: What was shown last of each pool, and of what: the tree, the version of the sums, and what is divided.
        self._made: dict[str, tuple[tuple[Tree, int, Resources], list[QueueView]]] = {}

    @property
    def pools(self) -> Set[str]:
        """Pools that have had nodes or Queues."""
        return self._pools.keys()

    def update(self, marks: Marks) -> Iterator[None]:
        """Count again what is marked; yields now and then, so that others get a turn."""
        before = set(self._pools)
        for name in marks.queues:
            self._read_queue(name)
        pods, nodes = dict(marks.pods), dict(marks.nodes)
        for key in marks.groups:
            for pod in self._read_group(key):
                pods[pod.metadata.uid] = None
                if pod.spec.node_name:
                    nodes[pod.spec.node_name] = None  # in another pool it may count off what queues divide
        yield from _in_turns(pods, self._read_pod)
        yield from _in_turns(nodes, lambda name: pods.update(dict.fromkeys(self._read_node(name))))
        if self._pools.keys() - before:
            pods |= dict.fromkeys(self._pods)
        yield from _in_turns(pods, self._count)

    def views(self) -> list[QueueView]:
        """All queues; of each pool the same values as long as nothing about them has changed."""
        return [view for pool, queues in self._pools.items() for view in self._views(pool, queues)]

    def _views(self, pool: str, queues: Queues) -> list[QueueView]:
        made = queues.accounts()
        made_of = made.tree, queues.sums.version, made.total
        known = self._made.get(pool)
        if known is None or known[0] != made_of:
            views = queue_views(queues, made, lambda verdict: told(verdict).message)
            known = self._made[pool] = made_of, views
        return known[1]

    def _pool(self, value: str) -> Queues:
        """The queues of a pool, which has something of its own."""
        found = self._pools.get(value)
        if found is None:
            found = self._pools[value] = Queues(_tell_nobody, pool=NodePool(value=value))
        return found

    # --- reading -----------------------------------------------------------------------------------------------------
    def _read_queue(self, name: str) -> None:
        queue = self._objects.queues.get(name)
        here = None if queue is None else self._pool(pool_of(queue.metadata.labels))
        for queues in self._pools.values():
            if queues is not here and (known := queues.records.get(name)) is not None:
                queues.records.drop(known)
        if queue is not None and here is not None:
            here.records.put(queue_record(queue))

    def _read_group(self, key: Key) -> Iterable[Pod]:
        """Read a PodGroup; return the pods whose counts change with it."""
        group, known = self._objects.groups.get(key), self._groups.pop(key, None)
        if group is not None:
            self._groups[key] = pool_of(group.metadata.labels), pod_group_record(group)
        return () if _counts(self._groups.get(key)) == _counts(known) else self._objects.members(key)

    def _read_pod(self, uid: str) -> None:
        pod = self._objects.pods.get(uid)
        record = pod_record(pod, _SETTINGS) if pod is not None else None
        if record is None:
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = record

    def _read_node(self, name: str) -> Iterable[str]:
        """Read a node; return the pods (UIDs) whose counts change with it."""
        node, known = self._objects.nodes.get(name), self._nodes.pop(name, None)
        here = [pod.metadata.uid for pod in self._objects.pods_on(name)]
        record = node_record(node) if node is not None else None
        is_other = False
        if known is not None and (record is None or pool_of(known.labels) != pool_of(record.labels)):
            is_other = self._pool(pool_of(known.labels)).drop_node(name)
        if record is not None:
            self._nodes[name] = record
            pool = pool_of(record.labels)
            there = [self._as_seen(self._pods[uid], pool) for uid in here if uid in self._pods]
            is_other |= self._pool(pool).count_node(record, there)
        changed = here if _card(record) != _card(known) else []
        return [*changed, *(uid for uid, pod in self._pods.items() if not pod.node)] if is_other else changed

    def _as_seen(self, pod: PodRecord, pool: str) -> PodRecord:
        """A pod as the scheduler of a pool counts it."""
        return pod if not pod.queue or self._pool_of(pod) == pool else as_elsewhere(pod)

    def _pool_of(self, pod: PodRecord) -> str:
        """The one that it was placed by, else that of its PodGroup, where that is known."""
        if pod.charged is not None and pod.charged.pool is not None:
            return pod.charged.pool
        group = self._groups.get((pod.namespace, pod.pod_group)) if pod.pod_group else None
        return pool_of(pod.labels) if group is None else group[0]

    # --- counting ----------------------------------------------------------------------------------------------------
    def _count(self, uid: str) -> None:
        pod = self._pods.get(uid)
        pool = None if pod is None else self._pool_of(pod)
        before = self._counted_in.pop(uid, None)
        if before is not None and before != pool:
            self._pools[before].sums.put(uid, None)
        if pod is not None and pool in self._pools:
            self._counted_in[uid] = pool
            self._pools[pool].sums.put(uid, self._row(pod, self._pools[pool]))

    def _row(self, pod: PodRecord, queues: Queues) -> Row | None:
        _, group = self._groups.get((pod.namespace, pod.pod_group), _NO_GROUP) if pod.pod_group else _NO_GROUP
        charges = () if pod.node else tuple(self._charges(pod, group))
        return queues.row(pod, group, charges, self._nodes.get(pod.node))

    def _charges(self, pod: PodRecord, group: PodGroupRecord | None) -> Iterator[Charge]:
        """Where a pod is on its way to, or has a place in its group's plan."""
        request = self._objects.requests.get((pod.namespace, pod.name))
        record = bind_request_record(request) if request is not None else None
        if record is not None and record.pod_uid == pod.uid:
            yield Charge(pod_uid=pod.uid, node=record.node, devices=record.devices, charged=record.charged)
        planned = group.planned.get(pod.uid) if group is not None else None
        if planned is not None:
            yield Charge(pod_uid=pod.uid, node=planned.node, devices=planned.devices)


def _in_turns(names: Iterable[str], do: Callable[[str], None]) -> Iterator[None]:
    for number, name in enumerate(names, 1):
        do(name)
        if number % _COUNTED_PER_TURN == 0:
            yield


def _counts(read: tuple[str, PodGroupRecord] | None) -> object:
    """What of a PodGroup, and its pool, says where and as what its pods count."""
    return None if read is None else (read[0], read[1].queue, read[1].is_preemptible, read[1].planned)


def _tell_nobody() -> None:
    return


def _card(node: NodeRecord | None) -> int:
    """What pods without a grant count for depends on the cards of their node."""
    return node.smallest_card_mib if node is not None else 0
