"""A request taken apart: from method, path and query to a Call, by the URL scheme of the Kubernetes API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from simulator.apiserver.refusals import NoSuchGroup, bad_request, method_not_allowed, no_such_path
from simulator.apiserver.types import NAMESPACES, PODS, Registry, ResourceType, served


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the server understands it."""

    user: str
    groups: tuple[str, ...]
    #: get, list, watch, create, update, patch, delete, deletecollection: as in RBAC and audit.
    verb: str
    kind: ResourceType
    namespace: str
    name: str
    subresource: str
    query: Mapping[str, str]
    body: bytes | None = None
    content_type: str = "application/json"

    @property
    def key(self) -> str:
        """Where the object is stored."""
        return self.kind.key(self.namespace, self.name)

    def decoded(self) -> Any:
        """Return the body as JSON. Raises Refusal (400)."""
        try:
            return msgspec.json.decode(self.body or b"")
        except msgspec.DecodeError as error:
            must = f"(must be of type {self.kind.kind})"
            raise bad_request(f"the object provided is unrecognized {must}: json parse error: {error}") from error


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One answered request: what counting writes per user needs."""

    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int


class WriteRecord(msgspec.Struct, frozen=True):
    """One write as it came in: two runs with equal records did the same."""

    user: str
    method: str
    path: str
    body_digest: str


_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_STATUS_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch"}


class _Place(msgspec.Struct, frozen=True):
    kind: ResourceType
    namespace: str
    name: str
    subresource: str


class Router:
    """Finds what a request is about."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def route(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None,
        content_type: str,
        user: str,
        groups: tuple[str, ...],
    ) -> Call:
        """Return the call. Raises Refusal (404, 405)."""
        place = self._place(unquote(path))
        verb = _verb(method, place)
        if verb == "list" and query.get("watch") in ("true", "1"):
            verb = "watch"
        return Call(
            user=user,
            groups=groups,
            verb=verb,
            kind=place.kind,
            namespace=place.namespace,
            name=place.name,
            subresource=place.subresource,
            query=query,
            body=body,
            content_type=content_type.partition(";")[0].strip(),
        )

    def _place(self, path: str) -> _Place:
        parts = path.strip("/").split("/")
        if (group_version := _group_version(parts)) is not None and self._registry.has_group(*group_version):
            return _Place(served(*group_version), "", "", "")
        if parts[0] == "api" and len(parts) >= 3:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) >= 4:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            raise NoSuchGroup
        if not self._registry.has_group(group, version):
            raise NoSuchGroup
        return self._within_group(group, version, rest)

    def _within_group(self, group: str, version: str, rest: list[str]) -> _Place:
        namespace = ""
        if rest[0] == "namespaces" and len(rest) >= 3 and self._registry.by_root(group, version, rest[2]):
            namespace, rest = rest[1], rest[2:]
        kind = self._registry.by_root(group, version, rest[0])
        name, sub = [*rest[1:], "", ""][:2]
        if kind is None or len(rest) > 3 or (bool(namespace) and not kind.namespaced):
            raise no_such_path()
        if name and kind.namespaced and not namespace:
            raise no_such_path()
        return _Place(kind, namespace, name, sub)


def _group_version(parts: list[str]) -> tuple[str, str] | None:
    """Return the group and version whose discovery document is asked for, None if it is none."""
    if parts[0] == "api" and len(parts) == 2:
        return "", parts[1]
    return (parts[1], parts[2]) if parts[0] == "apis" and len(parts) == 3 else None


def _verb(method: str, place: _Place) -> str:
    verbs = _verbs(place)
    if method not in verbs:
        raise method_not_allowed()
    verb = verbs[method]
    if verb == "create" and not place.subresource and place.kind.namespaced and not place.namespace:
        raise method_not_allowed()
    return verb


def _verbs(place: _Place) -> dict[str, str]:
    kind, sub = place.kind, place.subresource
    if not kind.plural:
        return {"GET": "get"}
    if not sub:
        return _OBJECT_VERBS if place.name else _COLLECTION_VERBS
    if sub == "status" and kind.has_status and kind is not NAMESPACES:
        return _STATUS_VERBS
    if kind is PODS and sub in ("binding", "eviction"):
        return {"POST": "create"}
    raise no_such_path()
