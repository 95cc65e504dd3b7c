"""``moorage ui`` on a real API server: under the rights that docs/page.md names, and to each reader what he may see."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio.to_thread
import pytest

from kube.client.api import Api
from kube.client.config import from_kubeconfig
from kube.client.http import HttpTransport
from kube.client.retry import Retry
from tests.e2e.cluster import PATIENCE_S, eventually, share
from tests.e2e.conftest import SetScene
from tools.browser.chromium import Chromium, program
from tools.cluster.plane import ControlPlane
from tools.ports import free_port
from ui.inspect.reader import read_cluster
from ui.inspect.survey import survey
from wire import names

pytestmark = pytest.mark.cluster

#: The page's own rights, and no more.
OWN_RIGHTS = Path(__file__).parents[2] / "ui" / "page" / "rbac.yaml"
#: ``page-all`` is who sees all, ``page-own`` who sees one namespace, ``page-none`` nobody in particular.
RIGHTS = """
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
READERS = ("page-all", "page-own", "page-none")
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
    accounts = [ACCOUNT.format(name=name, namespace=namespace) for name in READERS]
    everywhere = EVERYWHERE.format(name="page-all", namespace=namespace)
    return RIGHTS.format(namespace=namespace, accounts="---".join([*accounts, everywhere]))


@asynccontextmanager
async def page(kubeconfig: Path) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    """The process, as it runs beyond loopback behind a proxy that has the certificate: where it is, and a client."""
    port = free_port()
    listen = ["--listen", f"0.0.0.0:{port}", "--tls-elsewhere"]
    command = [sys.executable, "-m", "cli.main", "ui", "--kubeconfig", str(kubeconfig), *listen]
    process = await anyio.to_thread.run_sync(subprocess.Popen, command)
    try:
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        address = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession(address, timeout=timeout) as client:
            yield address, client
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
        control_plane.apply(OWN_RIGHTS.read_text())
        tokens = {name: control_plane.service_account_token(namespace, name) for name in READERS}
        own = control_plane.service_account_token(names.SYSTEM_NAMESPACE, "moorage-page")
        kubeconfig = control_plane.write_kubeconfig(tmp_path / "kubeconfig", own)
        async with page(kubeconfig) as (address, client):

            async def state() -> Any:
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    status, said = await asked(client, "/api/state", tokens["page-all"])
                    pods = said.get("changes", {}).get("pods", ()) if status == 200 else ()
                    return said if {"half", "quarter"} <= {pod["name"] for pod in pods} else None
                return None

            whole = await eventually(state, "the page to have read the cluster", within_s=PATIENCE_S)
            assert whole.get("unread", []) == []
            assert told(whole["changes"]["nodes"]) == await inspected(control_plane)

            status, mine = await asked(client, "/api/state", tokens["page-own"])
            assert (status, mine["isPartlyHidden"], "nodes" in mine["changes"]) == (200, True, False)
            assert {pod["namespace"] for pod in mine["changes"]["pods"]} == {namespace}

            async def history() -> Any:
                """Events are written after what they tell of."""
                status, path = await asked(client, f"/api/pods/{namespace}/half", tokens["page-own"])
                assert status == 200, path
                return path if "Scheduled" in {event["reason"] for event in path["events"]} else None

            path = await eventually(history, "the page to tell that the pod was scheduled", within_s=PATIENCE_S)
            assert path["given"][0]["nano"] == 500_000_000

            # It reads what only explanations need; nothing answers for the scheduler here, which the page says.
            status, explained = await asked(client, f"/api/explain/{namespace}/half", tokens["page-own"])
            assert status == 200, explained
            assert "does not wait" in explained["tables"][0]["title"]
            assert not [text for text in explained["unread"] if text.startswith("configmaps")]
            assert explained["notByScheduler"]

            for token, status in ((tokens["page-none"], 403), ("nobody's", 401)):
                for where in (
                    "/api/state",
                    "/api/changes",
                    *(f"/api/{of}/{namespace}/half" for of in ("pods", "explain")),
                ):
                    assert (await asked(client, where, token))[0] == status

            await in_one_namespace(control_plane, tmp_path, namespace, tokens["page-own"])
            if program() is not None:
                await in_a_browser(address, tokens["page-all"], await inspected(control_plane))


async def in_one_namespace(plane: ControlPlane, folder: Path, namespace: str, token: str) -> None:
    """Who may read one namespace alone, and not all that Moorage has there, is shown what there is of it."""
    own = str(plane.write_kubeconfig(folder / "own", token))
    top = [sys.executable, "-m", "cli.main", "top", "--once", "--kubeconfig", own]
    said = (await anyio.run_process([*top, "-n", namespace])).stdout.decode()
    assert "nodes can't be read, so there is no map" in said
    assert f"not read: pods of other namespaces than {namespace}" in said
    port = free_port()
    page = [sys.executable, "-m", "cli.main", "ui", "-n", namespace, "--kubeconfig", own]
    process = await anyio.open_process([*page, "--listen", f"127.0.0.1:{port}"])
    async with process, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:

        async def names_of_pods() -> set[str] | None:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                status, state = await asked(client, "/api/state", "")
                return {pod["name"] for pod in state["changes"].get("pods", ())} if status == 200 else None
            return None

        shown = await eventually(names_of_pods, "the page to have read one namespace", within_s=PATIENCE_S)
        process.terminate()
    assert shown == {"half", "quarter"}


async def in_a_browser(address: str, token: str, expected: dict[str, list[tuple[str, int, list[str]]]]) -> None:
    """Somebody shows a token, and sees each device with its tenants."""
    async with Chromium() as browser, browser.tab() as tab:
        await tab.open(address)
        await tab.until("document.activeElement?.id === 'token'")
        await tab.type(token)
        await tab.press("Enter")
        await tab.until("document.documentElement.dataset.connection === 'live'")
        labels = await tab.evaluate("[...document.querySelectorAll('a.device')].map(d => d.getAttribute('aria-label'))")
    devices = [(name, tenants) for name, found in expected.items() for _, _, tenants in found]
    assert len(labels) == len(devices)
    for name, tenants in devices:
        assert any(label.startswith(f"{name} ") and all(f"/{each} " in label for each in tenants) for label in labels)


async def inspected(plane: ControlPlane) -> dict[str, list[tuple[str, int, list[str]]]]:
    """The devices of all nodes, as ``moorage inspect`` has them."""
    async with HttpTransport(await from_kubeconfig(path=str(plane.kubeconfig_path))) as transport:
        seen = survey(await read_cluster(Api(transport, retry=Retry(random.Random(0)))))
    return {
        node.name: [(d.kind.value, d.used_nano, [t.name for t in d.tenants]) for d in node.devices]
        for node in seen.nodes
    }
