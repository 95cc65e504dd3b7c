"""A cache, and lists of pods for it."""

from __future__ import annotations

from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from scheduler.watch.cache import Cache, CacheListeners
from scheduler.watch.sinks import PodSink
from wire.core import Pod


def cache(listeners: CacheListeners = CacheListeners()) -> tuple[Cache, PodSink]:  # noqa: B008 - frozen
    made = Cache(Cluster(Settings()), listeners=listeners)
    return made, PodSink(made)


async def listed(sink: PodSink, *pods: Pod) -> None:
    await sink.replace([sink.keep(obj) for obj in pods])
