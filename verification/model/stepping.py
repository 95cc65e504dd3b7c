"""The product's step function on the model's units: what each sees, what it is to do, what an outcome makes of it.

What the shell sees may be late (``lag``): then it has seen nothing since the attempt joined, no deletion, no end, no
change of the pod, no withdrawal.
"""

from __future__ import annotations

from typing import Any

from sharing.outcome import Outcome
from sharing.pods import PodView
from sharing.state import Action
from sharing.state import World as SeenWorld
from verification.model import server
from verification.model.rules import Rules
from verification.model.state import GROUP, RUNNING, Pod, Resv, Unit, World
from verification.model.translating import Translator, text, unit

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
