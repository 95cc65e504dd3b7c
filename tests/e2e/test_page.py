"""``moorage ui`` on a real API server: under the rights that docs/page.md names, and to each reader what he may see."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio.to_thread
import pytest

from cli.connections import as_kubectl
from cli.inspection.reading import read_cluster
from cli.inspection.surveying import survey
from kube.api import Api
from kube.http import HttpTransport
from kube.retry import Retry
from tests.e2e.cluster import PATIENCE_S, eventually, share
from tests.e2e.conftest import SetScene
from tools.cluster import ControlPlane

pytestmark = pytest.mark.cluster

#: The page's own rights are those of docs/page.md and no more; ``page-all`` is who sees all, ``page-own`` who sees one
#: namespace, ``page-none`` nobody in particular.
RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: page}}
rules:
  - {{apiGroups: [""], resources: [nodes, pods], verbs: [get, list, watch]}}
  - {{apiGroups: [events.k8s.io], resources: [events], verbs: [get, list, watch]}}
  - {{apiGroups: [scheduling.run.ai], resources: [bindrequests, podgroups], verbs: [get, list, watch]}}
  - {{apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}}
  - {{apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: page-all}}
rules:
  - {{apiGroups: [""], resources: [nodes, pods], verbs: [list]}}
  - {{apiGroups: [events.k8s.io], resources: [events], verbs: [list]}}
---
{accounts}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: page-own, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}}
subjects: [{{kind: ServiceAccount, name: page-own, namespace: {namespace}}}]
"""
READERS = ("", "-all", "-own", "-none")
ACCOUNT = """
apiVersion: v1
kind: ServiceAccount
metadata: {{name: {name}, namespace: {namespace}}}
"""
EVERYWHERE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {name}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {name}}}
subjects: [{{kind: ServiceAccount, name: {name}, namespace: {namespace}}}]
"""


def rights(namespace: str) -> str:
    accounts = [
        ACCOUNT.format(name=name, namespace=namespace) for name in ("page", "page-all", "page-own", "page-none")
    ]
    everywhere = [EVERYWHERE.format(name=name, namespace=namespace) for name in ("page", "page-all")]
    return RIGHTS.format(namespace=namespace, accounts="---".join([*accounts, *everywhere]))


@asynccontextmanager
async def page(plane: ControlPlane, kubeconfig: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """The process, as it runs beyond loopback behind a proxy that has the certificate."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    listen = ["--listen", f"0.0.0.0:{port}", "--tls-elsewhere"]
    command = [sys.executable, "-m", "cli.main", "ui", "--kubeconfig", str(kubeconfig), *listen]
    process = await anyio.to_thread.run_sync(subprocess.Popen, command)
    try:
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", timeout=timeout) as client:
            yield client
    finally:
        process.terminate()
        assert await anyio.to_thread.run_sync(process.wait) == 0


async def asked(client: aiohttp.ClientSession, path: str, token: str) -> tuple[int, Any]:
    async with client.get(path, headers={"Authorization": f"Bearer {token}"}) as answer:
        return answer.status, await answer.json()


def told(nodes: Any) -> dict[str, list[tuple[str, int, list[str]]]]:
    return {
        node["name"]: [
            (d["kind"], d.get("usedNano", 0), [t["name"] for t in d.get("tenants", ())]) for d in node["devices"]
        ]
        for node in nodes
    }


async def test_each_reader_sees_what_the_api_server_says_he_may(
    set_scene: SetScene, control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_scene(["1x2x24GiB"]) as scene:
        await scene.create(share("half", "0.5"), share("quarter", "0.25"))
        await scene.running(2)
        namespace = scene.namespace
        control_plane.apply(rights(namespace))
        tokens = {
            name: control_plane.service_account_token(namespace, f"page{name}")
            for name in ("", "-all", "-own", "-none")
        }
        kubeconfig = control_plane.write_kubeconfig(tmp_path / "kubeconfig", tokens[""])
        async with page(control_plane, kubeconfig) as client:

            async def state() -> Any:
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    status, said = await asked(client, "/api/state", tokens["-all"])
                    pods = said.get("changes", {}).get("pods", ()) if status == 200 else ()
                    return said if {"half", "quarter"} <= {pod["name"] for pod in pods} else None
                return None

            whole = await eventually(state, "the page to have read the cluster", within_s=PATIENCE_S)
            assert whole.get("unread", []) == []
            assert told(whole["changes"]["nodes"]) == await inspected(control_plane)

            status, own = await asked(client, "/api/state", tokens["-own"])
            assert (status, own["isPartlyHidden"], "nodes" in own["changes"]) == (200, True, False)
            assert {pod["namespace"] for pod in own["changes"]["pods"]} == {namespace}
            status, path = await asked(client, f"/api/pods/{namespace}/half", tokens["-own"])
            assert (status, path["given"][0]["nano"]) == (200, 500_000_000)
            assert "Scheduled" in {event["reason"] for event in path["events"]}

            for token, status in ((tokens["-none"], 403), ("nobody's", 401)):
                for address in ("/api/state", "/api/changes", f"/api/pods/{namespace}/half"):
                    assert (await asked(client, address, token))[0] == status


async def inspected(plane: ControlPlane) -> dict[str, list[tuple[str, int, list[str]]]]:
    """The devices of all nodes, as ``moorage inspect`` has them."""
    async with HttpTransport(await as_kubectl(kubeconfig=str(plane.kubeconfig_path), context="")) as transport:
        seen = survey(await read_cluster(Api(transport, retry=Retry(random.Random(0)))))
    return {
        node.name: [(d.kind.value, d.used_nano, [t.name for t in d.tenants]) for d in node.devices]
        for node in seen.nodes
    }
