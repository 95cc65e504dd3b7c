"""What a cluster was told and asked, in order. Told to another one it gives the same plans, and the same state.

An event is a call of the cluster, or of one of its parts (``commits.assume``), with values as its arguments. So there
is no second vocabulary of events beside the methods, and each change of a cluster is in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec
from typing_extensions import override

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Plan

_PARTS: Final = "scheduler.core."


class Event(NamedTuple):
    """``path``: parts of the cluster, and last the method, or the attribute that was set to the only argument."""

    path: tuple[str, ...]
    is_call: bool
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class EventLog:
    """The events of one cluster, from its beginning, and the plans that came of them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.plans: list[Plan] = []

    def recording(self, cluster: Cluster) -> Cluster:
        """The cluster; each call of what is returned is written down."""
        return cast("Cluster", _Part(cluster, (), self))

    def replay(self, cluster: Cluster) -> list[Plan]:
        """Tell another cluster the same; return its plans. Raises what the events raised."""
        answers = (_tell(cluster, event) for event in self.events)
        return [answer for answer in answers if isinstance(answer, Plan)]


def _tell(cluster: Cluster, event: Event) -> object:
    part: Any = cluster
    *parts, last = event.path
    for name in parts:
        part = getattr(part, name)
    if not event.is_call:
        setattr(part, last, event.args[0])
        return None
    return getattr(part, last)(*event.args, **event.kwargs)


class _Part:
    """A cluster or a part of one: calls are written down and passed on."""

    __slots__ = ("_log", "_path", "_target")

    def __init__(self, target: object, path: tuple[str, ...], log: EventLog) -> None:
        object.__setattr__(self, "_target", target)
        object.__setattr__(self, "_path", path)
        object.__setattr__(self, "_log", log)

    def __getattr__(self, name: str) -> Any:
        found, path = getattr(self._target, name), (*self._path, name)
        if callable(found):
            return self._written_down(found, path)
        is_part = type(found).__module__.startswith(_PARTS) and not isinstance(found, msgspec.Struct | tuple)
        return _Part(found, path, self._log) if is_part else found

    @override
    def __setattr__(self, name: str, value: object) -> None:
        self._log.events.append(Event((*self._path, name), is_call=False, args=(value,), kwargs={}))
        setattr(self._target, name, value)

    def _written_down(self, method: Callable[..., object], path: tuple[str, ...]) -> Callable[..., object]:
        def called(*args: object, **kwargs: object) -> object:
            kept = tuple([*arg] if isinstance(arg, list) else arg for arg in args)
            self._log.events.append(Event(path, is_call=True, args=kept, kwargs=kwargs))
            answer = method(*args, **kwargs)
            if isinstance(answer, Plan):
                self._log.plans.append(answer)
            return answer

        return called
