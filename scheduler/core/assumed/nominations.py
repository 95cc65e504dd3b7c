"""Nominations that stand: who is to go for whom, and what is kept of nodes for nominated pods until they are bound.

Each is a *nomination* with its nominated pods. They outlive the scheduler that decided them: the next one reads them
from the record, and puts them here before its first decision. What they charge is counted with the node
(nodes/node_usage.py), from what stands here and from the pods that are there: as victims go the charge grows by
what they held, so nobody else gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping

from scheduler.core.model.facts import Membership
from scheduler.core.model.preemption import Moved, Nomination, Place
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.node_usage import Charge, KeptPlace, NominatedPlace


class Nominations:
    """Nominations by id, those decided first at the front. ``pods`` are the cluster's, read only.

    ``changed`` is called with nodes on which more or less is charged, ``touched`` with a pod (UID) that is a nominated
    pod or a victim now, or is none any more. ``is_spoken_for``: whether a pod has its place, charged by who places it.
    """

    __slots__ = (
        *("_ages", "_at", "_changed", "_ending", "_nominees", "_nominations", "_is_spoken_for", "_kept_at", "_kept_of"),
        *("_moving", "_numbers", "_of_gang", "_pods", "_put", "_touched", "_victims"),
    )

    def __init__(
        self,
        pods: Mapping[str, PodRecord],
        *,
        is_spoken_for: Callable[[str], bool],
        changed: Callable[..., None],
        touched: Callable[[str], None],
    ) -> None:
        self._pods = pods
        self._is_spoken_for = is_spoken_for
        self._changed = changed
        self._touched = touched
        self._nominations: dict[str, Nomination] = {}
        #: By id: how many were put before.
        self._ages: dict[str, int] = {}
        self._put = 0
        #: Ids of those that are over and whose end is not on record yet.
        self._ending: set[str] = set()
        self._victims: dict[str, Nomination] = {}
        self._nominees: dict[str, Nomination] = {}
        #: How many nominations a pod was the first nominated pod of, until it is gone.
        self._numbers: dict[str, int] = {}
        #: Ids with the node, by node: a nomination may have places on several.
        self._at: Membership[tuple[str, str]] = Membership()
        #: What is kept on a node, until something changes it: a node is counted several times between two changes.
        self._kept_at: dict[str, list[NominatedPlace]] = {}
        #: The same by nomination, and then by node: a change to one nomination leaves those beside it as they are.
        self._kept_of: dict[str, dict[str, list[NominatedPlace]]] = {}
        #: Ids by the gang (namespace and PodGroup) of the nominated pods.
        self._of_gang: dict[tuple[str, str], dict[str, None]] = {}
        #: Ids of those with places for successors.
        self._moving: dict[str, None] = {}

    # --- what stands ---------------------------------------------------------------------------------------------
    def put(self, nomination: Nomination) -> None:
        """Let a nomination stand; one of the same id is replaced, and keeps its age.

        In the order of the record at a start, since the oldest has its places first. Raises ValueError if another one
        has one of its nominated pods or takes one of its victims: two nominations never take one pod.
        """
        known = self._nominations.get(nomination.id)
        if known == nomination:
            return
        self._check(nomination)
        if known is not None:
            self._forget(known)
        self._nominations[nomination.id] = nomination
        if known is None:
            self._put += 1
            self._ages[nomination.id] = self._put
        first = nomination.places[0].pod_uid if nomination.places else ""
        self._numbers[first] = max(self._numbers.get(first, 0), nomination.number + 1)
        self._nominees.update((place.pod_uid, nomination) for place in nomination.places)
        self._victims.update((victim.pod_uid, nomination) for victim in nomination.victims)
        for node in _nodes(nomination):
            self._at.move((nomination.id, node), node)
        if nomination.pod_group:
            self._of_gang.setdefault((nomination.namespace, nomination.pod_group), {})[nomination.id] = None
        if nomination.moved:
            self._moving[nomination.id] = None
        self._tell(nomination)

    def _check(self, nomination: Nomination) -> None:
        for uid in (
            *(place.pod_uid for place in nomination.places),
            *(victim.pod_uid for victim in nomination.victims),
        ):
            other = self._nominees.get(uid) or self._victims.get(uid)
            if other is not None and other.id != nomination.id:
                raise ValueError(f"nomination {nomination.id} has pod {uid}, which nomination {other.id} has already")

    def end(self, nomination_id: str) -> None:
        """A nomination is over: no more victims go for it. Nominated pods keep their places until it is dropped.

        That is when its end is on record: else the next leader would read a nomination whose room is gone.
        """
        nomination = self._nominations.get(nomination_id)
        if nomination is not None and nomination_id not in self._ending:
            self._ending.add(nomination_id)
            self._tell(nomination)

    def is_ending(self, nomination_id: str) -> bool:
        """Whether a nomination is over, and still charged."""
        return nomination_id in self._ending

    def drop(self, nomination_id: str) -> None:
        """A nomination is over, or was not written: what it kept is free, and its victims count as before."""
        nomination = self._nominations.get(nomination_id)
        if nomination is not None:
            self._forget(nomination)
            del self._nominations[nomination_id], self._ages[nomination_id]
            self._ending.discard(nomination_id)
            self._tell(nomination)

    def _forget(self, nomination: Nomination) -> None:
        for place in nomination.places:
            self._nominees.pop(place.pod_uid, None)
        for victim in nomination.victims:
            self._victims.pop(victim.pod_uid, None)
        for node in _nodes(nomination):
            self._at.move((nomination.id, node), "")
        gang = (nomination.namespace, nomination.pod_group)
        if (
            nomination.pod_group
            and (of_gang := self._of_gang[gang]).pop(nomination.id, nomination) is None
            and not of_gang
        ):
            del self._of_gang[gang]
        self._moving.pop(nomination.id, None)
        self._tell(nomination)

    def _tell(self, nomination: Nomination) -> None:
        self._change(nomination)
        for uid in (
            *(place.pod_uid for place in nomination.places),
            *(victim.pod_uid for victim in nomination.victims),
        ):
            self._touched(uid)

    def _change(self, nomination: Nomination) -> None:
        nodes = _nodes(nomination)
        self._kept_of.pop(nomination.id, None)
        for node in nodes:
            self._kept_at.pop(node, None)
        self._changed(*nodes)

    def get(self, nomination_id: str) -> Nomination | None:
        """The standing nomination of this id."""
        return self._nominations.get(nomination_id)

    def all(self) -> tuple[Nomination, ...]:
        """All that stand, the oldest first, and those that are ending."""
        return tuple(self._nominations.values())

    def __bool__(self) -> bool:
        """Whether any stands."""
        return bool(self._nominations)

    def in_order(self, ids: Iterable[str]) -> list[Nomination]:
        """Those of these ids that stand, the oldest first."""
        return [self._nominations[each] for each in sorted(filter(self._ages.get, ids), key=self._ages.__getitem__)]

    def ids_at(self, node: str) -> list[str]:
        """Ids of those that have a place on a node, in no order."""
        return [nomination_id for nomination_id, _ in self._at.at(node)]

    def younger_at(self, node: str, than: Nomination) -> list[Nomination]:
        """Those with a place on a node that came after another one, the oldest first."""
        age = self._ages[than.id]
        return self.in_order(each for each in self.ids_at(node) if self._ages[each] > age)

    def ids_of_gang(self, namespace: str, pod_group: str) -> KeysView[str]:
        """Ids of those whose nominated pods are of a gang, in no order."""
        return self._of_gang.get((namespace, pod_group), {}).keys()

    @property
    def gangs(self) -> KeysView[tuple[str, str]]:
        """Gangs (namespace and PodGroup) of nominated pods."""
        return self._of_gang.keys()

    @property
    def moving(self) -> list[Nomination]:
        """Those that keep places for successors, the oldest first."""
        return self.in_order(self._moving)

    @property
    def victims(self) -> Mapping[str, Nomination]:
        """Pod UID -> the nomination that takes it."""
        return self._victims

    @property
    def nominees(self) -> Mapping[str, Nomination]:
        """Pod UID -> the nomination that keeps a place for it."""
        return self._nominees

    def next_number(self, uid: str) -> int:
        """How many nominations this pod was the first nominated pod of."""
        return self._numbers.get(uid, 0)

    def forget_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._numbers.pop(uid, None)
        self.pod_changed(uid)

    def waits(self, uid: str) -> bool:
        """Whether this pod waits for the place that a nomination keeps for it."""
        pod = self._pods.get(uid)
        return uid in self._nominees and pod is not None and not pod.node and not self._is_spoken_for(uid)

    def pod_changed(self, uid: str) -> None:
        """A nominated pod or a victim was seen to have changed, is on its way to a node, or is not any more."""
        nomination = self._nominees.get(uid) or self._victims.get(uid)
        if nomination is not None:
            self._change(nomination)

    # --- what counts ---------------------------------------------------------------------------------------------
    def kept_at(self, node: str) -> list[NominatedPlace]:
        """What nominations keep on a node, the oldest first; not to be changed."""
        if not self._at.has(node):
            return []
        known = self._kept_at.get(node)
        if known is None:
            here = sorted((self._ages[nomination_id], nomination_id) for nomination_id, _ in self._at.at(node))
            known = [room for _, nomination_id in here for room in self._known_places(nomination_id, node)]
            self._kept_at[node] = known
        return known

    def all_kept(self) -> Iterator[tuple[str, NominatedPlace]]:
        """The same of all nodes, without the indexes."""
        for nomination in self._nominations.values():
            for node in _nodes(nomination):
                yield from ((node, room) for room in self._nominated_places(nomination, node))

    def charges_of(self, uid: str) -> list[Charge]:
        """The place that is kept for a nominated pod that waits: it counts as held in its queue."""
        if not self.waits(uid):
            return []
        demand = self._pods[uid].cls.demand
        places = (place for place in self._nominees[uid].places if place.pod_uid == uid)
        return [Charge(pod_uid=uid, node=place.node, demand=demand, devices=place.devices) for place in places]

    def _known_places(self, nomination_id: str, node: str) -> list[NominatedPlace]:
        of_nomination = self._kept_of.setdefault(nomination_id, {})
        known = of_nomination.get(node)
        if known is None:
            known = of_nomination[node] = self._nominated_places(self._nominations[nomination_id], node)
        return known

    def _nominated_places(self, nomination: Nomination, node: str) -> list[NominatedPlace]:
        """What it keeps for its nominated pods, and separately for each successor of a victim."""
        return [
            self._kept(nomination, node),
            *(moved_place(nomination, each) for each in nomination.moved if each.node == node),
        ]

    def _kept(self, nomination: Nomination, node: str) -> NominatedPlace:
        return nominated_place(nomination, nomination.places, node, waits=self.waits, pods=self._pods)


def nominated_place(
    nomination: Nomination,
    places: tuple[Place, ...],
    node: str,
    *,
    waits: Callable[[str], bool],
    pods: Mapping[str, PodRecord],
) -> NominatedPlace:
    """What a nomination keeps on a node for those of its nominated pods that wait for their places."""
    return NominatedPlace(
        nomination.id,
        tuple(
            KeptPlace(place.pod_uid, pods[place.pod_uid].cls.demand, place.devices, place.emptied)
            for place in places
            if place.node == node and waits(place.pod_uid)
        ),
        frozenset(victim.pod_uid for victim in nomination.victims if victim.node == node),
    )


def moved_place(nomination: Nomination, moved: Moved) -> NominatedPlace:
    """What is kept for one successor: all of its place, as no victim has anything of that."""
    place = KeptPlace(moved.pod_uid, moved.demand, moved.devices)
    return NominatedPlace(f"{nomination.id}/{moved.pod_uid}", (place,), frozenset())


def _nodes(nomination: Nomination) -> list[str]:
    """Nodes with places, in their order."""
    return list(
        dict.fromkeys((*(place.node for place in nomination.places), *(moved.node for moved in nomination.moved)))
    )
