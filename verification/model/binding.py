"""The binders: the product's step function and its outcomes, one action a step (binder/bind/unit.py).

Attempts belong together in units. A unit whose attempt has not begun is not kept: every BindRequest without one stands
for it, so a crash needs no step to begin again. Actions that the shell carries out side by side are steps of their own
here, in any order. Each may be answered, lost or late, or the binder dies. A try of a write that nobody waits for any
more may still land (``Late``). What the shell sees may be late (``lag``): then it has seen nothing since the attempt
joined, no deletion, no end, no change of the pod, no withdrawal; each step is tried with such a view where the
configuration says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from gpu import book as device_book
from gpu.attempts import Cause
from gpu.book import Book
from gpu.grant import Grant
from gpu.reservation import Reservation
from sharing import outcome
from sharing import state as actions
from sharing.failure import Failure
from sharing.outcome import Outcome
from sharing.pods import PodView
from sharing.state import Action, Phase
from sharing.state import World as SeenWorld
from verification.model import machines
from verification.model.config import Config, Rules
from verification.model.state import (
    FINISHED,
    GROUP,
    NANO,
    RUNNING,
    Binder,
    Entry,
    Late,
    Pod,
    Request,
    Resv,
    Step,
    Translator,
    Unit,
    World,
    entries,
    name,
    slot_of,
    tenant,
    text,
    unit,
)


def first(request: Request) -> Unit:
    """An attempt of which nothing is known but its BindRequest."""
    return Unit(request, Phase.PREPARE.value, request.rv)


def together(world: World, number: int) -> list[tuple[Unit, ...]]:
    """A binder's attempts, those that bind together side by side, those that have not begun among them."""
    known = {one.request.attempt: one for one in world.binders[number].units}
    for request in world.requests:
        if request is not None and request.attempt not in known:
            known[request.attempt] = first(request)
    groups: dict[int, list[Unit]] = {}
    for one in known.values():
        groups.setdefault(one.request.plan or one.request.attempt, []).append(one)
    return [tuple(sorted(group)) for group in groups.values()]


def keep(world: World, number: int, moved: Sequence[Unit]) -> World:
    """Put units back; those that ended, or have nothing that a first look would not have, are not kept."""
    attempts = {one.request.attempt for one in moved}
    binder = world.binders[number]
    others = [one for one in binder.units if one.request.attempt not in attempts]
    kept = [one for one in moved if not _is_over(one) and not _is_first(world, one)]
    return put_binder(world, number, binder._replace(units=tuple(sorted((*others, *kept)))))


def put_binder(world: World, number: int, binder: Binder) -> World:
    """One binder changed; ``Binder()`` is one that was just started."""
    return world._replace(binders=(*world.binders[:number], binder, *world.binders[number + 1 :]))


def entry_of(one: Unit, group: int, rv: int) -> Entry:
    """What an attempt has in the book of a group, at a version of its pod."""
    share = next(share for at, share in one.request.devices if at == group)
    return Entry(one.request.pod, one.request.attempt, rv, share)


def has_lost(world: World, one: Unit, group: int) -> bool:
    """Whether the reservation that was joined is gone."""
    held = world.resvs[group - GROUP]
    return held is None or held.uid != {at: uid for at, uid, _ in one.joined}.get(group)


def _is_over(one: Unit) -> bool:
    """It has ended, or has nothing left to leave."""
    return one.phase == Phase.END.value or (one.phase == Phase.LEAVE.value and not one.joined)


def _is_first(world: World, one: Unit) -> bool:
    return one == first(one.request) and machines.request(world, one.request.attempt) is not None


class Verifying:
    """The two LISTs of any binder. Reservations come first, unless that rule is left out."""

    def __init__(self, rules: Rules, views: Translator) -> None:
        self._rules = rules
        self._views = views

    def first(self, world: World, group: int) -> outcome.Outcome | Resv:
        """The first LIST, judged at once: what it showed of the reservation, for the second; or why it fails."""
        held = world.resvs[group - GROUP]
        if held is None or not held.uuid:
            return outcome.Failed(Failure(cause=Cause.RESERVATION_LOST))
        if self._rules.reservations_first:
            found = self._held_alone(world, group, held)
            if not isinstance(found, Reservation):
                return found
        else:
            pods = self._used_by_tenants(world, group, held)
            if not isinstance(pods, outcome.Verified):
                return pods
        return held._replace(rv=0)

    def second(self, world: World, group: int, held: Resv) -> outcome.Outcome:
        """The second LIST: the pods, against the book that the first one showed."""
        if self._rules.reservations_first:
            return self._used_by_tenants(world, group, held)
        answer = self._held_alone(world, group, held)
        return outcome.Verified(text(group)) if isinstance(answer, Reservation) else answer

    def _held_alone(self, world: World, group: int, held: Resv) -> Reservation | outcome.Disputed | outcome.Failed:
        there = [self._views.resv(GROUP + at, resv) for at, resv in enumerate(world.resvs) if resv is not None]
        return self._rules.held_alone(self._views.resv(group, held), there)

    def _used_by_tenants(self, world: World, group: int, held: Resv) -> outcome.Verified | outcome.Failed:
        pods = [self._views.pod(pod) for pod in world.pods if pod is not None and pod.grant]
        return self._rules.used_by_tenants(self._views.resv(group, held), pods)


Result = tuple[str, World, Outcome | Unit | None]
"""A mark, the world, and what the attempt hears: an outcome, nothing yet (the unit as it is now), or it died (None)."""


class Carrying:
    """The shell of every binder."""

    def __init__(self, config: Config, rules: Rules, views: Translator, verifying: Verifying) -> None:
        self._config = config
        self._rules = rules
        self._views = views
        self._verifying = verifying
        self._change = partial(machines.change_book, views=views, rules=rules)

    def results(self, world: World, number: int, one: Unit, action: Action) -> Iterator[Result]:  # noqa: C901 - one case per action
        """What may come of an action."""
        match action:
            case actions.Join(group=group):
                yield from self._join(world, number, one, name(group))
            case actions.Verify(group=group):
                yield from self._verify(world, number, one, name(group))
            case actions.ReadPod():
                pod = machines.pod_of(world, one.request.pod)
                yield "", world, outcome.PodRead(self._views.pod(pod) if pod is not None else None)
            case actions.PostBinding(rv=rv, grant=grant):
                yield from self._post(world, one, name(rv), grant)
            case actions.TellBound():
                yield "", world, outcome.BoundTold()
            case actions.Renew(group=group, old_rv=old, rv=rv):
                yield from self._renew(world, number, one, group=name(group), old=name(old), rv=rv)
            case actions.DropRequest():
                yield from self._drop(world, number, one)
            case actions.Fence(rv=rv):
                yield from self._fence(world, number, one, name(rv))
            case actions.Leave(group=group, rv=rv):
                yield from self._leave(world, number, one, group=name(group), rv=name(rv))
            case actions.WriteConfigMaps():
                raise AssertionError("no pod of the model reads ConfigMaps")

    # --- books -------------------------------------------------------------------------------------------------------
    def _join(self, world: World, number: int, one: Unit, group: int) -> Iterator[Result]:
        """The reservation that is there, or a new one with the bound pods and this tenant."""
        if world.resvs[group - GROUP] is None:
            yield from self._create(world, one, group)
            return
        entry = entry_of(one, group, one.rv)
        change = self._rules.joining([tenant(entry)])
        after, answer = self._change(world, group, change=change)
        if not isinstance(answer, Book):
            cause = Cause.NOT_JOINABLE if type(answer).__name__ == "NotJoinable" else Cause.DEVICE_TAKEN
            yield "", after, outcome.Failed(Failure(cause=cause))
            return
        held = after.resvs[group - GROUP]
        if held is None:
            return
        mine = next((found for found in held.book if found.uid == entry.uid), entry)
        joined = outcome.JoinedAs(text(group), text(held.uid), text(mine.rv))
        yield from self._written(world, after, number, one=one, group=group, answer=joined)

    def _create(self, world: World, one: Unit, group: int) -> Iterator[Result]:
        views = [self._bound_in(world, group)]
        if self._config.lag and views[0]:
            views.append([])
        for bound in views:
            book = self._rules.rebuild(text(group), bound)
            if not isinstance(book, Book):
                yield "", world, outcome.Failed(Failure(cause=Cause.DEVICE_CLAIMED))
                continue
            joined = device_book.join(book, [tenant(entry_of(one, group, one.rv))])
            after = machines.create_resv(world, group, entries(joined if isinstance(joined, Book) else book))
            held = after.resvs[group - GROUP]
            if held is not None and isinstance(joined, Book):
                yield "", after, outcome.JoinedAs(text(group), text(held.uid), text(one.rv))
            else:
                yield "", after, outcome.Failed(Failure(cause=Cause.DEVICE_TAKEN))

    def _bound_in(self, world: World, group: int) -> list[PodView]:
        return [
            self._views.pod(pod)
            for pod in world.pods
            if pod is not None and pod.life != FINISHED and any(holding[0] == group for holding in pod.holdings)
        ]

    def _renew(self, world: World, number: int, one: Unit, *, group: int, old: int, rv: str) -> Iterator[Result]:
        if has_lost(world, one, group):
            yield "", world, outcome.EntryGone(text(group))
            return
        change = self._rules.renewing(tenant(entry_of(one, group, old)), rv)
        after, answer = self._change(world, group, change=change)
        if isinstance(answer, Book):
            renewed = outcome.Renewed(text(group), rv)
            yield from self._written(world, after, number, one=one, group=group, answer=renewed)
        else:
            yield "", world, outcome.EntryGone(text(group))

    def _leave(self, world: World, number: int, one: Unit, *, group: int, rv: int) -> Iterator[Result]:
        left = outcome.Left(text(group))
        if has_lost(world, one, group):
            yield "", world, left
            return
        change = self._rules.leaving([tenant(entry_of(one, group, rv))])
        after, _ = self._change(world, group, change=change)
        yield from self._written(world, after, number, one=one, group=group, answer=left)

    def _verify(self, world: World, number: int, one: Unit, group: int) -> Iterator[Result]:
        """The first LIST; what the second needs is kept.

        One verification of a device in one process serves all who want it (binder/bind/actions.py Verifier).
        """
        if any(other.listed and other.listed[0] == group for other in world.binders[number].units):
            return
        found = self._verifying.first(world, group)
        yield "", world, one._replace(listed=(group, found)) if isinstance(found, Resv) else found

    # --- objects of one pod ------------------------------------------------------------------------------------------
    def _post(self, world: World, one: Unit, rv: int, grant: Grant) -> Iterator[Result]:
        holdings = tuple((name(d.group), name(d.reservation), name(d.uuid), d.nano // NANO) for d in grant.devices)
        pod = machines.pod_of(world, one.request.pod)
        if not self._rules.binding_at_entry and pod is not None:
            rv = pod.rv
        binding = Late("bind", (one.request.pod, rv, one.request.attempt, holdings))
        bound = machines.bind(world, binding, self._rules)
        if bound is None:
            yield "refused", world, outcome.BindingNotAccepted("refused")
        else:
            yield "", bound, outcome.BindingAccepted()
        if world.left.refusals:
            left = world.left._replace(refusals=world.left.refusals - 1)
            yield "!refused for another reason", world._replace(left=left), outcome.BindingNotAccepted("refused")
        if world.left.lates and machines.may_land(world, binding, self._rules):
            left = world.left._replace(lates=world.left.lates - 1)
            late = world._replace(late=(*world.late, binding), left=left)
            yield "!no answer", late, outcome.BindingNotAccepted("no answer")

    def _drop(self, world: World, number: int, one: Unit) -> Iterator[Result]:
        slot = slot_of(one.request.pod)
        after = machines.delete_request(world, slot, one.request.attempt, self._rules)
        yield "", after, outcome.RequestDropped()
        if after is not world:
            late = Late("drop", (slot, one.request.attempt))
            yield from self._late(world, after, number, late=late, answer=outcome.RequestDropped())

    def _fence(self, world: World, number: int, one: Unit, rv: int) -> Iterator[Result]:
        late = Late("fence", (one.request.pod, rv, one.request.attempt))
        fenced = machines.fence(world, late, self._rules)
        if fenced is None:
            yield "missed", world, outcome.FenceMissed()
        else:
            yield "", fenced, outcome.Fenced()
            yield from self._late(world, fenced, number, late=late, answer=outcome.Fenced())

    # --- what becomes of a write -------------------------------------------------------------------------------------
    def _written(
        self, world: World, after: World, number: int, *, one: Unit, group: int, answer: Outcome
    ) -> Iterator[Result]:
        """A change of a book: it is answered; or its first try lands later; or the process dies before it lands."""
        yield "", after, answer
        if world.left.lates and after is not world:
            # Repeated until it is answered: the second time the first one's work is found done, or undone again.
            yield "!answer lost", after._replace(left=world.left._replace(lates=world.left.lates - 1)), one
        before, held = world.resvs[group - GROUP], after.resvs[group - GROUP]
        if before is None or held is None or before.book == held.book:
            return
        late = Late("book", (group, before.uid, before.rv, held.book))
        yield from self._late(world, after, number, late=late, answer=answer)

    def _late(self, world: World, after: World, number: int, *, late: Late, answer: Outcome) -> Iterator[Result]:
        """A write that is repeated until it is answered: a try of it may be on its way still."""
        left = world.left
        if left.lates and machines.may_land(after, late, self._rules):
            left_ = left._replace(lates=left.lates - 1)
            yield "!and again later", after._replace(late=(*after.late, late), left=left_), answer
        if left.binder_crashes and left.lates:
            left_ = left._replace(lates=left.lates - 1, binder_crashes=left.binder_crashes - 1)
            dead = put_binder(world, number, Binder())
            yield "!not yet, and dies", dead._replace(late=(*world.late, late), left=left_), None


Move = tuple[Unit, tuple[Action, ...]]
"""A unit as the step function leaves it, and what is to be done."""


class Stepping:
    """Remembers every answer: the same units come back in thousands of states."""

    def __init__(self, rules: Rules, views: Translator) -> None:
        self._rules = rules
        self._views = views
        self._moves: dict[Any, list[Move]] = {}
        self._absorbed: dict[Any, Unit] = {}

    def moves(
        self, world: World, number: int, units: tuple[Unit, ...], *, lag: bool = False, late: bool = False
    ) -> list[Move]:
        """What attempts that bind together do next. ``late``: the time to learn is over."""
        seen = tuple(self._seen(world, number, one, lag=lag, late=late) for one in units)
        key = (units, seen)
        moves = self._moves.get(key)
        if moves is None:
            moves = self._moves[key] = self._step(units, seen)
        return moves

    def absorb(self, one: Unit, answer: Outcome, known: Pod | None) -> Unit:
        """A unit after an outcome. ``known``: the pod that was just read, if one was."""
        key = (one, known, answer)
        found = self._absorbed.get(key)
        if found is None:
            state = self._rules.absorb(self._views.state(one), answer)
            found = self._absorbed[key] = unit(state, one.request, self._views, known)
        return found

    def _step(self, units: tuple[Unit, ...], seen: tuple[Any, ...]) -> list[Move]:
        states = [self._views.state(one) for one in units]
        worlds = {state.attempt.id: self._world(what) for state, what in zip(states, seen, strict=True)}
        moves = self._rules.step(states, worlds)
        return [
            (unit(move.state, one.request, self._views, _known(one, what, move.state.pod)), move.actions)
            for move, one, what in zip(moves, units, seen, strict=True)
        ]

    def _seen(self, world: World, number: int, one: Unit, *, lag: bool, late: bool) -> Any:
        request = one.request
        pod = machines.pod_of(world, request.pod)
        groups = [group for group, _ in request.devices]
        held = tuple((group, world.resvs[group - GROUP]) for group in groups)
        gone = machines.request(world, request.attempt) is None
        deleted = pod is None
        if lag:
            pod = Pod(request.pod, one.rv)
            gone = deleted = False
            held = tuple((group, _as_before(resv)) for group, resv in held)
        joined = {group: reservation for group, reservation, _ in one.joined}
        lost = tuple(
            group for group, resv in held if group in joined and (resv is None or resv.uid != joined[group]) and not lag
        )
        verified = tuple(
            (resv.uid, resv.uuid)
            for _, resv in held
            if resv is not None and (resv.uid, resv.uuid) in world.binders[number].verified
        )
        return pod, deleted, held, lost, verified, gone, late

    def _world(self, seen: Any) -> SeenWorld:
        pod, deleted, held, lost, verified, gone, late = seen
        see = self._rules.see
        return SeenWorld(
            pod=self._views.pod(pod) if pod is not None else None,
            pod_deleted=deleted,
            reservations={
                text(group): see(self._views.resv(group, resv)) if resv is not None else None for group, resv in held
            },
            lost=frozenset(text(group) for group in lost),
            verified=frozenset((text(r), text(d)) for r, d in verified),
            request_gone=gone,
            late=late,
        )


def _known(one: Unit, seen: Any, pod: PodView | None) -> Pod | None:
    """Which of the model's pods a state's pod is."""
    for candidate in (one.read, seen[0]):
        if candidate and pod is not None and text(candidate.rv) == pod.rv:
            return candidate
    return None


def _as_before(resv: Resv | None) -> Resv | None:
    """A reservation as it was before it began to go."""
    if resv is None or not (resv.deleting or resv.phase == 2):
        return resv
    return resv._replace(deleting=False, phase=RUNNING if resv.uuid else 0)


class Binding:
    """All binders of a world."""

    def __init__(self, config: Config, rules: Rules, views: Translator) -> None:
        self._config = config
        self._rules = rules
        self._stepping = Stepping(rules, views)
        self._verifying = Verifying(rules, views)
        self._carrying = Carrying(config, rules, views, self._verifying)

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that a binder may do next."""
        for number in range(len(world.binders)):
            for units in together(world, number):
                listing = next((one for one in units if one.listed), None)
                if listing is not None:
                    yield self._second_list(world, number, units, listing)
                else:
                    yield from self._walk(world, number, units)
            if world.left.binder_crashes and world.binders[number] != Binder():
                left = world.left._replace(binder_crashes=world.left.binder_crashes - 1)
                yield ("!crash of binder", number), put_binder(world, number, Binder())._replace(left=left)

    def certain(self, world: World) -> Step | None:
        """A step that changes nothing but its own unit, and comes out the same whenever it is made, if there is one.

        What is asked for is gone for good. Whether others act before or after makes no difference, so it may be made
        at once, and nothing else be tried in its place.
        """
        for number in range(len(world.binders)):
            for units in together(world, number):
                if any(one.listed for one in units):
                    continue
                moves = self._stepping.moves(world, number, units)
                for at, (one, wanted) in enumerate(moves):
                    for action in wanted:
                        if (answer := self._certain_answer(world, one, action)) is not None:
                            after = self._stepping.absorb(one, answer, None)
                            moved = tuple(after if i == at else other for i, (other, _) in enumerate(moves))
                            label = _label(number, one, action, how="", what="in vain")
                            return label, keep(world, number, moved)
        return None

    def _certain_answer(self, world: World, one: Unit, action: Action) -> Outcome | None:
        """The only answer that an action can still get, and that changes nothing."""
        pod = machines.pod_of(world, one.request.pod)
        match action:
            case actions.TellBound():
                return outcome.BoundTold()
            case actions.DropRequest() if self._rules.request_by_uid:
                return outcome.RequestDropped() if machines.request(world, one.request.attempt) is None else None
            case actions.ReadPod() if pod is None:
                return outcome.PodRead(None)
            case actions.Fence(rv=rv) if pod is None or (self._rules.fence_at_rv and pod.rv > name(rv)):
                return outcome.FenceMissed()
            case actions.Leave(group=group):
                return outcome.Left(group) if has_lost(world, one, name(group)) else None
            case _:
                return None

    def _walk(self, world: World, number: int, units: tuple[Unit, ...]) -> Iterator[Step]:
        fresh = self._stepping.moves(world, number, units)
        yield from self._carry_all(world, number, units, moves=fresh)
        if self._config.lag:
            behind = self._stepping.moves(world, number, units, lag=True)
            if behind != fresh:
                yield from self._carry_all(world, number, units, moves=behind, how="!seen late: ")
        yield from self._time_over(world, number, units, fresh)

    def _time_over(self, world: World, number: int, units: tuple[Unit, ...], fresh: list[Move]) -> Iterator[Step]:
        """The time to learn ends: some day where a device is disputed or a gang is half, elsewhere by misfortune."""
        is_short = len(units) < units[0].request.members and not any(world.schedulers)
        is_disputed = is_short or any(one.disputed for one in units)
        waits = not any(wanted for _, wanted in fresh)
        if not is_disputed and not (waits and world.left.silences):
            return
        over = self._stepping.moves(world, number, units, late=True)
        if over == fresh:
            return
        if not is_disputed:
            world = world._replace(left=world.left._replace(silences=world.left.silences - 1))
        how = "time is over: " if is_disputed else "!time is over: "
        yield from self._carry_all(world, number, units, moves=over, how=how)

    def _carry_all(
        self, world: World, number: int, units: tuple[Unit, ...], *, moves: list[Move], how: str = ""
    ) -> Iterator[Step]:
        moved = tuple(one for one, _ in moves)
        if not any(wanted for _, wanted in moves):
            if moved != units:
                label = (f"{how}binder", number, "goes on", *(one.phase for one in moved))
                yield label, keep(world, number, moved)
            return
        for at, (one, wanted) in enumerate(moves):
            for action in wanted:
                for what, after, answer in self._carrying.results(world, number, one, action):
                    label = _label(number, one, action, how=how, what=what)
                    if answer is None:
                        yield label, after
                    else:
                        heard = answer if isinstance(answer, Unit) else self._hear(world, one, answer)
                        yield label, keep(after, number, (*moved[:at], heard, *moved[at + 1 :]))

    def _hear(self, world: World, one: Unit, answer: Outcome) -> Unit:
        return self._stepping.absorb(one, answer, machines.pod_of(world, one.request.pod))

    def _second_list(self, world: World, number: int, units: tuple[Unit, ...], one: Unit) -> Step:
        """The second LIST of a verification; what is verified is known to the whole process."""
        group, held = one.listed  # type: ignore[misc]  # it is not empty here
        answer = self._verifying.second(world, group, held)
        after = world
        if isinstance(answer, outcome.Verified):
            binder = world.binders[number]
            verified = tuple(sorted({*binder.verified, (held.uid, held.uuid)}))
            after = put_binder(world, number, binder._replace(verified=verified))
        done = self._stepping.absorb(one._replace(listed=()), answer, None)
        rest = tuple(done if other is one else other for other in units)
        label = ("binder", number, "lists again", type(answer).__name__, one.request.pod)
        return label, keep(after, number, rest)


def _label(number: int, one: Unit, action: Action, *, how: str, what: str) -> tuple[Any, ...]:
    marked = what.removeprefix("!")
    sign = "!" if what.startswith("!") and not how.startswith("!") else ""
    details = tuple(name(getattr(action, key)) for key in ("group", "old_rv", "rv") if hasattr(action, key))
    return f"{sign}{how}binder", number, type(action).__name__, one.request.pod, *details, marked
