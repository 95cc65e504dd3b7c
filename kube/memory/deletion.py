"""How an object goes: preconditions, grace, finalizers (rest.BeforeDelete and the generic store's Delete).

Pure: says what to write, the caller writes. Only pods go gracefully; everything else goes at once or, with finalizers,
when the last of them is taken away.
"""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from kube.memory.refusals import bad_request, conflict
from kube.memory.types import PODS, ResourceType
from wire.rfc3339 import rfc3339

Object = dict[str, Any]


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a DELETE asks for."""

    uid: str | None = None
    resource_version: str | None = None
    grace_s: int | None = None
    #: Background, Orphan or Foreground.
    propagation: str = "Background"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What a DELETE comes to: first ``update`` (if any), then ``remove``."""

    update: Object | None
    remove: bool


def parse_options(body: Any, query_grace: str | None, query_propagation: str | None) -> DeleteOptions:
    """Read DeleteOptions from the body, or from the query where there is no body. Raises Refusal (400)."""
    if body is None:
        body = {"propagationPolicy": query_propagation}
        if query_grace is not None:
            try:
                body["gracePeriodSeconds"] = int(query_grace)
            except ValueError as error:
                raise bad_request(f"gracePeriodSeconds: not a number: {query_grace!r}") from error
    if not isinstance(body, dict):
        raise bad_request("the object provided is not a DeleteOptions")
    preconditions = body.get("preconditions") or {}
    return DeleteOptions(
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        grace_s=body.get("gracePeriodSeconds"),
        propagation=body.get("propagationPolicy") or "Background",
    )


def check_preconditions(kind: ResourceType, meta: Object, options: DeleteOptions) -> None:
    """Refuse (409) a DELETE that was meant for another object or another state of it."""
    # The real server names the kind here, not the resource.
    named = msgspec.structs.replace(kind, plural=kind.kind)
    if options.uid is not None and options.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(named, meta["name"], why)
    if options.resource_version is not None and options.resource_version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion "
            f"in record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise conflict(named, meta["name"], why)


def step(kind: ResourceType, obj: Object, options: DeleteOptions, *, now_ns: int) -> Step:
    """Decide what a DELETE, whose preconditions hold, does to this object."""
    if kind is PODS:
        return _pod_step(obj, options, now_ns)
    meta = obj["metadata"]
    if not meta.get("finalizers"):
        return Step(update=None, remove=True)
    if "deletionTimestamp" in meta:
        return Step(update=None, remove=False)
    return Step(update=_marked(obj, grace_s=0, at=rfc3339(now_ns)), remove=False)


def _pod_step(pod: Object, options: DeleteOptions, now_ns: int) -> Step:
    meta = pod["metadata"]
    held = bool(meta.get("finalizers"))
    asked = None if options.grace_s is None else (options.grace_s if options.grace_s >= 0 else 1)
    if "deletionTimestamp" not in meta:
        grace_s = _first_grace(pod, asked)
        deadline = rfc3339(now_ns + grace_s * 1_000_000_000)
        return Step(update=_marked(pod, grace_s=grace_s, at=deadline), remove=grace_s == 0 and not held)
    current = meta["deletionGracePeriodSeconds"]
    if current == 0:
        return Step(update=None, remove=not held)
    if asked is None or asked >= current:
        return Step(update=None, remove=False)
    return _shortened(pod, asked, now_ns, held=held)


def _first_grace(pod: Object, asked: int | None) -> int:
    if not pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    grace_s = pod["spec"].get("terminationGracePeriodSeconds", 0) if asked is None else asked
    return grace_s if grace_s >= 0 else 1


def _shortened(pod: Object, asked: int, now_ns: int, *, held: bool) -> Step:
    meta = pod["metadata"]
    at_ns = _parse_ns(meta["deletionTimestamp"]) + (asked - meta["deletionGracePeriodSeconds"]) * 1_000_000_000
    if at_ns < now_ns:
        # The whole shorter grace is over already; watchers get one more second, unless none was asked for.
        at_ns, asked = now_ns, min(asked, 1)
    changed = {**meta, "deletionTimestamp": rfc3339(at_ns), "deletionGracePeriodSeconds": asked}
    return Step(update={**pod, "metadata": changed}, remove=asked == 0 and not held)


def _marked(obj: Object, *, grace_s: int, at: str) -> Object:
    meta = {**obj["metadata"], "deletionTimestamp": at, "deletionGracePeriodSeconds": grace_s}
    if "generation" in meta:
        meta["generation"] += 1
    return {**obj, "metadata": meta}


def _parse_ns(timestamp: str) -> int:
    return int(datetime.datetime.fromisoformat(timestamp).timestamp()) * 1_000_000_000


def is_finished(meta: Object) -> bool:
    """Say whether an update has taken away the last thing that kept a deleted object."""
    return "deletionTimestamp" in meta and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")
