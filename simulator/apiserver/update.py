"""PUT and PATCH, of objects and their status: what may change, whether anything did, one write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from simulator.apiserver import pods
from simulator.apiserver.admission import Admission
from simulator.apiserver.calls import (
    Call,
    Refusal,
    bad_request,
    conflict,
    internal,
    invalid,
    modified,
    not_found,
    unprocessable_patch,
    unsupported_media_type,
)
from simulator.apiserver.create import Creation, attributes_of
from simulator.apiserver.delete import is_finished
from simulator.apiserver.patches import PatchFailed, json_patch, merge, strategic
from simulator.apiserver.store import Store, Stored
from simulator.apiserver.types import CONFIG_MAPS, PODS, ResourceType
from simulator.apiserver.validation import carry_over, check_maps, check_micro_times, check_type

Object = dict[str, Any]

_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC_PATCH = "application/strategic-merge-patch+json"
#: How often a patch is applied again to an object that changed while webhooks were asked.
_TRIES = 5


class Changing:
    """Changes objects that exist."""

    def __init__(self, store: Store, admission: Admission, creation: Creation) -> None:
        self._store = store
        self._admission = admission
        self._creation = creation

    async def replace(self, call: Call) -> tuple[int, Stored]:
        """PUT. Raises Refusal."""
        body = call.decoded()
        check_type(call.kind, body)
        check_micro_times(call.kind, body)
        said = body.get("metadata") or {}
        _check_name(call, said)
        there = self._store.get(call.kind, call.key)
        if there is None and call.kind.create_on_update and not call.subresource:
            return 201, await self._creation.create(call)
        if there is not None:
            _check_put_preconditions(call.kind, said, there.obj["metadata"])
        return 200, await self._change(call, lambda old: _replaced(call.kind, body, old))

    async def patch(self, call: Call) -> Stored:
        """PATCH. Raises Refusal."""
        apply = _patcher(call)
        return await self._change(call, apply)

    async def _change(self, call: Call, produce: Callable[[Object], Object]) -> Stored:
        for _ in range(_TRIES):
            current = self._store.get(call.kind, call.key)
            if current is None:
                raise not_found(call.kind, call.name)
            changed = produce(current.obj)
            said_rv = changed["metadata"].get("resourceVersion")
            _check_version(call.kind, call.name, said_rv, current)
            new = self._within_rules(call, changed, current.obj)
            if self._admission.concerns(call.kind, call.subresource, "UPDATE"):
                new = await self._admitted(call, new, current)
                if self._store.get(call.kind, call.key) is not current:
                    continue
            return self._commit(call.kind, call.key, new, current)
        raise modified(call.kind, call.name)

    async def _admitted(self, call: Call, new: Object, current: Stored) -> Object:
        attributes = attributes_of(call, "UPDATE", old=current.obj, store=self._store, name=call.name)
        new = self._within_rules(call, await self._admission.mutate(new, attributes), current.obj)
        await self._admission.validate(new, attributes)
        return new

    def _within_rules(self, call: Call, changed: Object, old: Object) -> Object:
        new = _own_side(call, changed, old)
        meta = carry_over(call.kind, dict(new["metadata"]), old["metadata"])
        check_maps(call.kind, meta)
        new["metadata"] = meta
        if call.kind is PODS:
            new = pods.with_default_tolerations({**new, "spec": pods.tidy_spec(new["spec"])})
            new["status"] = pods.tidy_status(new.get("status") or {})
            pods.check_update(new, old)
        if call.kind is CONFIG_MAPS:
            _check_immutable(new, old)
        if not call.subresource and _counts_as_new_generation(call.kind, new, old):
            meta["generation"] = old["metadata"]["generation"] + 1
        return new

    def _commit(self, kind: ResourceType, key: str, new: Object, current: Stored) -> Stored:
        if is_finished(new["metadata"]):
            self._store.remove(kind, key)
            return Stored(obj=new, raw=msgspec.json.encode(new), rv=current.rv)
        if new == current.obj:
            return current
        return self._store.put(kind, key, new)


def _check_name(call: Call, said: Object) -> None:
    name = said.get("name")
    if not name:
        why = f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided"
        raise bad_request(why)
    _check_same_name(call, name)
    if call.kind.namespaced and said.get("namespace") not in (None, "", call.namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _check_same_name(call: Call, name: str) -> None:
    if name != call.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")


def _check_put_preconditions(kind: ResourceType, said: Object, current: Object) -> None:
    name = current["name"]
    if said.get("uid") and said["uid"] != current["uid"]:
        why = f"Precondition failed: UID in precondition: {said['uid']}, UID in object meta: {current['uid']}"
        raise conflict(kind, name, why)
    if not said.get("resourceVersion") and not kind.unconditional_update:
        why = "Invalid value: 0: must be specified for an update"
        raise invalid(kind, name, "metadata.resourceVersion", why)


def _check_version(kind: ResourceType, name: str, said: Any, current: Stored) -> None:
    if said in (None, ""):
        return
    if not str(said).isdecimal():
        raise internal(f'strconv.ParseUint: parsing "{said}": invalid syntax')
    if int(said) != current.rv:
        raise modified(kind, name)


def _replaced(kind: ResourceType, body: Object, old: Object) -> Object:
    """Return the body of a PUT in the order in which objects are stored."""
    meta = {**body["metadata"], "uid": old["metadata"]["uid"]}
    rest = {key: value for key, value in body.items() if key not in ("kind", "apiVersion", "metadata")}
    if kind is PODS and "spec" in rest and rest["spec"] != old["spec"]:
        rest = {**rest, "spec": pods.with_defaults(body)["spec"]}
    return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta, **rest}


def _own_side(call: Call, changed: Object, old: Object) -> Object:
    """Return the change without what this sub-resource may not touch."""
    kind = call.kind
    if call.subresource == "status":
        meta = changed["metadata"]
        if kind.custom:
            kept = {"uid": meta.get("uid")}
            meta = {**old["metadata"], **{key: value for key, value in kept.items() if value is not None}}
        elif kind is PODS:
            meta = {**meta, "ownerReferences": old["metadata"].get("ownerReferences")}
        result = {**old, "metadata": meta}
        result.pop("status", None)
        return {**result, **({"status": changed["status"]} if "status" in changed else {})}
    if kind.has_status:
        result = {key: value for key, value in changed.items() if key != "status"}
        return {**result, **({"status": old["status"]} if "status" in old else {})}
    return dict(changed)


def _counts_as_new_generation(kind: ResourceType, new: Object, old: Object) -> bool:
    if not kind.has_generation:
        return False
    if kind is PODS:
        return bool(new["spec"] != old["spec"])
    outside = ("metadata", "status") if kind.has_status else ("metadata",)
    return {key: value for key, value in new.items() if key not in outside} != {
        key: value for key, value in old.items() if key not in outside
    }


def _check_immutable(new: Object, old: Object) -> None:
    if not old.get("immutable"):
        return
    for field in ("immutable", "data", "binaryData"):
        if (new.get(field) or {}) != (old.get(field) or {}):
            why = "Forbidden: field is immutable when `immutable` is set"
            raise invalid(CONFIG_MAPS, old["metadata"]["name"], field, why)


def _patcher(call: Call) -> Callable[[Object], Object]:
    """Return the function that applies the call's patch. Raises Refusal for kinds of patches that there are not."""
    accepted = (_JSON_PATCH, _MERGE_PATCH) if call.kind.custom else (_JSON_PATCH, _MERGE_PATCH, _STRATEGIC_PATCH)
    if call.content_type not in accepted:
        raise unsupported_media_type(accepted)
    patch = _decoded_patch(call, list if call.content_type == _JSON_PATCH else dict)

    def apply(old: Object) -> Object:
        changed = _applied(call.content_type, old, patch)
        if not isinstance(changed, dict) or not isinstance(changed.get("metadata"), dict):
            raise unprocessable_patch()
        _check_same_name(call, changed["metadata"].get("name", ""))
        try:
            check_type(call.kind, changed)
            check_micro_times(call.kind, changed)
        except Refusal as refusal:
            # What a POST or PUT may not say is a bad request; what a patch makes of an object is invalid.
            raise invalid(call.kind, "", "patch", f"Invalid value: {refusal.message}") from refusal
        return changed

    return apply


def _decoded_patch(call: Call, wanted: type) -> Any:
    try:
        patch = msgspec.json.decode(call.body or b"")
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from error
    if not isinstance(patch, wanted):
        raise bad_request(f"error decoding patch: expected a JSON {'array' if wanted is list else 'object'}")
    return patch


def _applied(content_type: str, old: Object, patch: Any) -> Any:
    if content_type == _MERGE_PATCH:
        return merge(old, patch)
    if content_type == _STRATEGIC_PATCH:
        return strategic(old, patch)
    try:
        return json_patch(old, patch)
    except PatchFailed as error:
        raise unprocessable_patch() from error
