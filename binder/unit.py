"""One unit of binding: the attempts that succeed or fail together, carried from BindRequest to bound.

The loop is trivial on purpose: ask the step function, carry its actions out side by side, feed the answers back; wait
for the world to change when there is nothing to do. All decisions are in binder/core/step.py.
"""

from __future__ import annotations

import logging
from typing import Final

import anyio

from binder.carrying import Carrier
from binder.core import outcome as outcomes
from binder.core.attempt import Attempt
from binder.core.outcome import Outcome
from binder.core.state import Action, Phase, State, World
from binder.core.step import Next, step
from binder.view import Signal, View

_log: Final = logging.getLogger(__name__)


class Unit:
    """Attempts by id. Members of a gang are added as their BindRequests are seen."""

    def __init__(
        self, first: Attempt, *, view: View, carrier: Carrier, verified: set[tuple[str, str]], learn_timeout_s: float
    ) -> None:
        self._view = view
        self._carrier = carrier
        self._verified = verified
        self._learn_timeout_s = learn_timeout_s
        self._signal = Signal()
        self._states: dict[str, State] = {}
        self._keys: set[str] = set()
        self._deadline = 0.0
        self.add(first)

    def add(self, attempt: Attempt) -> None:
        """Take in a member."""
        self._states[attempt.id] = State(attempt=attempt, rv=attempt.rv)
        keys = {f"pod:{attempt.pod_uid}", f"request:{attempt.id}", *(f"group:{d.group}" for d in attempt.devices)}
        self._view.subscriptions.add(self._signal, keys - self._keys)
        self._keys |= keys
        self._signal.set()

    @property
    def pods(self) -> set[str]:
        """UIDs of the pods that are worked on."""
        return {state.attempt.pod_uid for state in self._states.values()}

    async def run(self) -> None:
        """Work until every attempt has ended."""
        self._deadline = anyio.current_time() + self._learn_timeout_s
        try:
            while not all(state.phase is Phase.END for state in self._states.values()):
                moves = step(list(self._states.values()), {key: self._world(s) for key, s in self._states.items()})
                self._states.update({move.state.attempt.id: move.state for move in moves})
                if any(move.actions for move in moves):
                    await self._carry(moves)
                elif any(state.phase is not Phase.END for state in self._states.values()):
                    await self._wait()
        finally:
            self._view.subscriptions.remove(self._signal, self._keys)

    async def _carry(self, moves: list[Next]) -> None:
        answers: list[tuple[str, Outcome]] = []

        async def carry(state: State, action: Action) -> None:
            answers.append((state.attempt.id, await self._carrier.carry(state, action)))

        async with anyio.create_task_group() as tasks:
            for move in moves:
                for action in move.actions:
                    tasks.start_soon(carry, move.state, action)
        for attempt_id, answer in answers:
            self._states[attempt_id] = outcomes.absorb(self._states[attempt_id], answer)

    async def _wait(self) -> None:
        """Wait for a change, or for the time to learn to be over."""
        left_s = self._deadline - anyio.current_time()
        with anyio.move_on_after(max(left_s, 0) if left_s > 0 else None):
            await self._signal.wait()

    def _world(self, state: State) -> World:
        view = self._view
        attempt = state.attempt
        groups = [device.group for device in attempt.devices]
        pod = view.pod(attempt.pod_uid)
        return World(
            pod=pod,
            pod_deleted=pod is None and attempt.pod_uid in view.last_seen,
            reservations={group: view.reservation_of(group) for group in groups},
            lost=frozenset(
                g for g in groups if g in state.joined and state.joined[g].reservation in view.lost.get(g, ())
            ),
            verified=frozenset(
                (held.uid, held.uuid)
                for group in groups
                if (held := view.reservation_of(group)) is not None and (held.uid, held.uuid) in self._verified
            ),
            request_gone=not view.has_request(attempt.id),
            late=anyio.current_time() >= self._deadline,
        )
