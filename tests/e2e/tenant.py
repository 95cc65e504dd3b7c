"""A tenant: the ClusterRole ``edit`` in one namespace, and all to pods and scheduling objects there.

RBAC gives more here than a cautious administrator would, ``pods/status`` and ``pods/binding`` among it, so that what
refuses is Moorage.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import yaml
from kubernetes_asyncio import client

from tests.e2e.cluster import PATIENCE_S, Pod, eventually
from tools.cluster.plane import ControlPlane
from wire import names

MERGE = "application/merge-patch+json"
_RBAC = "rbac.authorization.k8s.io"
_PODS = ["pods", "pods/status", "pods/binding", "pods/ephemeralcontainers"]
_RIGHTS = [
    {"apiGroups": [""], "resources": [*_PODS, "configmaps"], "verbs": ["*"]},
    {"apiGroups": [names.SCHEDULING_GROUP], "resources": ["podgroups", "bindrequests"], "verbs": ["*"]},
]


class Refused(msgspec.Struct, frozen=True):
    """An answer of the API server that is no success."""

    status: int
    message: str

    @property
    def is_ours(self) -> bool:
        """Whether it was a policy of ours, or our webhook, and not RBAC or the server's own rules."""
        return self.status == 403 and ("'moorage-" in self.message or "moorage.dev" in self.message)


class Identity:
    """Calls on the API server in one namespace, as whoever the client is."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.core = client.CoreV1Api(api)
        self.custom = client.CustomObjectsApi(api)
        self.namespace = namespace

    async def create(self, wanted: Pod, *, scene: str = "") -> Pod:
        """Create a pod that goes to the scene's nodes, and return it as stored. ``scene`` is another one's name."""
        wanted = {**wanted, "spec": {**wanted["spec"], "nodeSelector": {"scene": scene or self.namespace}}}
        return await _json(self.core.create_namespaced_pod(self.namespace, wanted, _preload_content=False))

    async def patch(self, name: str, patch: Any, *, subresource: str = "") -> Pod:
        """Change a pod by a merge patch."""
        call = getattr(self.core, f"patch_namespaced_pod{'_' + subresource if subresource else ''}")
        return await _json(call(name, self.namespace, patch, _content_type=MERGE, _preload_content=False))

    async def bind(self, name: str, node: str, **metadata: Any) -> Pod:
        """POST a Binding."""
        body = {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}
        return await _json(self.core.create_namespaced_pod_binding(name, self.namespace, body, _preload_content=False))

    async def create_custom(self, plural: str, version: str, manifest: Any) -> Any:
        """Create a PodGroup or BindRequest."""
        return await self.custom.create_namespaced_custom_object(
            names.SCHEDULING_GROUP, version, self.namespace, plural, manifest
        )


async def _json(call: Awaitable[Any]) -> Pod:
    """Read a raw answer, of which the client itself judges nothing."""
    response = await call
    body = await response.read()
    if response.status >= 400:
        error = client.ApiException(status=response.status, reason=response.reason)
        error.body = body
        raise error
    answer: Pod = json.loads(body)
    return answer


async def refused(call: Awaitable[Any]) -> Refused:
    """Make a call that has to fail, and return how it did."""
    try:
        answer = await call
    except client.ApiException as error:
        return Refused(error.status, json.loads(error.body)["message"])
    raise AssertionError(f"let in: {str(answer)[:2000]}")


@asynccontextmanager
async def identity(plane: ControlPlane, token: str, namespace: str) -> AsyncIterator[Identity]:
    """Connect with a bearer token."""
    ca_file = anyio.Path(plane.folder / "tenant-ca.pem")
    await ca_file.write_text(plane.ca_pem)
    configuration = client.Configuration(host=plane.url)
    configuration.ssl_ca_cert = str(ca_file)
    configuration.api_key = {"BearerToken": f"Bearer {token}", "authorization": f"Bearer {token}"}
    async with client.ApiClient(configuration) as api:
        yield Identity(api, namespace)


@asynccontextmanager
async def tenant(plane: ControlPlane, namespace: str) -> AsyncIterator[Identity]:
    """Make the tenant of a namespace that exists."""
    name = {"name": "tenant", "namespace": namespace}
    documents = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": name},
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": name, "rules": _RIGHTS},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": name,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": "tenant"},
            "subjects": [{"kind": "ServiceAccount", **name}],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {**name, "name": "tenant-edits"},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", **name}],
        },
    ]
    plane.apply(yaml.safe_dump_all(documents))
    async with identity(plane, plane.service_account_token(namespace, "tenant"), namespace) as made:
        await eventually(lambda: _may_list(made), "the tenant's rights", within_s=PATIENCE_S)
        yield made


async def _may_list(made: Identity) -> bool | None:
    """Whether the API server knows both bindings: services are of ``edit`` alone."""
    try:
        await made.core.list_namespaced_pod(made.namespace, limit=1)
        await made.core.list_namespaced_service(made.namespace, limit=1)
    except client.ApiException:
        return None
    return True
