"""POST of a new object: defaults, admission, name, checks, one write."""

from __future__ import annotations

import base64
import random
import uuid
from typing import Any

from kube.client.clock import Clock
from simulator.apiserver import budgets, pods
from simulator.apiserver.admission import Admission, Attributes
from simulator.apiserver.calls import Call, already_exists, bad_request, forbidden, internal, invalid, not_found
from simulator.apiserver.pods import admitted, with_runtime_class
from simulator.apiserver.store import Store, Stored
from simulator.apiserver.types import (
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
    ResourceType,
)
from simulator.apiserver.validation import (
    check_maps,
    check_micro_times,
    check_new_meta,
    check_type,
    strip_server_fields,
)
from wire.rfc3339 import rfc3339

Object = dict[str, Any]

#: Without vowels and look-alikes, so that no words come out (apimachinery util/rand).
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_TRIES = 8


class Creation:
    """Creates objects."""

    def __init__(
        self, store: Store, admission: Admission, *, clock: Clock, rng: random.Random, auto_namespaces: bool
    ) -> None:
        self._store = store
        self._admission = admission
        self._clock = clock
        self._rng = rng
        self._auto_namespaces = auto_namespaces

    async def create(self, call: Call) -> Stored:
        """Create the object in the call's body. Raises Refusal."""
        kind = call.kind
        body = call.decoded()
        check_type(kind, body)
        check_micro_times(kind, body)
        obj = self._drafted(call, body)
        self._require_namespace(call, obj)
        if kind is PODS:
            obj = admitted(obj, self._store, call.namespace)
        attributes = self._attributes(call, obj)
        if attributes is not None:
            obj = await self._admission.mutate(obj, attributes)
        if kind is PODS:
            obj = with_runtime_class(obj, self._store)
        obj = self._finished(call, obj)
        if attributes is not None:
            await self._admission.validate(obj, attributes)
        return self._stored(kind, call, obj)

    def _drafted(self, call: Call, body: Object) -> Object:
        meta = body.get("metadata") or {}
        if meta.get("resourceVersion"):
            raise internal("resourceVersion should not be set on objects to be created")
        if meta.get("namespace") not in (None, "", call.namespace):
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        meta = strip_server_fields(meta)
        if call.kind.namespaced:
            meta["namespace"] = call.namespace
        rest = {key: value for key, value in body.items() if key not in ("kind", "apiVersion", "metadata")}
        obj = {"kind": call.kind.kind, "apiVersion": call.kind.api_version, "metadata": meta, **rest}
        if call.kind is PODS:
            return pods.with_defaults(obj)
        if call.kind is NAMESPACES:
            return _with_namespace_defaults(obj)
        if call.kind is SECRETS:
            return _with_text(obj)
        if call.kind is PRIORITY_CLASSES:
            obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
        if call.kind is POD_DISRUPTION_BUDGETS:
            return budgets.with_first_status(obj)
        if call.kind.custom and call.kind.has_status:
            obj.pop("status", None)
        return obj

    def _require_namespace(self, call: Call, obj: Object) -> None:
        """Refuse objects in namespaces that are not there or on their way out."""
        if not call.kind.namespaced:
            return
        namespace = self._store.get(NAMESPACES, call.namespace)
        if namespace is None and self._auto_namespaces:
            self.put_namespace(call.namespace)
        elif namespace is None:
            raise not_found(NAMESPACES, call.namespace)
        elif "deletionTimestamp" in namespace.obj["metadata"]:
            name = obj["metadata"].get("name") or obj["metadata"].get("generateName", "")
            why = f"unable to create new content in namespace {call.namespace} because it is being terminated"
            refusal = forbidden(call.kind, name, why)
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {call.namespace} is being terminated",
                "field": "metadata.namespace",
            }
            refusal.details = {**(refusal.details or {}), "causes": [cause]}
            raise refusal

    def put_namespace(self, name: str) -> None:
        """Create a namespace without a request."""
        obj = _with_namespace_defaults(
            {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}, "spec": {}, "status": {}}
        )
        self.put_new(NAMESPACES, obj)

    def put_new(self, kind: ResourceType, obj: Object) -> Stored:
        """Store an object that needs no checks, with the server's metadata."""
        meta = self._with_system_fields(kind, obj["metadata"])
        return self._store.put(kind, kind.key(meta.get("namespace", ""), meta["name"]), {**obj, "metadata": meta})

    def _attributes(self, call: Call, obj: Object) -> Attributes | None:
        if not self._admission.concerns(call.kind, "", "CREATE"):
            return None
        return attributes_of(call, "CREATE", old=None, store=self._store, name=obj["metadata"].get("name", ""))

    def _finished(self, call: Call, obj: Object) -> Object:
        kind = call.kind
        meta = dict(obj["metadata"])
        if not meta.get("name"):
            meta["name"] = self._generated_name(call, meta)
        check_new_meta(kind, meta)
        check_maps(kind, meta)
        obj = {**obj, "metadata": self._with_system_fields(kind, meta)}
        if kind is PODS:
            pods.check_new(obj)
            obj = pods.with_first_status(obj, now=rfc3339(self._clock.now_ns()))
        return obj

    def _with_system_fields(self, kind: ResourceType, meta: Object) -> Object:
        head = {key: meta[key] for key in ("name", "generateName", "namespace") if meta.get(key)}
        system: Object = {"uid": str(uuid.UUID(int=self._rng.getrandbits(128), version=4)), "resourceVersion": ""}
        if kind.has_generation:
            system["generation"] = 1
        system["creationTimestamp"] = rfc3339(self._clock.now_ns())
        return {**head, **system, **{key: value for key, value in meta.items() if key not in head}}

    def _generated_name(self, call: Call, meta: Object) -> str:
        prefix = str(meta.get("generateName") or "")
        if not prefix:
            raise invalid(call.kind, "", "metadata.name", "Required value: name or generateName is required")
        name = ""
        for _ in range(_GENERATED_TRIES):
            name = prefix[:58] + "".join(self._rng.choices(_SUFFIX_ALPHABET, k=5))
            if self._store.get(call.kind, call.kind.key(call.namespace, name)) is None:
                break
        return name

    def _stored(self, kind: ResourceType, call: Call, obj: Object) -> Stored:
        name = obj["metadata"]["name"]
        key = kind.key(call.namespace, name)
        there = self._store.get(kind, key)
        if there is not None:
            raise already_exists(kind, name, being_deleted="deletionTimestamp" in there.obj["metadata"])
        return self._store.put(kind, key, obj)


def _with_text(secret: Object) -> Object:
    """A Secret with its ``stringData`` among its data, which it overrides."""
    text = {
        key: base64.b64encode(value.encode()).decode() for key, value in (secret.pop("stringData", None) or {}).items()
    }
    return {**secret, "data": {**(secret.get("data") or {}), **text}} if text else secret


def _with_namespace_defaults(obj: Object) -> Object:
    meta = obj["metadata"]
    labels = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta.get("name", "")}
    return {
        **obj,
        "metadata": {**meta, "labels": labels},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def attributes_of(call: Call, operation: str, *, old: Object | None, store: Store, name: str) -> Attributes:
    """Return what admission knows about a call."""
    namespace = store.get(NAMESPACES, call.namespace) if call.kind.namespaced else None
    return Attributes(
        kind=call.kind,
        operation=operation,
        subresource=call.subresource,
        namespace=call.namespace,
        name=name,
        user=call.user,
        groups=call.groups,
        old=old,
        namespace_labels=dict(namespace.obj["metadata"].get("labels") or {}) if namespace else {},
    )
