"""Our own commits under way: charged from ``begin`` on, until the pod is seen bound or gone, or they are withdrawn."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from scheduler.core.assumed.attempt import Flight, State
from scheduler.core.assumed.attempt_table import AttemptTable
from scheduler.core.assumed.openings import Openings
from scheduler.core.model.plan import Placement
from scheduler.core.model.pod_class import Demand
from scheduler.core.nodes.node_usage import Charge


class Flights:
    """Commits, one a pod. ``changed`` is called with every node whose charges change, ``touched`` with the pod."""

    __slots__ = ("_attempts", "_changed", "_touched", "openings")

    def __init__(
        self, attempts: AttemptTable, *, changed: Callable[[str], None], touched: Callable[[str], None]
    ) -> None:
        self._attempts = attempts
        self._changed = changed
        self._touched = touched
        self.openings = Openings(attempts)

    def begin(self, placement: Placement, state: State, demand: Demand) -> None:
        """Charge a placement; one of the same pod that was under way is replaced."""
        uid = placement.pod_uid
        self.land(uid)
        charge = Charge(
            pod_uid=uid,
            node=placement.node,
            demand=demand,
            devices=placement.devices,
            charged=placement.charged,
        )
        own = Flight(placement=placement, state=state, charge=charge)
        self._attempts.change(uid, own=own, next_number=placement.number + 1)
        self._touched(uid)
        self._changed(placement.node)

    def settle(self, uid: str, *, attempt: int) -> None:
        """Note that the write was answered well, if it is still this attempt that is under way."""
        if (own := self._numbered(uid, attempt)) is not None:
            self._attempts.change(uid, own=msgspec.structs.replace(own, settled=True))

    def release(self, uid: str, *, attempt: int) -> None:
        """Give back what this attempt held; a newer one stays charged."""
        if self._numbered(uid, attempt) is not None:
            self.land(uid)

    def _numbered(self, uid: str, attempt: int) -> Flight | None:
        own = self.get(uid)
        return own if own is not None and own.placement.number == attempt else None

    def land(self, uid: str) -> None:
        """The pod's fate is seen: an attempt of it counts no more."""
        own = self.get(uid)
        if own is not None:
            self._attempts.change(uid, own=None)
            self._touched(uid)
            self._changed(own.charge.node)
            self.give_up_opening(uid)

    def give_up_opening(self, uid: str) -> bool:
        """Let those go that wait for this pod to make a device known; return whether there were any."""
        held = self.openings.landed(uid)
        for waiting in held:
            self.land(waiting)
        return bool(held)

    def move_on(self, uid: str) -> None:
        """Let a share that is held go; one at the binder is being taken back from now on."""
        own = self.get(uid)
        if own is not None and own.state is State.HELD:
            self.land(uid)
        elif own is not None:
            self._attempts.change(uid, own=msgspec.structs.replace(own, state=State.TAKEN_BACK))

    def get(self, uid: str) -> Flight | None:
        """The commit of this pod."""
        return self._attempts.of(uid).own

    def charges_at(self, node: str) -> list[Charge]:
        """What is under way to a node."""
        return [own.charge for own in self._attempts.own_at(node)]
