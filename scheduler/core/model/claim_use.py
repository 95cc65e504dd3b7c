"""ResourceClaims as pods name them."""

from __future__ import annotations

import msgspec


class ResourceClaimUse(msgspec.Struct, frozen=True, gc=False):
    """A ResourceClaim that a pod uses. ``entry``: what the pod calls it. ``is_own``: made for it from a template.

    ``name`` "": it was not made yet. ``group``: PodGroup of Kubernetes' Workload API that the pod is in, "" for none;
    the claim may have been made for it.
    """

    entry: str
    name: str = ""
    is_own: bool = False
    group: str = ""
