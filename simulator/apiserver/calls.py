"""A request taken apart, by the URL scheme of the Kubernetes API, and the Status objects with which it is refused.

A request becomes a ``Call`` by its method, path and query. The words of refusals were taken down from a running
kube-apiserver 1.36.3; clients tell cases apart by code and reason, people by the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from typing_extensions import override

from simulator.apiserver.types import NAMESPACES, PODS, Registry, ResourceType, served


class Refusal(Exception):
    """Raised inside the server when a request is answered with a failure Status."""

    def __init__(self, code: int, reason: str, message: str, *, details: dict[str, Any] | None = None) -> None:
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.continue_token = ""
        self.retry_after_s: int | None = None

    def status(self) -> dict[str, Any]:
        """Return the Status object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            **({"details": self.details} if self.details is not None else {}),
            "code": self.code,
        }

    def body(self) -> bytes:
        """Return the Status as JSON."""
        return msgspec.json.encode(self.status())


class NoSuchGroup(Refusal):
    """Raised for paths below no API group: the real server answers in plain text there."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")

    @override
    def body(self) -> bytes:
        return b"404 page not found\n"


def _details(kind: ResourceType, name: str, *, of_kind: bool = False) -> dict[str, Any]:
    details = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.kind if of_kind else kind.plural
    return details


def bad_request(message: str) -> Refusal:
    """400."""
    return Refusal(400, "BadRequest", message)


def internal(message: str) -> Refusal:
    """500 without a reason: how the real server reports an error that it does not classify."""
    return Refusal(500, "", message)


def not_found(kind: ResourceType, name: str) -> Refusal:
    """404 for an object."""
    return Refusal(404, "NotFound", f'{kind.qualified} "{name}" not found', details=_details(kind, name))


def no_such_path() -> Refusal:
    """404 for a path that the server does not serve."""
    return Refusal(404, "NotFound", "the server could not find the requested resource", details={})


def method_not_allowed() -> Refusal:
    """405."""
    message = "the server does not allow this method on the requested resource"
    return Refusal(405, "MethodNotAllowed", message, details={})


def already_exists(kind: ResourceType, name: str, *, being_deleted: bool) -> Refusal:
    """409 on create."""
    prefix = "object is being deleted: " if being_deleted else ""
    message = f'{prefix}{kind.qualified} "{name}" already exists'
    return Refusal(409, "AlreadyExists", message, details=_details(kind, name))


def conflict(kind: ResourceType, name: str, why: str, *, subresource: str = "") -> Refusal:
    """409: a precondition or the state of the object forbids the write."""
    subject = f"{kind.qualified}/{subresource}" if subresource else kind.qualified
    details = _details(kind, name)
    if subresource:
        details["kind"] = f"{kind.plural}/{subresource}"
    return Refusal(409, "Conflict", f'Operation cannot be fulfilled on {subject} "{name}": {why}', details=details)


def modified(kind: ResourceType, name: str) -> Refusal:
    """409: the resourceVersion is not the current one."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def invalid(kind: ResourceType, name: str, field: str, problem: str) -> Refusal:
    """422 with one cause; ``problem`` reads ``Forbidden: ...``, ``Required value``, ``Invalid value: ...``."""
    word = problem.split(":", maxsplit=1)[0]
    reasons = {"Required value": "FieldValueRequired", "Forbidden": "FieldValueForbidden"}
    cause = {"reason": reasons.get(word, "FieldValueInvalid"), "message": problem, "field": field}
    subject = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    message = f'{subject} "{name}" is invalid: {field}: {problem}'
    return Refusal(422, "Invalid", message, details={**_details(kind, name, of_kind=True), "causes": [cause]})


def unprocessable_patch() -> Refusal:
    """422: a JSON patch that does not apply, its ``test`` included."""
    return Refusal(422, "Invalid", "the server rejected our request due to an error in our request", details={})


def forbidden(kind: ResourceType, name: str, why: str) -> Refusal:
    """403 from an admission plugin."""
    message = f'{kind.qualified} "{name}" is forbidden: {why}'
    return Refusal(403, "Forbidden", message, details=_details(kind, name))


def unsupported_media_type(accepted: tuple[str, ...]) -> Refusal:
    """415."""
    listed = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
    return Refusal(415, "UnsupportedMediaType", message)


def too_many_requests(cause: str, *, retry_after_s: int | None) -> Refusal:
    """429 of an eviction that a PodDisruptionBudget forbids."""
    details: dict[str, Any] = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    if retry_after_s is not None:
        details["retryAfterSeconds"] = retry_after_s
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    refusal = Refusal(429, "TooManyRequests", message, details=details)
    refusal.retry_after_s = retry_after_s
    return refusal


def expired(message: str) -> Refusal:
    """410: the history asked for was compacted away."""
    return Refusal(410, "Expired", message)


def too_large_resource_version(asked: int, current: int) -> Refusal:
    """504: a list may not be older than a version that does not exist yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return Refusal(504, "Timeout", message, details={"causes": [cause], "retryAfterSeconds": 1})


def not_implemented(what: str) -> Refusal:
    """501: the real server can do it, this one can't; said loudly rather than done differently."""
    return Refusal(501, "NotImplemented", f"the in-memory API server does not support {what}")


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
