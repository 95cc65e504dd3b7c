"""The binders: the product's step function and its outcomes, one action a step (binder/bind/unit.py).

Actions that the shell carries out side by side are steps of their own here, in any order. What the shell sees may be
late: each step is tried with a view that is fresh and, where the configuration says so, with one that has seen nothing
since the attempt joined (stepping.py).

The product's step function on the model's units: what each sees, what it is to do, what an outcome makes of it.

What the shell sees may be late (``lag``): then it has seen nothing since the attempt joined, no deletion, no end, no
change of the pod, no withdrawal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sharing import outcome
from sharing import state as actions
from sharing.outcome import Outcome
from sharing.pods import PodView
from sharing.state import Action
from sharing.state import World as SeenWorld
from verification.model import attempts, server
from verification.model.attempts import Carrying, Verifying
from verification.model.config import Config
from verification.model.rules import Rules
from verification.model.state import GROUP, RUNNING, Binder, Pod, Resv, Step, Unit, World
from verification.model.translating import Translator, name, text, unit

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
        pod = server.pod(world, request.pod)
        groups = [group for group, _ in request.devices]
        held = tuple((group, world.resvs[group - GROUP]) for group in groups)
        gone = server.request(world, request.attempt) is None
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
            for units in attempts.together(world, number):
                listing = next((one for one in units if one.listed), None)
                if listing is not None:
                    yield self._second_list(world, number, units, listing)
                else:
                    yield from self._walk(world, number, units)
            if world.left.binder_crashes and world.binders[number] != Binder():
                left = world.left._replace(binder_crashes=world.left.binder_crashes - 1)
                yield ("!crash of binder", number), attempts.put_binder(world, number, Binder())._replace(left=left)

    def certain(self, world: World) -> Step | None:
        """A step that changes nothing but its own unit, and comes out the same whenever it is made, if there is one.

        What is asked for is gone for good. Whether others act before or after makes no difference, so it may be made
        at once, and nothing else be tried in its place.
        """
        for number in range(len(world.binders)):
            for units in attempts.together(world, number):
                if any(one.listed for one in units):
                    continue
                moves = self._stepping.moves(world, number, units)
                for at, (one, wanted) in enumerate(moves):
                    for action in wanted:
                        if (answer := self._certain_answer(world, one, action)) is not None:
                            after = self._stepping.absorb(one, answer, None)
                            moved = tuple(after if i == at else other for i, (other, _) in enumerate(moves))
                            label = _label(number, one, action, how="", what="in vain")
                            return label, attempts.keep(world, number, moved)
        return None

    def _certain_answer(self, world: World, one: Unit, action: Action) -> Outcome | None:
        """The only answer that an action can still get, and that changes nothing."""
        pod = server.pod(world, one.request.pod)
        match action:
            case actions.TellBound():
                return outcome.BoundTold()
            case actions.DropRequest() if self._rules.request_by_uid:
                return outcome.RequestDropped() if server.request(world, one.request.attempt) is None else None
            case actions.ReadPod() if pod is None:
                return outcome.PodRead(None)
            case actions.Fence(rv=rv) if pod is None or (self._rules.fence_at_rv and pod.rv > name(rv)):
                return outcome.FenceMissed()
            case actions.Leave(group=group):
                return outcome.Left(group) if attempts.has_lost(world, one, name(group)) else None
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
                yield label, attempts.keep(world, number, moved)
            return
        for at, (one, wanted) in enumerate(moves):
            for action in wanted:
                for what, after, answer in self._carrying.results(world, number, one, action):
                    label = _label(number, one, action, how=how, what=what)
                    if answer is None:
                        yield label, after
                    else:
                        heard = answer if isinstance(answer, Unit) else self._hear(world, one, answer)
                        yield label, attempts.keep(after, number, (*moved[:at], heard, *moved[at + 1 :]))

    def _hear(self, world: World, one: Unit, answer: Outcome) -> Unit:
        return self._stepping.absorb(one, answer, server.pod(world, one.request.pod))

    def _second_list(self, world: World, number: int, units: tuple[Unit, ...], one: Unit) -> Step:
        """The second LIST of a verification; what is verified is known to the whole process."""
        group, held = one.listed  # type: ignore[misc]  # it is not empty here
        answer = self._verifying.second(world, group, held)
        after = world
        if isinstance(answer, outcome.Verified):
            binder = world.binders[number]
            verified = tuple(sorted({*binder.verified, (held.uid, held.uuid)}))
            after = attempts.put_binder(world, number, binder._replace(verified=verified))
        done = self._stepping.absorb(one._replace(listed=()), answer, None)
        rest = tuple(done if other is one else other for other in units)
        label = ("binder", number, "lists again", type(answer).__name__, one.request.pod)
        return label, attempts.keep(after, number, rest)


def _label(number: int, one: Unit, action: Action, *, how: str, what: str) -> tuple[Any, ...]:
    marked = what.removeprefix("!")
    sign = "!" if what.startswith("!") and not how.startswith("!") else ""
    details = tuple(name(getattr(action, key)) for key in ("group", "old_rv", "rv") if hasattr(action, key))
    return f"{sign}{how}binder", number, type(action).__name__, one.request.pod, *details, marked
