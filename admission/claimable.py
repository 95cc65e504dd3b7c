"""The extended resource by which containers may get their share from a ResourceClaim (docs/design/claims.md, Shares).

Kubelet gives a container the devices of a claim that no field of its spec names only for an extended resource that it
requests. No node has this one, and kubelet ignores it where the pod's status does not map it to a claim. So the pod can
still be bound to a node with a device plugin: the scheduler decides.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from admission.containers import Raw, rewritten
from gpu.claimedshare import is_servable
from gpu.request import ContainerRef
from gpu.translation import Translation
from wire import names


def claimable(pod: Raw, translation: Translation, *, is_on: bool) -> Raw:
    """Let the containers of a share that a claim can give request the resource, and no others."""
    requests = (translation.request, *translation.alternatives)
    keys = [sorted(ref.key for ref in request.devices()) for request in requests]
    is_wanted = is_on and not translation.cards.uuids and not translation.cards.not_uuids
    targets = keys[0] if is_wanted and all(map(is_servable, requests)) and all(each == keys[0] for each in keys) else ()
    return _asking(pod, targets)


def _asking(pod: Raw, targets: Collection[str]) -> Raw:
    def change(ref: ContainerRef, container: Raw) -> Raw:
        if ref.key in targets:
            return _with_resource(container)
        return _without_resource(container)

    return rewritten(pod, change)


def _with_resource(container: Raw) -> Raw:
    resources: dict[str, Any] = dict(container.get("resources") or {})
    # Limits and requests of extended resources are equal. Requests are written out: kubelet reads those.
    for field in ("limits", "requests"):
        resources[field] = {**(resources.get(field) or {}), names.GPU_SHARE_RESOURCE: "1"}
    return {**container, "resources": resources}


def _without_resource(container: Raw) -> Raw:
    resources: dict[str, Any] = dict(container.get("resources") or {})
    fields = [field for field in ("limits", "requests") if names.GPU_SHARE_RESOURCE in (resources.get(field) or {})]
    for field in fields:
        resources[field] = {key: value for key, value in resources[field].items() if key != names.GPU_SHARE_RESOURCE}
    return {**container, "resources": resources} if fields else container
