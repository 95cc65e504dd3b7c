"""Short forms of the requests that these tests make."""

from __future__ import annotations

from typing import Any

import msgspec

from kube.client.transport import Response, Transport

PODS = "/api/v1/namespaces/ns/pods"
CONFIG_MAPS = "/api/v1/namespaces/ns/configmaps"
MERGE = "application/merge-patch+json"


def pod(name: str, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


async def send(
    transport: Transport, method: str, path: str, body: Any = None, *, timeout_s: float = 10, **query: str
) -> Response:
    raw = None if body is None else msgspec.json.encode(body)
    content_type = MERGE if method == "PATCH" else "application/json"
    return await transport.request(method, path, query=query, body=raw, content_type=content_type, timeout_s=timeout_s)


def decoded(response: Response) -> Any:
    return msgspec.json.decode(response.body)
