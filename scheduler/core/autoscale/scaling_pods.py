"""Scaling pods to create and delete, so that an autoscaler adds nodes for shares that want devices.

Pure: what is wanted, what exists and the time go in, steps come out (docs/design/autoscaling.md). Between two calls
only times are kept, and which shares each scaling pod is for: after a restart the first call starts from what exists.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from gpu.request import FractionAsk, MemoryAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE, nano_from_memory
from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import Limits
from scheduler.core.decide.changes import NodesAsAsked, NoDoubts, NoNomination, OnlyThese
from scheduler.core.decide.decide import decide_as_if
from scheduler.core.decide.single_pods import SUPPOSED, in_whole_devices
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.filters.registry import OK, Filters
from scheduler.core.model.plan import Entry, Explain, Placement, placements
from scheduler.core.model.pod_class import Constraints, Demand, PodClass
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.model.verdict import Code

#: Verdicts that a further node can change.
_FOR_WANT_OF_NODES = frozenset(
    {
        Code.NO_NODE_FITS,
        Code.GANG_INCOMPLETE,
        Code.TOPOLOGY_NOT_SATISFIED,
        Code.TOPOLOGY_SEARCH_CUT,
        Code.WAITS_FOR_RESERVED_NODES,
    }
)
#: Operations of about a microsecond that one search may do, as decisions count them (decide.py).
_MOST: Final = 60_000


class Want(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Devices for a share. ``nanos``: what is taken of each of them, largest first: all of a device that is there.

    ``demand``: what its scaling pod asks: whole devices in the place of the shares, and all else that the pod takes.
    """

    uid: str
    namespace: str
    name: str
    constraints: Constraints
    demand: Demand
    nanos: tuple[int, ...]


def wants(
    cluster: Cluster,
    explained: Iterable[Explain],
    *,
    now_ns: int,
    memory_to_fraction_ratio_nano: int,
    most: int = _MOST,
) -> list[Want]:
    """Shares that want a device, in the order of decision, out of what the last decision said of those that wait.

    ``memory_to_fraction_ratio_nano``: what a ``gpu-memory`` ask takes of a device as long as no card is known. Leaves
    the cluster unchanged.

    A search does up to ``most`` operations, and beyond that each namespace goes on within its equal share of them
    (allowance.py). Pods that are not reached want nothing until those before them have their devices.

    A share wants a device if it still fits nowhere when no node is in doubt or out for it: then no time that passes
    helps it, only a node does. So this is a decision on a changed snapshot: nothing went wrong yet, and a pod that fits
    nowhere gets a node of its own, if its queue admits it (decide/single_pods.py). Pods that are put there want
    devices. A gang wants all devices that it would open, also those that exist and are free: autoscalers see them free,
    and would count on them for what is missing.
    """
    uids = frozenset(_waiting(cluster, explained, now_ns))
    if not uids:
        return []
    snapshot, changes = cluster.snapshot(), (OnlyThese(uids), NoDoubts(), NoNomination(), NodesAsAsked())
    decision = decide_as_if(snapshot, *changes, now_ns=now_ns, limits=Limits(most=most))
    reading = _Reading(snapshot, now_ns, memory_to_fraction_ratio_nano)
    return [want for entry in decision.entries for want in reading.wants(entry)]


def _waiting(cluster: Cluster, explained: Iterable[Explain], now_ns: int) -> Iterator[str]:
    """Pods (UIDs) that wait for want of nodes, as far as they still wait and may be placed now."""
    for entry in explained:
        if entry.verdict.code in _FOR_WANT_OF_NODES:
            for uid in entry.pods:
                pod, setback = cluster.pod(uid), cluster.setback(uid)
                if pod is not None and not (pod.node or pod.gated) and (setback is None or now_ns >= setback.until_ns):
                    yield uid


@dataclass(slots=True)
class _Reading:
    """Reads off the entries of a decision, in order, who wants what."""

    snapshot: Snapshot
    now_ns: int
    memory_to_fraction_ratio_nano: int
    #: Groups of devices that are open, or were opened by entries so far.
    _open: set[str] = field(init=False)
    _cards: dict[Constraints, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        there = self.snapshot.ledger.table.devices
        self._open = {device.group for devices in there for device in devices}

    def wants(self, entry: Entry) -> Iterator[Want]:
        """Who wants a device by one entry: nobody if all its pods fit on nodes that are there."""
        placed = [(placement, self._opened(placement)) for placement in placements([entry])]
        if all(placement.node != SUPPOSED for placement, _ in placed):
            return
        for placement, opened in placed:
            known = self.snapshot.pod(placement.pod_uid)
            if known is None:
                raise LookupError(f"pod {placement.pod_uid} is placed, and is not known")
            pod = self.snapshot.judged(known, self.now_ns)
            nanos = self._nanos_of(pod.cls) if placement.node == SUPPOSED else (NANO_PER_DEVICE,) * opened
            if nanos and not any(ask.profile for ask in pod.cls.request.shared):
                yield _want(pod, nanos)  # no autoscaler is asked for slices (docs/design/slices.md)

    def _opened(self, placement: Placement) -> int:
        """How many devices a placement opens."""
        opened = {device.group for device in placement.devices} - self._open
        self._open |= opened
        return len(opened)

    def _nanos_of(self, cls: PodClass) -> tuple[int, ...]:
        return tuple(sorted((self._nano(ask, cls.constraints) for ask in cls.request.shared), reverse=True))

    def _nano(self, ask: SharedAsk, constraints: Constraints) -> int:
        match ask:
            case FractionAsk(nano=nano):
                return nano
            case MemoryAsk(mem_mib=mem_mib):
                if constraints not in self._cards:
                    ledger = self.snapshot.ledger
                    self._cards[constraints] = _cards(ledger.filters, ledger.in_order().nodes, constraints)
                cards = self._cards[constraints]
                return _nano_of_memory(mem_mib, cards) if cards else self.memory_to_fraction_ratio_nano


def _want(pod: PodRecord, nanos: tuple[int, ...]) -> Want:
    return Want(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        constraints=pod.cls.constraints,
        demand=in_whole_devices(pod.cls, len(nanos)),
        nanos=nanos,
    )


def _cards(filters: Filters, nodes: Iterable[NodeRecord], constraints: Constraints) -> list[int]:
    """Sizes in MiB of the cards where these constraints let a pod be, smallest first; a node's readiness is nothing."""
    sizes: set[int] = set()
    judge = filters.judging(constraints)
    for node in nodes:
        own = {node.smallest_card_mib, node.largest_card_mib} - {0}
        if own - sizes and judge(msgspec.structs.replace(node, is_ready=True, is_cordoned=False)) == OK:
            sizes |= own
    return sorted(sizes)


def _nano_of_memory(mem_mib: int, cards: list[int]) -> int:
    """What memory takes of the smallest card that holds it; all of a device if none of those known does."""
    fitting = (nano for card in cards if (nano := nano_from_memory(mem_mib, card)) is not None)
    return next(fitting, NANO_PER_DEVICE)


class ScalingPod(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A scaling pod as it was last seen. ``source_uid`` "": one of KAI's, which says namespace and name only.

    ``is_spent``: it names a node or has ended, so its node is there. ``is_told``: its PodScheduled condition is there.
    """

    uid: str
    name: str
    rv: str
    source: tuple[str, str]
    source_uid: str
    gpus: int
    is_spent: bool
    is_told: bool
    deleting: bool


class Create(msgspec.Struct, frozen=True, gc=False):
    """Make a scaling pod for this source."""

    source: Want


class Tell(msgspec.Struct, frozen=True, gc=False):
    """Say of a scaling pod that it is unschedulable, so that autoscalers look at it."""

    pod: ScalingPod


class Remove(msgspec.Struct, frozen=True, gc=False):
    """Delete a scaling pod."""

    pod: ScalingPod


Step = Create | Tell | Remove


@dataclass(slots=True)
class Block:
    """The devices that one scaling pod stands for, what is left of each, and who would be on them."""

    opener: Want
    free_nano: list[int]
    behind: list[str] = field(default_factory=list)

    def take(self, want: Want) -> bool:
        """Charge a pod, each of its shares on a device of its own, the tightest that has room; False if it can't."""
        if max(self.free_nano) < want.nanos[0]:
            return False
        chosen: list[int] = []
        for nano in want.nanos:  # largest first: what is left for it then is the most there can be
            fitting = [n for n, free in enumerate(self.free_nano) if free >= nano and n not in chosen]
            if not fitting:
                return False
            chosen.append(min(fitting, key=self.free_nano.__getitem__))
        for number, nano in zip(chosen, want.nanos, strict=True):
            self.free_nano[number] -= nano
        self.behind.append(want.uid)
        return True


def pack(wants: Iterable[Want], own: Container[str], is_due: Callable[[Want], bool]) -> dict[str, Block]:
    """Put shares on imagined devices, by who opens them. Nodes are shared by those of equal constraints only.

    Those in ``own`` (UIDs) have a scaling pod, and stand for its devices. The others go first fit decreasing, those
    that may have a scaling pod of their own before those that may not yet.
    """
    blocks: dict[str, Block] = {}
    there: dict[Constraints, list[Block]] = {}
    #: Where the last one of a kind was put: those before it are full for its kind, and never become less so.
    starts: dict[tuple[Constraints, tuple[int, ...]], int] = {}
    for want in sorted(wants, key=lambda each: (each.uid not in own, not is_due(each), *_decreasing(each))):
        side = there.setdefault(want.constraints, [])
        kind = (want.constraints, want.nanos)
        start = len(side) if want.uid in own else starts.get(kind, 0)
        while start < len(side) and not side[start].take(want):
            start += 1
        if want.uid not in own:
            starts[kind] = start
        if start == len(side):
            blocks[want.uid] = Block(want, [NANO_PER_DEVICE] * len(want.nanos))
            blocks[want.uid].take(want)
            side.append(blocks[want.uid])
    return blocks


def _decreasing(want: Want) -> tuple[int, list[int]]:
    return -len(want.nanos), [-nano for nano in want.nanos]


@dataclass(slots=True)
class Scaler:
    """Says what to do next, and when time alone changes the answer (``wake_at_s``, None: never).

    ``patience_s``: a device must have been wanted for so long. ``cool_down_s``: who stood behind a scaling pod that is
    gone gets no new one for so long.
    """

    patience_s: float
    cool_down_s: float
    wake_at_s: float | None = None
    _since_s: dict[str, float] = field(default_factory=dict)
    _cool_until_s: dict[str, float] = field(default_factory=dict)
    #: Scaling pod (UID) -> UIDs of the pods whose devices it stands for.
    _behind: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def steps(self, wants: Sequence[Want], there: Iterable[ScalingPod], *, now_s: float) -> list[Step]:
        """What to do about these wants and these scaling pods; removals first."""
        present = sorted(there, key=lambda pod: pod.name)
        self._note_gone({pod.uid for pod in present}, now_s)
        self._since_s = {want.uid: self._since_s.get(want.uid, now_s) for want in wants}
        own = _own(wants, present)

        def is_due(want: Want) -> bool:
            return self._due_s(want.uid) <= now_s

        blocks = pack(wants, own, is_due)
        surplus = _surplus(wants, own, blocks, is_due)
        if surplus is not None:
            self._behind.pop(own.pop(surplus).uid, None)  # others' devices do for its source: nobody misses it
            blocks = pack(wants, own, is_due)
        self._behind |= {pod.uid: tuple(blocks[uid].behind) for uid, pod in own.items()}
        coming = (self._due_s(uid) for uid in blocks.keys() - own.keys())
        self.wake_at_s = min((at_s for at_s in coming if at_s > now_s), default=None)
        needed = {pod.uid for uid, pod in own.items() if _is_as_wanted(pod, blocks[uid].opener)}
        return [
            *(Remove(pod) for pod in present if not pod.deleting and (pod.is_spent or pod.uid not in needed)),
            *(Tell(pod) for pod in present if pod.uid in needed and not (pod.deleting or pod.is_spent or pod.is_told)),
            *(Create(block.opener) for uid, block in blocks.items() if uid not in own and is_due(block.opener)),
        ]

    def cool(self, source_uid: str, *, now_s: float) -> None:
        """A pod gets no scaling pod for a while: making one did not work."""
        self._cool_until_s[source_uid] = now_s + self.cool_down_s

    def _note_gone(self, present: set[str], now_s: float) -> None:
        for uid in self._behind.keys() - present:
            for source in self._behind.pop(uid):
                self.cool(source, now_s=now_s)
        self._cool_until_s = {uid: until for uid, until in self._cool_until_s.items() if until > now_s}

    def _due_s(self, uid: str) -> float:
        return max(self._since_s[uid] + self.patience_s, self._cool_until_s.get(uid, 0.0))


def _own(wants: Iterable[Want], present: Iterable[ScalingPod]) -> dict[str, ScalingPod]:
    """Pods with a scaling pod: by UID, and where it says none (KAI's) by namespace and name. Of several the first."""
    by_source: dict[str | tuple[str, str], ScalingPod] = {}
    for pod in present:
        by_source.setdefault(pod.source_uid or pod.source, pod)
    pairs = ((w.uid, by_source.get(w.uid) or by_source.get((w.namespace, w.name))) for w in wants)
    return {uid: pod for uid, pod in pairs if pod is not None}


def _surplus(
    wants: Sequence[Want], own: Mapping[str, ScalingPod], blocks: Mapping[str, Block], is_due: Callable[[Want], bool]
) -> str | None:
    """Whose scaling pod (source UID) is one too many: all fit on the devices of the others. None if none is.

    Only the emptiest is looked at, by the very packing that the next call makes without it, so that it is not made
    again then; and not while one is about to go.
    """
    is_moving = any(pod.is_spent or pod.deleting for pod in own.values())
    if not own or is_moving or blocks.keys() != own.keys():
        return None
    emptiest = max(reversed(list(own)), key=lambda uid: sum(blocks[uid].free_nano))
    others = own.keys() - {emptiest}
    return emptiest if pack(wants, others, is_due).keys() == others else None


def _is_as_wanted(pod: ScalingPod, source: Want) -> bool:
    """Whether a scaling pod asks what its source needs, which may have been edited since."""
    return pod.gpus == source.demand.gpus
