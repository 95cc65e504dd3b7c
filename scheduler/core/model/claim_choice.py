"""What is to be written for a ResourceClaim when its pod is placed."""

from __future__ import annotations

import msgspec

from scheduler.core.model.device_allocation import ClaimAllocation
from scheduler.core.model.extended_resource import ClaimToMake


class ClaimChoice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A claim (name and UID) is to have this allocation, and the pod in ``reservedFor``.

    ``key``: of a claim that several pods may use. ``is_allocated``: it has the allocation already. ``made``: it does
    not exist, and is made as this says; ``claim_uid`` stands for it until then.
    """

    claim: str
    claim_uid: str
    allocation: ClaimAllocation
    key: tuple[str, str] | None = None
    is_allocated: bool = False
    made: ClaimToMake | None = None
