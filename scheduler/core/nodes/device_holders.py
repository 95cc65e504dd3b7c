"""Which claims have which device, and which of them had it first.

The API server does not prevent that two claims get one device. A watch shows writes in their order, so an allocation
that it showed has an exact version. One that a list showed was written then or before. Of two claims an earlier one is
any that was not surely allocated later: so no two processes both take their claim for the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from scheduler.core.model.device_allocation import DeviceResult, ResourceClaimRecord
from scheduler.core.model.device_record import DeviceId


class _Since(msgspec.Struct, frozen=True, gc=False):
    """When an allocation was written: at this version, or (not ``is_exact``) there or before."""

    results: tuple[DeviceResult, ...]
    version: int
    is_exact: bool


class DeviceHolders:
    """Claims by UID, with devices that they have; admin access takes none."""

    def __init__(self) -> None:
        self._since: dict[str, _Since] = {}
        self._of: dict[DeviceId, set[str]] = {}
        #: Claims (UIDs) that were seen before without this allocation.
        self._seen: set[str] = set()
        self._is_listing = False

    @contextmanager
    def listing(self) -> Iterator[None]:
        """What is put meanwhile was listed, so that nothing is known of the order of writes."""
        self._is_listing = True
        try:
            yield
        finally:
            self._is_listing = False

    def put(self, claim: ResourceClaimRecord, results: Sequence[DeviceResult]) -> None:
        """Take what a claim has now; nothing: it has none, or is gone."""
        taking = tuple(each for each in results if not each.is_admin)
        known = self._since.get(claim.uid)
        if known is not None and known.results == taking:
            return
        self._drop(claim.uid)
        if taking:
            is_exact = not self._is_listing and claim.uid in self._seen
            self._since[claim.uid] = _Since(taking, _number(claim.resource_version), is_exact)
            for each in taking:
                self._of.setdefault(each.id, set()).add(claim.uid)
        self._seen.add(claim.uid)

    def forget(self, uid: str) -> None:
        """A claim is gone."""
        self._drop(uid)
        self._seen.discard(uid)

    def _drop(self, uid: str) -> None:
        known = self._since.pop(uid, None)
        for each in () if known is None else known.results:
            holders = self._of[each.id]
            holders.discard(uid)
            if not holders:
                del self._of[each.id]

    def beside(self, uid: str) -> set[str]:
        """Other claims (UIDs) with a device of this one."""
        own = self._since.get(uid)
        return set() if own is None else {other for mine in own.results for other in self._of[mine.id]} - {uid}

    def has_earlier(self, claim: ResourceClaimRecord) -> bool:
        """Whether another claim has a device of this one, and was not surely allocated later."""
        own = self._since.get(claim.uid)
        if own is None:
            return False
        return any(
            _clash(own.results, other.results) and not (other.is_exact and other.version > own.version)
            for other in map(self._since.__getitem__, self.beside(claim.uid))
        )


def _clash(some: Sequence[DeviceResult], others: Sequence[DeviceResult]) -> bool:
    """Whether there is a device that both can't have: parts of one go together."""
    by_id = {each.id: each for each in others}
    both = ((each, by_id[each.id]) for each in some if each.id in by_id)
    return any(one.consumed is None or other.consumed is None for one, other in both)


def _number(version: str) -> int:
    """A resourceVersion as a number (KEP-5504); those of other API servers are before all others."""
    return int(version) if version.isdecimal() else 0
