"""A real API server that asks webhooks of ours about the pods of a test's own namespaces."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio

from admission.certificates.pair import serving_certificate
from admission.certificates.tls import Files, FilesShown
from admission.manifests import UrlEndpoint
from admission.review import PodAdmission
from admission.server import Endpoint, WebhookServer
from kube.client.clock import SystemClock
from tools.cluster.plane import ControlPlane

Object = dict[str, Any]

_ADMISSION_API = "/apis/admissionregistration.k8s.io/v1"
_RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}


class Door:
    """Requests of an administrator, who may do anything."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def call(
        self, method: str, path: str, body: Object | None = None, *, content_type: str = "application/json"
    ) -> tuple[int, Object, Sequence[str]]:
        """Status, body and warnings of the answer."""
        headers = {"Content-Type": content_type}
        async with self._session.request(method, self._url + path, json=body, headers=headers) as response:
            return response.status, await response.json(), response.headers.getall("Warning", [])

    async def made(self, path: str, body: Object) -> None:
        """Create something that may be there already."""
        status, answer, _ = await self.call("POST", path, body)
        assert status in {201, 409}, answer


@asynccontextmanager
async def opened(plane: ControlPlane, namespaces: Mapping[str, Mapping[str, str]]) -> AsyncIterator[Door]:
    """Make namespaces with these labels, in which pods can be made."""
    tls = ssl.create_default_context(cadata=plane.ca_pem)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls),
        headers={"Authorization": f"Bearer {plane.token}"},
        timeout=aiohttp.ClientTimeout(total=120),
    ) as session:
        door = Door(session, plane.url)
        await door.made("/apis/node.k8s.io/v1/runtimeclasses", _RUNTIME_CLASS)
        for name, labels in namespaces.items():
            await door.made("/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels)}})
            await door.made(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
        yield door


@asynccontextmanager
async def served(admission: PodAdmission, folder: Path) -> AsyncIterator[tuple[UrlEndpoint, bytes]]:
    """Serve webhooks; where, and the CA to trust."""
    made = serving_certificate(addresses=["127.0.0.1"], now_ns=SystemClock().now_ns())
    (folder / "tls.crt").write_bytes(made.certificate)
    (folder / "tls.key").write_bytes(made.key)
    shown = FilesShown(Files(certificate=folder / "tls.crt", key=folder / "tls.key"))
    endpoint = Endpoint(host="127.0.0.1", port=0, drain_s=0.1)
    server = WebhookServer(admission, endpoint, shown, is_ready=lambda: True)
    async with anyio.create_task_group() as tasks:
        port = await tasks.start(server.run)
        yield UrlEndpoint(f"https://127.0.0.1:{port}"), made.ca
        server.stop()
        await server.stopped.wait()


@asynccontextmanager
async def registered(door: Door, manifests: Sequence[Object], namespaces: Sequence[str]) -> AsyncIterator[None]:
    """Register webhooks for these namespaces only: other tests share the server."""
    mark = uuid.uuid4().hex[:8]
    only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
    paths = []
    try:
        for manifest in manifests:
            manifest["metadata"]["name"] += f"-{mark}"
            for webhook in manifest["webhooks"]:
                webhook["namespaceSelector"].setdefault("matchExpressions", []).append(only)
            path = f"{_ADMISSION_API}/{manifest['kind'].lower()}s"
            status, answer, _ = await door.call("POST", path, manifest)
            assert status == 201, answer
            paths.append(f"{path}/{manifest['metadata']['name']}")
        yield
    finally:
        for path in paths:
            await door.call("DELETE", path)
