"""Nodes as records: what there is to give. A resource that can't be read counts as not being there.

GpuNodes say more of GPUs in MIG mode: their slices and what is asked of them. The agent on the node writes their
status. What can't be is not cut (gpu/mig.py), and lists are bounded here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from sys import intern
from typing import Final

from gpu import limits, node_resources
from gpu.mig import MOST_MEMORY_SLICES, Place, Profile
from gpu.node_resources import cards_mib, multiplied
from scheduler.core.convert import bounds
from scheduler.core.filters.declared_features import KNOWN
from scheduler.core.model.mig import MigCard, MigLayoutAsked, MigNode, MigSlice
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.records import NodeRecord
from wire import names
from wire.core import Node
from wire.crds.gpunode import CardStatus, GpuNode, MigProfile
from wire.quantity import NANO, MalformedQuantity, mib_down, milli_down, parse_nano

_WELL: Final = frozenset({"", "well"})
#: More than any GPU has.
_MOST_PROFILES: Final = 32


def mig_node(found: GpuNode) -> MigNode:
    """Read a GpuNode."""
    asked = (
        MigLayoutAsked(each.uuid, each.attempt, tuple((place.profile, place.start) for place in each.layout))
        for each in found.spec.mig or ()
    )
    return MigNode(
        name=found.metadata.name,
        rv=found.metadata.resource_version,
        cards=tuple(_card(each) for each in found.status.cards or () if each.mig),
        asked=tuple(asked),
    )


def _card(card: CardStatus) -> MigCard:
    is_well = card.health is None or card.health.state in _WELL
    layout = card.layout or ()
    slices = tuple(
        MigSlice(each.profile, each.start, each.size, each.in_use, bool(each.uuid))
        for each in layout[:MOST_MEMORY_SLICES]
    )
    partitioning = card.partitioning
    is_known = card.layout is not None and bool(card.profiles) and len(layout) <= MOST_MEMORY_SLICES
    found = MigCard(
        uuid=card.uuid,
        is_ready=is_well and is_known,
        profiles={each.name: _profile(each) for each in (card.profiles or ())[:_MOST_PROFILES]},
        slices=slices,
        attempt="" if partitioning is None else partitioning.attempt,
        state="" if partitioning is None else partitioning.state,
        why="" if partitioning is None else partitioning.why,
    )
    _ = found.kind  # made when it changes, and not all at once in the next look
    return found


def _profile(found: MigProfile) -> Profile:
    starts = sorted({*(found.starts or ())})[:MOST_MEMORY_SLICES]
    return Profile(tuple(Place(start, found.size) for start in starts), found.most)


_READY = "Ready"
#: A device as NVML names it.
_UUID: Final = re.compile(r"GPU-[0-9A-Za-z-]{1,64}", re.ASCII)
_MIG_SINGLE = "single"
_MIG_ENABLED_LABEL = "node-role.kubernetes.io/mig-enabled"
#: What a node says is cut to a billion cores and a million devices, so that ranks fit into 64 bits (ranking.py).
_MOST_CPU_MILLI = 2**40
_MOST_GPUS = 2**20


def node_record(node: Node, *, with_images: bool = False) -> NodeRecord:
    """Read a node; a resource that can't be read counts as none. ``with_images``: keep which images are there.

    A node with more labels, taints or resources than are kept takes no pods.
    """
    labels = node.metadata.labels or {}
    annotations = node.metadata.annotations or {}
    allocatable = node.status.allocatable or {}
    taints = node.spec.taints or ()
    is_too_large = bounds.are_too_many_of_node(labels, taints, allocatable)
    if is_too_large:
        labels, taints = {}, ()
    smallest, largest = cards_mib(labels, annotations)
    is_mig = _is_mig(labels, allocatable)
    is_single = is_mig and labels.get(names.NODE_MIG_STRATEGY) == _MIG_SINGLE
    return NodeRecord(
        name=node.metadata.name,
        uid=node.metadata.uid,
        labels=labels,
        taints=tuple(taints),
        is_ready=any(c.type == _READY and c.status == "True" for c in node.status.conditions or ()),
        is_cordoned=node.spec.unschedulable or is_too_large,
        capacity=bounds.first_resources(_capacity(allocatable)) if is_too_large else _capacity(allocatable),
        pods=_amount(names.PODS_RESOURCE, allocatable.get(names.PODS_RESOURCE, 0)),
        smallest_card_mib=smallest,
        largest_card_mib=largest,
        is_mig=is_mig,
        single_profile=node_resources.single_profile(labels.get(names.NODE_GPU_PRODUCT, "")) if is_single else "",
        is_multiplied=bool(multiplied(labels, annotations, offered_gpus(node))),
        declared_features=tuple(sorted(KNOWN.intersection(node.status.declared_features or ()))),
        enforces=limits.listed(annotations.get(names.NODE_ENFORCES)).known,
        shows_tenants=annotations.get(names.NODE_TENANT_VIEW) == "true",
        images=_images(node) if with_images else (),
        uuids=_uuids(annotations.get(names.NODE_UUIDS, "")),
        devices=offered_gpus(node),
    )


def _images(node: Node) -> tuple[tuple[str, int], ...]:
    listed = {name: image.size_bytes for image in node.status.images or () for name in image.names or ()}
    return tuple((intern(name), size) for name, size in sorted(listed.items()))


def _uuids(text: str) -> tuple[str, ...]:
    """What an administrator lists; nothing, if there is anything else in it than UUIDs as NVML writes them."""
    listed = tuple(part.strip() for part in text.split(",")) if text else ()
    return listed if all(map(_UUID.fullmatch, listed)) and len({*listed}) == len(listed) else ()


def offered_gpus(node: Node) -> int:
    """How many GPUs the device plugin has registered. Unhealthy ones are in the capacity only."""
    there = (_amount(names.GPU_RESOURCE, has.get(names.GPU_RESOURCE, 0)) for has in _amounts_of(node))
    return min(max(there, default=0), _MOST_GPUS)


def _amounts_of(node: Node) -> Iterator[Mapping[str, str | int | float]]:
    yield from (has for has in (node.status.capacity, node.status.allocatable) if has is not None)


def _capacity(allocatable: dict[str, str | int | float]) -> Demand:
    amounts = {name: _amount(name, value) for name, value in allocatable.items()}
    return Demand(
        cpu_milli=min(amounts.pop(names.CPU_RESOURCE, 0), _MOST_CPU_MILLI),
        mem_mib=amounts.pop(names.MEMORY_RESOURCE, 0),
        ephemeral_mib=amounts.pop(names.EPHEMERAL_STORAGE_RESOURCE, 0),
        gpus=min(amounts.pop(names.GPU_RESOURCE, 0), _MOST_GPUS),
        extended=tuple(sorted((k, v) for k, v in amounts.items() if v > 0 and k != names.PODS_RESOURCE)),
    )


def _amount(name: str, value: str | float) -> int:
    try:
        if name == names.CPU_RESOURCE:
            return milli_down(value)
        if name in {names.MEMORY_RESOURCE, names.EPHEMERAL_STORAGE_RESOURCE}:
            return mib_down(value)
        return parse_nano(value) // NANO
    except MalformedQuantity:
        return 0


def _is_mig(labels: dict[str, str], allocatable: dict[str, str | int | float]) -> bool:
    """Whether the node has MIG slices, also as its ``nvidia.com/gpu``: no card is shared there (contract 4.12)."""
    if _MIG_ENABLED_LABEL in labels:
        return labels[_MIG_ENABLED_LABEL].lower() == "true"
    sliced = any(k.startswith(names.MIG_RESOURCE_PREFIX) and _amount(k, v) > 0 for k, v in allocatable.items())
    return sliced or labels.get(names.NODE_MIG_STRATEGY) == _MIG_SINGLE
