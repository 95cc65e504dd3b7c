"""Direct attempts: the product's step function and outcomes, one action a step (scheduler/commit/direct.py).

The shell carries out actions side by side; here books are joined and left one after the other, in the order of the
devices: another order gives the same books. Renewals of one attempt are one step. Members of a gang are stepped
together until their books are joined, then each alone, as scheduler/commit/gangs.py does.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gpu.attempts import Cause
from gpu.book import Book
from gpu.grant import Grant
from sharing import outcome
from sharing import state as actions
from sharing.attempt import Attempt
from sharing.failure import Failure
from sharing.outcome import MAX_TRIES, Outcome
from sharing.state import Action, Joined, Phase, State
from sharing.state import World as Seen
from verification.model import server
from verification.model.config import Rules
from verification.model.state import GROUP, RUNNING, Direct, Entry, Late, Pod, Resv, Step, World, slot_of
from verification.model.translating import NAMESPACE, NANO, NODE, Translator, name, planned, tenant, text

Move = tuple[Direct, tuple[Action, ...]]
"""An attempt as the step function leaves it, and what is to be done."""

_HAVE_FAILED = frozenset({Phase.FENCE.value, Phase.LEAVE.value})


class DirectAttempts:
    """The direct attempts of all schedulers."""

    def __init__(self, rules: Rules, views: Translator) -> None:
        self._rules = rules
        self._views = views
        self._change = partial(server.change_book, views=views, rules=rules)
        self._moves: dict[tuple[Direct, ...], list[Move]] = {}

    def go_on(self, world: World, number: int, one: Direct) -> Iterator[Step]:
        """Everything that may come of the next action of an attempt."""
        (action, *_) = self._actions(world, number, one) or (None,)
        match action:
            case actions.Join(group=group):
                yield from self.join(world, number, one, group=name(group))
            case actions.PostBinding(rv=rv, grant=grant):
                yield from self._post(world, number, one, rv=name(rv), grant=grant)
            case actions.ReadPod():
                yield from self._settle(world, number, one)
            case actions.Fence(rv=rv):
                yield from self._fence(world, number, one, name(rv))
            case actions.Leave(group=group, rv=rv):
                yield from self._leave(world, number, one, group=name(group), rv=name(rv))
            case _:
                return  # it waits for the others of its gang

    def _actions(self, world: World, number: int, one: Direct) -> tuple[Action, ...]:
        unit = _together(world, number, one)
        return self._step(unit)[unit.index(one)][1]

    # --- actions -----------------------------------------------------------------------------------------------------
    def join(self, world: World, number: int, one: Direct, *, group: int, how: str = "") -> Iterator[Step]:
        """Enter a book; ``how`` it came to it: a decision whose first join is refused is no step."""
        label = ("scheduler", number, f"{how}joins", one.uid, group)
        refused = outcome.Failed(Failure(cause=Cause.DEVICE_TAKEN))
        if world.resvs[group - GROUP] is None:
            yield (*label, "gone"), self._answered(world, number, one, refused)
            return
        after, answer = self._change(world, group, change=self._rules.joining([tenant(_entry(one, group, one.rv))]))
        resv = after.resvs[group - GROUP]
        if not isinstance(answer, Book) or resv is None:
            if not how:
                yield (*label, type(answer).__name__), self._answered(world, number, one, refused)
            return
        usable = self._usable(group, resv)
        joined = self._absorbed(one, outcome.JoinedAs(text(group), text(resv.uid), text(one.rv)), {group: usable})
        yield (*label, *(() if usable else ("unusable",))), self._put(after, number, one, joined)
        yield from self._book_late(world, after, number, one=one, group=group, joined=joined)

    def _book_late(
        self, world: World, after: World, number: int, *, one: Direct, group: int, joined: Direct
    ) -> Iterator[Step]:
        before, held = world.resvs[group - GROUP], after.resvs[group - GROUP]
        if not world.left.lates or before is None or held is None or before.book == held.book:
            return
        late = Late("book", (group, before.uid, before.rv, held.book))
        left = world.left._replace(lates=world.left.lates - 1)
        if server.may_land(after, late, self._rules):
            again = self._put(after, number, one, joined)._replace(late=(*world.late, late), left=left)
            yield ("!scheduler", number, "joins, and again later", joined.uid), again
        if left.scheduler_crashes:
            left = left._replace(scheduler_crashes=left.scheduler_crashes - 1)
            dead = put(world, number, ())._replace(late=(*world.late, late), left=left)
            yield ("!scheduler", number, "joins later, and dies", joined.uid), dead

    def _post(self, world: World, number: int, one: Direct, *, rv: int, grant: Grant) -> Iterator[Step]:
        pod = server.pod(world, one.uid)
        if not self._rules.binding_at_entry and pod is not None:
            rv = pod.rv
        holdings = tuple((name(d.group), name(d.reservation), name(d.uuid), d.nano // NANO) for d in grant.devices)
        binding = Late("bind", (one.uid, rv, one.attempt, holdings))
        refused = self._answered(world, number, one, outcome.BindingNotAccepted("refused", is_unknown=False))
        bound = server.bind(world, binding, self._rules)
        label = ("scheduler", number, "binds", one.uid, rv)
        if bound is not None:
            yield label, self._answered(bound, number, one, outcome.BindingAccepted())
        else:
            yield (*label, "refused"), refused
        if world.left.refusals:
            left = world.left._replace(refusals=world.left.refusals - 1)
            yield ("!scheduler", *label[1:], "refused for another reason"), refused._replace(left=left)
        if world.left.lates and server.may_land(world, binding, self._rules):
            left = world.left._replace(lates=world.left.lates - 1)
            unknown = self._answered(world, number, one, outcome.BindingNotAccepted("no answer", is_unknown=True))
            after = unknown._replace(late=(*world.late, binding), left=left)
            yield ("!scheduler", number, "binds, no answer", one.uid, rv), after

    def _settle(self, world: World, number: int, one: Direct) -> Iterator[Step]:
        """The quorum read. A Binding that may land was posted for the last time, or was not.

        Edits alone do not use up the tries: there are fewer of them.
        """
        pod = server.pod(world, one.uid)
        label: tuple[Any, ...] = ("scheduler", number, "reads", one.uid)
        answer = outcome.PodRead(self._views.pod(pod) if pod is not None else None)
        found = self._absorbed(one, answer)
        if found.stage == Phase.RENEW.value:
            yield (*label, "renews"), self._renew(world, number, one, found)
            return
        yield label, self._put(world, number, one, found)
        if found.stage == Phase.BIND.value:
            given_up = self._put(world, number, one, self._absorbed(one, answer, tries=MAX_TRIES))
            yield (*label, "for the last time"), given_up

    def _renew(self, world: World, number: int, one: Direct, going: Direct) -> World:
        """Entries move to the pod's new version, or are entered again."""
        ((_, wanted),) = self._step((going,))
        for action in wanted:
            assert isinstance(action, actions.Renew)
            group = name(action.group)
            change = self._rules.rejoining(tenant(_entry(one, group, name(action.old_rv))), action.rv)
            world, answer = self._change_held(world, one, group, change)
            held = world.resvs[group - GROUP]
            if isinstance(answer, Book) and held is not None:
                renewed = outcome.Renewed(action.group, action.rv)
                going = self._absorbed(going, renewed, {group: self._usable(group, held)})
            else:
                going = self._absorbed(going, outcome.Failed(Failure(cause=Cause.REQUEST_CHANGED)))
        return self._put(world, number, one, going)

    def _fence(self, world: World, number: int, one: Direct, rv: int) -> Iterator[Step]:
        label = ("scheduler", number, "fences", one.uid)
        fenced = server.fence(world, Late("fence", (one.uid, rv, one.attempt)), self._rules)
        if fenced is not None:
            yield label, self._answered(fenced, number, one, outcome.Fenced())
        else:
            yield (*label, "missed"), self._answered(world, number, one, outcome.FenceMissed())

    def _leave(self, world: World, number: int, one: Direct, *, group: int, rv: int) -> Iterator[Step]:
        after, _ = self._change_held(world, one, group, self._rules.leaving([tenant(_entry(one, group, rv))]))
        left_book = self._answered(after, number, one, outcome.Left(text(group)))
        yield ("scheduler", number, "leaves", one.uid, group), left_book
        if world.left.lates and after is not world:
            left = world.left._replace(lates=world.left.lates - 1)
            yield ("!scheduler", number, "leaves, answer lost", one.uid, group), after._replace(left=left)

    def _change_held(self, world: World, one: Direct, group: int, change: Any) -> tuple[World, Any]:
        """Change the book of a reservation that was joined; no answer where it is gone."""
        held = world.resvs[group - GROUP]
        if held is None or all((group, held.uid) != joined[:2] for joined in one.held):
            return world, None
        return self._change(world, group, change=change)

    def _usable(self, group: int, resv: Resv) -> int:
        """The device, if the reply to a write of the book shows it learned, and it was verified; else 0."""
        is_told = self._rules.see(self._views.resv(group, resv)).is_told
        return resv.uuid if is_told and (resv.proven or not self._rules.direct_needs_proof) else 0

    # --- states ------------------------------------------------------------------------------------------------------
    def _answered(self, world: World, number: int, one: Direct, answer: Outcome) -> World:
        return self._put(world, number, one, self._absorbed(one, answer))

    def _put(self, world: World, number: int, one: Direct, after: Direct) -> World:
        """Put an attempt in its place, and take it and its gang as far as they come without a write or read."""
        world = swap(world, number, one, after)
        for moved, _ in self._step(_together(world, number, after)):
            world = swap(world, number, moved, *((moved,) if moved.stage != Phase.END.value else ()))
        return world

    def _absorbed(self, one: Direct, answer: Outcome, uuids: dict[int, int] | None = None, *, tries: int = 1) -> Direct:
        state = self._rules.absorb(_state(one, 1, tries), answer)
        return _direct(one, state, uuids)

    def _step(self, unit: tuple[Direct, ...]) -> list[Move]:
        """What is done next. What direct attempts see is in themselves, so the answer is the same in any world."""
        moves = self._moves.get(unit)
        if moves is None:
            states = [_state(one, len(unit), 1) for one in unit]
            seen = {state.attempt.id: self._seen(one) for state, one in zip(states, unit, strict=True)}
            made = self._rules.step(states, seen)
            moves = [(_direct(one, move.state), move.actions) for one, move in zip(unit, made, strict=True)]
            self._moves[unit] = moves
        return moves

    def _seen(self, one: Direct) -> Seen:
        """The pod as it was decided on or read last, and what the books' answers showed."""
        held = {
            text(group): self._views.resv(group, _shown(reservation, uuid, _entry(one, group, rv)))
            for group, reservation, uuid, rv in one.held
        }
        return Seen(
            pod=self._views.pod(Pod(one.uid, one.rv)),
            reservations=held,
            verified=frozenset((text(reservation), text(uuid)) for _, reservation, uuid, _ in one.held if uuid),
            late=True,
        )


def _together(world: World, number: int, one: Direct) -> tuple[Direct, ...]:
    """Those that are stepped together: a gang as long as it joins."""
    members = world.schedulers[number]
    is_joining = any(other.stage == Phase.PREPARE.value for other in members)
    return members if one.plan and is_joining else (one,)


def _shown(reservation: int, uuid: int, entry: Entry) -> Resv:
    return Resv(reservation, 0, (entry,), dev=uuid, uuid=uuid, phase=RUNNING)


def _entry(one: Direct, group: int, rv: int) -> Entry:
    return Entry(one.uid, one.attempt, rv, dict(one.devices)[group])


def _state(one: Direct, members: int, tries: int) -> State:
    """The scheduler's state of an attempt."""
    slot = str(slot_of(one.uid))
    attempt = Attempt(
        id=text(one.attempt),
        namespace=NAMESPACE,
        name=slot,
        pod_uid=text(one.uid),
        pod_name=slot,
        node=NODE,
        rv=text(one.rv),
        devices=planned(one.devices),
        plan=text(one.plan) if one.plan else "",
        members=members,
        is_direct=True,
    )
    has_failed = one.failed or one.stage in _HAVE_FAILED
    return State(
        attempt=attempt,
        phase=Phase(one.stage),
        rv=text(one.rv),
        joined={text(group): Joined(text(reservation), text(rv)) for group, reservation, _, rv in one.held},
        tries=tries,
        failure=Failure(cause=Cause.REFUSED) if has_failed else None,
        may_land=bool(one.may_land),
    )


def _direct(one: Direct, state: State, uuids: dict[int, int] | None = None) -> Direct:
    """The model's form of a state. ``uuids``: devices that were learned just now, by group."""
    known = {group: uuid for group, _, uuid, _ in one.held} | (uuids or {})
    held = tuple(
        (name(group), name(joined.reservation), known[name(group)], name(joined.rv))
        for group, joined in state.joined.items()
    )
    is_settling = state.phase is Phase.SETTLE
    return one._replace(
        stage=state.phase.value,
        rv=name(state.rv),
        held=held,
        may_land=int(state.may_land and state.phase is not Phase.LEAVE),
        failed=int(is_settling and state.failure is not None),
    )


def put(world: World, number: int, attempts: tuple[Direct, ...]) -> World:
    """Put attempts in the place of all of a scheduler's."""
    schedulers = (*world.schedulers[:number], attempts, *world.schedulers[number + 1 :])
    return world._replace(schedulers=schedulers)


def swap(world: World, number: int, one: Direct, *others: Direct) -> World:
    """Put others in the place of an attempt."""
    kept = tuple(other for other in world.schedulers[number] if other.attempt != one.attempt)
    return put(world, number, (*kept, *others))
