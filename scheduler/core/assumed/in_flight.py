"""Our own commits under way: charged from ``begin`` on, until the pod is seen bound or gone, or they are withdrawn."""

from __future__ import annotations

import enum
from collections.abc import Callable, Container

import msgspec

from scheduler.core.assumed.openings import Openings
from scheduler.core.model.index import Membership
from scheduler.core.model.plan import Placement
from scheduler.core.model.records import Demand
from scheduler.core.nodes.node_usage import Charge


class State(enum.Enum):
    """Where a commit is."""

    #: The scheduler writes the Binding itself: a pod alone, a share that joins known devices, a member of a gang.
    DIRECT = "direct"
    #: Handed over to the binder, which makes its devices known.
    AT_BINDER = "at the binder"
    #: Written nowhere: it waits for a device that another one makes known.
    HELD = "held"
    #: The binder is asked to give it up.
    TAKEN_BACK = "taken back"


class Flight(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One commit. ``settled``: the write was answered well, the API has yet to show it."""

    placement: Placement
    state: State
    charge: Charge
    settled: bool = False

    def waits_for(self, groups: Container[str]) -> bool:
        """Whether it is a share alone, not taken back yet, on a device of one of these groups."""
        may_move = self.state in {State.AT_BINDER, State.HELD}
        return may_move and any(device.group in groups for device in self.placement.devices)


class Flights:
    """Commits by pod UID. ``changed`` is called with every node whose charges change, ``touched`` with the pod."""

    __slots__ = ("_at", "_by_pod", "_changed", "_touched", "_tries", "openings")

    def __init__(self, changed: Callable[[str], None], touched: Callable[[str], None]) -> None:
        self._changed = changed
        self._touched = touched
        self.openings = Openings()
        self._by_pod: dict[str, Flight] = {}
        self._at: Membership[str] = Membership()
        #: Commits begun so far per pod: the number of its next attempt.
        self._tries: dict[str, int] = {}

    def begin(self, placement: Placement, state: State, demand: Demand) -> None:
        """Charge a placement; one of the same pod that was under way is replaced."""
        uid = placement.pod_uid
        self.land(uid)
        charge = Charge(pod_uid=uid, node=placement.node, demand=demand, devices=placement.devices)
        self._by_pod[uid] = Flight(placement=placement, state=state, charge=charge)
        self._at.move(uid, placement.node)
        self._tries[uid] = placement.number + 1
        self._touched(uid)
        self._changed(placement.node)

    def settle(self, uid: str, *, attempt: int) -> None:
        """Note that the write was answered well, if it is still this attempt that is under way."""
        flight = self._by_pod.get(uid)
        if flight is not None and flight.placement.number == attempt:
            self._by_pod[uid] = msgspec.structs.replace(flight, settled=True)

    def release(self, uid: str, *, attempt: int) -> None:
        """Give back what this attempt held; a newer one stays charged."""
        flight = self._by_pod.get(uid)
        if flight is not None and flight.placement.number == attempt:
            self.land(uid)

    def land(self, uid: str) -> None:
        """The pod's fate is seen: whatever was under way counts no more."""
        flight = self._by_pod.pop(uid, None)
        if flight is not None:
            self._at.move(uid, "")
            self._touched(uid)
            self._changed(flight.charge.node)
            self.give_up_opening(uid)

    def give_up_opening(self, uid: str) -> bool:
        """Let those go that wait for this pod to make a device known; return whether there were any."""
        held = self.openings.landed(uid)
        for waiting in held:
            self.land(waiting)
        return bool(held)

    def move_on(self, uid: str) -> None:
        """Let a share that is held go; one at the binder is being taken back from now on."""
        flight = self._by_pod[uid]
        if flight.state is State.HELD:
            self.land(uid)
        else:
            self._by_pod[uid] = msgspec.structs.replace(flight, state=State.TAKEN_BACK)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self.land(uid)
        self._tries.pop(uid, None)

    def get(self, uid: str) -> Flight | None:
        """The commit of this pod."""
        return self._by_pod.get(uid)

    def all(self) -> tuple[Flight, ...]:
        """All commits, by pod UID."""
        return tuple(self._by_pod[uid] for uid in sorted(self._by_pod))

    def next_number(self, uid: str) -> int:
        """Number of the pod's next attempt."""
        return self._tries.get(uid, 0)

    def charges_at(self, node: str) -> list[Charge]:
        """What is under way to a node."""
        return [self._by_pod[uid].charge for uid in self._at.at(node)]
