"""Which pods wait for MIG slices, on which node they are made, and how its GPUs are cut: where it costs least.

Whether the pods start then is a decision on a changed snapshot, in which the node has the slices: by the same rules,
queues and gangs as any. So nothing is cut for a pod that something else keeps waiting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from gpu.mig import MOST_MEMORY_SLICES, Cut, Place, Slice, cut
from gpu.node_resources import slice_resource
from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import Limits
from scheduler.core.decide.changes import AnotherNode, Change, NoNomination, OnlyThese
from scheduler.core.decide.decide import decide_as_if
from scheduler.core.model.mig import Gpu, MigCard, MigNode
from scheduler.core.model.plan import Explain, placements
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.model.verdict import Code
from wire import names

#: Searches in one look, and results that are kept.
MOST_SEARCHES: Final = 32
_MOST_KNOWN: Final = 4096


class CardCut(msgspec.Struct, frozen=True):
    """A GPU's new layout, all slices of it. ``gone`` and ``new``: how many slices of each resource go and come."""

    uuid: str
    layout: tuple[tuple[str, int], ...]
    gone: tuple[tuple[str, int], ...]
    new: tuple[tuple[str, int], ...]
    #: Slices destroyed, memory slices lost to profiles, and memory slices that stay free: fewer are better.
    cost: tuple[int, int, int]


class Best(msgspec.Struct, frozen=True):
    """The best cut of GPUs of one kind. ``rank``: less is better. The ``uuid`` of ``cut`` is that of any of them."""

    rank: tuple[int, tuple[int, int, int]]
    cut: CardCut

    def of(self, card: MigCard) -> CardCut:
        """The same cut of another GPU of the kind."""
        return msgspec.structs.replace(self.cut, uuid=card.uuid)


#: Resources with their numbers, sorted by name.
_Amounts: TypeAlias = tuple[tuple[str, int], ...]


@dataclass(slots=True)
class Cutter:
    """Searches GPUs for cuts: each GPU takes as many of the slices that the node lacks as it can.

    It knows those that it found: most GPUs are like another one. ``left``: searches that may still be made in this
    look. One takes up to ten milliseconds.
    """

    left: int = 0
    #: By the GPU's kind, resources of which all free slices are spoken for, and what is missing.
    _known: dict[tuple[bytes, tuple[str, ...], _Amounts], Best | None] = field(default_factory=dict)
    #: By the same, and profiles in the order in which they are wanted.
    _searched: dict[tuple[bytes, tuple[str, ...], tuple[str, ...]], Cut | None] = field(default_factory=dict)

    def begin(self, most: int = MOST_SEARCHES) -> None:
        """Begin a look."""
        self.left = most
        for known in (self._known, self._searched):
            if len(known) > _MOST_KNOWN:
                known.clear()

    def best(
        self, card: MigCard, missing: _Amounts, spoken: tuple[str, ...], *, may_search: bool = True
    ) -> Best | None:
        """Return the cut with the most of what is missing; None: there is none, or no time to search."""
        key = (card.kind, spoken, missing)
        try:
            return self._known[key]
        except KeyError:
            if self.left <= 0 or not may_search:
                return None
        wanted = _wanted(card, missing)
        slices = _slices(card, spoken)
        if not wanted or any(not each.is_whole and each.in_use for each in card.slices):
            self._known[key] = None  # a layout can't name such a slice, so it would be destroyed
            return None
        search = (card.kind, spoken, wanted)
        if search not in self._searched:
            self.left -= 1
            self._searched[search] = _search(slices, card, wanted)
        found = self._searched[search]
        one = None if found is None else _card_cut(card, slices, found)
        best = None if one is None else Best((-sum(number for _, number in one.new), one.cost), one)
        self._known[key] = best
        return best


def _wanted(card: MigCard, missing: _Amounts) -> tuple[str, ...]:
    """Profiles of the GPU that are missing, each as often as it is, the largest first."""
    names = {slice_resource(profile): profile for profile in card.profiles}
    sizes = {name: _size(card, name) for name in card.profiles}
    wanted = (profile for resource, number in missing for profile in [names.get(resource)] * number)
    largest_first = sorted((each for each in wanted if each is not None), key=lambda each: -sizes[each])
    return tuple(largest_first[: 2 * MOST_MEMORY_SLICES])


def _slices(card: MigCard, spoken: Container[str]) -> tuple[Slice, ...]:
    """Its slices; free ones of a resource that pods are on their way to count as in use."""
    return tuple(
        Slice(each.profile, Place(each.start, each.size), each.in_use or each.resource in spoken)
        for each in card.slices
    )


def _search(slices: Sequence[Slice], card: MigCard, wanted: Iterable[str]) -> Cut | None:
    taken: list[str] = []
    best: Cut | None = None
    for profile in wanted:
        if len(taken) == MOST_MEMORY_SLICES:
            break
        one = cut(slices, card.profiles, [*taken, profile])
        if one is not None:
            taken, best = [*taken, profile], one
    return best


def cuts(
    cutter: Cutter, cards: Iterable[MigCard], missing: Mapping[str, int], spoken: Collection[str], *, may_search: bool
) -> Generator[None, None, tuple[list[CardCut], Counter[str]]]:
    """Return cuts of a node's GPUs, and what they leave missing, in steps: each search ends one.

    ``spoken``: resources of which pods are on their way to some free slices. Nobody knows which of them these are, so
    all of such a resource count as in use. ``may_search``: without that it is one step, by what is known.
    """
    left = {resource: number for resource, number in missing.items() if number > 0}
    found, there, taken = list[CardCut](), list(cards), tuple(sorted(spoken))
    while left and there:
        wanted = tuple(sorted(left.items()))
        best: tuple[Best, MigCard] | None = None
        for card in there:
            searches = cutter.left
            one = cutter.best(card, wanted, taken, may_search=may_search)
            if cutter.left < searches:
                yield
            if one is not None and (best is None or one.rank < best[0].rank):
                best = one, card
        if best is None:
            break
        one, card = best
        found.append(one.of(card))
        there.remove(card)
        new = dict(one.cut.new)
        left = {resource: lacks for resource, number in left.items() if (lacks := number - new.get(resource, 0)) > 0}
    return found, Counter(left)


def _size(card: MigCard, profile: str) -> int:
    return max((place.size for place in card.profiles[profile].places), default=0)


def _card_cut(card: MigCard, slices: Sequence[Slice], best: Cut) -> CardCut:
    kept = [each for each in slices if each not in best.gone]
    layout = [(each.profile, each.place.start) for each in kept]
    layout += [(profile, place.start) for profile, place in best.new]
    used = sum(each.place.size for each in kept if each.in_use)
    return CardCut(
        uuid=card.uuid,
        layout=tuple(sorted(layout, key=lambda each: each[1])),
        gone=_counted(each.profile for each in best.gone),
        new=_counted(profile for profile, _ in best.new),
        cost=(len(best.gone), best.lost, MOST_MEMORY_SLICES - used),
    )


def _counted(profiles: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(map(slice_resource, profiles)).items()))


#: Verdicts that other slices can change.
_FOR_WANT_OF_SLICES: Final = frozenset({Code.NO_NODE_FITS, Code.GANG_INCOMPLETE, Code.NO_GPU_CAN_BE_PARTITIONED})
#: Pods of a gang that are looked at, and slices that one group may want: as many as 64 GPUs have.
_MOST_PODS: Final = 512
_MOST_SLICES: Final = 512


class SliceWant(msgspec.Struct, frozen=True, gc=False):
    """Slices that a pod alone, or the members of a gang together, wait for. ``resources``: each with its number.

    ``like``: pods alone for which the same can be said as for each other.
    """

    uids: tuple[str, ...]
    pod_group: tuple[str, str] | None
    resources: tuple[tuple[str, int], ...]
    like: tuple[PodClass, str, str] | None = None

    @property
    def kind(self) -> object:
        """What one looks at once: the gang, or all pods alone that are alike."""
        return self.pod_group or self.like or self.uids

    @property
    def text(self) -> str:
        """``2 nvidia.com/mig-1g.10gb, 1 nvidia.com/mig-3g.40gb``."""
        return ", ".join(f"{number} {name}" for name, number in self.resources)


def slice_wants(
    cluster: Cluster, explained: Iterable[Explain], *, now_ns: int, covered: Container[str]
) -> list[SliceWant]:
    """Return what is wanted, by priority and then by age. ``covered``: UIDs of pods for which slices are being made."""
    found: list[tuple[tuple[int, str, str], SliceWant]] = []
    asked = _Asked()
    for entry in explained:
        if entry.verdict.code not in _FOR_WANT_OF_SLICES:
            continue
        groups = [entry.pods] if entry.pod_group is not None else [(uid,) for uid in entry.pods]
        for uids in groups:
            pods = [pod for uid in uids[:_MOST_PODS] if (pod := waiting(cluster, uid, now_ns)) is not None]
            wanted = asked.by(pods)
            if 0 < sum(number for _, number in wanted) <= _MOST_SLICES and not any(pod.uid in covered for pod in pods):
                first = pods[0]
                like = None if entry.pod_group is not None else (first.cls, first.namespace, first.queue)
                want = SliceWant(tuple(pod.uid for pod in pods), entry.pod_group, wanted, like)
                found.append((min((-pod.priority, pod.created, pod.uid) for pod in pods), want))
    return [want for _, want in sorted(found, key=lambda each: each[0])]


def waiting(cluster: Cluster, uid: str, now_ns: int) -> PodRecord | None:
    """Return the pod, if it waits and may be placed now."""
    pod, setback = cluster.pod(uid), cluster.setback(uid)
    if pod is None or pod.node or pod.gated or (setback is not None and now_ns < setback.until_ns):
        return None
    return pod


class _Asked:
    """Slices that pods take: pods alone are many, and of few classes."""

    def __init__(self) -> None:
        #: By the class's identity, with the class: it lives as long as its number is known here.
        self._known: dict[int, tuple[PodClass, _Amounts]] = {}

    def by(self, pods: Sequence[PodRecord]) -> _Amounts:
        """Each resource with its number, sorted."""
        if len(pods) == 1:
            return self._by_one(pods[0].cls)
        asked = Counter[str]()
        for pod in pods:
            asked.update(dict(self._by_one(pod.cls)))
        return tuple(sorted(asked.items()))

    def _by_one(self, cls: PodClass) -> _Amounts:
        """Whole ones, and one to share for each part of one that is asked for."""
        if id(cls) not in self._known:
            asked = Counter({name: amount for name, amount in cls.demand.extended if _is_slice(name)})
            asked.update(slice_resource(ask.profile) for ask in cls.request.shared if ask.profile)
            self._known[id(cls)] = cls, tuple(sorted(asked.items()))
        return self._known[id(cls)][1]


def _is_slice(name: str) -> bool:
    return name.startswith(names.MIG_RESOURCE_PREFIX)


#: Decisions as if slices were there in one look, and for one group.
_MOST_TRIES: Final = 4
_TRIES_FOR_ONE: Final = 3
#: Nodes that a step looks at: each takes some 70 microseconds.
_NODES_A_STEP: Final = 64
#: The device plug-in's strategy that names slices by their profile.
_MIXED: Final = "mixed"
#: Operations of about a microsecond that one try may do, as decisions count them.
_MOST_OPERATIONS: Final = 60_000


class GpuPartition(msgspec.Struct, frozen=True):
    """Ask a node to cut a GPU so, for these pods (UIDs)."""

    node: str
    cut: CardCut
    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """``partitions`` for those that get slices; ``none``: those for which nothing can be cut now.

    ``rest``: those for which there was no time in this look.
    """

    partitions: tuple[GpuPartition, ...]
    none: tuple[SliceWant, ...]
    rest: tuple[SliceWant, ...] = ()


@dataclass(frozen=True, slots=True)
class _Offer:
    """What could be cut on one node for one group."""

    node: NodeRecord
    cuts: tuple[CardCut, ...]
    left: Counter[str]

    @property
    def cost(self) -> tuple[int, tuple[int, ...], str]:
        """Fewest slices missing, then fewest destroyed, least lost, fullest GPUs."""
        costs = [each.cost for each in self.cuts]
        return self.left.total(), tuple(map(sum, zip(*costs, strict=True))), self.node.name


class Look:
    """One look at what could be cut. It chooses for those that there is time for, and leaves the cluster unchanged.

    ``busy``: GPUs that are cut now or rest. A group of a kind for which nothing was found is not looked at again. The
    cluster and ``nodes`` may change between two steps: what is chosen is looked at again, in the step that chooses it.
    """

    def __init__(
        self,
        cluster: Cluster,
        nodes: Mapping[str, MigNode],
        *,
        busy: Container[Gpu],
        cutter: Cutter,
        now_ns: int,
    ) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._busy = busy
        self._cutter = cutter
        self._now_ns = now_ns
        self._tries = _MOST_TRIES
        self._taken: set[Gpu] = set()
        self._free: dict[str, dict[str, int]] = {}
        #: The group that is looked at was offered something that is not offered any more.
        self._is_old = False
        self._partitions, self._none, self._rest = list[GpuPartition](), list[SliceWant](), list[SliceWant]()

    @property
    def chosen(self) -> Chosen:
        """What was chosen so far."""
        return Chosen(tuple(self._partitions), tuple(self._none), tuple(self._rest))

    def steps(self, wants: Sequence[SliceWant]) -> Iterator[tuple[GpuPartition, ...]]:
        """Choose. Each step takes some milliseconds, and yields what has to be charged before anything else happens."""
        self._cutter.begin()
        names = sorted(name for name in self._nodes if is_offered(self._cluster.node(name)))
        failed = set[object]()
        for want in wants if names else ():
            if want.kind in failed:
                self._none.append(want)
            elif not self._has_time():
                self._rest.append(want)
            else:
                self._is_old = False
                yield from self._for_one(want, names)
                is_known = self._has_time() and not self._is_old
                if self._is_chosen(want) or not self._is_waiting(want):
                    continue
                (self._none if is_known else self._rest).append(want)
                failed |= {want.kind} if is_known else set()

    def _has_time(self) -> bool:
        """Whether more may be searched and tried."""
        return self._tries > 0 and self._cutter.left > 0

    def _for_one(self, want: SliceWant, names: Iterable[str]) -> Iterator[tuple[GpuPartition, ...]]:
        """Choose for one group; nothing if that lets none of its pods start, or there is no time."""
        offers = list[_Offer]()
        for number, name in enumerate(names, 1):
            offer = yield from self._offer(name, want)
            offers += [] if offer is None else [offer]
            if number % _NODES_A_STEP == 0:
                yield ()
        offers.sort(key=_cost)
        whole = list[tuple[_Offer, ...]]((one,) for one in offers if not one.left)[:_TRIES_FOR_ONE]
        if not whole and want.pod_group is not None:
            whole = [_together(offers, want)]
        for tried in whole:
            if not tried or self._tries <= 0:
                break
            self._tries -= 1
            yield self._try(want, tried)
            if self._is_chosen(want):
                break

    def _is_chosen(self, want: SliceWant) -> bool:
        return bool(self._partitions) and self._partitions[-1].uids == want.uids

    def _is_waiting(self, want: SliceWant) -> bool:
        return any(waiting(self._cluster, uid, self._now_ns) is not None for uid in want.uids)

    def _try(self, want: SliceWant, tried: Iterable[_Offer]) -> tuple[GpuPartition, ...]:
        """Choose these nodes, if they offer the same now and pods of the group start then; nothing if not."""
        now = [self._again(one.node.name, want) for one in tried]
        found = [one for one in now if one is not None]
        if len(found) < len(now) or (len(now) == 1 and found[0].left and want.pod_group is None):
            self._is_old = True  # it was so a moment ago, and may be cut at the next look
            return ()
        if not _starts(self._cluster, want, found, self._now_ns):
            return ()
        partitions = tuple(GpuPartition(one.node.name, each, want.uids) for one in found for each in one.cuts)
        self._taken |= {(partition.node, partition.cut.uuid) for partition in partitions}
        self._partitions += partitions
        return partitions

    def _again(self, name: str, want: SliceWant) -> _Offer | None:
        """What a node offers now, as far as it takes no search."""
        self._free.pop(name, None)
        if not is_offered(self._cluster.node(name)):
            return None
        steps = self._offer(name, want, may_search=False)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            offer: _Offer | None = end.value
            return offer

    def _offer(
        self, name: str, want: SliceWant, *, may_search: bool = True
    ) -> Generator[tuple[GpuPartition, ...], None, _Offer | None]:
        node, of_node = self._cluster.node(name), self._nodes.get(name)
        cards = [] if of_node is None else [each for each in of_node.cards if each.is_ready]
        cards = [each for each in cards if not self._is_out((name, each.uuid))]
        if node is None or not cards:
            return None
        free = self._free_of(name)
        missing = {each: number - there for each, number in want.resources if (there := free.get(each, 0)) < number}
        steps = cuts(self._cutter, cards, missing, _spoken(cards, free), may_search=may_search)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found, left = end.value
                return _Offer(node, tuple(found), left) if found else None
            yield ()

    def _is_out(self, gpu: Gpu) -> bool:
        return gpu in self._busy or gpu in self._taken

    def _free_of(self, name: str) -> dict[str, int]:
        if name not in self._free:
            self._free[name] = self._cluster.free_slices(name)
        return self._free[name]


def _spoken(cards: Iterable[MigCard], free: Mapping[str, int]) -> frozenset[str]:
    """Resources of which GPUs show more free slices than nobody has: pods are on their way to the others."""
    shown: dict[str, int] = {}
    for card in cards:
        for resource in card.unused:
            shown[resource] = shown.get(resource, 0) + 1
    return frozenset(resource for resource, number in shown.items() if number > max(0, free.get(resource, 0)))


def is_offered(node: NodeRecord | None) -> bool:
    """Whether its administrator offers its GPUs, and its device plug-in names slices by their profile."""
    if node is None or node.labels.get(names.NODE_MIG) != names.MIG_DYNAMIC:
        return False
    return node.labels.get(names.NODE_MIG_STRATEGY) == _MIXED


def _cost(offer: _Offer) -> tuple[int, tuple[int, ...], str]:
    return offer.cost


def _together(offers: Sequence[_Offer], want: SliceWant) -> tuple[_Offer, ...]:
    """Nodes that have all slices of a gang together, as far as their sum tells."""
    missing, found = Counter(dict(want.resources)), list[_Offer]()
    for one in offers:
        if missing:
            found.append(one)
            missing -= Counter({name: number for each in one.cuts for name, number in each.new})
    return tuple(found)


def _starts(cluster: Cluster, want: SliceWant, offers: Iterable[_Offer], now_ns: int) -> bool:
    """Whether pods of the group are placed where these nodes have the slices."""
    changed: list[Change] = [OnlyThese(frozenset(want.uids)), NoNomination()]
    changed += [AnotherNode(_with(one.node, one.cuts)) for one in offers]
    limits = Limits(most=_MOST_OPERATIONS)
    decision = decide_as_if(cluster.snapshot(), *changed, now_ns=now_ns, limits=limits)
    return any(placed.pod_uid in want.uids for placed in placements(decision.entries))


def _with(node: NodeRecord, found: Iterable[CardCut]) -> NodeRecord:
    """The node after these cuts."""
    amounts = Counter(dict(node.capacity.extended))
    for each in found:
        amounts.update(dict(each.new))
        amounts.subtract(dict(each.gone))
    extended = tuple(sorted((name, amount) for name, amount in amounts.items() if amount > 0))
    return msgspec.structs.replace(node, capacity=msgspec.structs.replace(node.capacity, extended=extended))
