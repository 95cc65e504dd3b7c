"""Whether the pods of a nomination will fit once all its victims are gone, beside pods that came meanwhile.

An exact look at its nodes, right before each eviction: a foreign pod may have taken the place beside a victim, and then
nobody goes for a pod that does not fit. What older nominations keep is theirs; what younger ones keep is no obstacle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpu.share import NANO_PER_DEVICE, PERCENT_PER_DEVICE
from scheduler.core.assumed.nominations import Nominations
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.preemption import Moved, Nomination, Place
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.seen_pods import Pods
from scheduler.core.nodes.ledger import MOST_HAD, Ledger
from scheduler.core.nodes.node_usage import Charge, Occupancy
from scheduler.core.nodes.table import GPUS
from scheduler.core.snapshot.node_count import Supposed

Count = Callable[[str, Supposed], Occupancy]
"""Counts a node (by name) as if that had happened."""


def will_fit(nomination: Nomination, *, nominations: Nominations, pods: Pods, ledger: Ledger, count: Count) -> bool:
    """Whether holders that wait fit once all victims are gone, and the victims' successors at their places, too."""
    nodes = dict.fromkeys(place.node for place in nomination.places if nominations.waits(place.pod_uid))
    nodes.update(dict.fromkeys(moved.node for moved in nomination.moved))
    return all(
        _fits_on(name, nomination, nominations=nominations, pods=pods, ledger=ledger, count=count) for name in nodes
    )


def _fits_on(
    name: str, nomination: Nomination, *, nominations: Nominations, pods: Pods, ledger: Ledger, count: Count
) -> bool:
    row = ledger.row_of.get(name)
    node = None if row is None else ledger.nodes[row]
    if node is None:
        return False
    rooms = nominations.kept_at(name)
    at = next(at for at, room in enumerate(rooms) if room.of == nomination.id)
    places = [place for place in nomination.places if place.node == name and nominations.waits(place.pod_uid)]
    moved = [each for each in nomination.moved if each.node == name]
    gone = Supposed(
        evicted={
            *(uid for room in rooms[: at + 1] if not nominations.is_ending(room.of) for uid in room.victims),
            *(pod.uid for pod in pods.bound_to(name) if pod.deleting),
        },
        lifted={room.nomination_id for room in rooms[at:]},
    )
    before = count(name, gone)
    after = count(
        name,
        Supposed(placed=_charges(places, moved, pods), evicted=gone.evicted, lifted=gone.lifted),
    )
    return _is_enough((*places, *moved), node, ledger=ledger, before=before, after=after)


def _charges(places: Sequence[Place], moved: Sequence[Moved], pods: Pods) -> tuple[Charge, ...]:
    successors: list[tuple[Place | Moved, Demand]] = [(each, each.demand) for each in moved]
    demands: list[tuple[Place | Moved, Demand]] = [(place, pods.records[place.pod_uid].cls.demand) for place in places]
    return tuple(
        Charge(pod_uid=place.pod_uid, node=place.node, demand=demand, devices=place.devices)
        for place, demand in [*demands, *successors]
    )


def _is_enough(
    places: Sequence[Place | Moved], node: NodeRecord, *, ledger: Ledger, before: Occupancy, after: Occupancy
) -> bool:
    """Whether the node has all that these places take: what they don't take others may have overfilled."""
    total = ledger.amounts(node.capacity, pods=node.pods, most=MOST_HAD)
    used = ledger.used(after)
    takes = used > ledger.used(before)
    emptied = {group for place in places if isinstance(place, Place) for group in place.emptied}
    if any(group in before.groups and before.groups[group].charges for group in emptied):
        return False
    used[GPUS] -= sum(before.groups[group].devices for group in emptied if group in before.groups)
    return not bool((takes & (used > total)).any()) and all(map(_has_room, _devices(places, after)))


def _devices(places: Iterable[Place | Moved], after: Occupancy) -> list[tuple[int, int]]:
    """What is charged on each device that these places have a part of: memory in nano, and compute."""
    groups = {part.group for place in places for part in place.devices}
    of = [after.groups[group] for group in groups]
    return [(sum(group.charges.values()), sum(group.computes.values())) for group in of]


def _has_room(charged: tuple[int, int]) -> bool:
    return charged[0] <= NANO_PER_DEVICE and charged[1] <= PERCENT_PER_DEVICE
