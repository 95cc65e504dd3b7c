"""DELETE of one object or of a selection, and the Eviction sub-resource.

An eviction is a graceful deletion that PodDisruptionBudgets allow (budgets.py), and that says so in a condition.
"""

from __future__ import annotations

from typing import Any

from kube.client.clock import Clock
from kube.memory import budgets
from kube.memory.admission import Admission
from kube.memory.calls import Call
from kube.memory.collect import Collector
from kube.memory.creating import attributes_of
from kube.memory.deletion import DeleteOptions, check_preconditions, parse_options, step
from kube.memory.pods import with_condition
from kube.memory.refusals import bad_request, not_found, not_implemented
from kube.memory.selectors import Predicate
from kube.memory.store import Store
from kube.memory.types import NAMESPACES, PODS, ResourceType
from kube.memory.watchlog import Stored
from wire.rfc3339 import rfc3339

Object = dict[str, Any]


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
        """POST pods/NAME/eviction. Raises Refusal."""
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
