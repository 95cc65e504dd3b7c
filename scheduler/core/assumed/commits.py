"""Everything that is charged beside what is seen, in any process, and failed attempts.

An attempt in flight is charged from ``assume`` on, until the API shows the pod bound or gone, or ``release``. An event
that shows the pod unbound clears nothing. The shell notes here what it commits and what becomes of it; decisions read
it through the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from gpu.reservation import Reservation
from scheduler.core.assumed.attempts import (
    NONE_YET,
    UNWRITTEN,
    AttemptTable,
    Flight,
    Flights,
    Probation,
    Setback,
    State,
)
from scheduler.core.assumed.bind_requests import HandOvers
from scheduler.core.assumed.nominations import Nominations
from scheduler.core.model.devices import ClaimChoice
from scheduler.core.model.facts import Membership
from scheduler.core.model.plan import Placement
from scheduler.core.model.pod_class import Demand, VolumeChoice
from scheduler.core.model.records import BindRequestRecord, PlannedMember, PodGroupRecord, PodRecord
from scheduler.core.model.seen_pods import Pods
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.node_usage import Charge


class Promise(msgspec.Struct, frozen=True, gc=False):
    """One member of the plan of the PodGroup ``namespace``/``pod_group``."""

    namespace: str
    pod_group: str
    pod_uid: str


class Promises:
    """Planned members that are not seen bound. ``pods`` are the cluster's, read only.

    ``changed`` is called with nodes, ``touched`` with a pod that has a place now or has none any more.

    A gang's written plan outlives the scheduler that wrote it, and is all that the next one has: a member may not have
    joined a book yet, or its entry was taken out as abandoned. Its place is charged until the member is bound or gone,
    or the plan is taken back; else others would get it, and the gang would be bound in part (docs/design/protocol.md,
    Gangs).
    """

    __slots__ = ("_at", "_changed", "_of_group", "_of_pod", "_planned", "_pods", "_touched")

    def __init__(
        self, pods: Mapping[str, PodRecord], changed: Callable[[str], None], touched: Callable[[str], None]
    ) -> None:
        self._pods = pods
        self._changed = changed
        self._touched = touched
        self._planned: dict[Promise, PlannedMember] = {}
        self._at: Membership[Promise] = Membership()
        self._of_pod: Membership[Promise] = Membership()
        self._of_group: Membership[Promise] = Membership()

    def put(self, group: PodGroupRecord) -> None:
        """Take a PodGroup's plan as it is now."""
        self.drop(group.namespace, group.name)
        for uid, member in group.planned.items():
            promise = Promise(group.namespace, group.name, uid)
            self._planned[promise] = member
            self._at.move(promise, member.node)
            self._of_pod.move(promise, uid)
            self._of_group.move(promise, f"{group.namespace}/{group.name}")
            self.pod_changed(uid)

    def drop(self, namespace: str, pod_group: str) -> None:
        """A PodGroup is gone, or its plan."""
        for promise in tuple(self._of_group.at(f"{namespace}/{pod_group}")):
            self._settle(promise)

    def pod_changed(self, uid: str) -> None:
        """A pod was seen: its promises may count now, or it is bound and they never will again."""
        pod = self._pods.get(uid)
        for promise in tuple(self._of_pod.at(uid)):
            if pod is not None and pod.node:
                self._settle(promise)
            else:
                self._touched(uid)
                self._changed(self._planned[promise].node)

    def _settle(self, promise: Promise) -> None:
        member = self._planned.pop(promise)
        for index in (self._at, self._of_pod, self._of_group):
            index.move(promise, "")
        self._touched(promise.pod_uid)
        self._changed(member.node)

    def are_made_to(self, uid: str) -> bool:
        """Whether a place is kept for this pod."""
        return self._of_pod.has(uid) and any(self._counts(promise) for promise in self._of_pod.at(uid))

    def groups(self) -> set[tuple[str, str]]:
        """PodGroups (namespace, name) with a planned member that was not seen bound."""
        return {(promise.namespace, promise.pod_group) for promise in self._planned}

    def are_open(self) -> bool:
        """Whether a place is kept for any pod."""
        return any(self._counts(promise) for promise in self._planned)

    def charges_at(self, node: str) -> list[Charge]:
        """What is kept on a node."""
        return [self._charge(promise) for promise in self._at.at(node) if self._counts(promise)]

    def charges_of(self, uid: str) -> list[Charge]:
        """What is kept for this pod."""
        return [self._charge(promise) for promise in self._of_pod.at(uid) if self._counts(promise)]

    def all_charges(self) -> list[Charge]:
        """What is kept anywhere, without the indexes."""
        return [self._charge(promise) for promise in self._planned if self._counts(promise)]

    def _charge(self, promise: Promise) -> Charge:
        member = self._planned[promise]
        demand = self._pods[promise.pod_uid].cls.demand
        return Charge(pod_uid=promise.pod_uid, node=member.node, demand=demand, devices=member.devices)

    def _counts(self, promise: Promise) -> bool:
        """Whether the pod is there, unbound, and a member of that very gang: a plan has no say over others."""
        pod = self._pods.get(promise.pod_uid)
        if pod is None or pod.node:
            return False
        return (pod.namespace, pod.pod_group) == (promise.namespace, promise.pod_group)


def demand_at(placement: Placement, demand: Demand) -> Demand:
    """Return what a pod with this demand takes there: claims that are to be made give it some of it."""
    for choice in placement.claims:
        demand = demand if choice.made is None else demand.by_claim(choice.made.resources)
    if placement.claimed_nano:
        demand = msgspec.structs.replace(demand, claimed_nano=placement.claimed_nano)
    return demand


class Commits:
    """Our own commits, BindRequests, and places of written plans.

    ``changed`` is called with nodes, or with none; ``touched`` with the UID of a pod that is under way now, or is not
    any more, or was set back.
    """

    def __init__(
        self, pods: Pods, *, settings: Settings, changed: Callable[..., None], touched: Callable[[str], None]
    ) -> None:
        self._pods = pods
        self._settings = settings
        self._changed = changed
        self._told = touched
        #: What is known of the attempts to bind each pod.
        self._attempts = AttemptTable()
        self._flights = Flights(self._attempts, changed=changed, touched=self._touched)
        #: BindRequests, as they are seen.
        self.hand_overs = HandOvers(
            self._attempts, pods.records, is_held=pods.is_held, changed=changed, touched=self._touched
        )
        #: Places of gangs' written plans, as they are seen.
        self.promises = Promises(pods.records, changed, self._touched)
        #: Nodes that owe an answer.
        self.probation = Probation(changed)
        #: Who is to go for whom, and what is kept for nominated pods.
        self.nominations = Nominations(pods.records, is_spoken_for=self.is_spoken_for, changed=changed, touched=touched)

    def _touched(self, uid: str) -> None:
        """A pod is under way now, or is not any more: a nomination keeps its place only while it waits."""
        self.nominations.pod_changed(uid)
        self._told(uid)

    # --- our own -------------------------------------------------------------------------------------------------
    def assume(self, placement: Placement, state: State = State.DIRECT) -> None:
        """Charge a placement from here on.

        Raises LookupError if the pod is not known: a plan is committed before the next event is taken.
        """
        pod = self._pods.records.get(placement.pod_uid)
        if pod is None:
            raise LookupError(f"pod {placement.namespace}/{placement.name} ({placement.pod_uid}) is not known")
        if pod.node:
            return
        self._flights.begin(placement, state, demand_at(placement, pod.cls.demand))

    def open(self, placement: Placement) -> None:
        """Charge a share that goes to the binder, which makes its devices known to those that ``hold`` for it."""
        self.assume(placement, State.AT_BINDER)
        if self._flights.get(placement.pod_uid) is not None:
            self._flights.openings.open(placement.pod_uid, (device.group for device in placement.devices))

    def hold(self, placement: Placement) -> None:
        """Charge a share until a device that it waits for is known or given up (attempts.py)."""
        groups = [device.group for device in placement.devices if self.is_opening(device.group)]
        if groups:
            self.assume(placement, State.HELD)
            self._flights.openings.hold(placement.pod_uid, groups)
        else:
            self._changed()  # nothing to wait for any more: it is decided on again

    def prepare(self, placement: Placement) -> None:
        """Charge a placement while its claims are bound, or those of its gang."""
        self.assume(placement, State.PREPARING)

    def volumes_in_flight(self) -> list[tuple[str, tuple[VolumeChoice, ...]]]:
        """Namespace and what was chosen, of each placement whose claims are being bound."""
        placements = (flight.placement for flight in self._attempts.own())
        return [(each.namespace, each.volumes) for each in placements if each.volumes]

    def claims_in_flight(self) -> list[ClaimChoice]:
        """What is to be written for ResourceClaims of placements that are on their way."""
        return [choice for flight in self._attempts.own() for choice in flight.placement.claims]

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
        self._setback_of(placement.pod_uid).move(placement.node, now_ns=now_ns, settings=self._settings)
        self._touched(placement.pod_uid)
        self.probation.fail(placement.node)
        self._flights.move_on(placement.pod_uid)

    def late(self, reservation_uid: str) -> bool:
        """The time for this reservation to say which device it holds is over; return whether its node owes that."""
        held = self._pods.reservations.get(reservation_uid)
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

    def break_off(self, placement: Placement) -> None:
        """Nobody knows what became of this attempt, nor works on it: it is one that ``departed`` from here on."""
        flight = self._flights.get(placement.pod_uid)
        if flight is not None and flight.placement == placement:
            if flight.state not in UNWRITTEN:
                self.hand_overs.depart(_as_hand_over(placement))
            self._flights.release(placement.pod_uid, attempt=placement.number)

    def flight(self, uid: str) -> Flight | None:
        """Our own commit of this pod that is under way."""
        return self._flights.get(uid)

    def flights(self) -> tuple[Flight, ...]:
        """All our commits under way, by pod UID."""
        return self._attempts.own()

    def next_number(self, uid: str) -> int:
        """Number of the pod's next attempt."""
        return self._attempts.of(uid).next_number

    # --- what went wrong -----------------------------------------------------------------------------------------
    def failed(self, pod_uid: str, node: str, reason: str, *, now_ns: int) -> None:
        """Note a failed attempt: the pod backs off and ``node`` is out for it ("": the node is not to blame)."""
        if pod_uid in self._pods.unbound:
            self._setback_of(pod_uid).fail(node, reason, now_ns=now_ns, settings=self._settings)
            self._touched(pod_uid)
            self._changed()

    def keep_off(self, pod_uid: str, node: str, times: int, *, now_ns: int) -> None:
        """A node has refused the pods that had the place of this one so often: it is out for a while."""
        if pod_uid in self._pods.unbound:
            self._setback_of(pod_uid).keep_off(node, times, now_ns=now_ns, settings=self._settings)
            self._touched(pod_uid)
            self._changed()

    def overtaken(self, pod_uid: str, because: str, *, now_ns: int) -> None:
        """Note that a pod, or its PodGroup, had changed when it was to be bound.

        A few times it is tried again at once, then it waits and says ``because``.
        """
        if pod_uid in self._pods.unbound:
            self._setback_of(pod_uid).overtake(because=because, now_ns=now_ns, settings=self._settings)
            self._touched(pod_uid)
            self._changed()

    def forgive(self, pod_uid: str, node: str) -> None:
        """What kept a pod from a node may be over: it is tried there again, and at once."""
        setback = self.setback(pod_uid)
        if setback is not None:
            setback.forgive(node)
            self._touched(pod_uid)
            self._changed()

    def setback(self, uid: str) -> Setback | None:
        """What went wrong with this pod so far."""
        return self._attempts.of(uid).setback

    def _setback_of(self, uid: str) -> Setback:
        """The same, made when something goes wrong first."""
        setback = self.setback(uid)
        if setback is None:
            setback = Setback()
            self._attempts.change(uid, setback=setback)
        return setback

    # --- what vanished -------------------------------------------------------------------------------------------
    def departed(self) -> tuple[BindRequestRecord, ...]:
        """Hand-overs that vanished while their pods look unbound and unfenced, or went with them, by pod UID.

        Attempts that were broken off (``break_off``) are among them.

        The pod's own event is on its way; if it doesn't come, nobody settled the attempt, and fencing the pod does.
        Of a pod that is gone the reservation may still come, until somebody has looked for it.
        """
        return self.hand_overs.departed()

    def departed_of(self, pod_uid: str) -> BindRequestRecord | None:
        """The one of ``departed`` that is of this pod."""
        return self.hand_overs.departed_of(pod_uid)

    def forget_departed(self, pod_uid: str) -> None:
        """Nothing will come any more of what departed for this pod, for sure."""
        self.hand_overs.forget(pod_uid)

    # --- what is seen --------------------------------------------------------------------------------------------
    def pod_seen(self, uid: str, *, is_bound: bool) -> None:
        """A pod was seen to have changed."""
        if is_bound:
            self._end(uid)
        self.hand_overs.pod_changed(uid)
        self.promises.pod_changed(uid)
        self.nominations.pod_changed(uid)

    def _end(self, uid: str) -> None:
        """There will be no other attempt; what departed may still come."""
        self._flights.land(uid)
        if self._attempts.of(uid) is not NONE_YET:
            self._attempts.change(uid, next_number=0, setback=None)

    def version_seen(self, uid: str) -> None:
        """A pod was seen to have a new version and nothing else new: it matters to a hand-over that names another."""
        self.hand_overs.pod_changed(uid)

    def reservation_seen(self, found: Reservation, known: Reservation | None) -> None:
        """A reservation was seen to have changed from what was known of it."""
        self.probation.see(found, known)
        self.hand_overs.reservation_seen(found.node)

    def pod_gone(self, uid: str) -> None:
        """A pod is gone. The reservation for it may still come, unless it only waited for one."""
        flight = self._flights.get(uid)
        if flight is not None and flight.state not in UNWRITTEN:
            self.hand_overs.depart(_as_hand_over(flight.placement))
        self._end(uid)
        self.probation.forget_reservation(uid)
        self.hand_overs.pod_changed(uid)
        self.promises.pod_changed(uid)
        self.nominations.forget_pod(uid)

    # --- who waits for a node that is late -----------------------------------------------------------------------
    def stuck(self) -> list[Placement]:
        """Shares alone whose device's time to become known is over, and that may be moved once more, by pod UID."""
        reservations = self._pods.reservations
        late = {reservations[uid].group for uid in self.probation.overdue() if uid in reservations}
        if not late:
            return []
        return [
            flight.placement for flight in self._attempts.own() if flight.waits_for(late) and self._may_move(flight)
        ]

    def _may_move(self, flight: Flight) -> bool:
        setback = self.setback(flight.placement.pod_uid)
        return (setback.moved if setback is not None else 0) < self._settings.most_moves

    def owes(self, node: str) -> bool:
        """Whether somebody is under way to a node without it being known which devices they get."""
        answered = {held.group for held in self._pods.reserved_on(node) if held.is_told}
        charges = (*self._flights.charges_at(node), *self.hand_overs.charges_at(node))
        return any(device.group not in answered for charge in charges for device in charge.devices)

    # --- what counts ---------------------------------------------------------------------------------------------
    def is_in_flight(self, uid: str) -> bool:
        """Whether a placement of this pod is under way, by us or by the binder."""
        return self._flights.get(uid) is not None or self.hand_overs.is_under_way(uid)

    def is_spoken_for(self, uid: str) -> bool:
        """Whether this pod has its place: under way to it, or kept for it by a gang's plan."""
        return self.is_in_flight(uid) or self.promises.are_made_to(uid)

    @property
    def are_settled(self) -> bool:
        """Whether all that is charged can be seen on pods and reservations: nothing is under way, planned or kept."""
        are_open = self.promises.are_open() or bool(self.nominations.all())
        return not (self._attempts.own() or self.hand_overs.departed() or are_open)

    def charges_at(self, node: str) -> tuple[Charge, ...]:
        """What is under way to a node."""
        return (
            *self._flights.charges_at(node),
            *self.hand_overs.charges_at(node),
            *self.promises.charges_at(node),
        )

    def charges_of(self, uid: str) -> tuple[Charge, ...]:
        """Where this pod is on its way to, or has a place kept."""
        return (*self.under_way(uid), *self.nominations.charges_of(uid))

    def under_way(self, uid: str) -> tuple[Charge, ...]:
        """Where this pod is on its way to."""
        flight = self._flights.get(uid)
        own = () if flight is None else (flight.charge,)
        return (*own, *self.hand_overs.charges_of(uid), *self.promises.charges_of(uid))

    def all_charges(self) -> tuple[Charge, ...]:
        """What is under way anywhere, without the indexes."""
        own = (flight.charge for flight in self._attempts.own())
        return (*own, *self.hand_overs.all_charges(), *self.promises.all_charges())


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
