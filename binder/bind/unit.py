"""One unit of binding: the attempts that succeed or fail together, carried from BindRequest to bound.

The loop is trivial on purpose: ask the step function, carry its actions out side by side, feed the answers back; wait
for the world to change when there is nothing to do. All decisions are in sharing/step.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import anyio

from binder.bind.actions import Carrier
from binder.telemetry.tracing import ActionCarried, AttemptEnded, DevicesLearned, Emit
from binder.watch.view import View
from kube.watch.signal import Signal
from sharing import outcome as outcomes
from sharing.attempt import Attempt
from sharing.outcome import JoinedAs, Outcome
from sharing.state import Action, Phase, State, Verify, World
from sharing.step import Next, step


class Unit:
    """Attempts by id. Members of a gang are added as their BindRequests are seen."""

    def __init__(
        self,
        first: Attempt,
        *,
        view: View,
        carrier: Carrier,
        learn_timeout_s: float,
        emit: Emit,
    ) -> None:
        self._view = view
        self._emit = emit
        #: Attempt -> when it was seen first, and when its first book was entered (event loop's time).
        self._seen_at: dict[str, float] = {}
        self._joined_at: dict[str, float] = {}
        self._carrier = carrier
        self._learn_timeout_s = learn_timeout_s
        self._signal = Signal()
        self._states: dict[str, State] = {}
        self._keys: set[str] = set()
        #: When devices must be known and the gang complete, by the event loop's clock.
        self._deadline = math.inf
        self.add(first)

    def add(self, attempt: Attempt) -> None:
        """Take in a member. Each has the whole time to learn its devices, and to be followed by the next."""
        if attempt.id in self._states:
            return
        self._states[attempt.id] = State(attempt=attempt, rv=attempt.rv)
        self._seen_at[attempt.id] = anyio.current_time()
        keys = {f"pod:{attempt.pod_uid}", f"request:{attempt.id}", *(f"group:{d.group}" for d in attempt.devices)}
        self._view.subscriptions.add(self._signal, keys - self._keys)
        self._keys |= keys
        self._deadline = anyio.current_time() + self._learn_timeout_s
        self._signal.set()

    @property
    def pods(self) -> set[str]:
        """UIDs of the pods that are worked on."""
        return {state.attempt.pod_uid for state in self._states.values()}

    def start_over(self) -> None:
        """Forget all that was learned, as after a crash: the BindRequests tell all that is needed."""
        self._states = {key: State(attempt=s.attempt, rv=s.attempt.rv) for key, s in self._states.items()}
        self._deadline = anyio.current_time() + self._learn_timeout_s

    def close(self) -> None:
        """Take the subscriptions back, and have the collector see to what the attempts may have left behind."""
        self._view.subscriptions.remove(self._signal, self._keys)
        for group in {device.group for state in self._states.values() for device in state.attempt.devices}:
            self._view.mark(group)

    def tell_end(self) -> None:
        """Tell how each attempt ended, when all have."""
        now = anyio.current_time()
        for key, state in self._states.items():
            self._emit(AttemptEnded(state.attempt, state.failure, now - self._seen_at[key]))

    async def run(self) -> None:
        """Work until every attempt has ended."""
        while not all(state.phase is Phase.END for state in self._states.values()):
            moves = step(list(self._states.values()), {key: self._world(s) for key, s in self._states.items()})
            self._states.update({move.state.attempt.id: move.state for move in moves})
            if any(move.actions for move in moves):
                await self._carry(moves)
            elif any(move.state.phase is not Phase.END for move in moves):
                await self._wait()

    async def _carry(self, moves: Sequence[Next]) -> None:
        answers: list[tuple[str, Outcome]] = []

        async def carry(state: State, action: Action) -> None:
            began = anyio.current_time()
            self._note_learned(state.attempt.id, action, began)
            answer = await self._carrier.carry(state, action)
            answers.append((state.attempt.id, answer))
            self._emit(ActionCarried(state.attempt, action, answer, began, anyio.current_time()))

        async with anyio.create_task_group() as tasks:
            for move in moves:
                for action in move.actions:
                    tasks.start_soon(carry, move.state, action)
        if any(isinstance(answer, JoinedAs) for _, answer in answers):
            # The time to learn begins with the join, however long that took.
            self._deadline = anyio.current_time() + self._learn_timeout_s
        for attempt_id, answer in answers:
            if isinstance(answer, JoinedAs):
                self._joined_at.setdefault(attempt_id, anyio.current_time())
            self._states[attempt_id] = outcomes.absorb(self._states[attempt_id], answer)

    def _note_learned(self, attempt_id: str, action: Action, now: float) -> None:
        """The first look at a device is when it was told."""
        if isinstance(action, Verify) and (joined_at := self._joined_at.pop(attempt_id, None)) is not None:
            self._emit(DevicesLearned(now - joined_at))

    async def _wait(self) -> None:
        """Wait for a change, or for the time to learn to be over."""
        is_over = anyio.current_time() >= self._deadline
        with anyio.CancelScope(deadline=math.inf if is_over else self._deadline):
            await self._signal.wait()

    def _world(self, state: State) -> World:
        view = self._view
        attempt = state.attempt
        groups = [device.group for device in attempt.devices]
        held = {group: view.reservations.get(group) for group in groups}
        return World(
            pod=view.pods.get(attempt.pod_uid),
            pod_deleted=attempt.pod_uid in view.gone_pods,
            reservations=held,
            lost=frozenset(g for g in groups if g in state.joined and view.is_lost(state.joined[g].reservation)),
            verified=frozenset((r.uid, r.uuid) for r in held.values() if r and (r.uid, r.uuid) in view.verified),
            request_gone=not view.has_request(attempt.id),
            late=anyio.current_time() >= self._deadline,
            enforces=view.enforces.get(attempt.node),
        )
