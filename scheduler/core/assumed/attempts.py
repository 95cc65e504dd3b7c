"""Attempts to bind pods, from any first one until the pod is bound or gone: our own commits under way, and failed ones.

No clock here: the time is passed in.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from gpu.reservation import Reservation
from scheduler.core.model.facts import Membership
from scheduler.core.model.plan import Placement
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.records import BindRequestRecord
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.node_usage import Charge

#: Keeps numbers short; the longest time is reached before.
_MOST_DOUBLINGS: Final = 40


@dataclass(slots=True)
class Setback:
    """What went wrong with one pod so far.

    After a failure the pod waits, twice as long each time. So a bad pod or a bad node costs less and less and never
    wins every cycle (no livelock, invariant L2).
    """

    failures: int = 0
    #: How often the pod had been changed by somebody else when it was to be bound.
    overtaken: int = 0
    #: How often the pod was moved away from a node that didn't answer.
    moved: int = 0
    until_ns: int = 0
    reason: str = ""
    #: Node -> (failures there, excluded until).
    excluded: dict[str, tuple[int, int]] = field(default_factory=dict)

    def fail(self, node: str, reason: str, *, now_ns: int, settings: Settings) -> None:
        """Note a failure on ``node`` ("" when the node is not to blame)."""
        self.failures += 1
        self.reason = reason
        longest_ns = settings.longest_back_off_ns if node else settings.longest_blameless_back_off_ns
        self.until_ns = now_ns + _doubled(settings.back_off_ns, self.failures, longest_ns)
        if node:
            self._exclude(node, now_ns=now_ns, settings=settings)

    def move(self, node: str, *, now_ns: int, settings: Settings) -> None:
        """Note that the pod was taken back from a node that did not answer: it goes elsewhere, and at once."""
        self.moved += 1
        self._exclude(node, now_ns=now_ns, settings=settings)

    def keep_off(self, node: str, times: int, *, now_ns: int, settings: Settings) -> None:
        """Note that a node has refused pods like this one so often, and that this one need not wait elsewhere."""
        self._exclude(node, now_ns=now_ns, settings=settings, times=times)

    def _exclude(self, node: str, *, now_ns: int, settings: Settings, times: int = 1) -> None:
        count = self.excluded.get(node, (0, 0))[0] + times
        lasts_ns = _doubled(settings.exclusion_ns, count, settings.longest_exclusion_ns)
        self.excluded[node] = (count, now_ns + lasts_ns)

    def overtake(self, *, because: str, now_ns: int, settings: Settings) -> None:
        """Note that an attempt was for an old version of something: nobody's fault, but not for ever at once."""
        self.overtaken += 1
        if self.overtaken > settings.free_overtakings:
            self.fail("", because, now_ns=now_ns, settings=settings)

    def forgive(self, node: str) -> None:
        """Let the pod try a node again at once, as if it had not failed there."""
        self.excluded.pop(node, None)
        self.until_ns = 0

    def excluded_at(self, now_ns: int) -> tuple[str, ...]:
        """Nodes that are out now, sorted."""
        return tuple(sorted(node for node, (_, until_ns) in self.excluded.items() if now_ns < until_ns))

    def next_change_ns(self, now_ns: int) -> int | None:
        """When time alone changes something, None if never."""
        times = [self.until_ns, *(until_ns for _, until_ns in self.excluded.values())]
        return min((t for t in times if t > now_ns), default=None)


def _doubled(first_ns: int, times: int, longest_ns: int) -> int:
    return min(longest_ns, first_ns << min(times - 1, _MOST_DOUBLINGS))


class Doubt(enum.Enum):
    """Why a node comes last when it would have to open a device.

    A node is slow where a reservation pod did not report in time which device it holds; a failed node can't be told
    from a slow one. So there are two degrees, both about the first share of a device only:

    - late: its time to answer is over, while other nodes answer in time. Those come first, and pods that wait for the
      late one are moved to them. Where all are equally slow no node is late.
    - on probation: an attempt there ended for want of an answer, or was taken back for it. The node is the last choice,
      and while it owes an answer to one pod or gang no other is sent there.

    Both end with the next answer of any reservation there, not with time: the node is tried when a pod fits nowhere
    else. The shell reports when the time to answer is over.
    """

    LATE = "late"
    #: One attempt may be made there.
    ON_PROBATION = "on-probation"
    #: That attempt is under way.
    PROBED = "probed"


class Probation:
    """Nodes that owe something. ``changed`` is called with one whose decisions may change."""

    __slots__ = ("_changed", "_failed", "_overdue", "_prompt")

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        #: Reservation (UID) whose time to answer is over -> its node.
        self._overdue: dict[str, str] = {}
        #: Nodes whose latest answer came in time.
        self._prompt: set[str] = set()
        self._failed: set[str] = set()

    def see(self, held: Reservation, known: Reservation | None) -> None:
        """Take a reservation as it is now, and as it was known before: whether it has answered in between."""
        if not held.is_told or (known is not None and known.is_told):
            return
        self._failed.discard(held.node)
        if self._overdue.pop(held.uid, None) is None:
            self._prompt.add(held.node)
        self._changed(held.node)

    def note_late(self, held: Reservation) -> bool:
        """The time to answer is over; return whether an answer is owed: a kubelet that pulls the image is at work."""
        if held.is_told or held.deleting or held.is_terminal or held.is_being_started:
            return False
        self._overdue[held.uid] = held.node
        self._prompt.discard(held.node)
        self._changed(held.node)
        return True

    def fail(self, node: str) -> None:
        """An attempt there ended for want of an answer."""
        self._failed.add(node)
        self._prompt.discard(node)
        self._changed(node)

    def forget_reservation(self, uid: str) -> None:
        """A reservation is gone, and its answer won't come."""
        node = self._overdue.pop(uid, None)
        if node is not None:
            self._changed(node)

    def forget_node(self, node: str) -> None:
        """A node is gone, or has become ready again: what was seen of it says nothing any more."""
        self._failed.discard(node)
        self._prompt.discard(node)
        self._overdue = {uid: at for uid, at in self._overdue.items() if at != node}

    def overdue(self) -> frozenset[str]:
        """Reservations (UIDs) whose time to answer is over."""
        return frozenset(self._overdue)

    def doubts(self, owes: Callable[[str], bool]) -> dict[str, Doubt]:
        """Nodes that come last. ``owes`` says whether an attempt under way waits for a node's answer."""
        late = [node for node in self._overdue.values() if node not in self._prompt] if self._prompt else []
        found = dict.fromkeys(late, Doubt.LATE)
        for node in sorted(self._failed):
            found[node] = Doubt.PROBED if owes(node) else Doubt.ON_PROBATION
        return found


class State(enum.Enum):
    """Where a commit is.

    An attempt is asked for (DIRECT), held, handed over (AT_BINDER) or taken back (TAKEN_BACK). It has departed when
    nobody speaks of it any more and it may still come. When its pod is seen bound, it has landed, and nothing is left
    of it.
    """

    #: The scheduler writes the Binding itself: a pod alone, a share that joins known devices, a member of a gang.
    DIRECT = "direct"
    #: Handed over to the binder, which makes its devices known.
    AT_BINDER = "at the binder"
    #: Written nowhere: it waits for a device that another one makes known.
    HELD = "held"
    #: Its claims are being bound: nothing is written for the pod itself.
    PREPARING = "preparing"
    #: The binder is asked to give it up.
    TAKEN_BACK = "taken back"


#: What is written for a pod in these states can't come late, for nothing is.
UNWRITTEN: Final = frozenset({State.HELD, State.PREPARING})


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


class PodAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """One pod's. ``own``: our commit that is under way; ``next_number``: of the next one.

    ``departed``: what departed, ours or another's, as the hand-over that it is or may become; it may be there beside a
    commit of ours whose BindRequest is gone before its end is known. ``opens``: groups whose devices the pod makes
    known. ``awaits``: groups of which it waits for one. ``setback``: what went wrong so far; it outlives each attempt.
    """

    next_number: int = 0
    own: Flight | None = None
    departed: BindRequestRecord | None = None
    opens: tuple[str, ...] = ()
    awaits: tuple[str, ...] = ()
    setback: Setback | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return not (self.next_number or self.own or self.departed or self.opens or self.awaits or self.setback)


#: Of a pod that was never tried.
NONE_YET: Final = PodAttempts()


class AttemptTable:
    """By pod UID. A record that says nothing is none."""

    __slots__ = ("_departed", "_departed_at", "_of_pod", "_own_at")

    def __init__(self) -> None:
        self._of_pod: dict[str, PodAttempts] = {}
        self._own_at: Membership[str] = Membership()
        self._departed_at: Membership[str] = Membership()
        #: Pods with something that departed, on nodes that are known and others.
        self._departed: dict[str, None] = {}

    def of(self, uid: str) -> PodAttempts:
        """What is known of this pod's attempts."""
        return self._of_pod.get(uid, NONE_YET)

    def change(self, uid: str, **fields: Any) -> None:
        """Give these fields of a pod's record other values."""
        record = msgspec.structs.replace(self.of(uid), **fields)
        if record.is_empty:
            self._of_pod.pop(uid, None)
        else:
            self._of_pod[uid] = record
        if "own" in fields:
            self._own_at.move(uid, record.own.placement.node if record.own is not None else "")
        if "departed" in fields:
            self._departed_at.move(uid, record.departed.node if record.departed is not None else "")
            if record.departed is None:
                self._departed.pop(uid, None)
            else:
                self._departed[uid] = None

    def own(self) -> tuple[Flight, ...]:
        """All our commits, by pod UID."""
        found = (self._of_pod[uid].own for uid in sorted(self._own_at.everybody()))
        return tuple(own for own in found if own is not None)

    def own_at(self, node: str) -> Iterator[Flight]:
        """Our commits that are under way to a node."""
        found = (self._of_pod[uid].own for uid in self._own_at.at(node))
        return (own for own in found if own is not None)

    def departed(self) -> tuple[BindRequestRecord, ...]:
        """All that departed, by pod UID."""
        found = (self._of_pod[uid].departed for uid in sorted(self._departed))
        return tuple(departed for departed in found if departed is not None)

    def departed_at(self, node: str) -> Iterator[BindRequestRecord]:
        """What departed for a node."""
        found = (self._of_pod[uid].departed for uid in self._departed_at.at(node))
        return (departed for departed in found if departed is not None)


class Openings:
    """Who opens which group, and who waits for it: of the records of attempts, by group.

    The first share on a device makes the device known. A further share on a known device needs no binder: three writes
    instead of five (protocol.md, Writes). So while the first share is at the binder, further ones are charged and held;
    when it has landed or failed, or takes too long, they are decided on again.
    """

    __slots__ = ("_attempts", "_awaited_by", "_opener")

    def __init__(self, attempts: AttemptTable) -> None:
        self._attempts = attempts
        #: Group -> the pod that opens it.
        self._opener: dict[str, str] = {}
        #: Group -> pods that wait.
        self._awaited_by: dict[str, dict[str, None]] = {}

    def open(self, uid: str, groups: Iterable[str]) -> None:
        """A first share is on its way. Who opens a group first is its opener."""
        opened = tuple(group for group in groups if group not in self._opener)
        self._attempts.change(uid, opens=opened)
        self._opener.update(dict.fromkeys(opened, uid))

    def is_opening(self, group: str) -> bool:
        """Whether the device of a group is about to be known."""
        return group in self._opener

    def hold(self, uid: str, groups: Iterable[str]) -> None:
        """A further share waits until one of these groups, all of them opening, is known or given up."""
        awaited = tuple(groups)
        self._attempts.change(uid, awaits=awaited)
        for group in awaited:
            self._awaited_by.setdefault(group, {})[uid] = None

    def landed(self, uid: str) -> list[str]:
        """This pod is on its way no more, or too long; returns those that waited for the groups it was to open."""
        # Itself it waits no more: what it does next must not end with an opening that it once waited for.
        known = self._attempts.of(uid)
        if not (known.opens or known.awaits):
            return []
        self._attempts.change(uid, opens=(), awaits=())
        for group in known.awaits:
            self._awaited_by.get(group, {}).pop(uid, None)
        freed: dict[str, None] = {}
        for group in known.opens:
            del self._opener[group]
            freed.update(self._awaited_by.pop(group, {}))
        return list(freed)


class Flights:
    """Commits, one a pod. ``changed`` is called with every node whose charges change, ``touched`` with the pod.

    Each is charged from ``begin`` on, until the pod is seen bound or gone, or it is withdrawn.
    """

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
