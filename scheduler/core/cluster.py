"""Everything that a decision needs, kept from events and from our own commits. One writer: the shell's cache.

Records are stored as they come, nodes that an event touches are marked, and marked nodes are counted anew before the
next decision (occupancy.py). So the order, number and lateness of events can't matter to the sums: only what is known
in the end does. Three rules keep a charge from being lost:

- What is in flight is charged from ``assume`` on, until the API shows the pod bound or gone, or ``release``. An event
  that shows the pod unbound clears nothing.
- An event that is older than what is known (by resourceVersion) is ignored, and so is one of a pod that is gone.
- A pod is charged once per node and once per device, with the largest that anybody says.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from gpu.reservation import Reservation
from scheduler.core import intake
from scheduler.core.flights import ATTEMPT, HOLD, Flight, Flights
from scheduler.core.handovers import HandOvers, Key
from scheduler.core.ledger import Ledger
from scheduler.core.membership import Membership
from scheduler.core.occupancy import Occupancy, occupancy
from scheduler.core.plan import Explain, Placement, Plan
from scheduler.core.probation import Doubt, Probation
from scheduler.core.promises import Promises
from scheduler.core.records import BindRequestRecord, NodeRecord, PodClass, PodGroupRecord, PodRecord, SeenPod
from scheduler.core.setbacks import Setback
from scheduler.core.settings import Settings
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.recent import Recent
from wire.versions import is_older

T = TypeVar("T")

#: What was verified of reservations that are gone is forgotten in bulk, from so many on.
_FORGET_ABOVE = 1000
#: Below this many, pod classes that nobody has any more are not looked for.
_FEWEST_CLASSES = 1_024


@dataclass(slots=True)
class _Memo:
    """The last plan, good as long as nothing changes and the time has not come."""

    generation: int
    plan: Plan
    explained: frozenset[str]


class Cluster:
    """Nodes, pods, PodGroups, hand-overs and our commits under way, and the ledger counted from them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ledger = Ledger()
        #: Grows with everything that can change a decision.
        self.generation = 0
        self._nodes: dict[str, NodeRecord] = {}
        self._pods: dict[str, PodRecord] = {}
        #: UIDs of pods that name no node; always a subset of ``_pods``.
        self._unbound: set[str] = set()
        self._reservations: dict[str, Reservation] = {}
        self._pod_groups: dict[Key, PodGroupRecord] = {}
        self._setbacks: dict[str, Setback] = {}
        #: UIDs of pods that are gone, against answers that come after the deletion was seen.
        self._gone: Recent[None] = Recent()
        #: (reservation UID, device UUID) that a bound pod's grant named: proof that the binder verified the device.
        self._verified: set[tuple[str, str]] = set()
        self._bound_at: Membership[str] = Membership()
        self._reserved_at: Membership[str] = Membership()
        self._flights = Flights(self._changed)
        self._hand_overs = HandOvers(self._pods, is_held=self._is_held, changed=self._changed)
        self._promises = Promises(self._pods, self._changed)
        self._members: Membership[str] = Membership()
        #: Nodes that owe an answer.
        self.probation = Probation(self._changed)
        self._marked: set[str] = set()
        self._classes: dict[PodClass, PodClass] = {}
        self._most_classes = _FEWEST_CLASSES
        self._memo: _Memo | None = None

    # --- nodes ---------------------------------------------------------------------------------------------------
    def replace_nodes(self, nodes: Sequence[NodeRecord]) -> None:
        """Take the whole truth as of a list, read by intake.py."""
        listed = {node.name for node in nodes}
        for name in [name for name in self._nodes if name not in listed]:
            self.remove_node(name)
        for node in sorted(nodes, key=lambda n: n.name):
            self._put_node(node)

    def upsert_node(self, node: Node) -> None:
        """Take a node as it is now. A heartbeat that changes nothing of interest costs nothing."""
        self._put_node(intake.node_record(node))

    def _put_node(self, record: NodeRecord) -> None:
        known = self._nodes.get(record.name)
        if known != record:
            self._nodes[record.name] = record
            if known is not None and record.is_ready and not known.is_ready:
                self.probation.forget_node(record.name)
            self.ledger.put(record)
            self._changed(record.name)

    def remove_node(self, name: str) -> None:
        """Forget a node; what is known to be on it stays known."""
        if self._nodes.pop(name, None) is not None:
            self.ledger.drop(name)
            self.probation.forget_node(name)
            self._changed(name)

    # --- pods ----------------------------------------------------------------------------------------------------
    def pods_beside(self, listed: Container[str]) -> list[str]:
        """UIDs of pods that are known and not listed."""
        return [uid for uid in {**self._pods, **self._reservations} if uid not in listed]

    def has_seen(self, uid: str, rv: str) -> bool:
        """Whether exactly this version of a pod is known."""
        return bool(rv) and self._known_rv(uid) == rv

    def read_pod(self, pod: Pod) -> SeenPod:
        """Read a pod without taking it."""
        seen = intake.seen_pod(pod, self.settings)
        if seen.record is None:
            return seen
        record = msgspec.structs.replace(seen.record, cls=self._interned(seen.record.cls))
        return msgspec.structs.replace(seen, record=record)

    def upsert_pod(self, pod: Pod) -> None:
        """Take a pod as it is now."""
        self.take_pod(self.read_pod(pod))

    def take_pod(self, seen: SeenPod) -> None:
        """Take a pod that was read; one that is older than what is known is ignored."""
        uid = seen.uid
        if uid in self._gone or is_older(seen.rv, self._known_rv(uid)):
            return
        if seen.reservation is not None:
            self._put_reservation(seen.reservation)
        if not seen.has_ended:
            self._put_pod(seen.record)
        elif uid in self._reservations:
            self._drop_pod(uid)
        else:
            self.remove_pod(uid)

    def remove_pod(self, uid: str) -> None:
        """A pod is gone, or has ended and holds nothing any more."""
        if uid in self._pods or uid in self._reservations or self._hand_overs.is_named(uid):
            self._gone.put(uid, None)  # of others nobody asked, so no answer can come late
        self._drop_pod(uid)
        self._leave_behind(self._flights.get(uid))
        self._flights.forget(uid)
        self._setbacks.pop(uid, None)
        if self._reservations.pop(uid, None) is not None:
            self._changed(self._reserved_at.place(uid))
            self._reserved_at.move(uid, "")
            self.probation.forget_reservation(uid)
            self._verified = {pair for pair in self._verified if pair[0] != uid}
        self._hand_overs.pod_changed(uid)
        self._promises.pod_changed(uid)

    def forget_gone(self) -> None:
        """A period is over (wire/recent.py)."""
        self._gone.age(lambda _, __: False)

    def _leave_behind(self, flight: Flight | None) -> None:
        """A pod goes with our commit under way: its reservation may still come, unless it only waited for one."""
        if flight is not None and flight.kind != HOLD:
            self._hand_overs.depart(_as_hand_over(flight.placement))

    def _is_held(self, node: str, group: str) -> bool:
        return any(self._reservations[uid].group == group for uid in self._reserved_at.at(node))

    def _known_rv(self, uid: str) -> str:
        known = self._pods.get(uid) or self._reservations.get(uid)
        return known.rv if known else ""

    def _put_reservation(self, found: Reservation) -> None:
        known = self._reservations.get(found.uid)
        if known == found:
            return
        self.probation.see(found, known)
        self._changed(self._reserved_at.place(found.uid), found.node)
        self._reservations[found.uid] = found
        self._reserved_at.move(found.uid, found.node)
        self._hand_overs.reservation_seen(found.node)

    def _put_pod(self, record: PodRecord | None) -> None:
        if record is None:
            return
        known = self._pods.get(record.uid)
        if known is not None and known.node and not record.node:
            return
        if known is not None:
            # The indexes go on with the first UID as their key: a second one would be kept beside it.
            record = msgspec.structs.replace(record, uid=known.uid, name=known.name)
        self._pods[record.uid] = record
        if known is not None and msgspec.structs.replace(known, rv=record.rv) == record:
            self._note_version(record, known)
            return
        self._changed(record.node)
        self._place(record)
        self._hand_overs.pod_changed(record.uid)
        self._promises.pod_changed(record.uid)

    def _interned(self, cls: PodClass) -> PodClass:
        """One object per class. Those of pods long gone are dropped when their number has doubled."""
        known = self._classes.setdefault(cls, cls)
        if len(self._classes) > self._most_classes:
            self._classes = {pod.cls: pod.cls for pod in self._pods.values()}
            self._classes[known] = known
            self._most_classes = max(_FEWEST_CLASSES, 2 * len(self._classes))
        return known

    def _place(self, record: PodRecord) -> None:
        uid = record.uid
        self._bound_at.move(uid, record.node)
        self._members.move(uid, f"{record.namespace}/{record.pod_group}" if record.pod_group else "")
        if not record.node:
            self._unbound.add(uid)
            return
        self._unbound.discard(uid)
        self._flights.land(uid)
        self._setbacks.pop(uid, None)
        self._verified.update((held.reservation, held.uuid) for held in record.held if held.uuid)
        if len(self._verified) > 2 * len(self._reservations) + _FORGET_ABOVE:
            self._verified = {pair for pair in self._verified if pair[0] in self._reservations}

    def _note_version(self, record: PodRecord, known: PodRecord) -> None:
        """Nothing but the version changed. It matters if a hand-over names it or the last plan would place the pod."""
        if record.rv == known.rv:
            return
        self._hand_overs.pod_changed(record.uid)
        explained = self._memo.explained if self._memo else frozenset()
        if not record.node and record.uid not in explained:
            self.generation += 1

    def _drop_pod(self, uid: str) -> None:
        record = self._pods.pop(uid, None)
        if record is not None:
            self._changed(record.node)
            self._unbound.discard(uid)
            self._bound_at.move(uid, "")
            self._members.move(uid, "")

    # --- PodGroups -----------------------------------------------------------------------------------------------
    def replace_pod_groups(self, groups: Sequence[PodGroup]) -> None:
        """Take the whole truth as of a list."""
        listed = {(g.metadata.namespace, g.metadata.name) for g in groups}
        for key in [key for key in self._pod_groups if key not in listed]:
            self.remove_pod_group(*key)
        for group in groups:
            self.upsert_pod_group(group)

    def upsert_pod_group(self, group: PodGroup) -> None:
        """Take a PodGroup as it is now."""
        record = intake.pod_group_record(group)
        key = (record.namespace, record.name)
        known = self._pod_groups.get(key)
        if known == record or (known and known.uid == record.uid and is_older(record.rv, known.rv)):
            return
        self._pod_groups[key] = record
        if record.planned != (known.planned if known else {}):
            self._promises.put(record)
        self._changed()

    def remove_pod_group(self, namespace: str, name: str) -> None:
        """A PodGroup is gone; its pods wait for it."""
        if self._pod_groups.pop((namespace, name), None) is not None:
            self._promises.drop(namespace, name)
            self._changed()

    # --- hand-overs ----------------------------------------------------------------------------------------------
    def replace_bind_requests(self, requests: Sequence[BindRequest]) -> None:
        """Take the whole truth as of a list."""
        listed = {(r.metadata.namespace, r.metadata.name) for r in requests}
        for key in [key for key in self._hand_overs.names() if key not in listed]:
            self.remove_bind_request(*key)
        for request in requests:
            self.upsert_bind_request(request)

    def upsert_bind_request(self, request: BindRequest) -> None:
        """Take a hand-over as it is now; it is in flight whoever made it. One without a readable charge is nobody's."""
        key = (request.metadata.namespace, request.metadata.name)
        record = intake.bind_request_record(request)
        if record is None:
            self.remove_bind_request(*key)
        else:
            self._hand_overs.put(record)

    def remove_bind_request(self, namespace: str, name: str) -> None:
        """A hand-over is gone. What it may still lead to stays charged (handovers.py)."""
        self._hand_overs.drop((namespace, name))

    def hand_over(self, namespace: str, name: str) -> BindRequestRecord | None:
        """The BindRequest of this name, as far as is seen."""
        return self._hand_overs.get((namespace, name))

    def departed(self) -> tuple[BindRequestRecord, ...]:
        """Hand-overs that vanished while their pods look unbound and unfenced, or went with them, by pod UID.

        The pod's own event is on its way; if it doesn't come, nobody settled the attempt, and fencing the pod does.
        Of a pod that is gone the reservation may still come, until somebody has looked for it.
        """
        return self._hand_overs.departed()

    def departed_of(self, pod_uid: str) -> BindRequestRecord | None:
        """The one of ``departed`` that is of this pod."""
        return self._hand_overs.departed_of(pod_uid)

    def forget_departed(self, pod_uid: str) -> None:
        """Nothing will come any more of what departed for this pod, for sure."""
        self._hand_overs.forget(pod_uid)

    # --- our own commits -----------------------------------------------------------------------------------------
    def assume(self, placement: Placement, kind: str = "") -> None:
        """Charge a placement from here on. ``kind`` says how it is committed, for people.

        Raises LookupError if the pod is not known: a plan is committed before the next event is taken.
        """
        pod = self._pods.get(placement.pod_uid)
        if pod is None:
            raise LookupError(f"pod {placement.namespace}/{placement.name} ({placement.pod_uid}) is not known")
        if pod.node:
            return
        self._flights.begin(placement, kind, pod.cls.demand)

    def open(self, placement: Placement) -> None:
        """Charge a share that goes to the binder, which makes its devices known to those that ``hold`` for it."""
        self.assume(placement, ATTEMPT)
        if self._flights.get(placement.pod_uid) is not None:
            self._flights.openings.open(placement.pod_uid, (device.group for device in placement.devices))

    def hold(self, placement: Placement) -> None:
        """Charge a share until a device that it waits for is known or given up (openings.py)."""
        groups = [device.group for device in placement.devices if self.is_opening(device.group)]
        if groups:
            self.assume(placement, HOLD)
            self._flights.openings.hold(placement.pod_uid, groups)
        else:
            self._changed()  # nothing to wait for any more: it is decided on again

    def give_up_opening(self, pod_uid: str, *, attempt: int) -> bool:
        """Let nobody wait any longer for this share's devices; return whether anybody did.

        It stays under way; one of those that waited is the next to make the devices known.
        """
        if not self.is_under_way(pod_uid, attempt=attempt) or not self._flights.give_up_opening(pod_uid):
            return False
        self._changed()
        return True

    def move_on(self, placement: Placement, *, now_ns: int) -> None:
        """A share that waits for a node that is late is taken back, and is not to go there for a while.

        One that is held is free at once; one at the binder stays charged until it is withdrawn.
        """
        flight = self._flights.get(placement.pod_uid)
        if flight is None or flight.placement != placement:
            return
        setback = self._setbacks.setdefault(placement.pod_uid, Setback())
        setback.move(placement.node, now_ns=now_ns, settings=self.settings)
        self.probation.fail(placement.node)
        self._flights.move_on(placement.pod_uid)

    def late(self, reservation_uid: str) -> bool:
        """The time for this reservation to say which device it holds is over; return whether its node owes that."""
        held = self._reservations.get(reservation_uid)
        return held is not None and self.probation.note_late(held)

    def is_under_way(self, pod_uid: str, *, attempt: int) -> bool:
        """Whether this attempt of a pod has neither landed nor been given up."""
        flight = self._flights.get(pod_uid)
        return flight is not None and flight.placement.number == attempt

    def is_opening(self, group: str) -> bool:
        """Whether a share on its way is about to make the device of a group known."""
        return self._flights.openings.is_opening(group)

    def settle(self, pod_uid: str, *, attempt: int) -> None:
        """The write was answered well. The charge stays until the API shows the pod bound."""
        self._flights.settle(pod_uid, attempt=attempt)

    def release(self, pod_uid: str, *, attempt: int) -> None:
        """The attempt of this number is withdrawn for sure: never posted, or fenced. A newer one stays charged."""
        self._flights.release(pod_uid, attempt=attempt)

    def failed(self, pod_uid: str, node: str, reason: str, *, now_ns: int) -> None:
        """Note a failed attempt: the pod backs off and ``node`` is out for it ("": the node is not to blame)."""
        if pod_uid in self._unbound:
            setback = self._setbacks.setdefault(pod_uid, Setback())
            setback.fail(node, reason, now_ns=now_ns, settings=self.settings)
            self._changed()

    def overtaken(self, pod_uid: str, *, now_ns: int) -> None:
        """Note that a pod had changed when it was to be bound: a few times it is tried again at once, then it waits."""
        if pod_uid in self._unbound:
            self._setbacks.setdefault(pod_uid, Setback()).overtake(now_ns=now_ns, settings=self.settings)
            self._changed()

    def forgive(self, pod_uid: str, node: str) -> None:
        """What kept a pod from a node may be over: it is tried there again, and at once."""
        setback = self._setbacks.get(pod_uid)
        if setback is not None:
            setback.forgive(node)
            self._changed()

    # --- what decisions read -------------------------------------------------------------------------------------
    def refresh(self) -> Ledger:
        """Count marked nodes anew and return the ledger, which then equals a recount."""
        self.refresh_some(len(self._marked))
        return self.ledger

    def refresh_some(self, most: int) -> bool:
        """Count up to ``most`` of the marked nodes anew; return whether there are more."""
        for _ in range(min(most, len(self._marked))):
            name = self._marked.pop()
            if name in self._nodes:
                self.ledger.write(name, self._count(name))
        return bool(self._marked)

    def waiting(self) -> list[PodRecord]:
        """Pods of ours that name no node, have no placement under way and none in a gang's plan, in no order."""
        unplaced = (self._pods[uid] for uid in self._unbound if not self.is_in_flight(uid))
        return [pod for pod in unplaced if not pod.deleting and not self._promises.are_made_to(pod.uid)]

    def doubts(self) -> dict[str, Doubt]:
        """Nodes that come last when a device has to be opened (probation.py)."""
        return self.probation.doubts(self._owes)

    def stuck(self) -> list[Placement]:
        """Shares alone whose device's time to become known is over, and that may be moved once more, by pod UID."""
        late = {self._reservations[uid].group for uid in self.probation.overdue() if uid in self._reservations}
        if not late:
            return []
        return [flight.placement for flight in self._flights.all() if flight.waits_for(late) and self._may_move(flight)]

    def _may_move(self, flight: Flight) -> bool:
        setback = self._setbacks.get(flight.placement.pod_uid)
        return (setback.moved if setback is not None else 0) < self.settings.most_moves

    def _owes(self, node: str) -> bool:
        """Whether somebody is under way to a node without it being known which devices they get."""
        held = (self._reservations[uid] for uid in self._reserved_at.at(node))
        answered = {reservation.group for reservation in held if reservation.is_learned}
        charges = (*self._flights.charges_at(node), *self._hand_overs.charges_at(node))
        return any(device.group not in answered for charge in charges for device in charge.devices)

    def is_in_flight(self, uid: str) -> bool:
        """Whether a placement of this pod is under way, by us or by the binder."""
        return self._flights.get(uid) is not None or self._hand_overs.is_under_way(uid)

    @property
    def is_settled(self) -> bool:
        """Whether all that is charged can be seen on pods and reservations: nothing is under way, nothing planned."""
        return not (self._flights.all() or self._hand_overs.departed() or self._promises.are_open())

    def pod(self, uid: str) -> PodRecord | None:
        """The record of a pod that has not ended."""
        return self._pods.get(uid)

    def node(self, name: str) -> NodeRecord | None:
        """The record of a node."""
        return self._nodes.get(name)

    def pod_group(self, namespace: str, name: str) -> PodGroupRecord | None:
        """The record of a PodGroup."""
        return self._pod_groups.get((namespace, name))

    def broken_gangs(self) -> list[PodGroupRecord]:
        """Gangs of which some pods are bound, fewer than the minimum, and none is on its way (S4)."""
        return [group for group in self._pod_groups.values() if self._is_broken(group)]

    def is_broken_gang(self, namespace: str, name: str) -> bool:
        """Whether this gang is one of ``broken_gangs``."""
        group = self._pod_groups.get((namespace, name))
        return group is not None and self._is_broken(group)

    def _is_broken(self, group: PodGroupRecord) -> bool:
        if group.minimum <= 1:
            return False
        members = self.members(group.namespace, group.name)
        bound = sum(bool(pod.node) and not pod.deleting for pod in members)
        return 0 < bound < group.minimum and not any(self.is_in_flight(pod.uid) for pod in members)

    def members(self, namespace: str, pod_group: str) -> list[PodRecord]:
        """Pods that name this PodGroup and have not ended, in no order."""
        return [self._pods[uid] for uid in self._members.at(f"{namespace}/{pod_group}")]

    def flight(self, uid: str) -> Flight | None:
        """Our own commit of this pod that is under way."""
        return self._flights.get(uid)

    def flights(self) -> tuple[Flight, ...]:
        """All our commits under way, by pod UID."""
        return self._flights.all()

    def setback(self, uid: str) -> Setback | None:
        """What went wrong with this pod so far."""
        return self._setbacks.get(uid)

    def next_number(self, uid: str) -> int:
        """Number of the pod's next attempt."""
        return self._flights.next_number(uid)

    def is_verified(self, reservation_uid: str, uuid: str) -> bool:
        """Whether a bound pod's grant named this reservation and device: the binder looked, and it was right."""
        return (reservation_uid, uuid) in self._verified

    def remembered(self, now_ns: int) -> Plan | None:
        """The last plan, if it would come out the same again."""
        memo = self._memo
        if memo is None or memo.generation != self.generation:
            return None
        wake_at_ns = memo.plan.wake_at_ns
        return memo.plan if wake_at_ns is None or now_ns < wake_at_ns else None

    def remember(self, plan: Plan) -> None:
        """Keep a plan so that deciding again without a change costs nothing."""
        explained = frozenset(uid for entry in plan.entries if isinstance(entry, Explain) for uid in entry.pods)
        self._memo = _Memo(self.generation, plan, explained)

    # --- counting ------------------------------------------------------------------------------------------------
    def _changed(self, *nodes: str) -> None:
        self.generation += 1
        self._marked.update(node for node in nodes if node)

    def _count(self, name: str) -> Occupancy:
        return occupancy(
            self._nodes.get(name),
            pods=(self._pods[uid] for uid in self._bound_at.at(name)),
            reservations=(self._reservations[uid] for uid in self._reserved_at.at(name)),
            charges=(
                *self._flights.charges_at(name),
                *self._hand_overs.charges_at(name),
                *self._promises.charges_at(name),
            ),
            settings=self.settings,
        )

    def validate(self) -> list[str]:
        """Recount every node from all records, without the indexes; say where the ledger differs (invariant S12)."""
        ledger = self.refresh()
        problems: list[str] = []
        if ledger.row_of.keys() != self._nodes.keys():
            problems.append(f"the ledger has nodes {sorted(ledger.row_of)}, known are {sorted(self._nodes)}")
        if self._unbound != {uid for uid, pod in self._pods.items() if not pod.node}:
            problems.append("the pods kept as unbound are not those without a node")
        pods = _by_node((pod.node, pod) for pod in self._pods.values())
        reserved = _by_node((r.node, r) for r in self._reservations.values())
        under_way = [flight.charge for flight in self._flights.all()]
        under_way += [*self._hand_overs.all_charges(), *self._promises.all_charges()]
        charges = _by_node((charge.node, charge) for charge in under_way)
        for name, node in sorted(self._nodes.items()):
            used = occupancy(
                node,
                pods=pods.get(name, ()),
                reservations=reserved.get(name, ()),
                charges=charges.get(name, ()),
                settings=self.settings,
            )
            problems += ledger.differences(name, used)
        return problems


def _as_hand_over(placement: Placement) -> BindRequestRecord:
    """A commit as the hand-over that it is, or may become: one that nobody has seen has no UID."""
    return BindRequestRecord(
        namespace=placement.namespace,
        name=placement.name,
        uid="",
        pod_uid=placement.pod_uid,
        node=placement.node,
        rv=placement.rv,
        devices=placement.devices,
    )


def _by_node(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for node, item in pairs:
        found.setdefault(node, []).append(item)
    return found
