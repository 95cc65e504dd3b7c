"""Nominations that stand: who is to go for whom, and what is kept of nodes for nominated pods until they are bound.

Each is an *intent* with its holders. They outlive the scheduler that decided them: the next one reads them from the
record, and puts them here before its first decision. What they charge is counted with the node
(nodes/nominated_usage.py), from what stands here and from the pods that are there: as victims go the charge grows by
what they held, so nobody else gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping

from scheduler.core.model.facts import Membership
from scheduler.core.model.preemption import Intent, Moved, Place
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.node_usage import Charge
from scheduler.core.nodes.nominated_usage import KeptPlace, KeptRoom


class Intents:
    """Intents by id, those decided first at the front. ``pods`` are the cluster's, read only.

    ``changed`` is called with nodes on which more or less is charged, ``touched`` with a pod (UID) that is a holder
    or a victim now, or is none any more. ``is_spoken_for``: whether a pod has its place, charged by who places it.
    """

    __slots__ = (
        *("_ages", "_at", "_changed", "_ending", "_holders", "_intents", "_is_spoken_for", "_kept_at", "_kept_of"),
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
        self._intents: dict[str, Intent] = {}
        #: By id: how many were put before.
        self._ages: dict[str, int] = {}
        self._put = 0
        #: Ids of those that are over and whose end is not on record yet.
        self._ending: set[str] = set()
        self._victims: dict[str, Intent] = {}
        self._holders: dict[str, Intent] = {}
        #: How many intents a pod was the first holder of, until it is gone.
        self._numbers: dict[str, int] = {}
        #: Ids with the node, by node: an intent may have places on several.
        self._at: Membership[tuple[str, str]] = Membership()
        #: What is kept on a node, until something changes it: a node is counted several times between two changes.
        self._kept_at: dict[str, list[KeptRoom]] = {}
        #: The same by intent, and then by node: a change to one intent leaves those beside it as they are.
        self._kept_of: dict[str, dict[str, list[KeptRoom]]] = {}
        #: Ids by the gang (namespace and PodGroup) of the holders.
        self._of_gang: dict[tuple[str, str], dict[str, None]] = {}
        #: Ids of those with places for successors.
        self._moving: dict[str, None] = {}

    # --- what stands ---------------------------------------------------------------------------------------------
    def put(self, intent: Intent) -> None:
        """Let an intent stand; one of the same id is replaced, and keeps its age.

        In the order of the record at a start, since the oldest has its places first. Raises ValueError if another one
        has one of its holders or takes one of its victims: two intents never take one pod.
        """
        known = self._intents.get(intent.id)
        if known == intent:
            return
        self._check(intent)
        if known is not None:
            self._forget(known)
        self._intents[intent.id] = intent
        if known is None:
            self._put += 1
            self._ages[intent.id] = self._put
        first = intent.places[0].pod_uid if intent.places else ""
        self._numbers[first] = max(self._numbers.get(first, 0), intent.number + 1)
        self._holders.update((place.pod_uid, intent) for place in intent.places)
        self._victims.update((victim.pod_uid, intent) for victim in intent.victims)
        for node in _nodes(intent):
            self._at.move((intent.id, node), node)
        if intent.pod_group:
            self._of_gang.setdefault((intent.namespace, intent.pod_group), {})[intent.id] = None
        if intent.moved:
            self._moving[intent.id] = None
        self._tell(intent)

    def _check(self, intent: Intent) -> None:
        for uid in (*(place.pod_uid for place in intent.places), *(victim.pod_uid for victim in intent.victims)):
            other = self._holders.get(uid) or self._victims.get(uid)
            if other is not None and other.id != intent.id:
                raise ValueError(f"intent {intent.id} has pod {uid}, which intent {other.id} has already")

    def end(self, intent_id: str) -> None:
        """An intent is over: nobody goes for it any more. Holders that wait keep their places until it is dropped.

        That is when its end is on record: else the next leader would read an intent whose room is gone.
        """
        intent = self._intents.get(intent_id)
        if intent is not None and intent_id not in self._ending:
            self._ending.add(intent_id)
            self._tell(intent)

    def is_ending(self, intent_id: str) -> bool:
        """Whether an intent is over, and still charged."""
        return intent_id in self._ending

    def drop(self, intent_id: str) -> None:
        """An intent is over, or was not written: what it kept is free, and its victims count as before."""
        intent = self._intents.get(intent_id)
        if intent is not None:
            self._forget(intent)
            del self._intents[intent_id], self._ages[intent_id]
            self._ending.discard(intent_id)
            self._tell(intent)

    def _forget(self, intent: Intent) -> None:
        for place in intent.places:
            self._holders.pop(place.pod_uid, None)
        for victim in intent.victims:
            self._victims.pop(victim.pod_uid, None)
        for node in _nodes(intent):
            self._at.move((intent.id, node), "")
        gang = (intent.namespace, intent.pod_group)
        if intent.pod_group and (of_gang := self._of_gang[gang]).pop(intent.id, intent) is None and not of_gang:
            del self._of_gang[gang]
        self._moving.pop(intent.id, None)
        self._tell(intent)

    def _tell(self, intent: Intent) -> None:
        self._change(intent)
        for uid in (*(place.pod_uid for place in intent.places), *(victim.pod_uid for victim in intent.victims)):
            self._touched(uid)

    def _change(self, intent: Intent) -> None:
        nodes = _nodes(intent)
        self._kept_of.pop(intent.id, None)
        for node in nodes:
            self._kept_at.pop(node, None)
        self._changed(*nodes)

    def get(self, intent_id: str) -> Intent | None:
        """The standing intent of this id."""
        return self._intents.get(intent_id)

    def all(self) -> tuple[Intent, ...]:
        """All that stand, the oldest first, and those that are ending."""
        return tuple(self._intents.values())

    def __bool__(self) -> bool:
        """Whether any stands."""
        return bool(self._intents)

    def in_order(self, ids: Iterable[str]) -> list[Intent]:
        """Those of these ids that stand, the oldest first."""
        return [self._intents[each] for each in sorted(filter(self._ages.get, ids), key=self._ages.__getitem__)]

    def ids_at(self, node: str) -> list[str]:
        """Ids of those that have a place on a node, in no order."""
        return [intent_id for intent_id, _ in self._at.at(node)]

    def younger_at(self, node: str, than: Intent) -> list[Intent]:
        """Those with a place on a node that came after another one, the oldest first."""
        age = self._ages[than.id]
        return self.in_order(each for each in self.ids_at(node) if self._ages[each] > age)

    def ids_of_gang(self, namespace: str, pod_group: str) -> KeysView[str]:
        """Ids of those whose holders are of a gang, in no order."""
        return self._of_gang.get((namespace, pod_group), {}).keys()

    @property
    def gangs(self) -> KeysView[tuple[str, str]]:
        """Gangs (namespace and PodGroup) of holders."""
        return self._of_gang.keys()

    @property
    def moving(self) -> list[Intent]:
        """Those that keep places for successors, the oldest first."""
        return self.in_order(self._moving)

    @property
    def victims(self) -> Mapping[str, Intent]:
        """Pod UID -> the intent that takes it."""
        return self._victims

    @property
    def holders(self) -> Mapping[str, Intent]:
        """Pod UID -> the intent that keeps a place for it."""
        return self._holders

    def next_number(self, uid: str) -> int:
        """How many intents this pod was the first holder of."""
        return self._numbers.get(uid, 0)

    def forget_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._numbers.pop(uid, None)
        self.pod_changed(uid)

    def waits(self, uid: str) -> bool:
        """Whether this pod waits for the place that an intent keeps for it."""
        pod = self._pods.get(uid)
        return uid in self._holders and pod is not None and not pod.node and not self._is_spoken_for(uid)

    def pod_changed(self, uid: str) -> None:
        """A holder or a victim was seen to have changed, is on its way to a node, or is not any more."""
        intent = self._holders.get(uid) or self._victims.get(uid)
        if intent is not None:
            self._change(intent)

    # --- what counts ---------------------------------------------------------------------------------------------
    def kept_at(self, node: str) -> list[KeptRoom]:
        """What intents keep on a node, the oldest first; not to be changed."""
        if not self._at.has(node):
            return []
        known = self._kept_at.get(node)
        if known is None:
            here = sorted((self._ages[intent_id], intent_id) for intent_id, _ in self._at.at(node))
            known = [room for _, intent_id in here for room in self._known_rooms(intent_id, node)]
            self._kept_at[node] = known
        return known

    def all_kept(self) -> Iterator[tuple[str, KeptRoom]]:
        """The same of all nodes, without the indexes."""
        for intent in self._intents.values():
            for node in _nodes(intent):
                yield from ((node, room) for room in self._rooms(intent, node))

    def charges_of(self, uid: str) -> list[Charge]:
        """The place that is kept for a holder that waits: it counts as held in its queue."""
        if not self.waits(uid):
            return []
        demand = self._pods[uid].cls.demand
        places = (place for place in self._holders[uid].places if place.pod_uid == uid)
        return [Charge(pod_uid=uid, node=place.node, demand=demand, devices=place.devices) for place in places]

    def _known_rooms(self, intent_id: str, node: str) -> list[KeptRoom]:
        of_intent = self._kept_of.setdefault(intent_id, {})
        known = of_intent.get(node)
        if known is None:
            known = of_intent[node] = self._rooms(self._intents[intent_id], node)
        return known

    def _rooms(self, intent: Intent, node: str) -> list[KeptRoom]:
        """What it keeps for its holders, and separately for each successor of a victim."""
        return [self._kept(intent, node), *(moved_room(intent, each) for each in intent.moved if each.node == node)]

    def _kept(self, intent: Intent, node: str) -> KeptRoom:
        return kept_room(intent, intent.places, node, waits=self.waits, pods=self._pods)


def kept_room(
    intent: Intent,
    places: tuple[Place, ...],
    node: str,
    *,
    waits: Callable[[str], bool],
    pods: Mapping[str, PodRecord],
) -> KeptRoom:
    """What an intent keeps on a node for those of its holders that wait for their places."""
    return KeptRoom(
        intent.id,
        tuple(
            KeptPlace(place.pod_uid, pods[place.pod_uid].cls.demand, place.devices, place.emptied)
            for place in places
            if place.node == node and waits(place.pod_uid)
        ),
        frozenset(victim.pod_uid for victim in intent.victims if victim.node == node),
    )


def moved_room(intent: Intent, moved: Moved) -> KeptRoom:
    """What is kept for one successor: all of its place, as no victim has anything of that."""
    place = KeptPlace(moved.pod_uid, moved.demand, moved.devices)
    return KeptRoom(f"{intent.id}/{moved.pod_uid}", (place,), frozenset())


def _nodes(intent: Intent) -> list[str]:
    """Nodes with places, in their order."""
    return list(dict.fromkeys((*(place.node for place in intent.places), *(moved.node for moved in intent.moved))))
