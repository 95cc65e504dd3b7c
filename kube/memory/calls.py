"""One request, taken apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kube.memory.refusals import bad_request
from kube.memory.types import ResourceType


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
