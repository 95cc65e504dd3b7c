"""L1: whether what waits would fit, by a count of our own. What is reported does fit; what is not may fit as well.

Exact for single pods and for gangs of equals that ask one device each; of other gangs those are reported that fit in
every order. A card of unknown memory is taken for the smallest of its node, an idle reservation for no whole device,
and pods with constraints that are not counted here are not judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from typing import Final

from simulator.checks import facts, ledgers, shares
from simulator.checks.facts import Ask, Json, PodFacts
from simulator.checks.gangs import Key, Minimums
from simulator.checks.ledgers import NANO, NodeFacts, NodeUse
from simulator.checks.shares import asked
from simulator.nodes.device_manager import Device
from wire import names

Labels = Mapping[str, str]

_TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def terms_of(spec: Json) -> list[Labels] | None:
    """Labels of the pods that a pod keeps off its node, by term; None for rules of another form."""
    affinity = spec.get("affinity") or {}
    rules = affinity.get("podAntiAffinity") or {}
    if set(affinity) - {"podAntiAffinity"} or set(rules) - {_TERMS}:
        return None
    found: list[Labels] = []
    for term in rules.get(_TERMS) or ():
        selector = term.get("labelSelector") or {}
        labels = selector.get("matchLabels") or {}
        is_plain = set(term) == {"labelSelector", "topologyKey"} and set(selector) == {"matchLabels"} and labels
        if not is_plain or term["topologyKey"] != names.HOSTNAME_LABEL:
            return None
        found.append(labels)
    return found


@dataclass(slots=True)
class Apart:
    """Pods that keep others off by required anti-affinity by node, or that others keep off, read from the API objects.

    Only one form is read: terms about nodes whose selectors name labels and nothing else, for pods of the same
    namespace. A pod with other rules about pods is not judged. ``terms``: by node and namespace, those of the pods
    there; ``labels``: likewise, what the pods there have.
    """

    terms: dict[tuple[str, str], list[Labels]] = field(default_factory=dict)
    labels: dict[tuple[str, str], list[Labels]] = field(default_factory=dict)

    @classmethod
    def of(cls, pods: Iterable[PodFacts]) -> Apart:
        """Read the pods that have nodes; those that have ended keep nobody off."""
        found = cls()
        for pod in pods:
            if pod.node and not pod.has_ended:
                at = (pod.node, pod.namespace)
                found.labels.setdefault(at, []).append(pod.labels)
                if terms := terms_of(pod.raw["spec"]):
                    found.terms.setdefault(at, []).extend(terms)
        return found

    def kept_from(self, pod: PodFacts) -> set[str]:
        """Nodes that its own terms keep a pod off, or those of others."""
        own = terms_of(pod.raw["spec"]) or []
        found = {node for node, labels in _in(pod.namespace, self.labels) if any(_takes(own, each) for each in labels)}
        return found | {node for node, terms in _in(pod.namespace, self.terms) if _takes(terms, pod.labels)}


def _in(namespace: str, known: Mapping[tuple[str, str], list[Labels]]) -> Iterator[tuple[str, list[Labels]]]:
    return ((node, found) for (node, at), found in known.items() if at == namespace)


def _takes(terms: Iterable[Labels], labels: Labels) -> bool:
    """Whether one of the terms is about a pod with these labels."""
    return any(term.items() <= labels.items() for term in terms)


Shared = dict[str, tuple[int, int]]
"""Group -> (free nano-GPU, its card's MiB)."""


@dataclass(slots=True)
class Room:
    """What is free on a node. A device that is opened for a pod counts as full afterwards.

    ``is_cut``: it has MIG slices, so that no card of it is shared.
    """

    name: str
    gpus: int
    cpu_milli: int
    mem_mib: int
    pods: int
    smallest_mib: int
    shared: Shared = field(default_factory=dict)
    is_cut: bool = False

    def copy(self) -> Room:
        """Another one, to try something on."""
        return replace(self, shared=dict(self.shared))

    @property
    def key(self) -> tuple[int | bool | tuple[tuple[int, int], ...], ...]:
        """The same for nodes on which the same fits."""
        devices = tuple(sorted(self.shared.values()))
        return (self.gpus, self.cpu_milli, self.mem_mib, self.pods, self.smallest_mib, devices, self.is_cut)

    def without(self, pod: PodFacts) -> Room:
        """The same node when a pod will have left it. A device that it leaves idle counts as shared, not as whole."""
        room = self.copy()
        for grant in pod.grants:
            if grant.group in room.shared:
                free, card_mib = room.shared[grant.group]
                room.shared[grant.group] = (free + grant.nano, card_mib)
        room.gpus += ledgers.whole_gpus(pod)
        room.pods += 1
        room.cpu_milli += ledgers.demand(pod, "cpu", per=ledgers.MILLI)
        room.mem_mib += ledgers.demand(pod, "memory", per=ledgers.MIB)
        return room

    def take(self, pod: PodFacts) -> bool:
        """Charge a pod if it fits."""
        whole = ledgers.demand(pod, names.GPU_RESOURCE)
        opened = self._share(share_of(pod), spare=self.gpus - whole)
        if opened is None or whole > self.gpus:
            return False
        self.gpus -= whole + opened
        self.pods -= 1 + opened
        self.cpu_milli -= ledgers.demand(pod, "cpu", per=ledgers.MILLI)
        self.mem_mib -= ledgers.demand(pod, "memory", per=ledgers.MIB)
        return min(self.pods, self.cpu_milli, self.mem_mib) >= 0

    def ways(self, pod: PodFacts) -> Iterator[Room]:
        """Yield this node as each choice of devices for a pod would leave it; nothing where it doesn't fit."""
        whole = ledgers.demand(pod, names.GPU_RESOURCE)
        for opened, shared in self._choices(share_of(pod), spare=self.gpus - whole):
            gpus, slots = self.gpus - whole - opened, self.pods - 1 - opened
            cpu_milli = self.cpu_milli - ledgers.demand(pod, "cpu", per=ledgers.MILLI)
            mem_mib = self.mem_mib - ledgers.demand(pod, "memory", per=ledgers.MIB)
            if min(gpus, slots, cpu_milli, mem_mib) >= 0:
                yield Room(self.name, gpus, cpu_milli, mem_mib, slots, self.smallest_mib, shared, self.is_cut)

    def _share(self, ask: Ask | None, *, spare: int) -> int | None:
        """Charge shares, the fullest devices first; return how many devices were opened, None if it doesn't fit."""
        if ask is None:
            return 0
        if self.is_cut:
            return None
        left = ask.devices
        for group, (free, card_mib) in sorted(self.shared.items(), key=lambda item: item[1][0]):
            nano = nano_of(ask, card_mib)
            if left and nano <= free:
                self.shared[group] = (free - nano, card_mib)
                left -= 1
        if not left:
            return 0
        return left if left <= spare and self._can_open(ask) else None

    def _choices(self, ask: Ask | None, *, spare: int) -> Iterator[tuple[int, Shared]]:
        """Yield how many devices might be opened, and what would then be left of those that are known."""
        if ask is None:
            yield 0, dict(self.shared)
            return
        if self.is_cut:
            return
        roomy = [group for group, (free, card_mib) in self.shared.items() if nano_of(ask, card_mib) <= free]
        most = min(spare, ask.devices) if self._can_open(ask) else 0
        for opened in range(max(0, most) + 1):
            for groups in combinations(roomy, ask.devices - opened):
                yield opened, {**self.shared, **{group: self._charged(ask, group) for group in groups}}

    def _charged(self, ask: Ask, group: str) -> tuple[int, int]:
        free, card_mib = self.shared[group]
        return free - nano_of(ask, card_mib), card_mib

    def _can_open(self, ask: Ask) -> bool:
        """Whether any card of the node is large enough."""
        return nano_of(ask, self.smallest_mib) <= NANO


def need_of(pod: PodFacts) -> tuple[int, int, int, Ask | None]:
    """The same for pods that fit in the same rooms."""
    return (
        ledgers.demand(pod, names.GPU_RESOURCE),
        ledgers.demand(pod, "cpu", per=ledgers.MILLI),
        ledgers.demand(pod, "memory", per=ledgers.MIB),
        share_of(pod),
    )


def share_of(pod: PodFacts) -> Ask | None:
    """What it asks of shared devices."""
    return next((ask for ask in pod.asks.values() if not ask.is_whole), None)


def nano_of(ask: Ask, card_mib: int) -> int:
    """What an ask costs on a card at least; more than a device where it can't be."""
    if not card_mib and ask.mem_mib is not None:
        return NANO + 1
    return asked(ask, card_mib).least_nano(card_mib)


#: The most situations that are looked at; a gang that needs more is not judged.
_MOST: Final = 2000

Counts = tuple[int, ...]
"""How many members of each form are still to be placed."""


def is_uniform(members: Sequence[PodFacts]) -> bool:
    """Whether all ask the same, of one device each: then no order and no place is better than another."""
    share = share_of(members[0]) if members else None
    return len({_form(pod) for pod in members}) <= 1 and (share is None or share.devices == 1)


def fits_greedily(members: Sequence[PodFacts], number: int, free: Sequence[Room]) -> bool:
    """Whether all fit one after the other, each in the first place that has room."""
    tried = [room.copy() for room in free]
    return len(members) >= number and all(_taken(tried, pod) for pod in members[:number])


def _taken(tried: list[Room], pod: PodFacts) -> bool:
    for i, room in enumerate(tried):
        after = room.copy()
        if after.take(pod):
            tried[i] = after
            return True
    return False


def fits_anyhow(members: Sequence[PodFacts], number: int, free: Sequence[Room]) -> bool:
    """Whether all fit in every order and at every place; False, too, where that is too much to look at.

    A scheduler that places greedily may spoil the room of a later member by an early choice, and nobody is promised
    that it doesn't. So a gang fits only if no order, and no choice of nodes and devices, leaves it without its minimum.
    """
    forms = Counter(map(_form, members))
    examples = [next(pod for pod in members if _form(pod) == form) for form in forms]
    enough = len(members) - number
    start = tuple(forms.values()), tuple(free)
    seen = {_key(*start)}
    open_ = [start] if enough >= 0 else []
    while open_ and len(seen) <= _MOST:
        counts, rooms = open_.pop()
        if sum(counts) == enough:
            continue
        further = {_key(*after): after for after in _further(examples, counts, rooms)}
        if not further:
            return False
        open_ += [after for key, after in further.items() if key not in seen]
        seen |= further.keys()
    return enough >= 0 and not open_


def _further(
    examples: Sequence[PodFacts], counts: Counts, rooms: tuple[Room, ...]
) -> Iterator[tuple[Counts, tuple[Room, ...]]]:
    """Yield every situation after one more member was placed."""
    for form, pod in enumerate(examples):
        if not counts[form]:
            continue
        left = (*counts[:form], counts[form] - 1, *counts[form + 1 :])
        for at, room in enumerate(rooms):
            for after in room.ways(pod):
                yield left, (*rooms[:at], after, *rooms[at + 1 :])


def _key(counts: Counts, rooms: tuple[Room, ...]) -> object:
    """The same for situations in which the same fits."""
    return counts, tuple(sorted(room.key for room in rooms))


def _form(pod: PodFacts) -> tuple[object, ...]:
    amounts = [ledgers.demand(pod, name, per=ledgers.MILLI) for name in ("cpu", "memory", names.GPU_RESOURCE)]
    return (share_of(pod), *amounts)


#: Fields of a pod's spec that say where it may be, beyond what is counted here.
_CONSTRAINTS: Final = ("nodeSelector", "affinity", "topologySpreadConstraints", "resourceClaims", "hostNetwork")
#: Resources that are counted here, one that no simulated pod takes much of, and one that no node offers or lacks.
_COUNTED: Final = frozenset({"cpu", "memory", "ephemeral-storage", names.GPU_RESOURCE, names.GPU_SHARE_RESOURCE})
#: Sources of volumes whose place is a claim's.
_CLAIMS: Final = frozenset({"persistentVolumeClaim", "ephemeral"})
#: The most labels of a pod that is scheduled, and the most bytes of their keys and values.
_MOST_LABELS, _MOST_LABEL_BYTES = 256, 16_384
#: Parts of labels and annotations by which pods ask to be started together, in the words of any system.
_TOGETHER: Final = (
    *("pod-group", "podgroup", "podgang", "group-name", "group-min", "gang.scheduling", "task-group", "spark-app"),
    *("schedulingGroup", "workloadRef", "jobset", "leaderworkerset", "training.kubeflow", "ray.io/", "volcano.sh/"),
    *(names.BATCH_MIN_MEMBER, names.SEGMENT_SIZE, names.SEGMENT_TOPOLOGY_REQUIRED, names.TOPOLOGY_REQUIRED),
)


def rooms(
    pods: Iterable[PodFacts], nodes: Mapping[str, NodeFacts], cards: Mapping[str, tuple[Device, ...]]
) -> list[Room]:
    """Count what is free on each node that takes pods."""
    there = list(pods)
    used = ledgers.count(there)
    disputed = _disputed(there)
    closed = _contradicted(there)
    return [
        _room(node, used.get(name, NodeUse()), cards.get(name, ()), disputed=disputed, closed=closed)
        for name, node in sorted(nodes.items())
        if node.is_ready and not node.is_cordoned and not node.is_tainted
    ]


def _disputed(pods: Iterable[PodFacts]) -> set[str]:
    """Devices (UUIDs) that two groups claim, after the loss of a reservation: nobody new may come to them."""
    groups: dict[str, set[str]] = {}
    for pod in pods:
        if pod.has_ended:
            continue
        for grant in pod.grants:
            groups.setdefault(grant.uuid, set()).add(grant.group)
        if pod.is_reservation:
            groups.setdefault(str(pod.annotations.get(names.RESERVE_FOR_GPU_INDEX)), set()).update(pod.groups)
    return {uuid for uuid, claimants in groups.items() if len(claimants) > 1}


def _contradicted(pods: Iterable[PodFacts]) -> set[str]:
    """Groups whose tenants were given another device than their reservation holds now: nobody new may come to them."""
    devices: dict[str, set[str]] = {}
    for pod in pods:
        if pod.is_reservation and not pod.has_ended:
            for group in pod.groups:
                devices.setdefault(group, set()).add(str(pod.annotations.get(names.RESERVE_FOR_GPU_INDEX)))
        elif not ledgers.is_over(pod):
            for grant in pod.grants:
                devices.setdefault(grant.group, set()).add(grant.uuid)
    return {group for group, uuids in devices.items() if len(uuids) > 1}


def _room(node: NodeFacts, use: NodeUse, cards: tuple[Device, ...], *, disputed: set[str], closed: set[str]) -> Room:
    room = Room(
        name=node.name,
        gpus=node.gpus - use.gpus,
        cpu_milli=node.cpu_milli - use.cpu_milli,
        mem_mib=node.mem_mib - use.mem_mib,
        pods=node.pods - use.pods,
        smallest_mib=min((card.mem_mib for card in cards), default=0),
        is_cut=any(card.is_slice for card in cards),
    )
    by_uuid = {card.uuid: card for card in cards if card.uuid not in disputed and not card.is_slice}
    for group, held in use.reservations.items():
        if group in closed:
            continue
        card = by_uuid.get(str(held[0].annotations.get(names.RESERVE_FOR_GPU_INDEX)))
        if len(held) == 1 and card is not None and held[0].phase == names.RUNNING and not held[0].deleting:
            room.shared[group] = (use.free_nano(group), card.mem_mib)
    return room


def fitting(
    waiting: Iterable[PodFacts],
    members: Mapping[Key, list[PodFacts]],
    minimums: Mapping[Key, Minimums],
    free: list[Room],
    *,
    kept_from: Callable[[PodFacts], Collection[str]] = lambda _: (),
) -> Iterator[tuple[PodFacts, str]]:
    """Yield pods that wait though they fit, and where. ``kept_from``: nodes from which others may keep a pod."""
    gangs: set[Key] = set()
    #: What a pod needs -> the nodes on which that fits: thousands of pods that wait need a few different things.
    known: dict[Hashable, list[str]] = {}
    for pod in waiting:
        key = (pod.namespace, pod.pod_group)
        if not is_judged(pod) or (pod.pod_group and key not in minimums):
            continue
        if comes_alone(pod, members, minimums):
            need = need_of(pod)
            if need not in known:
                known[need] = [room.name for room in free if room.copy().take(pod)]
            if places := [name for name in known[need] if name not in kept_from(pod)]:
                yield pod, f"it fits on {', '.join(places)}"
        elif key not in gangs:
            gangs.add(key)
            kept = kept_from(pod)
            if _fits_whole(members[key], minimums[key], [room for room in free if room.name not in kept]):
                yield pod, f"all of gang {pod.pod_group} that is missing fits"


def is_patient(pod: PodFacts, cards: Iterable[tuple[Device, ...]]) -> bool:
    """Whether a waiting pod is tried again now and then though nothing changes.

    Its last attempt failed, or only some cards of a node are large enough for it, and which they are is found out by
    opening one.
    """
    told = pod.verdict.message if pod.verdict else ""
    if "last attempt failed" in told:
        return True
    ask = share_of(pod)
    asked = {part.mem_mib for way in shares.ways(pod) for part in way} | {ask.mem_mib or 0 if ask is not None else 0}
    return any(
        min(card.mem_mib for card in node) < mem_mib <= max(card.mem_mib for card in node)
        for node in cards
        if node
        for mem_mib in asked - {0}
    )


def comes_alone(pod: PodFacts, members: Mapping[Key, Iterable[PodFacts]], minimums: Mapping[Key, Minimums]) -> bool:
    """Whether a waiting pod may be placed without others: it is in no gang, or in one of which enough have a place.

    Written once for all that is judged at rest. The scheduler counts apart from this (core/groups/quorum.py).
    """
    key = (pod.namespace, pod.pod_group)
    return not pod.pod_group or (key in minimums and minimums[key].is_whole(placed(members[key])))


def placed(members: Iterable[PodFacts]) -> Counter[str]:
    """Members of a gang that have a place, by sub-group."""
    return by_part(pod for pod in members if pod.node and not pod.deleting and not ledgers.is_over(pod))


def by_part(members: Iterable[PodFacts]) -> Counter[str]:
    """Count members of a gang by sub-group."""
    return Counter(str(pod.labels.get(names.SUBGROUP_LABEL) or "") for pod in members)


def _fits_whole(members: list[PodFacts], minimums: Minimums, free: list[Room]) -> bool:
    waiting = [pod for pod in members if pod.waits]
    ready = [pod for pod in waiting if is_judged(pod)]
    number = minimums.lacks(placed(members), by_part(ready))
    if number is None:
        return False
    if is_uniform(ready):
        return fits_greedily(ready, number, free)
    # A pod that is not judged may take the room of those that are.
    is_all = all(pod in ready or pod.is_gated for pod in waiting)
    # Which members start of one with sub-groups is not known here, but where all fit those do.
    return is_all and fits_anyhow(ready, len(ready) if minimums.has_parts else number, free)


def is_judged(pod: PodFacts, *, with_claims: bool = False, also: frozenset[str] = frozenset()) -> bool:
    """Whether nothing but room keeps a waiting pod from being placed, as far as can be told here.

    ``with_claims``: its claims are judged elsewhere (claims.py); ``also``: and so are these resources.
    """
    spec = pod.raw["spec"]
    has_other_gpus = facts.asks_other_gpus(spec) if with_claims else pod.has_other_gpus
    asks_others = has_other_gpus or pod.asks_slices or not _COUNTED.union(also).issuperset(_resources(spec))
    is_plain = goes_anywhere(pod, with_claims=with_claims) and not asks_others
    # That these ConfigMaps are absent is judged as L3.
    is_plain = is_plain and not facts.missing_config_maps(pod)
    # Not counted here: what nodes enforce, and what a record asks, in several ways and of certain devices.
    insists = pod.annotations.get(names.REQUIRE_ENFORCEMENT) in {"true", "hard"}
    is_counted = not insists and names.GPU_RECORD not in pod.annotations
    is_plain = is_plain and _starts_alone(pod) and _has_few_labels(pod.labels)
    return is_plain and is_counted and not pod.is_gated and facts.problem(pod) is None and is_admitted(pod)


def goes_anywhere(pod: PodFacts, *, with_claims: bool = False) -> bool:
    """Whether no rule of a pod's own, that is not counted here, keeps it off nodes."""
    spec = pod.raw["spec"]
    mounts_claims = any(not _CLAIMS.isdisjoint(volume) for volume in spec.get("volumes") or ()) and not with_claims
    has_ports = any(port.get("hostPort") for each in _containers(spec) for port in each.get("ports") or ())
    counted = {*(["resourceClaims"] if with_claims else ()), *(["affinity"] if _keeps_apart_alone(pod) else ())}
    constraints = [each for each in _CONSTRAINTS if spec.get(each) and each not in counted]
    return not (constraints or mounts_claims or has_ports or _needs_a_feature(spec))


def _has_few_labels(labels: Labels) -> bool:
    """Whether a pod has no more labels than one that is scheduled may have: others wait (docs/security.md, M1)."""
    return len(labels) <= _MOST_LABELS and sum(map(len, (*labels, *labels.values()))) <= _MOST_LABEL_BYTES


def _keeps_apart_alone(pod: PodFacts) -> bool:
    """Whether its affinity is a rule that is counted: members of a gang would keep each other off, too."""
    return not pod.pod_group and terms_of(pod.raw["spec"]) is not None


def resources_of(pod: PodFacts) -> frozenset[str]:
    """The resources that containers of a pod ask for by name."""
    return frozenset(_resources(pod.raw["spec"]))


def _resources(spec: Json) -> Iterator[str]:
    """Yield the resources that a pod and its containers ask for by name."""
    yield from spec.get("overhead") or ()
    for written in (spec, *_containers(spec)):
        asked = written.get("resources") or {}
        yield from asked.get("requests") or ()
        yield from asked.get("limits") or ()


def _containers(spec: Json) -> Iterator[Json]:
    yield from spec.get("containers") or ()
    yield from spec.get("initContainers") or ()


def _needs_a_feature(spec: Json) -> bool:
    """Whether a pod needs what not every kubelet can do (KEP-5328): which node can is not counted here."""
    return spec.get("hostUsers") is False or any(each.get("restartPolicyRules") for each in _containers(spec))


def _starts_alone(pod: PodFacts) -> bool:
    """Whether nothing asks for the pod to start with others, beside its PodGroup, which is counted.

    Jobs are not read here: what one of them asks for is not known, and neither is what other systems' owners ask for.
    """
    if pod.pod_group:
        return True
    for owner in pod.raw["metadata"].get("ownerReferences") or ():
        if owner["kind"] == "Job" or "." in owner["apiVersion"]:
            return False
    return not _names_gang((*pod.labels, *pod.annotations, *pod.raw["spec"]))


@lru_cache(maxsize=1024)
def _names_gang(keys: tuple[str, ...]) -> bool:
    """Whether one of these keys asks for a gang. Thousands of pods have the same keys."""
    return any(word in key for key in keys for word in _TOGETHER)


def is_admitted(pod: PodFacts) -> bool:
    """Whether those containers read which devices they may use that have a share, and no others.

    They were changed when the pod was made; an ask that is taken back later leaves a container that reads a ConfigMap.
    """
    targets = {name for name, ask in pod.asks.items() if not ask.is_whole}
    targets |= {part.container for way in shares.ways(pod) for part in way}
    spec = pod.raw["spec"]
    listed = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    by_map = {each["name"] for each in listed if "configMapKeyRef" in _source(each)}
    return by_map <= targets and (not targets or any(_source(each) for each in listed if each["name"] in targets))


def _source(container: Json) -> Json:
    """Where a container reads which devices it may use."""
    found = [each for each in container.get("env") or () if each["name"] == names.ENV_VISIBLE_DEVICES]
    return (found[-1].get("valueFrom") or {}) if found else {}
