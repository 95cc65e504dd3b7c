"""How objects go: DELETE of one or of a selection, the Eviction sub-resource, and what follows in the background.

Preconditions, grace and finalizers are those of rest.BeforeDelete and the generic store's Delete.
"""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import msgspec

from kube.client.clock import Clock
from simulator.apiserver import budgets
from simulator.apiserver.admission import Admission
from simulator.apiserver.calls import Call, bad_request, conflict, not_found, not_implemented
from simulator.apiserver.create import attributes_of
from simulator.apiserver.pods import with_condition
from simulator.apiserver.selectors import Predicate
from simulator.apiserver.store import Change, Store, Stored, Table
from simulator.apiserver.types import NAMESPACES, PODS, Registry, ResourceType
from wire.rfc3339 import rfc3339
from wire.units import SECOND_NS

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
    """Decide what a DELETE, whose preconditions hold, does to this object.

    Pure: the caller writes. Only pods go gracefully; everything else goes at once or, with finalizers, when the last of
    them is taken away.
    """
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
        deadline = rfc3339(now_ns + grace_s * SECOND_NS)
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
    at_ns = _parse_ns(meta["deletionTimestamp"]) + (asked - meta["deletionGracePeriodSeconds"]) * SECOND_NS
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
    return int(datetime.datetime.fromisoformat(timestamp).timestamp()) * SECOND_NS


def is_finished(meta: Object) -> bool:
    """Say whether an update has taken away the last thing that kept a deleted object."""
    return "deletionTimestamp" in meta and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")


_Place = tuple[ResourceType, str]


class Collector:
    """Does what kube-controller-manager does after a deletion: collects dependents, empties and ends namespaces.

    It follows the store; its writes come after the deletion, never within it. Owners of types that the
    server does not know are taken to exist.
    """

    def __init__(self, store: Store, registry: Registry, *, clock: Clock) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._alive: dict[str, None] = {}
        #: UIDs of owners that were deleted, of kinds of which others need not be there.
        self._deleted: set[str] = set()
        self._dependents: dict[str, dict[_Place, None]] = {}
        store.listen(self._follow)

    def orphan(self, uid: str) -> None:
        """Take an owner out of all its dependents, before it is deleted."""
        for kind, key in list(self._dependents.get(uid, ())):
            stored = self._store.get(kind, key)
            if stored is None:
                continue
            owners = [each for each in _owners(stored.obj) if each.get("uid") != uid]
            meta = {name: value for name, value in stored.obj["metadata"].items() if name != "ownerReferences"}
            if owners:
                meta["ownerReferences"] = owners
            self._store.put(kind, key, {**stored.obj, "metadata": meta})

    def terminate_namespace(self, current: Stored) -> Stored:
        """Mark a namespace as going; its content is deleted later, and then itself."""
        name = current.obj["metadata"]["name"]
        if "deletionTimestamp" in current.obj["metadata"]:
            return current
        meta = {**current.obj["metadata"], "deletionTimestamp": rfc3339(self._clock.now_ns())}
        stored = self._store.put(
            NAMESPACES, name, {**current.obj, "metadata": meta, "status": {"phase": "Terminating"}}
        )
        self._later(self._empty_namespace, name)
        return stored

    def go_on(self) -> None:
        """Empty all namespaces that are going: a restored etcd may bring their contents back."""
        for name in self._store.table(NAMESPACES).keys:
            if self._is_going(name):
                self._later(self._empty_namespace, name)

    def _is_going(self, namespace: str) -> bool:
        home = self._store.get(NAMESPACES, namespace)
        return home is not None and "deletionTimestamp" in home.obj["metadata"]

    def _later(self, what: Any, *args: Any) -> None:
        # Not a task: nothing is awaited, and the order of callbacks at one time is the order of these calls.
        asyncio.get_running_loop().call_later(0.0, what, *args)

    def _follow(self, table: Table, change: Change) -> None:
        if change.new is not None:
            self._alive[change.new.obj["metadata"]["uid"]] = None
        elif change.old is not None:
            self._after_deletion(table.kind, change.old.obj["metadata"])
        before = _owners(change.old.obj) if change.old else ()
        after = _owners(change.new.obj) if change.new else ()
        if before is not after:
            self._reindex((table.kind, change.key), before, after)

    def _reindex(self, place: _Place, before: Any, after: Any) -> None:
        for owner in before:
            self._dependents.get(owner.get("uid"), {}).pop(place, None)
        for owner in after:
            self._dependents.setdefault(owner["uid"], {})[place] = None
        if after and not any(self._exists(owner) for owner in after):
            self._later(self._collect, place)

    def _after_deletion(self, kind: ResourceType, meta: Object) -> None:
        self._alive.pop(meta["uid"], None)
        if kind.may_be_named_only:
            self._deleted.add(meta["uid"])
        for place in self._dependents.pop(meta["uid"], {}):
            self._later(self._collect, place)
        namespace = meta.get("namespace")
        if namespace is not None and self._is_going(namespace):
            self._later(self._empty_namespace, namespace)

    def _exists(self, owner: Object) -> bool:
        known = self._registry.by_kind(owner.get("apiVersion", ""), owner.get("kind", ""))
        uid = owner.get("uid")
        return known is None or uid in self._alive or (known.may_be_named_only and uid not in self._deleted)

    def _collect(self, place: _Place) -> None:
        stored = self._store.get(*place)
        if stored is None:
            return
        owners = _owners(stored.obj)
        if owners and not any(self._exists(owner) for owner in owners):
            self._delete(*place, stored)

    def _delete(self, kind: ResourceType, key: str, stored: Stored) -> None:
        todo = step(kind, stored.obj, DeleteOptions(), now_ns=self._clock.now_ns())
        if todo.update is not None:
            self._store.put(kind, key, todo.update)
        if todo.remove:
            self._store.remove(kind, key)

    def _empty_namespace(self, name: str) -> None:
        if not self._is_going(name):  # a restored etcd has it as it was before
            return
        left = False
        for kind in self._registry.types:
            if not kind.namespaced:
                continue
            for key in self._store.table(kind).keys_within(f"{name}/"):
                stored = self._store.get(kind, key)
                if stored is not None:
                    self._delete(kind, key, stored)
                    left = left or self._store.get(kind, key) is not None
        if not left:
            self._store.remove(NAMESPACES, name)


def _owners(obj: Object) -> Any:
    return obj["metadata"].get("ownerReferences") or ()


class Removing:
    """Deletes objects."""

    def __init__(self, store: Store, admission: Admission, collector: Collector, *, clock: Clock) -> None:
        self._store = store
        self._admission = admission
        self._collector = collector
        self._clock = clock

    async def delete(self, call: Call) -> tuple[Stored, bool]:
        """DELETE one object; return its last state and whether it is gone. Raises Refusal."""
        current = self._store.get(call.kind, call.key)
        if current is None:
            raise not_found(call.kind, call.name)
        options = self._options(call)
        check_preconditions(call.kind, current.obj["metadata"], options)
        await self._admitted(call, current)
        current = self._store.get(call.kind, call.key)
        if current is None:
            raise not_found(call.kind, call.name)
        return self.remove(call.kind, call.key, current, options)

    async def delete_collection(self, call: Call, matches: Predicate) -> list[Stored]:
        """DELETE all that is selected. Raises Refusal."""
        table = self._store.table(call.kind)
        prefix = f"{call.namespace}/" if call.namespace else ""
        options = self._options(call)
        gone = []
        for key in table.keys_within(prefix):
            current = self._store.get(call.kind, key)
            if current is not None and matches(current.obj):
                gone.append(self.remove(call.kind, key, current, options)[0])
        return gone

    async def evict(self, call: Call) -> None:
        """POST pods/NAME/eviction: a graceful deletion with a condition, as budgets allow. Raises Refusal."""
        body = call.decoded()
        if not isinstance(body, dict) or (body.get("metadata") or {}).get("name") not in (None, "", call.name):
            raise bad_request("name in URL does not match name in Eviction object")
        current = self._store.get(PODS, call.key)
        if current is None:
            raise not_found(PODS, call.name)
        options = parse_options(body.get("deleteOptions") or {}, None, None)
        await self._admitted(call, current)
        current = self._store.get(PODS, call.key)
        if current is None:
            raise not_found(PODS, call.name)
        # In this order, as the real server does it: an eviction that was meant for another pod costs its budget, too.
        budgets.spend(self._store, current.obj, now_ns=self._clock.now_ns())
        check_preconditions(PODS, current.obj["metadata"], options)
        self.remove(PODS, call.key, self._marked_evicted(call.key, current), options)

    def remove(self, kind: ResourceType, key: str, current: Stored, options: DeleteOptions) -> tuple[Stored, bool]:
        """Delete an object without asking anybody."""
        check_preconditions(kind, current.obj["metadata"], options)
        if kind is NAMESPACES:
            return self._collector.terminate_namespace(current), False
        if options.propagation == "Orphan":
            self._collector.orphan(current.obj["metadata"]["uid"])
        todo = step(kind, current.obj, options, now_ns=self._clock.now_ns())
        last = current if todo.update is None else self._store.put(kind, key, todo.update)
        if todo.remove:
            last = self._store.remove(kind, key)
        return last, todo.remove

    def _options(self, call: Call) -> DeleteOptions:
        body = call.decoded() if call.body else None
        options = parse_options(body, call.query.get("gracePeriodSeconds"), call.query.get("propagationPolicy"))
        if options.propagation not in ("Background", "Orphan"):
            raise not_implemented(f"propagationPolicy {options.propagation}; Background and Orphan are there")
        return options

    def _marked_evicted(self, key: str, current: Stored) -> Stored:
        pod = current.obj
        if not pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
            return current
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": rfc3339(self._clock.now_ns()),
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        marked = with_condition({**pod, "metadata": dict(pod["metadata"])}, condition)
        return self._store.put(PODS, key, marked)

    async def _admitted(self, call: Call, current: Stored) -> None:
        operation = "CREATE" if call.subresource else "DELETE"
        if self._admission.concerns(call.kind, call.subresource, operation):
            attributes = attributes_of(call, operation, old=current.obj, store=self._store, name=call.name)
            await self._admission.validate(current.obj, attributes)
