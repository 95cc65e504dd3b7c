"""Rules of the protocol, each left out: what the model's rules become, and where the counter-example is looked for.

These are faulty collaborators of the model. The product has no such switches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from gpu import book as books
from gpu.bind_request import PlannedDevice
from gpu.book import Book, Entry, Tenant
from gpu.reservation import Reservation
from sharing import claims, entries, outcome, step
from sharing.entries import Evidence, Judgement
from sharing.node_liveness import Heard, Registration
from sharing.outcome import Disputed, Failed, Outcome, Verified
from sharing.pods import PodView
from sharing.state import Phase, State
from sharing.state import World as Seen
from sharing.step import Next
from verification.model.config import BUILT, Config, Rules
from verification.model.state import NANO, Left, request_of

HALVES = ((5,), (5,))
UNEQUAL = ((5,), (6,))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """``rules`` without the rule; ``violates``: the property whose counter-example is expected."""

    rule: str
    rules: Rules
    config: Config
    violates: str
    #: What the rule is left out of: the protocol as built, or a stricter one that brings the place nearer.
    base: Rules = BUILT
    #: Whether the place, with the rule, has more states than a test should look at.
    is_large: bool = False


# --- Join ------------------------------------------------------------------------------------------------------------
def _joining(join: Callable[[Book, Tenant], Any]) -> Callable[[Iterable[Tenant]], Callable[[Reservation], Any]]:
    def joining(tenants: Iterable[Tenant]) -> Callable[[Reservation], Any]:
        entering = tuple(tenants)

        def change(now: Reservation) -> Any:
            before = BUILT.joining(())(now)
            for tenant in entering:
                before = join(before, tenant) if isinstance(before, Book) else before
            return before

        return change

    return joining


def _without_sum(book: Book, tenant: Tenant) -> Any:
    known = book.entries.get(tenant.pod_uid)
    if known is not None and known.attempt != tenant.entry.attempt:
        return books.OtherAttempt(tenant.pod_uid, known.attempt)
    return Book({**book.entries, tenant.pod_uid: known or tenant.entry})


def _overwriting(book: Book, tenant: Tenant) -> Any:
    others = {uid: entry for uid, entry in book.entries.items() if uid != tenant.pod_uid}
    return books.join(Book(others), [tenant])


def _adopting(book: Book, tenant: Tenant) -> Any:
    return book if tenant.pod_uid in book.entries else books.join(book, [tenant])


def _joins_anything(tenants: Iterable[Tenant]) -> Callable[[Reservation], Any]:
    entering = tuple(tenants)

    def change(now: Reservation) -> Any:
        assert now.book is not None
        return books.join(now.book, entering)

    return change


def _blind_to_deletion(held: Reservation) -> Reservation:
    return msgspec.structs.replace(held, deleting=False)


def _blind_to_end(held: Reservation) -> Reservation:
    return msgspec.structs.replace(held, phase="Running" if held.uuid else held.phase)


# --- Learn -----------------------------------------------------------------------------------------------------------
def _any_nominee(held: Reservation, there: Sequence[Reservation]) -> Reservation | Disputed | Failed:
    return held


def _living_nominees(held: Reservation, there: Sequence[Reservation]) -> Reservation | Disputed | Failed:
    return claims.held_alone(held, [one for one in there if not one.deleting and not one.is_terminal])


def _any_tenants(now: Reservation, pods: Iterable[PodView]) -> Verified | Failed:
    return Verified(now.group)


def _step_seeing(change: Callable[[State, Reservation], Reservation]) -> Callable[..., list[Next]]:
    """The step function, its view of joined reservations changed."""

    def blind(states: Sequence[State], worlds: Mapping[str, Seen]) -> list[Next]:
        seen = {}
        for state in states:
            world = worlds[state.attempt.id]
            held = {
                group: change(state, one) if one is not None and group in state.joined else one
                for group, one in world.reservations.items()
            }
            seen[state.attempt.id] = msgspec.structs.replace(world, reservations=held, lost=frozenset())
        return step.step(states, seen)

    return blind


def _with_joined_uid(state: State, held: Reservation) -> Reservation:
    return msgspec.structs.replace(held, uid=state.joined[held.group].reservation)


def _with_our_entry(state: State, held: Reservation) -> Reservation:
    assert held.book is not None
    entry = Entry(1, state.attempt.id, state.rv, 0, "ns/p")
    return msgspec.structs.replace(held, book=Book({**held.book.entries, state.attempt.pod_uid: entry}))


# --- Bind and withdraw -----------------------------------------------------------------------------------------------
Absorb = Callable[[State, Outcome], State]


def _of_binders(faulty: Absorb) -> Absorb:
    """The fault is the binders': direct attempts are as built."""
    return lambda state, answer: (outcome.absorb if state.attempt.is_direct else faulty)(state, answer)


def _of_schedulers(faulty: Absorb) -> Absorb:
    """The fault is in direct attempts: the binders are as built."""
    return lambda state, answer: (faulty if state.attempt.is_direct else outcome.absorb)(state, answer)


def _forgetting_the_post(state: State, answer: Outcome) -> State:
    """A pod that is found unbound counts as never posted for: a Binding on its way is forgotten."""
    if isinstance(answer, outcome.PodRead) and answer.pod is not None and not answer.pod.is_bound:
        state = msgspec.structs.replace(state, may_land=False)
    return outcome.absorb(state, answer)


def _leaving_all(state: State, answer: Outcome) -> State:
    """The entries of a pod that is gone, or bound by somebody else, are taken out by their maker."""
    after = outcome.absorb(state, answer)
    if isinstance(answer, outcome.PodRead) and (answer.pod is None or answer.pod.is_bound) and after.failure:
        return msgspec.structs.replace(after, joined=state.joined, phase=Phase.LEAVE)
    return after


def _alone(state: State, answer: Outcome) -> State:
    """A member of a gang is settled as if it stood alone."""
    alone = msgspec.structs.replace(state, attempt=msgspec.structs.replace(state.attempt, plan=""))
    return outcome.absorb(alone, answer)


def _step_after_one_join(states: Sequence[State], worlds: Mapping[str, Seen]) -> list[Next]:
    """A direct attempt goes on with the devices that it has joined, as if its pod asked for no more."""
    joined = [_with_joined_devices(state) if state.attempt.is_direct and state.joined else state for state in states]
    seen = {one.attempt.id: _asking_for(one.attempt.devices, worlds[one.attempt.id]) for one in joined}
    return step.step(joined, seen)


def _with_joined_devices(state: State) -> State:
    devices = tuple(device for device in state.attempt.devices if device.group in state.joined)
    return msgspec.structs.replace(state, attempt=msgspec.structs.replace(state.attempt, devices=devices))


def _asking_for(devices: Sequence[PlannedDevice], world: Seen) -> Seen:
    asked = request_of(tuple(device.nano // NANO for device in devices))
    pod = msgspec.structs.replace(world.pod, request=asked) if world.pod is not None else None
    return msgspec.structs.replace(world, pod=pod)


def _unbound_settles(state: State, answer: Outcome) -> State:
    """After a time-out the pod is found unbound: the attempt has failed, and its entries go."""
    if isinstance(answer, outcome.PodRead) and answer.pod is not None and not answer.pod.is_bound and state.tries:
        return msgspec.structs.replace(state, phase=Phase.LEAVE)
    return outcome.absorb(state, answer)


# --- Leave -----------------------------------------------------------------------------------------------------------
def _leaving_by(same: Callable[[Entry, Entry], bool]) -> Callable[[Iterable[Tenant]], Callable[[Reservation], Any]]:
    def leaving(tenants: Iterable[Tenant]) -> Callable[[Reservation], Any]:
        going = {tenant.pod_uid: tenant.entry for tenant in tenants}

        def change(now: Reservation) -> Any:
            assert now.book is not None
            return Book(
                {
                    uid: entry
                    for uid, entry in now.book.entries.items()
                    if uid not in going or not same(entry, going[uid])
                }
            )

        return change

    return leaving


def _judging(verdict: Callable[[Entry, Evidence], Judgement | None]) -> Callable[[Entry, Evidence], Judgement]:
    def judge(entry: Entry, evidence: Evidence) -> Judgement:
        found = verdict(entry, evidence)
        return entries.judge(entry, evidence) if found is None else found

    return judge


def _dead_without_fence(entry: Entry, evidence: Evidence) -> Judgement | None:
    found = entries.judge(entry, evidence)
    return Judgement.DEAD if found is Judgement.FENCE_FIRST else None


def _dead_when_deleting(entry: Entry, evidence: Evidence) -> Judgement | None:
    return Judgement.DEAD if evidence.pod is not None and evidence.pod.deleting else None


def _dead_when_gone(entry: Entry, evidence: Evidence) -> Judgement | None:
    return Judgement.DEAD if evidence.pod is None else None


def _dead_when_gone_for_long(entry: Entry, evidence: Evidence) -> Judgement | None:
    """The grace counts from when the pod vanished, be its machine there or not."""
    is_over = evidence.pod is None and evidence.gone_for_s > entries.UNSEEN_GRACE_S
    return Judgement.DEAD if is_over else None


def _last_fence_alone(fences: tuple[int, ...]) -> tuple[int, ...]:
    return fences[:1]


def _heard_by_name(before: Heard | None, now: Registration | None, now_s: float) -> Heard | None:
    """Whose Node was there at the look before and is there now counts as there all the time."""
    return None if now is None else before or Heard(now, now_s)


def _live_when_bound(entry: Entry, evidence: Evidence) -> Judgement | None:
    return Judgement.LIVE if evidence.pod is not None and evidence.pod.is_bound else None


def _renewing_from_any(tenant: Tenant, rv: str) -> Callable[[Reservation], Any]:
    """The entry is put there at the new version, whether the old one is there or not."""

    def change(now: Reservation) -> Any:
        assert now.book is not None
        return Book({**now.book.entries, tenant.pod_uid: msgspec.structs.replace(tenant.entry, rv=rv)})

    return change


def _empty_book(group: str, bound: Sequence[PodView]) -> Book:
    return books.EMPTY


def _gives_up(state: State, answer: Outcome) -> State:
    """A Binding that is not accepted is not tried again: the attempt fails at once, as after its last try."""
    if isinstance(answer, outcome.BindingNotAccepted):
        state = msgspec.structs.replace(state, tries=outcome.MAX_TRIES - 1)
    return outcome.absorb(state, answer)


def _fence_first(state: State, answer: Outcome) -> State:
    """A failed attempt fences its pod first, and its BindRequest goes after that. ``has_told``: it has been fenced."""
    after = _gives_up(state, answer)
    if isinstance(answer, outcome.RequestDropped) and after.failure is not None and state.has_told:
        return msgspec.structs.replace(after, phase=Phase.LEAVE)
    if state.phase is Phase.FENCE and after.phase is Phase.LEAVE:
        return msgspec.structs.replace(after, phase=Phase.DROP, has_told=True)
    return _fencing(after)


def _fencing(state: State) -> State:
    is_new = state.phase is Phase.DROP and state.failure is not None and not state.has_told
    return msgspec.structs.replace(state, phase=Phase.FENCE) if is_new else state


def _step_to_fence(states: Sequence[State], worlds: Mapping[str, Seen]) -> list[Next]:
    moves = step.step(states, worlds)
    if all(_fencing(move.state) is move.state for move in moves):
        return moves
    return step.step([_fencing(move.state) for move in moves], worlds)


def _gives_up_without_fence(state: State, answer: Outcome) -> State:
    after = _gives_up(state, answer)
    return msgspec.structs.replace(after, phase=Phase.LEAVE) if after.phase is Phase.FENCE else after


def rule(
    what: str, config: Config, violates: str = "S1", *, base: Rules = BUILT, is_large: bool = False, **choices: Any
) -> LeftOut:
    config = config if violates.startswith("L") else replace(config, rests=False)
    rules = replace(base, **choices)
    return LeftOut(rule=what, rules=rules, config=config, violates=violates, base=base, is_large=is_large)


def _one_by_one(states: Sequence[State], worlds: Mapping[str, Seen]) -> list[Next]:
    """Members of a gang are walked as if each were alone."""
    alone = [
        msgspec.structs.replace(state, attempt=msgspec.structs.replace(state.attempt, members=1, plan=""))
        for state in states
    ]
    return [move for state in alone for move in step.step([state], worlds)]


PLAIN = Config(shares=UNEQUAL)
KNOWN = Config(shares=UNEQUAL, known=1, modes=("direct",) * 2)
LATE = replace(KNOWN, left=Left(lates=1))
#: The second pod goes to the binder, so that it may open a device again.
NODE_LOST = Config(shares=UNEQUAL, known=1, modes=("direct", "handed"))
#: One verified through the binder, and reservations that are given other devices.
SWAPPED = Config(shares=UNEQUAL, devices=2, modes=("handed", "handed"), left=Left(swaps=2, unreserves=1))
#: The agent of the node tells devices before the processes of their reservations run.
EARLY = Config(shares=((5,),), devices=2, reporter=True, modes=("handed",))
TOUCHED = replace(KNOWN, left=Left(touches=1))
ORPHANED = replace(KNOWN, left=Left(lates=1, scheduler_crashes=1))
RIVALS = replace(KNOWN, schedulers=2, rival=True)
#: A reservation with tenants is deleted, and a Binding lands late.
LOST = Config(shares=UNEQUAL, known=1, modes=("direct", "handed"), left=Left(lates=1, unreserves=1))
DELETED = Config(shares=UNEQUAL, known=1, modes=("direct", "handed"), left=Left(unreserves=1))
#: A binder's Binding lands late, while others join directly.
GIVEN_UP = Config(shares=UNEQUAL, known=1, modes=("handed", "direct"), left=Left(lates=1))
HASTY = replace(BUILT, absorb=_of_binders(_gives_up))
#: Schedulers that give the places of a plan to others.
FORGETFUL = replace(BUILT, plan_keeps_places=False)
#: A gang of two halves, and a pod that takes the room of one.
GANG = Config(shares=((5,), (5,), (5,)), known=1, modes=("direct",) * 3, gang=(0, 1))
#: A planned pod, of which the collector and the other leader withdraw what is worked on.
PLANNED = Config(
    shares=((5,),), known=1, modes=("direct",), gang=(0,), schedulers=2, rival=True, impatient=True, heeds_fences=True
)
GANG_HANDED = Config(shares=((5,), (5,), (5,)), known=1, modes=("handed", "handed", "direct"), gang=(0, 1))
TWO_DEVICES = Config(shares=((5, 5), (6,)), devices=2, known=2, modes=("direct",) * 2)

RULES: tuple[LeftOut, ...] = (
    rule("join: the sum stays within one device", PLAIN, joining=_joining(_without_sum)),
    rule(
        "join: another attempt's entry is not overwritten",
        replace(RIVALS, hesitant=True, left=Left(touches=1, lates=1)),
        "S2",
        joining=_joining(_overwriting),
    ),
    rule(
        "join: another attempt's entry is not adopted",
        replace(RIVALS, left=Left(touches=1)),
        joining=_joining(_adopting),
    ),
    rule(
        "join: a book is written at exactly the version that was read",
        replace(LATE, shares=((3,), (3,), (5,)), modes=("direct",) * 3),
        book_at_rv=False,
    ),
    rule("join: the reservation is not being deleted", KNOWN, "S2", see=_blind_to_deletion),
    rule("join: the reservation has not ended", replace(KNOWN, known_ended=True), "S2", see=_blind_to_end),
    rule("learn: another reservation with this device", LOST, is_large=True, held_alone=_any_nominee),
    rule(
        "learn: another one that is being deleted or has ended, too", LOST, is_large=True, held_alone=_living_nominees
    ),
    rule("learn: every live pod with this device is in the book", DELETED, used_by_tenants=_any_tenants),
    rule("learn: reservations are listed before pods", LOST, is_large=True, reservations_first=False),
    rule("learn: another device ends what was verified", SWAPPED, is_large=True, verified_until_changed=False),
    rule(
        "learn: only a verified device is joined directly",
        replace(DELETED, modes=("direct", "")),
        direct_needs_proof=False,
    ),
    rule(
        "learn: the reservation process names its own pod's UID",
        Config(shares=HALVES, devices=2, slow_identity=True, modes=("handed",) * 2, left=Left(lates=1, deletes=1)),
        "S2",
        is_large=True,
        identity_for_uid=False,
    ),
    rule(
        "told early: the reservation had its startTime before the question",
        replace(EARLY, known=1, left=Left(forced=1)),
        "S2",
        reporter_after_start=False,
    ),
    rule(
        "told early: the patch is at the version that was read before the question",
        replace(EARLY, left=Left(swaps=1, late_words=1)),
        "L1/S9",
        reporter_at_rv=False,
    ),
    rule(
        "told early: the patch names the UID that was read before the question (where it names no version)",
        replace(EARLY, left=Left(deletes=1, recreates=1, late_words=1)),
        "S2",
        base=replace(BUILT, reporter_at_rv=False),
        is_large=True,
        reporter_for_uid=False,
    ),
    rule(
        "told early: a reservation that is being deleted is not used",
        replace(EARLY, devices=1, left=Left(silences=1)),
        "S2",
        see=_blind_to_deletion,
    ),
    rule("bind: at the version that stands in the book", LATE, binding_at_rv=False),
    rule("bind: at the entry's version, read before the join", TOUCHED, binding_at_entry=False),
    rule(
        "bind: unbound settles nothing (binder)",
        replace(PLAIN, left=Left(lates=1)),
        "S2",
        absorb=_of_binders(_unbound_settles),
    ),
    rule("bind: unbound settles nothing (direct)", LATE, absorb=_of_schedulers(_forgetting_the_post)),
    rule("bind: only after all joins", TWO_DEVICES, "S3", step=_step_after_one_join),
    rule(
        "withdraw: the fence comes before the entries go",
        GIVEN_UP,
        base=HASTY,
        absorb=_of_binders(_gives_up_without_fence),
    ),
    rule("fence: at exactly the entry's version", GIVEN_UP, "S2", base=HASTY, fence_at_rv=False),
    rule("fence: a later one does not hide an earlier one", PLANNED, "S5", fences_told=_last_fence_alone),
    rule(
        "leave: exactly this attempt",
        replace(RIVALS, left=Left(lates=1, refusals=1)),
        leaving=_leaving_by(lambda one, other: one.rv == other.rv),
    ),
    rule(
        "leave: exactly this version",
        Config(shares=UNEQUAL, split_collector=True, known=1, left=Left(touches=1)),
        is_large=True,
        leaving=_leaving_by(lambda one, other: one.attempt == other.attempt),
    ),
    rule("leave: the reservation is read before the pod", TOUCHED, reservation_before_pod=False),
    rule("leave: an unbound pod at the entry's version is fenced first", ORPHANED, judge=_judging(_dead_without_fence)),
    rule(
        "leave: ended means that its containers have terminated",
        replace(KNOWN, left=Left(deletes=1)),
        judge=_judging(_dead_when_deleting),
    ),
    rule(
        "leave: a pod that vanished is waited for",
        replace(KNOWN, left=Left(vanishes=1)),
        judge=_judging(_dead_when_gone),
    ),
    rule(
        "leave: a pod that vanished is waited for while its Node object is gone",
        replace(NODE_LOST, left=Left(node_losses=1)),
        judge=_judging(_dead_when_gone_for_long),
    ),
    rule(
        "leave: a Node object of another UID makes the wait begin again",
        replace(NODE_LOST, left=Left(node_losses=1)),
        heard=_heard_by_name,
    ),
    rule(
        "leave: what was last seen of a vanished pod is its end",
        replace(KNOWN, left=Left(vanishes=1)),
        last_state_is_last=False,
    ),
    rule(
        "leave: its maker leaves the entries of a pod that is gone to the collector",
        replace(KNOWN, left=Left(lates=1, vanishes=1)),
        absorb=_of_schedulers(_leaving_all),
    ),
    rule(
        "leave: an entry is dead when its pod is bound to another group",
        replace(RIVALS, shares=((5,),), modes=("direct",), devices=2, known=2, left=Left(scheduler_crashes=1)),
        "L1/S9",
        judge=_judging(_live_when_bound),
    ),
    rule(
        "renew: from exactly the old version",
        Config(shares=UNEQUAL, known=1, left=Left(touches=1)),
        is_large=True,
        renewing=_renewing_from_any,
    ),
    rule("retire: only an empty book", KNOWN, "S2", retire_empty=False),
    rule("retire: at exactly the version whose book was empty", KNOWN, "S2", retire_at_rv=False),
    rule(
        "retire: an ended reservation is deleted by UID",
        Config(shares=((5,),), known=1, known_ended=True, modes=("handed",), left=Left(tidies=1)),
        "S2",
        delete_ended_by_uid=False,
    ),
    rule(
        "retire: the finalizer stays while an unbound tenant is in the book", LOST, is_large=True, finalizer_waits=False
    ),
    rule(
        "gang: all books are joined before any member is bound (direct)",
        replace(GANG, schedulers=2),
        "L1/S9",
        base=FORGETFUL,
        step=_one_by_one,
    ),
    rule(
        "gang: all books are joined before any member is bound (binder)",
        GANG_HANDED,
        "L1/S9",
        is_large=True,
        step=_one_by_one,
    ),
    rule(
        "gang: a member that was changed is renewed and does not leave",
        replace(GANG, patient=True, left=Left(touches=1)),
        "L1/S9",
        absorb=_of_schedulers(_alone),
    ),
    rule(
        "gang: the places of a plan are kept until it is carried out or taken back",
        replace(GANG, releases=True, keeps_room=True, left=Left(scheduler_crashes=1)),
        "S4",
        plan_keeps_places=False,
    ),
)

GANG_CRASHED = replace(GANG, releases=True, left=Left(lates=1, scheduler_crashes=1))

#: Rules whose absence alone gives no counter-example: something else holds, and docs/design/model.md says what.
SECOND_LINES: tuple[LeftOut, ...] = (
    rule(
        "join: the reservation is not being deleted (the join alone)",
        replace(KNOWN, hesitant=True),
        joining=_joins_anything,
    ),
    rule("learn: the reservation is the one that was joined", DELETED, step=_step_seeing(_with_joined_uid)),
    rule(
        "told early: the patch names the UID",
        replace(EARLY, left=Left(deletes=1, recreates=1, late_words=1)),
        reporter_for_uid=False,
    ),
    rule(
        "told early: the reservation had not ended before the question",
        Config(shares=UNEQUAL, reporter=True),
        reporter_of_living=False,
    ),
    rule("learn: it still holds our entry", DELETED, step=_step_seeing(_with_our_entry)),
    rule("bind: for the pod's UID", replace(LATE, left=Left(lates=1, deletes=1, recreates=1)), binding_for_uid=False),
    rule("rebuild: bound pods come into the book before new tenants", DELETED, rebuild=_empty_book),
    rule(
        "withdraw: the BindRequest goes before the fence",
        GIVEN_UP,
        base=HASTY,
        absorb=_of_binders(_fence_first),
        step=_step_to_fence,
    ),
    rule("withdraw: the BindRequest is deleted by UID", GIVEN_UP, base=HASTY, request_by_uid=False),
    rule(
        "gang: a plan is written only where there is none",
        replace(GANG, shares=HALVES, modes=("direct",) * 2, schedulers=2, rival=True),
        plan_only_if_none=False,
    ),
    rule("gang: a plan that is taken back has its members fenced first", GANG_CRASHED, plan_fences_first=False),
)
