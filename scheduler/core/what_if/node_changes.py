"""Changes of nodes and of what runs there, families 6 and 7: something has ended, a node is out, there are more nodes.

Those that run are tried, of the same queue and smallest first, that leave room for a pod of the group on a node of
theirs, or use the queue that is at its limit. Of more nodes the number is the least that helps; nodes of one kind are
tried once. Drivers publish much that differs between machines of one kind (UUIDs, addresses): of their attributes those
are compared that the claims' selectors name.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from gpu.share import NANO_PER_DEVICE
from scheduler.core.claims import pools
from scheduler.core.claims.inventory import InventoryView, NodePool
from scheduler.core.decide.changes import AnotherNode, Change, Cordoned, Drained, WithoutPods
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.filters.pod_rule import takes_pod
from scheduler.core.filters.registry import OK
from scheduler.core.filters.resource_claims import ResourceSource
from scheduler.core.model.device_requests import DeviceNeed
from scheduler.core.model.devices import DeviceKind, Value
from scheduler.core.model.pod_class import AntiTerm, PodClass
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.model.steps import Steps, ended
from scheduler.core.model.verdict import Code
from scheduler.core.nodes.table import CPU, GPUS, MEMORY
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.queues.use import queue_of
from scheduler.core.what_if.edits import Edit, Family, NotPossible, Subject, smallest, some
from scheduler.core.what_if.trials import Finding, Pause, Question, Trying, about, paused
from wire import names

#: Pods that are read in one step; and what one costs, and what a unit does, in operations.
_RECORDS_AT_ONCE: Final = 512
_READING: Final = 2
_GROUPING: Final = 8


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """``name`` of the pod or PodGroup. ``pods``: bound ones that count in a queue. ``gpu_nano``: what they hold."""

    kind: str
    namespace: str
    name: str
    queue: str
    pods: tuple[PodRecord, ...]

    @property
    def uids(self) -> tuple[str, ...]:
        """Of its pods."""
        return tuple(pod.uid for pod in self.pods)

    @property
    def gpu_nano(self) -> int:
        """GPUs, whole and in parts."""
        return sum(gpu_nano(pod) for pod in self.pods)


def gpu_nano(pod: PodRecord) -> int:
    """What a bound pod holds of GPUs."""
    return pod.cls.demand.gpus * NANO_PER_DEVICE + sum(held.nano or 0 for held in pod.held)


def running(snapshot: Snapshot, besides: Iterable[str] = ()) -> list[Running]:
    """All that run, smallest first; not pods (UIDs) of ``besides``, and none that are terminating."""
    return ended(finding_running(snapshot, besides))


def finding_running(snapshot: Snapshot, besides: Iterable[str] = ()) -> Steps[list[Running]]:
    """Find them in steps. The pods are those of the first step."""
    left_out = {*besides}
    parts: dict[tuple[str, str, str], list[PodRecord]] = {}
    for number, pod in enumerate([*snapshot.pods.records.values()], 1):
        if number % _RECORDS_AT_ONCE == 0:
            yield _RECORDS_AT_ONCE * _READING
        if pod.node and pod.queue and not (pod.is_reservation or pod.deleting or pod.uid in left_out):
            kind, name = ("PodGroup", pod.pod_group) if pod.pod_group else ("Pod", pod.name)
            parts.setdefault((kind, pod.namespace, name), []).append(pod)
    found = []
    for number, ((kind, namespace, name), pods) in enumerate(parts.items()):
        if number % _RECORDS_AT_ONCE == 0:
            yield _RECORDS_AT_ONCE * _GROUPING
        group = snapshot.pod_group(namespace, name) if kind == "PodGroup" else None
        queue = queue_of(pods[0], group)
        each = Running(kind=kind, namespace=namespace, name=name, queue=queue, pods=tuple(pods))
        found.append((each.gpu_nano, len(pods), namespace, name, number, each))
    found.sort()
    return [each[-1] for each in found]


#: Pods and PodGroups that are tried.
_MOST: Final = 16
#: What runs is judged so much in one step; and what one costs for each class of the group, in operations.
_AT_ONCE: Final = 256
_JUDGING: Final = 12
_OF_QUEUE: Final = frozenset({Code.OVER_LIMIT, Code.OVER_QUOTA})


class Ended(msgspec.Struct, frozen=True):
    """A pod or PodGroup is gone. ``namespace`` "": the group's own."""

    name: str
    namespace: str = ""

    @property
    def family(self) -> Family:
        """Family 6."""
        return Family.ENDED

    @property
    def is_own(self) -> bool:
        """Others may take what it leaves."""
        return False

    def spelled(self) -> str:
        """``finish job-x``."""
        return f"finish {self.namespace}/{self.name}" if self.namespace else f"finish {self.name}"

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Drop its pods. Raises NotPossible if none of that name runs."""
        namespace = self.namespace or subject.namespace
        there = running(snapshot, subject.uids)
        found = [each for each in there if (each.namespace, each.name) == (namespace, self.name)]
        if not found:
            names = sorted({f"{each.namespace}/{each.name}" for each in there})
            allowed = f"allowed are pods and PodGroups that run: {some(names)}" if names else "nothing runs"
            raise NotPossible(f"finish {namespace}/{self.name}: {allowed}")
        return (WithoutPods(tuple(uid for each in found for uid in each.uids)),)


class NodeOut(msgspec.Struct, frozen=True):
    """A node is drained, or cordoned."""

    node: str
    is_drained: bool = True

    @property
    def family(self) -> Family:
        """It helps nobody in most cases; its pods end, so family 6."""
        return Family.ENDED

    @property
    def is_own(self) -> bool:
        """Others are concerned."""
        return False

    def spelled(self) -> str:
        """``drain n4``."""
        return f"{'drain' if self.is_drained else 'cordon'} {self.node}"

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Cordon it and take its pods off. Raises NotPossible if it is not there."""
        del subject
        if self.node not in snapshot.ledger.row_of:
            raise NotPossible(f"{self.spelled()}: {no_node(snapshot)}")
        return (Drained(self.node) if self.is_drained else Cordoned(self.node),)


def no_node(snapshot: Snapshot) -> str:
    """Which nodes may be named."""
    return f"allowed are nodes: {some(sorted(snapshot.ledger.row_of))}"


def ended_groups(trying: Trying) -> Finding:
    """Find edits that help: what a rule about other pods names first, then what is of the group's own queue.

    Of these what holds least comes first.
    """
    snapshot, subject = trying.snapshot, trying.subject
    tried = 0
    there = yield from paused(finding_running(snapshot, (pod.uid for pod in subject.bound)))
    classes = tuple(subject.classes())
    there.sort(key=lambda each: (not _keeps_apart(each, subject, snapshot), each.queue != subject.queue))
    for number, each in enumerate(there, 1):
        if number % _AT_ONCE == 0:
            yield Pause(_AT_ONCE * _JUDGING * len(classes))
        if not _may_help(each, classes, trying):
            continue
        if tried == _MOST:
            return
        tried += 1
        if (yield Question((WithoutPods(each.uids),))):
            yield Ended(each.name, "" if each.namespace == subject.namespace else each.namespace)


def _keeps_apart(each: Running, subject: Subject, snapshot: Snapshot) -> bool:
    """Whether anti-affinity keeps these pods and those of the group apart, or both use a port."""
    labels_of = snapshot.places.labels_of

    def takes(terms: Iterable[AntiTerm], pod: PodRecord) -> bool:
        return any(takes_pod(term, pod.namespace, pod.labels, labels_of, unknown=True) for term in terms)

    own = {pod.cls: pod for pod in subject.waiting}
    apart = {term for cls in own if cls.rules is not None for term in cls.rules.anti_affinity}
    ports = any(cls.rules is not None and cls.rules.ports for cls in own)
    return any(
        takes(apart, pod) or any(takes(pod.keeps_off, mine) for mine in own.values()) or (ports and bool(pod.ports))
        for pod in each.pods
    )


# --- who may help at all ---------------------------------------------------------------------------------------------
def _may_help(each: Running, classes: Sequence[PodClass], trying: Trying) -> bool:
    verdict = trying.outcome().verdict
    if verdict is not None and verdict.code in _OF_QUEUE and verdict.queue is not None:
        leaf, tree = trying.snapshot.queues.tree.find(each.queue), trying.snapshot.queues.tree
        return isinstance(leaf, TreeQueue) and any(tree.queues[at].name == verdict.queue.at for at in leaf.path)
    if any(cls.rules is not None or cls.avoids for cls in classes) or any(pod.keeps_off for pod in each.pods):
        return True
    at_nodes: dict[str, list[PodRecord]] = {}
    for pod in each.pods:
        at_nodes.setdefault(pod.node, []).append(pod)
    return any(_leaves_room(name, pods, cls, trying) for name, pods in at_nodes.items() for cls in classes)


def _leaves_room(name: str, pods: list[PodRecord], cls: PodClass, trying: Trying) -> bool:
    """Whether a node has enough for a pod without these, as far as CPU, memory and whole GPUs go."""
    ledger = trying.snapshot.ledger
    row = ledger.row_of.get(name)
    if row is None:
        return False
    free = ledger.table.free
    for at, asked, held in (
        (CPU, cls.demand.cpu_milli, sum(pod.cls.demand.cpu_milli for pod in pods)),
        (MEMORY, cls.demand.mem_mib, sum(pod.cls.demand.mem_mib for pod in pods)),
    ):
        if int(free[at, row]) + held < asked:
            return False
    whole = sum(pod.cls.demand.gpus for pod in pods) + len({held.group for pod in pods for held in pod.held})
    if int(free[GPUS, row]) + whole < cls.demand.gpus:
        return False
    is_for_gpu = not cls.request.is_shared or any(map(gpu_nano, pods))
    return is_for_gpu or cls.demand.cpu_milli > int(free[CPU, row]) or cls.demand.mem_mib > int(free[MEMORY, row])


#: More kinds than that are not tried.
_MOST_KINDS: Final = 4
#: Names in an expression: among them those of the attributes that it reads.
_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")

#: Name and value.
_Attribute: TypeAlias = tuple[str, Value]
_SOURCE: Final = ResourceSource()


def kinds_of_nodes(trying: Trying) -> list[str]:
    """Name a node of each kind on which pods of the group may be, by their constraints.

    Kinds of which there are most come first. Where pods need devices, kinds that have none for them come last.
    """
    snapshot, subject = trying.snapshot, trying.subject
    filters, view = snapshot.ledger.filters, snapshot.devices
    judges = [filters.judging(each) for cls in subject.classes() for each in cls.all_constraints()]
    claiming = subject.claiming(snapshot)
    compared = _compared(view, claiming)
    found: dict[tuple[object, object], list[NodeRecord]] = {}
    for node in snapshot.ledger.nodes:
        if node is not None and any(judge(opened_node(node)) == OK for judge in judges):
            devices = compared.of(_own_pools(view, node)) if claiming else frozenset()
            found.setdefault((_kind(node), devices), []).append(node)
    order = sorted(
        (bool(claiming) and not devices and not _offers(nodes[0], claiming), -len(nodes), _first(nodes))
        for (_, devices), nodes in found.items()
    )
    return [name for *_, name in order[:_MOST_KINDS]]


def opened_node(node: NodeRecord) -> NodeRecord:
    """Return the node as it would be if it were ready and not cordoned."""
    return msgspec.structs.replace(node, is_ready=True, is_cordoned=False)


def _first(nodes: Iterable[NodeRecord]) -> str:
    return min(node.name for node in nodes)


def _kind(node: NodeRecord) -> object:
    cards = node.smallest_card_mib, node.largest_card_mib, node.is_mig, node.is_multiplied, node.single_profile
    return node.capacity, node.pods, node.taints, cards


def _offers(node: NodeRecord, claiming: Iterable[PodClass]) -> bool:
    """Whether device plugins of the node serve one of these classes, which needs no claim then."""
    sources = (way.constraints.sources for cls in claiming for way in cls.ways() if not way.devices)
    return any(_SOURCE.admits(node, each) for each in sources)


# --- devices ---------------------------------------------------------------------------------------------------------
def _own_pools(view: InventoryView, node: NodeRecord) -> Iterable[NodePool]:
    """Pools that this node alone reaches: a further node has copies of these."""
    return (pool for pool in view.pools_on(node) if pool.pool.runs_at.keys() == {node.name})


class _Named(dict[str, bool]):
    """By the name of an attribute as drivers write it: whether it is one of these, which have no domain."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        self._names = frozenset(names)

    def __missing__(self, name: str) -> bool:
        is_one = self[name] = name.rpartition("/")[2] in self._names
        return is_one


class _Compared(NamedTuple):
    """Attributes whose ``values`` count, and those of rules, by which devices agree or differ (``agreeing``)."""

    values: _Named
    agreeing: _Named | None

    def of(self, pools: Iterable[NodePool]) -> frozenset[object]:
        """What tells these devices from those of another node, with their numbers."""
        is_read, found, numbers = self.values, defaultdict[object, int](int), dict[_Attribute, int]()
        for pool in pools:
            is_wrong = bool(pool.wrong)
            for device in pool.devices:
                kind = device.kind
                read = tuple([each for each in kind.attributes if is_read[each[0]]])
                agreed = () if self.agreeing is None else _agreed(kind, self.agreeing, numbers)
                said = kind.driver, kind.capacity, kind.is_shared, device.taints, device.unsupported
                found[is_wrong, said, read, agreed] += 1
        return frozenset(found.items())


def _agreed(kind: DeviceKind, is_ruled: _Named, numbers: dict[_Attribute, int]) -> tuple[tuple[str, int], ...]:
    """Attributes of rules, with a number in place of the value: devices of a node agree that have the same."""
    return tuple((each[0], numbers.setdefault(each, len(numbers))) for each in kind.attributes if is_ruled[each[0]])


def _compared(view: InventoryView, claiming: Iterable[PodClass]) -> _Compared:
    """The attributes that selectors of needs and of their DeviceClasses name, and those of rules between devices."""
    needs = {need for cls in claiming for need in _needs(cls)}
    asks = {ask for need in needs for ask in need.asks()}
    classes = (view.device_class(name) for name in {ask.device_class for ask in asks})
    texts = {text for ask in asks for text in ask.selectors}
    texts.update(text for each in classes if each is not None for text in each.selectors)
    names = {name for text in texts for name in _NAME.findall(text)}
    ruled = {rule.attribute.rpartition("/")[2] for need in needs for rule in need.rules}
    values = _Named(name for name in names if not pools.names_one(name))
    return _Compared(values, _Named(ruled) if ruled else None)


def _needs(cls: PodClass) -> tuple[DeviceNeed, ...]:
    return (*cls.devices, *(way.need for way in cls.backed))


#: More nodes than that are not tried.
MOST_NODES: Final = 64


class MoreNodes(msgspec.Struct, frozen=True):
    """``count`` further nodes like this one, empty, ready and open, with copies of devices that it alone reaches."""

    count: int
    like: str

    @property
    def family(self) -> Family:
        """Family 7."""
        return Family.MORE_NODES

    @property
    def is_own(self) -> bool:
        """Others may take them."""
        return False

    def spelled(self) -> str:
        """``node +2 like n17``."""
        return f"node +{self.count} like {self.like}"

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Put the nodes. Raises NotPossible if the one that they are like is not there, or there are too many."""
        del subject
        row = snapshot.ledger.row_of.get(self.like)
        like = None if row is None else snapshot.ledger.nodes[row]
        if like is None:
            raise NotPossible(f"{self.spelled()}: {no_node(snapshot)}")
        if not 0 < self.count <= MOST_NODES:
            raise NotPossible(f"{self.spelled()}: allowed are 1 to {MOST_NODES} nodes")
        there = snapshot.ledger.row_of
        free = (name for number in itertools.count(1) if (name := f"{like.name}-more-{number}") not in there)
        slices = snapshot.published_for(like.name)
        return tuple(
            AnotherNode(_copy(like, name), pools.like(slices, like.name, name))
            for name in itertools.islice(free, self.count)
        )


def added_nodes(trying: Trying) -> Finding:
    """Find edits that help, one for each kind of node that the group may use (node_changes.py)."""
    for like in kinds_of_nodes(trying):
        count = yield from fewest_nodes(trying, like)
        if count is not None:
            yield MoreNodes(count, like)


def fewest_nodes(trying: Trying, like: str, *also: Edit) -> Generator[Question, bool, int | None]:
    """Return the least number of these nodes that helps, with other edits; None if as many as are tried don't.

    Of several enough has to be left after all others: nodes come one by one, small pods fit on the first, and with each
    that is placed another queue may be due.
    """
    if (yield about(trying, *also, MoreNodes(1, like))):
        return 1
    search = smallest(2, MOST_NODES, lambda count: about(trying, *also, MoreNodes(count, like)))
    helps: bool | None = None
    while True:
        try:
            question = next(search) if helps is None else search.send(helps)
        except StopIteration as done:
            count: int | None = done.value
            return count
        helps = (yield question) and (yield msgspec.structs.replace(question, is_last=True))


def _copy(like: NodeRecord, name: str) -> NodeRecord:
    labels = {**like.labels, names.HOSTNAME_LABEL: name}
    return msgspec.structs.replace(opened_node(like), name=name, uid=f"uid:{name}", labels=labels, uuids=())
