"""What the server answers when it does not do what was asked: Status objects in the API server's own words.

The words were taken down from a running kube-apiserver 1.36.3; clients tell cases apart by code and reason, people by
the message.
"""

from __future__ import annotations

from typing import Any

import msgspec
from typing_extensions import override

from simulator.apiserver.types import ResourceType


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
