"""Feeds one table of the core from a watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from typing_extensions import override

from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.model.devices import ResourceClaimRecord
from scheduler.core.model.facts import Facts, Keyed
from scheduler.watch.cache import Cache
from wire.resource import ResourceClaim

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R", bound=Keyed[Any])


class FactSink(Generic[T, R]):
    """Feeds one table of the core, and wakes the deciding task."""

    def __init__(self, cache: Cache, facts: Facts[Any, R], read: Callable[[T], R]) -> None:
        self._cache = cache
        self._facts = facts
        self._read = read
        facts.expect()

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

    def in_step(self, is_in_step: bool) -> None:
        """Take whether changes come in."""
        self._facts.note_in_step(is_in_step)
        self._cache.wake.set()


class StoredSink(FactSink[T, R]):
    """The same of claims or volumes: it tells those who wait for one of them (``Cache.on_stored``)."""

    @override
    async def replace(self, kept: Sequence[R]) -> None:
        """Take a list, and tell that any may have changed."""
        await super().replace(kept)
        self._cache.on_stored(None)

    @override
    def upsert(self, obj: T) -> None:
        """Take an object."""
        super().upsert(obj)
        self._cache.on_stored(self._read(obj).key)

    @override
    def delete(self, obj: T) -> None:
        """Take an object's last state."""
        super().delete(obj)
        self._cache.on_stored(self._read(obj).key)


class ClaimSink(StoredSink[ResourceClaim, ResourceClaimRecord]):
    """The same of ResourceClaims: a list does not say in which order their devices were allocated."""

    def __init__(self, cache: Cache) -> None:
        super().__init__(cache, cache.cluster.claims.claims, resource_claim_record)

    @override
    async def replace(self, kept: Sequence[ResourceClaimRecord]) -> None:
        """Take a list, and tell that any may have changed."""
        with self._cache.cluster.claims.order.listing():
            await super().replace(kept)
