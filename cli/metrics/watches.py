"""How watches do: read from the reflectors when asked, and how late they show what we have written ourselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import anyio

from cli.metrics.declared import WATCH_EVENTS, WATCH_LAG, WATCH_LISTS, WATCH_SILENCE, WATCH_UNREADABLE
from cli.metrics.registry import Registry, Sample
from kube.client.lag import WatchLag
from kube.watch.reflector import Reflector


def count_watches(registry: Registry, reflectors: Sequence[Reflector[Any]]) -> None:
    """Show what these reflectors have done, and for how long they have heard nothing.

    Several may watch one resource, in different namespaces: what they did is added up, the longest silence counts.
    """
    by_resource: dict[str, list[Reflector[Any]]] = {}
    for reflector in reflectors:
        by_resource.setdefault(reflector.resource.plural, []).append(reflector)

    def of_each(value: Callable[[Sequence[Reflector[Any]]], float]) -> Callable[[], Iterable[Sample]]:
        return lambda: [((resource,), value(each)) for resource, each in by_resource.items()]

    def silence_s(each: Sequence[Reflector[Any]]) -> float:
        return anyio.current_time() - min(reflector.heard_at for reflector in each)

    registry.read(WATCH_SILENCE, of_each(silence_s))
    registry.read(WATCH_EVENTS, of_each(lambda each: sum(reflector.counts.events for reflector in each)))
    registry.read(WATCH_LISTS, of_each(lambda each: sum(reflector.counts.lists for reflector in each)))
    registry.read(WATCH_UNREADABLE, of_each(lambda each: sum(len(reflector.undecodable) for reflector in each)))


def measured_lag(registry: Registry) -> WatchLag:
    """Measure how late watches are."""
    seconds = registry.histogram(WATCH_LAG)
    return WatchLag(lambda resource, lag_s: seconds.labels(resource).observe(lag_s))
