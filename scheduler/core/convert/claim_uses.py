"""Which ResourceClaims a pod uses: by name, or those that were made for it from templates."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from scheduler.core.convert import bounds
from scheduler.core.model.claim_use import ResourceClaimUse
from wire.core import Pod, PodResourceClaim

#: Devices for all claims are searched for on each node. Nobody means that many.
MOST_CLAIMS: Final = 32


def is_unread(entry: PodResourceClaim) -> bool:
    """Whether a pod names a claim in a way that nothing here reads."""
    return not (entry.resource_claim_name or entry.resource_claim_template_name)


def claim_uses(pod: Pod) -> tuple[ResourceClaimUse, ...]:
    """The claims of a pod, in its order, one more than it may have at most. Those that are not needed are left out."""
    return tuple(islice(_uses(pod), MOST_CLAIMS + 1)) if pod.spec.resource_claims else ()


def _uses(pod: Pod) -> Iterator[ResourceClaimUse]:
    made = {each.name: each for each in pod.status.resource_claim_statuses or ()}
    for entry in pod.spec.resource_claims or ():
        if entry.resource_claim_name:
            yield ResourceClaimUse(entry.name, entry.resource_claim_name)
        elif is_unread(entry):
            continue
        elif entry.name not in made:
            yield ResourceClaimUse(entry.name, is_own=True)
        elif name := made[entry.name].resource_claim_name:
            yield ResourceClaimUse(entry.name, name, is_own=True, group=_group(pod))


def _group(pod: Pod) -> str:
    """The PodGroup of Kubernetes' Workload API that a pod is in, also if it is grouped by something else here."""
    name = (pod.spec.scheduling_group or {}).get("podGroupName")
    return bounds.name(name) if isinstance(name, str) else ""
