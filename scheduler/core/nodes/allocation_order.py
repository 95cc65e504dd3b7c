"""Which of two ResourceClaims was allocated first, as far as it is known.

The API server does not prevent that two claims get one device. A watch shows writes in their order, so an allocation
that it showed has an exact version. One that a list showed was written then or before. Of two claims an earlier one is
any that was not surely allocated later: so no two processes both take their claim for the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from scheduler.core.model.device_allocation import DeviceResult, ResourceClaimRecord


class _Since(msgspec.Struct, frozen=True, gc=False):
    """When an allocation was written: at this version, or (not ``is_exact``) there or before."""

    results: tuple[DeviceResult, ...]
    version: int
    is_exact: bool


class AllocationOrder:
    """Claims by UID, as they are seen."""

    def __init__(self) -> None:
        self._since: dict[str, _Since | None] = {}
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
        """Take what a claim has now; nothing: it has none."""
        now, known = tuple(results), self._since.get(claim.uid)
        if not now:
            self._since[claim.uid] = None
        elif known is None or known.results != now:
            is_exact = not self._is_listing and claim.uid in self._since
            self._since[claim.uid] = _Since(now, _number(claim.resource_version), is_exact)

    def forget(self, uid: str) -> None:
        """A claim is gone."""
        self._since.pop(uid, None)

    def is_later(self, uid: str, than: str) -> bool:
        """Whether a claim (UID) was surely allocated after another one."""
        one, other = self._since.get(uid), self._since.get(than)
        return one is not None and other is not None and one.is_exact and one.version > other.version


def _number(version: str) -> int:
    """A resourceVersion as a number (KEP-5504); those of other API servers are before all others."""
    return int(version) if version.isdecimal() else 0
