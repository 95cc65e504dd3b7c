"""Feeds the core what pods depend on beside nodes and their own spec: namespaces, Jobs, claims, volumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from kube.client.resources import (
    CSI_NODES,
    JOBS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Resource,
)
from scheduler.core.convert import job_owners, selectors, volumes
from scheduler.core.model.facts import Facts, Keyed
from scheduler.watch.cache import Cache

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R", bound=Keyed[Any])


class FactSink(Generic[T, R]):
    """Feeds one table of the core, and wakes whoever decides."""

    def __init__(self, cache: Cache, facts: Facts[Any, R], read: Callable[[T], R]) -> None:
        self._cache = cache
        self._facts = facts
        self._read = read

    def keep(self, obj: T) -> R:
        """What the core keeps of an object."""
        return self._read(obj)

    async def replace(self, kept: Sequence[R]) -> None:
        """Take a list: what is not in it is gone."""
        self._facts.replace(kept)
        self._cache.wake.set()

    def upsert(self, obj: T) -> None:
        """Take an object."""
        self._facts.put(self._read(obj))
        self._cache.wake.set()

    def delete(self, obj: T) -> None:
        """Take an object's last state."""
        self._facts.drop(self._read(obj))
        self._cache.wake.set()


def sinks(cache: Cache) -> tuple[tuple[Resource[Any], FactSink[Any, Any]], ...]:
    """What to follow, with what it feeds."""
    storage = cache.cluster.storage
    return (
        (NAMESPACES, FactSink(cache, cache.cluster.others.namespaces, selectors.namespace_record)),
        (JOBS, FactSink(cache, cache.cluster.owners.jobs, job_owners.job_record)),
        (STORAGE_CLASSES, FactSink(cache, storage.classes, volumes.storage_class_record)),
        (CSI_NODES, FactSink(cache, storage.attachments.limits, volumes.limits_record)),
        (VOLUME_ATTACHMENTS, FactSink(cache, storage.attachments.attached, volumes.attachment_record)),
        (PERSISTENT_VOLUMES, FactSink(cache, storage.volumes, volumes.volume_record)),
        (PERSISTENT_VOLUME_CLAIMS, FactSink(cache, storage.claims, volumes.claim_record)),
    )
