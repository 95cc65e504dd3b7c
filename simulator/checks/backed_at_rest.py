"""L1 of pods that a claim could serve which the scheduler makes: for extended resources, and for a share of a GPU.

Judged are pods alone, and those beyond the minimum of a gang, on nodes that have no GPUs of a device plugin. Devices
count where a class stands for the resource alone and takes devices by one attribute, and where none is kept for a pod
that was deleted by force. So what is found here does fit, and what is not found may fit as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from simulator.checks import counting, placing
from simulator.checks.claim_records import MEMORY, ClaimRecords
from simulator.checks.room import Room, share_of
from simulator.checks.telling import Scene
from simulator.claimfacts import SliceFacts
from simulator.facts import Ask, PodFacts
from wire import names

_MIB: Final = 1024 * 1024
#: What a pod says while devices are kept for one that was deleted by force.
_KEPT: Final = "deleted by force must have ended"


@dataclass(frozen=True, slots=True)
class Backed:
    """What a claim would have to give: devices by resource, or a part of a GPU. One claim never gives both."""

    whole: Mapping[str, int]
    share: Ask | None

    @property
    def of_gpus(self) -> bool:
        """Whether a device plugin of GPUs could give some of it."""
        return self.share is not None or names.GPU_RESOURCE in self.whole


@dataclass(frozen=True, slots=True)
class _Judge:
    """``sides``: resource -> whether its only class takes big devices, or those that are not."""

    scene: Scene
    records: ClaimRecords
    sides: Mapping[str, bool]

    def wanted(self, pod: PodFacts) -> Backed | None:
        """What a claim would have to give a waiting pod; None where that is not judged."""
        asked = self.sides.keys() & placing.resources_of(pod)
        share = share_of(pod)
        is_kept = pod.verdict is not None and _KEPT in pod.verdict.message
        is_judged = placing.is_judged(pod, also=frozenset(asked))
        if not is_judged or bool(asked) is (share is not None) or is_kept or pod.raw["spec"].get("resourceClaims"):
            return None
        if share is not None and not self._is_claimable(pod, share):
            return None
        return Backed({name: counting.demand(pod, name) for name in asked}, share)

    def _is_claimable(self, pod: PodFacts, share: Ask) -> bool:
        """Whether admission lets a container of it have its share by a claim, and a class stands for GPUs."""
        by_claim = counting.demand(pod, names.GPU_SHARE_RESOURCE)
        return names.GPU_RESOURCE in self.sides and share.devices == 1 and by_claim == 1

    def is_met(self, pod: PodFacts, wanted: Backed, room: Room) -> bool:
        """Whether a node surely serves a pod by claims."""
        node = self.scene.nodes[room.name]
        has_gpus = bool(node.gpus or room.gpus or room.shared)
        if (wanted.of_gpus and has_gpus) or any(node.devices.get(each) for each in wanted.whole):
            return False
        left = (
            room.pods - 1,
            room.cpu_milli - counting.demand(pod, "cpu", per=counting.MILLI),
            room.mem_mib - counting.demand(pod, "memory", per=counting.MIB),
        )
        published = self.records.current_on(room.name)
        enough = all(self._free(published, self.sides[each]) >= number for each, number in wanted.whole.items())
        share = wanted.share
        return min(left) >= 0 and enough and (share is None or any(self._has_part(each, share) for each in published))

    def _free(self, published: Sequence[SliceFacts], is_big: bool) -> int:
        """How many whole devices of one side nobody has."""
        return sum(
            not self.records.holders.get((*each.pool, device))
            for each in published
            for device in each.whole
            if (device in each.big) is is_big
        )

    def _has_part(self, published: SliceFacts, ask: Ask) -> bool:
        """Whether a shared device of a slice has this part left, rounded up to whole bytes."""
        for device in published.shared:
            had = published.capacities[device].get(MEMORY)
            if had is None or (device in published.big) is not self.sides[names.GPU_RESOURCE]:
                continue
            holders = self.records.holders.get((*published.pool, device), {}).values()
            parts = [None if each.part is None else each.part.get(MEMORY) for each in holders if not each.is_admin]
            used = sum((part for part in parts if part is not None), Fraction(0))
            wanted = ask.mem_mib * _MIB if ask.mem_mib is not None else math.ceil(ask.charge(0) * had)
            if None not in parts and used + wanted <= had:
                return True
        return False


def fitting(
    waiting: Sequence[PodFacts],
    scene: Scene,
    records: ClaimRecords,
    *,
    kept_from: Callable[[PodFacts], Collection[str]],
) -> Iterator[tuple[PodFacts, str]]:
    """Yield pods that wait though a claim could be made for them, and where (L1)."""
    judge = _Judge(scene, records, _sides(records))
    for pod in waiting if judge.sides else ():
        wanted = judge.wanted(pod)
        if wanted is None or not placing.comes_alone(pod, scene.members, scene.minimums):
            continue
        fit = (room.name for room in scene.rooms if judge.is_met(pod, wanted, room))
        if places := [name for name in fit if name not in kept_from(pod)]:
            yield pod, f"it fits with a claim made for it on {', '.join(places)}"


def _sides(records: ClaimRecords) -> dict[str, bool]:
    of: dict[str, list[str]] = {}
    for name, resource in records.extended.items():
        of.setdefault(resource, []).append(name)
    return {
        resource: records.sides[classes[0]]
        for resource, classes in of.items()
        if len(classes) == 1 and classes[0] in records.sides
    }
