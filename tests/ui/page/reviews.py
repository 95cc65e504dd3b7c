"""An API server that answers reviews by a table: who has which token, and who may list what where."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from kube.client.api import Api
from kube.client.retry import Retry
from kube.client.transport import JSON, OBJECT_BYTES, Response

Rights = frozenset[tuple[str, str]]


class Reviewer:
    """A Transport. ``users``: by token; ``rights``: by user, (resource, namespace), "" for all namespaces.

    A resource is one that may be listed; another verb stands before it.
    """

    def __init__(self, users: Mapping[str, str], rights: Mapping[str, Rights]) -> None:
        self.users = dict(users)
        self.rights = dict(rights)
        self.asked: list[dict[str, Any]] = []
        self.is_broken = False
        #: Whether an authorizer before the one that allows has denied, which the API server tells beside it.
        self.is_denied = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = JSON,
        timeout_s: float,
        most_bytes: int = OBJECT_BYTES,
    ) -> Response:
        assert method == "POST"
        if self.is_broken:
            return Response(403, {}, b"{}")
        spec = msgspec.json.decode(body or b"")["spec"]
        self.asked.append(spec)
        if path == "/apis/authentication.k8s.io/v1/tokenreviews":
            name = self.users.get(spec["token"], "")
            # Each token of a service account tells its own id.
            extra = {"authentication.kubernetes.io/credential-id": [f"JTI={spec['token']}"]}
            user = {"username": name, "groups": ["g"], "extra": extra}
            status: dict[str, Any] = {"authenticated": bool(name), "user": user}
        else:
            assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
            asked = spec["resourceAttributes"]
            resource = asked["resource"] if asked["verb"] == "list" else f"{asked['verb']} {asked['resource']}"
            allowed = (resource, asked["namespace"]) in self.rights.get(spec["user"], ())
            status = {"allowed": allowed, "denied": self.is_denied}
        return Response(201, {}, msgspec.json.encode({"metadata": {}, "status": status}))

    def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        raise AssertionError("nobody watches reviews")

    def api(self) -> Api:
        """The calls over it."""
        return Api(self, retry=Retry(random.Random(0)))


USERS = {"token-admin": "admin", "token-ann": "ann", "token-eve": "eve", "token-bob": "bob"}
EVERYWHERE: Rights = frozenset({("nodes", ""), ("pods", ""), ("events", ""), ("queues", "")})
RIGHTS: dict[str, Rights] = {
    "admin": EVERYWHERE,
    "ann": frozenset({("nodes", ""), ("pods", "team-a"), ("events", "team-a")}),
    "bob": frozenset({("pods", "team-b")}),
}
