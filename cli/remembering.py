"""Answers that hold for a while, each asked for once however many wait for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

V = TypeVar("V")


@dataclass(slots=True, eq=False)
class _Question(Generic[V]):
    """One that is being asked. Ended with neither an answer nor an error: who asked it has gone."""

    ended: anyio.Event = field(default_factory=anyio.Event)
    answer: tuple[V] | None = None
    error: Exception | None = None


class Remembered(Generic[V]):
    """Answers by key, for ``holds_s`` each; of more than ``most`` those that are None go first, then the oldest."""

    def __init__(self, *, holds_s: float, most: int) -> None:
        self._holds_s = holds_s
        self._most = most
        self._known: OrderedDict[str, tuple[float, V]] = OrderedDict()
        self._asked: dict[str, _Question[V]] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._known)

    def last(self, key: str) -> V | None:
        """The last answer, also one that holds no more."""
        found = self._known.get(key)
        return found[1] if found is not None else None

    async def get(self, key: str, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer that holds, or else a new one.

        Who comes while it is asked waits for the same answer, or the same error. Where the one who asked is cancelled
        the next of those who wait asks.
        """
        while True:
            found = self._known.get(key)
            if found is not None and anyio.current_time() < found[0]:
                return found[1]
            question = self._asked.get(key)
            if question is None:
                return await self._ask(key, ask)
            await question.ended.wait()
            if question.error is not None:
                raise question.error
            if question.answer is not None:
                return question.answer[0]

    async def _ask(self, key: str, ask: Callable[[], Awaitable[V]]) -> V:
        question = self._asked[key] = _Question[V]()
        try:
            answer = await ask()
            question.answer = (answer,)
            self._put(key, answer)
        except Exception as error:
            question.error = error
            raise
        finally:
            del self._asked[key]
            question.ended.set()
        return answer

    def _put(self, key: str, answer: V) -> None:
        self._known.pop(key, None)
        self._known[key] = (anyio.current_time() + self._holds_s, answer)
        if len(self._known) > self._most:
            nothing = (each for each, (_, known) in self._known.items() if known is None)
            del self._known[next(nothing, next(iter(self._known)))]
