"""L1: whether what waits would fit, by a count of our own. Only what surely fits is reported.

Exact for single pods and for gangs of equals that ask one device each; of other gangs those are told that fit in every
order (packing.py). A card of unknown memory is taken for the smallest of its node, an idle reservation for no whole
device, and pods with constraints that are not counted here are not judged: so what is found here does fit, and what is
not found may fit as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from simulator import facts, recorded
from simulator.checks import apart, counting, packing
from simulator.checks.counting import NodeFacts, NodeUse
from simulator.checks.room import Room, need_of, share_of
from simulator.devices import Device
from simulator.facts import Json, PodFacts
from simulator.gangs import Key
from simulator.minimums import Minimums
from wire import names

#: Fields of a pod's spec that say where it may be, beyond what is counted here.
_CONSTRAINTS: Final = ("nodeSelector", "affinity", "topologySpreadConstraints", "resourceClaims", "hostNetwork")
#: Resources that are counted here, one that no simulated pod takes much of, and one that no node offers or lacks.
_COUNTED: Final = frozenset({"cpu", "memory", "ephemeral-storage", names.GPU_RESOURCE, names.GPU_SHARE_RESOURCE})
#: Sources of volumes whose place is a claim's.
_CLAIMS: Final = frozenset({"persistentVolumeClaim", "ephemeral"})
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
    used = counting.count(there)
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
        elif not counting.is_over(pod):
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
    asked = {part.mem_mib for way in recorded.ways(pod) for part in way} | {ask.mem_mib or 0 if ask is not None else 0}
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
    return by_part(pod for pod in members if pod.node and not pod.deleting and not counting.is_over(pod))


def by_part(members: Iterable[PodFacts]) -> Counter[str]:
    """Count members of a gang by sub-group."""
    return Counter(str(pod.labels.get(names.SUBGROUP_LABEL) or "") for pod in members)


def _fits_whole(members: list[PodFacts], minimums: Minimums, free: list[Room]) -> bool:
    waiting = [pod for pod in members if pod.waits]
    ready = [pod for pod in waiting if is_judged(pod)]
    number = minimums.lacks(placed(members), by_part(ready))
    if number is None:
        return False
    if packing.is_uniform(ready):
        return packing.fits_greedily(ready, number, free)
    # A pod that is not judged may take the room of those that are.
    is_all = all(pod in ready or pod.is_gated for pod in waiting)
    # Which members start of one with sub-groups is not known here, but where all fit those do.
    return is_all and packing.fits_anyhow(ready, len(ready) if minimums.has_parts else number, free)


def is_judged(pod: PodFacts, *, with_claims: bool = False, also: frozenset[str] = frozenset()) -> bool:
    """Whether nothing but room keeps a waiting pod from being placed, as far as can be told here.

    ``with_claims``: its claims are judged elsewhere (claims_at_rest.py); ``also``: and so are these resources.
    """
    spec = pod.raw["spec"]
    has_other_gpus = facts.asks_other_gpus(spec) if with_claims else pod.has_other_gpus
    asks_others = has_other_gpus or pod.asks_slices or not _COUNTED.union(also).issuperset(_resources(spec))
    mounts_claims = any(not _CLAIMS.isdisjoint(volume) for volume in spec.get("volumes") or ()) and not with_claims
    has_ports = any(port.get("hostPort") for each in spec.get("containers") or () for port in each.get("ports") or ())
    counted = {*(["resourceClaims"] if with_claims else ()), *(["affinity"] if _keeps_apart_alone(pod) else ())}
    constraints = [each for each in _CONSTRAINTS if spec.get(each) and each not in counted]
    is_plain = not constraints and not asks_others and not mounts_claims
    is_plain = is_plain and not has_ports
    # Not counted here: what nodes enforce, and what a record asks, in several ways and of certain devices.
    insists = pod.annotations.get(names.REQUIRE_ENFORCEMENT) in {"true", "hard"}
    is_counted = not insists and names.GPU_RECORD not in pod.annotations
    is_plain = is_plain and _starts_alone(pod)
    return is_plain and is_counted and not pod.is_gated and facts.problem(pod) is None and is_admitted(pod)


def _keeps_apart_alone(pod: PodFacts) -> bool:
    """Whether its affinity is a rule that is counted (apart.py): members of a gang would keep each other off, too."""
    return not pod.pod_group and apart.terms_of(pod.raw["spec"]) is not None


def resources_of(pod: PodFacts) -> frozenset[str]:
    """The resources that containers of a pod ask for by name."""
    return frozenset(_resources(pod.raw["spec"]))


def _resources(spec: Json) -> Iterator[str]:
    """Yield the resources that containers ask for by name."""
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        asked = container.get("resources") or {}
        yield from asked.get("requests") or ()
        yield from asked.get("limits") or ()


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
    targets |= {part.container for way in recorded.ways(pod) for part in way}
    spec = pod.raw["spec"]
    listed = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    by_map = {each["name"] for each in listed if "configMapKeyRef" in _source(each)}
    return by_map <= targets and (not targets or any(_source(each) for each in listed if each["name"] in targets))


def _source(container: Json) -> Json:
    """Where a container reads which devices it may use."""
    found = [each for each in container.get("env") or () if each["name"] == names.ENV_VISIBLE_DEVICES]
    return (found[-1].get("valueFrom") or {}) if found else {}
