"""What kube-controller-manager does after a deletion: collects dependents, empties and ends namespaces.

In the background, as there: the writes come some time after the deletion (``delay_s``, on the event loop's clock),
never within it. Owners of types that the server does not know are taken to exist.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kube.client.clock import Clock
from kube.memory.deletion import DeleteOptions, step
from kube.memory.store import Store, Table
from kube.memory.types import NAMESPACES, Registry, ResourceType
from kube.memory.watchlog import Change, Stored
from wire.rfc3339 import rfc3339

Object = dict[str, Any]
_Place = tuple[ResourceType, str]


class Collector:
    """Follows the store and deletes what has lost its last owner."""

    def __init__(self, store: Store, registry: Registry, *, clock: Clock, delay_s: float) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._delay_s = delay_s
        self._alive: dict[str, None] = {}
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

    def _later(self, what: Any, *args: Any) -> None:
        # Not a task: nothing is awaited, and the order of callbacks at one time is the order of these calls.
        asyncio.get_running_loop().call_later(self._delay_s, what, *args)

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
        for place in self._dependents.pop(meta["uid"], {}):
            self._later(self._collect, place)
        namespace = meta.get("namespace")
        if namespace is None:
            return
        home = self._store.get(NAMESPACES, namespace)
        if home is not None and "deletionTimestamp" in home.obj["metadata"]:
            self._later(self._empty_namespace, namespace)

    def _exists(self, owner: Object) -> bool:
        known = self._registry.by_kind(owner.get("apiVersion", ""), owner.get("kind", ""))
        return known is None or owner.get("uid") in self._alive

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
        left = False
        for kind in self._registry.types:
            if not kind.namespaced:
                continue
            for key in self._store.table(kind).keys_within(f"{name}/"):
                stored = self._store.get(kind, key)
                if stored is not None:
                    self._delete(kind, key, stored)
                    left = left or self._store.get(kind, key) is not None
        if not left and self._store.get(NAMESPACES, name) is not None:
            self._store.remove(NAMESPACES, name)


def _owners(obj: Object) -> Any:
    return obj["metadata"].get("ownerReferences") or ()
