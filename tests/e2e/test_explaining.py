"""``kubectl moorage explain`` asks a scheduler through the API server's service proxy: who may, and who may not."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from cli.main import main
from tests.e2e.cluster import PATIENCE_S, eventually, pod
from tools.cluster.deployment import SCHEDULER, Deployment, Options
from tools.cluster.plane import ControlPlane
from tools.flags import LOOPBACK
from tools.ports import free_port
from wire import names

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
#: ``explain-own`` may get pods of one namespace, ``explain-none`` may reach the scheduler only.
READERS = ("explain-own", "explain-none")
#: Stands for the scheduler's pod: the API server passes requests on to addresses of pods only.
POD, THERE = "moorage-scheduler-0", "10.99.0.1"
#: What the chart makes (helm/moorage/templates/explain.yaml), and readers.
MANIFESTS = """
apiVersion: v1
kind: Service
metadata: {{name: {service}, namespace: {system}}}
spec: {{ports: [{{name: explain, port: 443, targetPort: {port}}}]}}
---
apiVersion: v1
kind: Endpoints
metadata: {{name: {service}, namespace: {system}}}
subsets:
  - addresses: [{{ip: "{there}", targetRef: {{kind: Pod, name: {pod}, namespace: {system}}}}}]
    ports: [{{name: explain, port: {port}}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: moorage-explain, namespace: {system}}}
rules:
  - apiGroups: [""]
    resources: [services/proxy]
    resourceNames: ["https:{service}:explain"]
    verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: moorage-explain, namespace: {system}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: moorage-explain}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:serviceaccounts:team"}}]
---
apiVersion: v1
kind: Namespace
metadata: {{name: team}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: explain-reads-pods}}
rules: [{{apiGroups: [""], resources: [pods, nodes], verbs: [get, list]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: explain-own, namespace: team}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: explain-reads-pods}}
subjects: [{{kind: ServiceAccount, name: explain-own, namespace: team}}]
"""
ACCOUNT = "\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {name}, namespace: team}}\n"


@contextlib.asynccontextmanager
async def passage(path: Path) -> AsyncIterator[None]:
    """Pass what the API server sends to any address on to loopback, as its egress selector asks (HTTP's CONNECT)."""

    writers: set[asyncio.StreamWriter] = set()
    tasks: set[asyncio.Task[None]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(65_536):
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        writers.add(writer)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        port = int(head.split()[1].rpartition(":")[2])
        try:
            there_reader, there_writer = await asyncio.open_connection(LOOPBACK, port)
        except ConnectionRefusedError:  # the scheduler does not listen yet
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            writer.close()
            return
        writers.add(there_writer)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))

    server = await asyncio.start_unix_server(connect, path)
    try:
        yield
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)


def stand_in(plane: ControlPlane) -> None:
    """Make a pod with that address, of another scheduler."""
    pods, rest = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/pods", plane.rest()
    plane.apply(ACCOUNT.format(name="default").replace("team", names.SYSTEM_NAMESPACE))
    made = pod(POD, namespace=names.SYSTEM_NAMESPACE)
    made["spec"]["schedulerName"] = "another"
    made = rest.call("POST", pods, made)
    made["status"] = {"phase": "Running", "podIP": THERE, "podIPs": [{"ip": THERE}]}
    rest.call("PUT", f"{pods}/{POD}/status", made)


@pytest.fixture(scope="module")
def explained() -> Iterator[tuple[ControlPlane, int]]:
    """A control plane whose API server reaches a scheduler that explains, and where that listens."""
    port = free_port()
    options = Options(
        arguments={SCHEDULER: ["--explain-address", f"{LOOPBACK}:{port}"]}, components=(SCHEDULER,), nodes=["1x2x24GiB"]
    )
    with ControlPlane(egress=True) as plane, Deployment(plane, options):
        plane.apply((ROOT / "ui" / "explain" / "rbac.yaml").read_text())
        stand_in(plane)
        accounts = "".join(ACCOUNT.format(name=name) for name in (*READERS, "default"))
        service = names.EXPLAIN_SERVICE
        plane.apply(MANIFESTS.format(service=service, system=names.SYSTEM_NAMESPACE, port=port, there=THERE, pod=POD))
        plane.apply(accounts)
        yield plane, port


def waiting(name: str, gpus: int) -> dict[str, Any]:
    made = pod(name, gpus=gpus)
    made["metadata"]["namespace"] = "team"
    return made


async def test_who_may_get_the_pod_has_it_explained_by_the_scheduler(
    explained: tuple[ControlPlane, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plane, _ = explained
    path = plane.egress_path
    assert path is not None

    async def told(reader: str, *given: str) -> tuple[int, str, str]:
        kubeconfig = plane.kubeconfig_path
        if reader:
            kubeconfig = plane.write_kubeconfig(tmp_path / reader, plane.service_account_token("team", reader))
        command = ["explain", "pod", *given, "-n", "team", "--kubeconfig", str(kubeconfig), "-o", "json"]
        try:
            code = await anyio.to_thread.run_sync(main, command)
        except SystemExit as ended:
            code = int(str(ended.code))
        said = capsys.readouterr()
        return code, said.out, said.err

    async with passage(path):
        await anyio.to_thread.run_sync(plane.rest().call, "POST", "/api/v1/namespaces/team/pods", waiting("big", 4))

        async def is_known() -> bool | None:
            code, out, _ = await told("explain-own", "big")
            return (code == 0 and json.loads(out)["unread"] == []) or None  # from then on it leads

        await eventually(is_known, "the scheduler to explain the pod", within_s=PATIENCE_S)
        code, out, err = await told("explain-own", "big")
        assert (code, err) == (0, "")
        answer = json.loads(out)
        assert answer["unread"] == []
        assert answer["group"]["message"].startswith("Pod team/big waits: ")
        assert answer["group"]["helps"][0]["message"] == "request 2 GPUs per pod"
        code, out, err = await told("explain-own", "big", "--what-if", "gpus=1")
        assert (code, json.loads(out)["group"]["starts"], err) == (0, True, "")

        code, _, err = await told("explain-own", "nobody")
        assert code == 2
        assert "there is no pod nobody in namespace team" in err
        # Who may not get it is refused by the scheduler, and then by the API server.
        code, out, err = await told("explain-none", "big")
        assert (code, out) == (1, "")
        assert "may not get pods big in namespace team" in err
    # Without a scheduler the command reads the cluster, as far as one may.
    code, out, err = await told("", "big")
    assert "the scheduler gave no answer" in err
    assert (code, json.loads(out)["group"]["helps"][0]["message"]) == (0, "request 2 GPUs per pod")
