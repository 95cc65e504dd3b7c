"""NUMA alignment: NodeResourceTopology objects, and what kubelet aligns of a pod; wire objects in, slim records out.

Kubelet's CPU manager gives hints for whole CPUs of Guaranteed pods, its device manager for devices of all pods. Memory
is left out: whether a kubelet aligns it is in no object.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from scheduler.core.convert.resource_claims import is_extended
from scheduler.core.model.numa import AlignedPart, Amounts, NumaAsk, NumaRecord, NumaReport, NumaZone
from wire.api_groups import NodeResourceTopology, ResourceInfo, Zone
from wire.core import Container, Pod
from wire.quantity import MalformedQuantity, bytes_down, bytes_up, milli_down, milli_up

#: Kubelet refuses to start with such a policy on more NUMA nodes (max-allowable-numa-nodes raises it).
MOST_ZONES: Final = 8
#: Containers and resources of a pod that are looked at; a pod with more goes by its sums alone.
_MOST_PARTS: Final = 64
_CPU: Final = "cpu"
_ALWAYS: Final = "Always"
_ZONE: Final = re.compile(r"node-([0-9]{1,4})", re.ASCII)
_SINGLE, _RESTRICTED = "single-numa-node", "restricted"
#: Deprecated words -> policy, and whether its scope is the pod.
_WORDS: Final = {
    "SingleNUMANodePodLevel": (_SINGLE, True),
    "SingleNUMANodeContainerLevel": (_SINGLE, False),
    "Restricted": (_RESTRICTED, False),
    "RestrictedPodLevel": (_RESTRICTED, True),
    "RestrictedContainerLevel": (_RESTRICTED, False),
}
#: What containers request and are limited to, for a pod to be Guaranteed.
_BASIC: Final = ("cpu", "memory")


# --- nodes -----------------------------------------------------------------------------------------------------------
def numa_report(written: NodeResourceTopology) -> NumaReport:
    """Read an object. One that can't be read says nothing, as does one of more NUMA nodes than kubelet takes."""
    node = written.metadata.name
    policy, by_pod = _policy(written)
    if policy not in {_SINGLE, _RESTRICTED}:
        return NumaReport(node, None)
    found = {int(match[1]): zone for zone in written.zones or () if (match := _ZONE.fullmatch(zone.name))}
    if not 0 < len(found) <= MOST_ZONES or len(found) < len(written.zones or ()):
        return NumaReport(node, None)
    listed = [each for zone in found.values() for each in zone.resources or () if _is_aligned(each.name)]
    try:
        # Of a resource that no NUMA node has any of, kubelet gives no hints.
        names = sorted({each.name for each in listed if _capacity(each) > 0})
        zones = tuple(_zone(number, zone, names) for number, zone in sorted(found.items()))
    except MalformedQuantity:
        return NumaReport(node, None)
    record = NumaRecord(node=node, is_single=policy == _SINGLE, by_pod=by_pod, resources=tuple(names), zones=zones)
    return NumaReport(node, record)


def _policy(written: NodeResourceTopology) -> tuple[str, bool]:
    policy, by_pod = _WORDS.get(next(iter(written.topology_policies or ()), ""), ("", False))
    for each in written.attributes or ():
        if each.name == "topologyManagerPolicy":
            policy = each.value
        elif each.name == "topologyManagerScope":
            by_pod = each.value == "pod"
    return policy, by_pod


def _zone(number: int, zone: Zone, names: Iterable[str]) -> NumaZone:
    by_name: Mapping[str, ResourceInfo] = {each.name: each for each in zone.resources or ()}
    listed = [(name, by_name.get(name, ResourceInfo())) for name in names]
    return NumaZone(
        number,
        capacity=tuple(_capacity(each) for _, each in listed),
        allocatable=tuple(_down(name, each.allocatable) for name, each in listed),
        available=tuple(_down(name, each.available) for name, each in listed),
    )


def _capacity(each: ResourceInfo) -> int:
    return max(_down(each.name, each.capacity), _down(each.name, each.allocatable))


def _is_aligned(resource: str) -> bool:
    return resource == _CPU or is_extended(resource)


def _down(resource: str, written: str | float) -> int:
    return max(0, milli_down(written) if resource == _CPU else bytes_down(written))


# --- pods ------------------------------------------------------------------------------------------------------------
def numa_ask(pod: Pod) -> NumaAsk | None:
    """What kubelet aligns of a pod; None: nothing."""
    init = pod.spec.init_containers or ()
    listed = [
        (container, index < len(init) and container.restart_policy != _ALWAYS)
        for index, container in enumerate((*init, *pod.spec.containers))
    ]
    has_cpus = _is_guaranteed(pod)
    parts = [
        AlignedPart(amounts, is_brief) for each, is_brief in listed if (amounts := _amounts(each, has_cpus=has_cpus))
    ]
    if not parts:
        return None
    whole = _whole(parts)
    return NumaAsk(tuple(parts) if len(parts) <= _MOST_PARTS else (AlignedPart(whole),), whole)


def _amounts(container: Container, *, has_cpus: bool) -> Amounts:
    return tuple(sorted(_listed(container, has_cpus=has_cpus)))


def _listed(container: Container, *, has_cpus: bool) -> Iterator[tuple[str, int]]:
    resources = container.resources
    for name, written in {**(resources.limits or {}), **(resources.requests or {})}.items():
        if name != _CPU and not is_extended(name):
            continue
        try:
            amount = milli_up(written) if name == _CPU else bytes_up(written)
        except MalformedQuantity:
            continue  # such a pod waits for another reason (demand.py)
        if name == _CPU and (not has_cpus or amount % 1000):
            continue
        if amount > 0:
            yield name, amount


def _is_guaranteed(pod: Pod) -> bool:
    """As kubelet has it: each container requests CPU and memory, and is limited to the same."""
    if pod.spec.resources is not None:
        return False  # kubelet does not align pods with resources of their own
    try:
        return all(map(_has_limits, (*(pod.spec.init_containers or ()), *pod.spec.containers)))
    except MalformedQuantity:
        return False


def _has_limits(container: Container) -> bool:
    limits, requests = container.resources.limits or {}, container.resources.requests or {}
    return all(
        name in limits and _exact(name, limits[name]) == _exact(name, requests.get(name, limits[name])) > 0
        for name in _BASIC
    )


def _exact(name: str, written: str | float) -> int:
    return milli_up(written) if name == _CPU else bytes_up(written)


def _whole(parts: Iterable[AlignedPart]) -> Amounts:
    """The most that is held at once: by all that go on, or by one that ends before others start.

    Beside such a one are those that go on and started before it.
    """
    lasting: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for part in parts:
        if part.is_brief:
            own = Counter(dict(part.amounts))
            most |= Counter({name: amount + lasting[name] for name, amount in own.items()})
        else:
            lasting.update(dict(part.amounts))
    return tuple(sorted((most | lasting).items()))
