"""Binding a pod, and finding out what became of it (docs/design/protocol.md, steps 3 and 4)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpu.grant import BoundMetadata
from kube.api import Api
from kube.clock import Clock, rfc3339
from kube.errors import ApiError, Conflict, NotFound
from kube.resources import PODS
from wire import names
from wire.core import Binding, ObjectMeta, ObjectReference, Pod


class Identity(msgspec.Struct, frozen=True, gc=False):
    """A pod by name and UID: a later pod of the same name is another one."""

    namespace: str
    name: str
    uid: str


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The pod is bound."""


class NotAccepted(msgspec.Struct, frozen=True, gc=False):
    """Refused, or no answer came: then (``is_unknown``) it may still land. Only a quorum read tells (``read``)."""

    detail: str
    is_unknown: bool = False


async def post(api: Api, pod: Identity, *, rv: str, node: str, metadata: BoundMetadata) -> Accepted | NotAccepted:
    """POST the Binding with the pod's UID and resourceVersion as preconditions. Never repeated here."""
    meta = ObjectMeta(
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        resource_version=rv,
        labels=metadata.labels or None,
        annotations=metadata.annotations or None,
    )
    binding = Binding(metadata=meta, target=ObjectReference(api_version="v1", kind="Node", name=node))
    try:
        await api.bind(pod.namespace, pod.name, binding)
    except ApiError as error:
        return NotAccepted(str(error), error.outcome_unknown)
    return Accepted()


async def read(api: Api, pod: Identity) -> Pod | None:
    """Quorum GET; None when there is no pod of this UID any more."""
    try:
        found = await api.get(PODS, pod.name, namespace=pod.namespace)
    except NotFound:
        return None
    return found if found.metadata.uid == pod.uid else None


class FenceText(msgspec.Struct, frozen=True, gc=False):
    """``because`` for the scheduler ("Cause: detail"), ``message`` for people."""

    because: str
    message: str


async def fence(api: Api, pod: Identity, *, rv: str, attempt: str, text: FenceText, clock: Clock) -> Pod | None:
    """Change the pod at exactly ``rv``, so that a Binding at ``rv`` that is still on its way must fail.

    The same write tells the user (condition PodBound=False, kai-contract 5.2) and, by its annotation, the scheduler
    why the attempt ended. A status patch, because metadata persists with it and one write must do.
    Returns the pod, or None when it was not at ``rv`` any more. Raises ApiError when no clear answer came.
    """
    condition = {
        "type": names.CONDITION_POD_BOUND,
        "status": "False",
        "reason": names.REASON_BINDING_ERROR,
        "message": text.message,
        "lastTransitionTime": rfc3339(clock.now_ns()),
    }
    annotations = {names.FENCED: attempt, names.FENCED_BECAUSE: text.because}
    try:
        current = await read(api, pod)
        if current is None or current.metadata.resource_version != rv:
            return None
        others = [c for c in current.status.conditions or () if c.type != names.CONDITION_POD_BOUND]
        patch = {"metadata": {"annotations": annotations}, "status": {"conditions": [*_plain(others), condition]}}
        return await api.patch(
            PODS, pod.name, patch, namespace=pod.namespace, subresource="status", uid=pod.uid, resource_version=rv
        )
    except (Conflict, NotFound):
        return None


def _plain(conditions: Sequence[msgspec.Struct]) -> list[object]:
    built: list[object] = msgspec.to_builtins(conditions)
    return built
