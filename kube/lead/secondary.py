"""Kinds that a component reads and can do without for a while, unlike those that its safety rests on.

One that may not be listed (403), that the API server does not serve (404) or that fails in another way holds up neither
the start nor a term as leader. Its sink learns that it is not in step, and judges what that means for what depends on
it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import anyio
import msgspec
from anyio.abc import TaskStatus
from typing_extensions import override

from kube.client.api import Api
from kube.client.errors import ApiError, Forbidden, NotFound, Unauthorized
from kube.client.resources import Resource
from kube.watch.reflector import Reflector, Sink, Tee
from kube.watch.signal import Signal

T = TypeVar("T", bound=msgspec.Struct)
T_contra = TypeVar("T_contra", bound=msgspec.Struct, contravariant=True)

_log: Final = logging.getLogger(__name__)

#: A first list of all these kinds together is waited for so long, and a fresh one when a term begins.
_FIRST_LISTS_S: Final = 30.0
_FRESH_LISTS_S: Final = 10.0
#: A kind that was in step and fails is late at first, as any watch may be. Shorter than anybody waits for an object of
#: such a kind that was not seen (scheduler/core/convert/owners.py: 10 s).
_LATE_S: Final = 5.0


class SecondarySink(Sink[T_contra, Any], Protocol[T_contra]):
    """A sink that can be out of step. It begins so, with nothing read."""

    def in_step(self, is_in_step: bool) -> None:
        """Take whether changes come in from now on; what is known stays known."""
        ...


class SecondaryTee(Tee[T], SecondarySink[T]):
    """Feeds further sinks from the watch of a kind. Whether it is in step only the first one learns."""

    def __init__(self, first: SecondarySink[T], *others: Sink[T, Any]) -> None:
        super().__init__(first, *others)
        self._first = first

    @override
    def in_step(self, is_in_step: bool) -> None:
        self._first.in_step(is_in_step)


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind with what it feeds. ``without`` says what happens while it can't be read."""

    resource: Resource[T]
    sink: SecondarySink[T]
    without: str


class Secondary:
    """Keeps these kinds in step as far as the API server lets it; a part of what a Follower follows.

    They are listed side by side: nothing rests on which of them is known first.
    """

    def __init__(self, api: Api, kinds: Sequence[Kind[Any]], *, rng: random.Random) -> None:
        self._parts = [_Part(api, kind, rng=rng) for kind in kinds]

    @property
    def reflectors(self) -> list[Reflector[Any]]:
        """What watches them."""
        return [part.reflector for part in self._parts]

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep in step until cancelled. Started when each list was answered or refused, or too much time is over."""
        deadline = anyio.current_time() + _FIRST_LISTS_S
        async with anyio.create_task_group() as tasks:
            for part in self._parts:
                tasks.start_soon(part.reflector.run)
                tasks.start_soon(part.grow_old)
            for part in self._parts:
                with anyio.CancelScope(deadline=deadline):
                    await part.answered.wait()
            task_status.started()

    async def catch_up(self) -> None:
        """Return when each kind is not older than this call, or is marked as not in step."""
        deadline = anyio.current_time() + _FRESH_LISTS_S
        async with anyio.create_task_group() as tasks:
            for part in self._parts:
                tasks.start_soon(part.catch_up, deadline)


class _Part:
    """One kind."""

    def __init__(self, api: Api, kind: Kind[Any], *, rng: random.Random) -> None:
        self.reflector: Reflector[Any] = Reflector(api, kind.resource, kind.sink, rng=rng)
        self.reflector.on_answer = self._take
        #: Whether a list was answered.
        self.answered = anyio.Event()
        self._kind = kind
        #: Why it is not kept in step; None while it is.
        self._error: ApiError | None = None
        self._failed = Signal()
        self._is_in_step = self._was_told = False

    def _take(self, error: ApiError | None) -> None:
        self._error = error
        self.answered.set()
        if error is not None:
            self._failed.set()
        elif not self._is_in_step:
            self._is_in_step = True
            self._kind.sink.in_step(True)
            if self._was_told:
                self._was_told = False
                _log.info("%s can be read again", _name(self._kind.resource))

    async def grow_old(self) -> None:
        """Tell the sink when a failure lasts, until cancelled."""
        while True:
            await self._failed.wait()
            await anyio.sleep(_LATE_S)
            if self._error is not None:
                self._fall_behind()

    async def catch_up(self, deadline: float) -> None:
        """Have it listed; fall behind if that fails, or takes until the deadline."""
        self.answered = anyio.Event()
        is_listed = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_on_failure, tasks.cancel_scope)
            with anyio.CancelScope(deadline=deadline):
                await self.reflector.catch_up()
                is_listed = True
            tasks.cancel_scope.cancel()
        if not is_listed:
            self._fall_behind()

    async def _end_on_failure(self, scope: anyio.CancelScope) -> None:
        while self._error is None or not self.answered.is_set():
            await self.answered.wait()
            if self._error is None:
                self.answered = anyio.Event()  # a watch was opened: that says nothing of the list
        scope.cancel()

    def _fall_behind(self) -> None:
        if self._is_in_step:
            self._is_in_step = False
            self._kind.sink.in_step(False)
        if self._error is not None and not self._was_told:
            self._was_told = True
            _log.warning(
                "%s can't be listed and watched: %s; %s. Until then: %s",
                _name(self._kind.resource),
                self._error,
                _remedy(self._error, self._kind.resource),
                self._kind.without,
            )


def _remedy(error: ApiError, resource: Resource[Any]) -> str:
    name = _name(resource)
    if isinstance(error, Unauthorized):
        return "give this process a valid token"
    if isinstance(error, Forbidden):
        return f"allow the verbs list and watch on {name} in the ClusterRole of this component"
    if isinstance(error, NotFound):
        return f"have the API server serve {resource.api_version} {resource.kind}"
    return "it is tried again"


def _name(resource: Resource[Any]) -> str:
    """As in ``kubectl get``: the plural, and the group where there is one."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
