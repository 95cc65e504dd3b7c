"""Binding a pod, and finding out what became of it (docs/design/protocol.md, steps 3 and 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gpu.attempts import fencing
from gpu.grant import BoundMetadata
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.errors import ApiError, Conflict, NotFound
from kube.client.resources import PODS
from wire import names
from wire.core import Binding, ObjectMeta, ObjectReference, Pod
from wire.rfc3339 import rfc3339

NOTHING: Final[Mapping[str, object]] = {}
#: A freshly bound pod's status is written by its kubelet at the same time.
_MOST_MEETINGS = 5


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


def scheduled_note(pod: Identity, node: str, pool: str) -> str:
    """What the event ``Scheduled`` says (kai-contract 4.10). ``pool``: the node pool's name."""
    return f"Successfully assigned pod {pod.namespace}/{pod.name} to node {node} at node-pool {pool}"


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


def named_at(reason: str, rv: str) -> str:
    """Return a name for a fence that is no attempt's own.

    A write that changes nothing leaves the pod at its version, and fences nothing: one that was fenced a moment ago
    for the same reason would look just the same.
    """
    return f"{reason}-{rv}"


async def fence(
    api: Api,
    pod: Identity,
    *,
    rv: str,
    attempt: str,
    text: FenceText,
    clock: Clock,
    status: Mapping[str, object] = NOTHING,
) -> Pod | None:
    """Change the pod at exactly ``rv``, so that a Binding at ``rv`` that is still on its way must fail.

    The same write tells the user (condition PodBound=False, kai-contract 5.2) and, by its annotation, the scheduler
    why the attempt ended. A status patch, because metadata persists with it and one write must do.
    ``attempt`` is another one than that of the pod's last fence, or the one whose Binding can't be at ``rv``.
    ``status``: what else of the status the write changes.
    Returns the pod, or None when it was not at ``rv`` any more. Raises ApiError when no clear answer came, a Conflict
    with a pod that is still at ``rv`` among them: asked again at once, the server would just say so again.
    """
    current = await _at(api, pod, rv)
    if current is None:
        return None
    annotations = {**fencing(current.metadata.annotations, attempt), names.FENCED_BECAUSE: text.because}
    condition = _condition("False", names.REASON_BINDING_ERROR, text.message, clock)
    patch = {"metadata": {"annotations": annotations}, "status": {**status, **_with_condition(current, condition)}}
    try:
        return await api.patch(
            PODS, pod.name, patch, namespace=pod.namespace, subresource="status", uid=pod.uid, resource_version=rv
        )
    except NotFound:
        return None
    except Conflict:
        if await _at(api, pod, rv) is not None:
            raise
        return None


async def _at(api: Api, pod: Identity, rv: str) -> Pod | None:
    """Return the pod if it is at ``rv``."""
    current = await read(api, pod)
    return current if current is not None and current.metadata.resource_version == rv else None


async def tell_bound(api: Api, pod: Identity, *, node: str, clock: Clock) -> None:
    """Write the condition PodBound=True (kai-contract 5.2) on a pod that is bound to ``node``.

    Nothing depends on it: after a few meetings with other writers of the status it is left. Raises ApiError.
    """
    condition = _condition("True", names.REASON_BOUND, f"Pod bound successfully to node {node}", clock)
    for _ in range(_MOST_MEETINGS):
        current = await read(api, pod)
        if current is None or current.spec.node_name != node:
            return
        patch = {"status": _with_condition(current, condition)}
        rv = current.metadata.resource_version
        try:
            await api.patch(
                PODS, pod.name, patch, namespace=pod.namespace, subresource="status", uid=pod.uid, resource_version=rv
            )
        except Conflict:
            continue
        return


def _condition(status: str, reason: str, message: str, clock: Clock) -> dict[str, str]:
    return {
        "type": names.CONDITION_POD_BOUND,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(clock.now_ns()),
    }


def _with_condition(current: Pod, condition: dict[str, str]) -> dict[str, list[object]]:
    """The status patch that puts this condition in its place and keeps the others."""
    others: list[object] = msgspec.to_builtins(
        [c for c in current.status.conditions or () if c.type != condition["type"]]
    )
    return {"conditions": [*others, condition]}
