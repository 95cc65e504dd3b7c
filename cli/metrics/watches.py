"""How watches do: read from the reflectors when asked, and how late they show what we have written ourselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import anyio

from cli.metrics.declared import WATCH_EVENTS, WATCH_LAG, WATCH_LISTS, WATCH_SILENCE, WATCH_UNREADABLE
from cli.metrics.registry import Registry, Sample
from kube.lag import WatchLag
from kube.reflector import Reflector


def count_watches(registry: Registry, reflectors: Sequence[Reflector[Any]]) -> None:
    """Show what these reflectors have done, and for how long they have heard nothing."""

    def of_each(value: Callable[[Reflector[Any]], float]) -> Callable[[], Iterable[Sample]]:
        return lambda: [((reflector.resource.plural,), value(reflector)) for reflector in reflectors]

    registry.read(WATCH_SILENCE, of_each(lambda reflector: anyio.current_time() - reflector.heard_at))
    registry.read(WATCH_EVENTS, of_each(lambda reflector: reflector.counts.events))
    registry.read(WATCH_LISTS, of_each(lambda reflector: reflector.counts.lists))
    registry.read(WATCH_UNREADABLE, of_each(lambda reflector: len(reflector.undecodable)))


def measured_lag(registry: Registry) -> WatchLag:
    """Measure how late watches are."""
    seconds = registry.histogram(WATCH_LAG)
    return WatchLag(lambda resource, lag_s: seconds.labels(resource).observe(lag_s))
