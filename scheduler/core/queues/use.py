"""What a pod counts for in its queue: CPU and memory as it asks, whole GPUs, and the parts of devices that it has.

A MIG slice of ``N`` compute slices counts as N GPUs, as with KAI. Memory of a GPU is a part of the
card that it is taken of: until that is known there is a least and a most.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from gpu.bind_request import PlannedDevice
from gpu.grant import Charged, charged
from gpu.request import GpuRequest, charge_nano
from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.pod_class import Demand, PodClass
from scheduler.core.model.quota import NOTHING, Resources
from scheduler.core.model.records import Held, NodeRecord, PodGroupRecord, PodRecord
from scheduler.core.model.settings import NodePool
from wire import names

#: Pods of this priority or higher can't be preempted, unless a label or a PodGroup says they can (kai-contract 2.2).
_FIXED_PRIORITY: Final = 100
_SLICES: Final = re.compile(r"(?:[0-9]c\.)?(?P<slices>[1-9])g\.", re.ASCII)


def queue_of(pod: PodRecord, group: PodGroupRecord | None) -> str:
    """The queue that a pod counts in: the one that it was placed for, else that of its PodGroup, else its own."""
    return pod.queue if group is None or pod.charged is not None else group.queue


def is_fixed(pod: PodRecord, group: PodGroupRecord | None) -> bool:
    """Whether a pod can't be preempted: as it was placed, else by its PodGroup, its label, or its priority."""
    said = pod.is_preemptible if group is None or pod.charged is not None else group.is_preemptible
    return pod.priority >= _FIXED_PRIORITY if said is None else not said


def charge_of(pod: PodRecord, group: PodGroupRecord | None, pool: NodePool | None) -> Charged:
    """What a pod that is placed now counts for until it ends. ``pool``: the scheduler's."""
    has_own = pod.own_priority is None or pod.own_priority.value == pod.priority
    return charged(
        queue_of(pod, group),
        None if pool is None else pool.value,
        is_preemptible=not is_fixed(pod, group),
        priority=None if has_own else pod.priority,
        minimum=0 if group is None else group.minimums.all_pods,
        part=0 if group is None else group.tree.least_of(pod.subgroup),
    )


def devices_of(resource: str) -> int:
    """As how many GPUs one device of this resource counts; 0 for a resource that is no device."""
    if resource == names.GPU_RESOURCE:
        return 1
    if not resource.startswith(names.MIG_RESOURCE_PREFIX):
        return 0
    found = _SLICES.match(resource.removeprefix(names.MIG_RESOURCE_PREFIX))
    return int(found["slices"]) if found else 1


def asked(cls: PodClass, card_mib: int) -> Resources:
    """What the first request of a class counts for on cards of this size, 0: unknown."""
    return _with_parts(cls.demand, _asked_nano(cls.request, card_mib))


def least(cls: PodClass, largest_card_mib: int) -> Resources:
    """The least that any request of a class counts for, on the largest card that there is."""
    return _with_parts(cls.demand, min(_asked_nano(each, largest_card_mib) for each in cls.requests()))


def of_pods(pods: Iterable[PodRecord], amounts_of: Callable[[PodClass], Resources]) -> Resources:
    """What pods count for together, each as its class does."""
    return of_counts(Counter(pod.cls for pod in pods).items(), amounts_of)


def of_counts(counts: Iterable[tuple[PodClass, int]], amounts_of: Callable[[PodClass], Resources]) -> Resources:
    """What these numbers of pods of these classes count for."""
    total = NOTHING
    for cls, count in counts:
        total = total.plus(amounts_of(cls).times(count))
    return total


def _asked_nano(request: GpuRequest, card_mib: int) -> int:
    nano = 0
    for ask in request.shared:
        part = charge_nano(ask, card_mib)
        slices = devices_of(names.MIG_RESOURCE_PREFIX + ask.profile) if ask.profile else 1
        nano += (NANO_PER_DEVICE if part is None else part) * slices
    return nano


def planned(demand: Demand, devices: Iterable[PlannedDevice], *, claimed_nano: int = 0) -> Resources:
    """What a pod counts for on the devices that are planned for it.

    ``claimed_nano``: the part of a device that a claim is to give it, which its demand says once the claim is named.
    """
    nano = sum(device.nano * (devices_of(device.resource) or 1) for device in devices)
    return _with_parts(demand, nano + (0 if demand.claimed_nano else claimed_nano))


def held(pod: PodRecord, node: NodeRecord | None) -> Resources:
    """What a bound pod counts for. Of one without a grant as much as it asks, on the smallest card of its node."""
    card_mib = node.smallest_card_mib if node is not None else 0
    if not pod.held:
        return asked(pod.cls, card_mib)
    return _with_parts(pod.cls.demand, sum(_held_nano(pod, at, each, card_mib) for at, each in enumerate(pod.held)))


def _held_nano(pod: PodRecord, at: int, part: Held, card_mib: int) -> int:
    nano = part.nano
    if nano is None:
        asks = pod.cls.request.shared
        known = charge_nano(asks[min(at, len(asks) - 1)], card_mib) if asks else None
        nano = NANO_PER_DEVICE if known is None else known
    return nano * (devices_of(part.resource) or 1)


def _with_parts(demand: Demand, nano: int) -> Resources:
    whole = demand.gpus + sum(devices_of(name) * amount for name, amount in (*demand.extended, *demand.claimed))
    return Resources(demand.cpu_milli, demand.mem_bytes, whole * NANO_PER_DEVICE + demand.claimed_nano + nano)


def by_claim(demand: Demand) -> Resources:
    """What of a demand claims give."""
    whole = sum(devices_of(name) * amount for name, amount in demand.claimed)
    return Resources(gpu_nano=whole * NANO_PER_DEVICE + demand.claimed_nano)


def beyond(node: NodeRecord, bound: Iterable[PodRecord]) -> Resources:
    """What a node has beyond its pods, ready or not: reservations stand for theirs. Claims are no part of either."""
    left = _with_parts(node.capacity, 0)
    for pod in bound:
        if not pod.is_reservation:
            left = left.minus(held(pod, node)).plus(by_claim(pod.cls.demand))
    return left


def allocatable(node: NodeRecord) -> Resources:
    """What a node adds to what queues divide; nothing while it is not ready."""
    if not node.is_ready:
        return Resources()
    return _with_parts(node.capacity, 0)
