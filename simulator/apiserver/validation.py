"""Checks and defaults of ``metadata`` on create and update, as rest.BeforeCreate and BeforeUpdate do them."""

from __future__ import annotations

import functools
import re
from typing import Any

from simulator.apiserver.calls import bad_request, invalid
from simulator.apiserver.types import EVENTS, LEASES, ResourceType

_MICRO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")


def check_micro_times(kind: ResourceType, obj: dict[str, Any]) -> None:
    """Refuse (400) a Lease or an Event with a malformed metav1.MicroTime: one without its six-digit fraction."""
    times: list[Any] = []
    if kind is LEASES:
        spec = obj.get("spec") or {}
        times = [spec.get("acquireTime"), spec.get("renewTime")]
    elif kind is EVENTS:
        times = [obj.get("eventTime"), (obj.get("series") or {}).get("lastObservedTime")]
    for each in times:
        if each is not None and not (isinstance(each, str) and _MICRO.fullmatch(each)):
            raise bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f'parsing time "{each}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse'
            )


_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_KEY_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character"
)
_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character"
)
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
#: Written by the server alone; what a client says about them on create is dropped.
_SERVER_FIELDS = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
)


@functools.lru_cache(maxsize=65536)
def name_problem(name: str, *, label: bool) -> str:
    """Say what is wrong with an object's name, or nothing."""
    limit = 63 if label else 253
    if len(name) > limit:
        return f"must be no more than {limit} characters"
    pattern, rule = (_LABEL, _LABEL_RULE) if label else (_SUBDOMAIN, _SUBDOMAIN_RULE)
    return "" if pattern.fullmatch(name) else rule


@functools.lru_cache(maxsize=65536)
def key_problem(key: str) -> str:
    """Say what is wrong with the key of a label, an annotation or a finalizer, or nothing."""
    prefix, slash, name = key.rpartition("/")
    if slash and name_problem(prefix, label=False):
        return f"prefix part {_SUBDOMAIN_RULE}"
    if len(name) > 63:
        return "name part must be no more than 63 characters"
    return "" if _KEY_NAME.fullmatch(name) else _KEY_RULE


@functools.lru_cache(maxsize=65536)
def label_value_problem(value: str) -> str:
    """Say what is wrong with a label's value, or nothing."""
    if len(value) > 63:
        return "must be no more than 63 characters"
    return "" if not value or _KEY_NAME.fullmatch(value) else _VALUE_RULE


def check_type(kind: ResourceType, obj: Any) -> None:
    """Refuse (400) a body that is not an object of this type. Built-in types may leave kind and apiVersion out."""
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata", {}), dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.kind})")
    said = (obj.get("apiVersion"), obj.get("kind"))
    if said == (kind.api_version, kind.kind):
        return
    if said[1] is None and kind.custom:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): Object 'Kind' is missing"
        )
    if said[1] not in (None, "", kind.kind) or said[0] not in (None, "", kind.api_version):
        raise bad_request(f'{said[1]} in version "{said[0]}" cannot be handled as a {kind.kind}')


def tidy_meta(meta: dict[str, Any]) -> dict[str, Any]:
    """Return metadata without its empty parts: the real server does not keep them."""
    return {key: value for key, value in meta.items() if value not in (None, "", {}, [])}


def strip_server_fields(meta: dict[str, Any]) -> dict[str, Any]:
    """Return a new object's metadata without what only the server sets."""
    return {key: value for key, value in tidy_meta(meta).items() if key not in _SERVER_FIELDS}


def check_new_meta(kind: ResourceType, meta: dict[str, Any]) -> None:
    """Refuse (422) bad names, labels, annotations, finalizers and owners of a new object."""
    name = meta["name"]
    problem = name_problem(name, label=kind.label_names)
    if problem:
        raise invalid(kind, name, "metadata.name", f'Invalid value: "{name}": {problem}')
    check_maps(kind, meta)


def check_maps(kind: ResourceType, meta: dict[str, Any]) -> None:
    """Refuse (422) bad labels, annotations, finalizers and owners, on create and on every update."""
    name = meta["name"]
    for key, value in (meta.get("labels") or {}).items():
        problem = key_problem(key)
        if problem:
            raise invalid(kind, name, "metadata.labels", f'Invalid value: "{key}": {problem}')
        if not isinstance(value, str):
            raise bad_request(f"{kind.kind} in version {kind.version!r}: label {key!r} must be a string, not {value!r}")
        problem = label_value_problem(value)
        if problem:
            raise invalid(kind, name, "metadata.labels", f'Invalid value: "{value}": {problem}')
    _check_annotations(kind, meta)
    _check_finalizers(kind, meta)
    for owner in meta.get("ownerReferences") or ():
        _check_owner(kind, name, owner)


def _check_annotations(kind: ResourceType, meta: dict[str, Any]) -> None:
    total = 0
    for key, value in (meta.get("annotations") or {}).items():
        if not isinstance(value, str):
            raise bad_request(f"{kind.kind}: annotation {key!r} must be a string, not {value!r}")
        problem = key_problem(key.lower())
        if problem:
            raise invalid(kind, meta["name"], "metadata.annotations", f'Invalid value: "{key}": {problem}')
        total += len(key) + len(value)
    if total > 262144:
        raise invalid(kind, meta["name"], "metadata.annotations", "Too long: may not be more than 262144 bytes")


def _check_finalizers(kind: ResourceType, meta: dict[str, Any]) -> None:
    for at, finalizer in enumerate(meta.get("finalizers") or ()):
        problem = key_problem(finalizer)
        if not problem and "/" not in finalizer and not kind.custom and finalizer not in _STANDARD_FINALIZERS:
            problem = "name is neither a standard finalizer name nor is it fully qualified"
        if problem:
            field = f"metadata.finalizers[{at}]"
            raise invalid(kind, meta["name"], field, f'Invalid value: "{finalizer}": {problem}')


def _check_owner(kind: ResourceType, name: str, owner: dict[str, Any]) -> None:
    for part in ("apiVersion", "kind", "name", "uid"):
        if not owner.get(part):
            raise invalid(kind, name, f"metadata.ownerReferences.{part}", 'Invalid value: "": must not be empty')


def carry_over(kind: ResourceType, meta: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return the updated metadata with what the server keeps; refuse (422) changes of what can't change.

    Left out means unchanged; ``generation`` and ``managedFields`` are always the server's.
    """
    name = old["name"]
    meta = tidy_meta(meta)
    for part in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName"):
        said, kept = meta.get(part), old.get(part)
        if said is None or (part == "generateName" and said != kept):
            said = kept
        if said != kept:
            raise invalid(kind, name, f"metadata.{part}", f'Invalid value: "{said}": field is immutable')
        _keep(meta, part, kept)
    for part in ("name", "namespace", "generation", "resourceVersion"):
        _keep(meta, part, old.get(part))
    meta.pop("managedFields", None)
    meta.pop("selfLink", None)
    _check_no_new_finalizers(kind, meta, old)
    return meta


def _keep(meta: dict[str, Any], part: str, value: Any) -> None:
    if value is None:
        meta.pop(part, None)
    else:
        meta[part] = value


def _check_no_new_finalizers(kind: ResourceType, meta: dict[str, Any], old: dict[str, Any]) -> None:
    if "deletionTimestamp" not in old:
        return
    had = old.get("finalizers") or ()
    new = [each for each in meta.get("finalizers") or () if each not in had]
    if new:
        why = f"Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers {new}"
        raise invalid(kind, old["name"], "metadata.finalizers", why)
