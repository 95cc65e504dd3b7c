"""The chart installed for real: our images as containers, webhooks and page by their Services, a share on a GPU.

A cluster of its own: kube-scheduler places the components, kube-proxy leads to the Service, and the API server reaches
it from the node's network, as one does that is not a part of its cluster's network.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from admission.certificates.pair import serving_certificate
from kube.client.clock import SystemClock
from tests.e2e.release import COMPONENTS, NAMESPACE, Release
from tests.node.pods import Machine, eventually, share
from tools.chart import CHART
from tools.cluster.plane import ControlPlane
from tools.images import build
from tools.node import debian
from tools.node.node import Node, pause_archive, reservation_archive
from tools.rest import RestError

pytestmark = [pytest.mark.node, pytest.mark.helm, pytest.mark.timeout(600)]

NODE = "node-a"
LABELS = {"nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.present": "true"}
#: Last lines of each component's log.
_SHOWN = 30
#: As the README says it; one process of each for a small machine, and idle reservations go soon.
VALUES = (
    "global.registry=localhost",
    "global.gpuSharing=true",
    "scheduler.replicas=1",
    "binder.replicas=1",
    "binder.args.idle-s=1",
)
#: And the page with a certificate of its own, as docs/page.md has it.
PAGE_VALUES = ("page.enabled=true", "page.tlsSecret=page-tls")
PAGE = f"moorage-page.{NAMESPACE}.svc"
#: The page's certificate, and somebody who may list nodes and pods.
PAGE_NEEDS = """
apiVersion: v1
kind: Namespace
metadata: {{name: {namespace}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: page-tls, namespace: {namespace}}}
type: kubernetes.io/tls
data: {{tls.crt: {certificate}, tls.key: {key}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: reader, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: reader}}
rules: [{{apiGroups: [""], resources: [nodes, pods], verbs: [list]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: reader}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}}
subjects: [{{kind: ServiceAccount, name: reader, namespace: default}}]
"""


@pytest.fixture
def cluster() -> Iterator[Machine]:
    if why := debian.service_trial():
        pytest.skip(f"LEFT OUT: Services can't be had on this machine: {why}")
    archives = [pause_archive(), reservation_archive(), build.archive("components")]
    with (
        ControlPlane(nodes=[NODE], scheduler=True, egress=True) as plane,
        Node(plane, NODE, gpus=2, labels=LABELS, archives=archives) as node,
    ):
        runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
        plane.apply(json.dumps({**runtime, "handler": "nvidia"}))
        yield Machine(plane, node)
        # Shown if the test fails.
        for log in sorted((node.folder / "log" / "pods").glob(f"{NAMESPACE}_*/*/*.log")):
            print(f"--- {log.parent.name} {log.name}", *log.read_text().splitlines()[-_SHOWN:], sep="\n")


def is_let_in(machine: Machine, name: str, fraction: str) -> bool | None:
    """Create a pod; the API server learns of certificates a moment after they are there."""
    try:
        machine.create(share(name, fraction))
    except RestError as refused:
        if "failed calling webhook" not in str(refused):
            raise
        return None
    return True


def tenants(page: Page, token: str) -> set[str] | None:
    """Who shares a device, as the page's map has it, once there are two."""
    status, state = page.get("/api/state", token)
    assert status == 200, state
    devices = [device for node in state["changes"]["nodes"] for device in node["devices"]]
    shared = ({each["name"] for each in device.get("tenants", ())} for device in devices)
    return next((names for names in shared if len(names) == 2), None)


class Page:
    """The page's Service, as a pod reaches it: kube-proxy leads there, and a client checks its certificate."""

    def __init__(self, plane: ControlPlane) -> None:
        made = serving_certificate(dns_names=[PAGE], now_ns=SystemClock().now_ns())
        self._plane = plane
        self._trust = ssl.create_default_context(cadata=made.ca.decode())
        certificate, key = (base64.b64encode(pem).decode() for pem in (made.certificate, made.key))
        plane.apply(PAGE_NEEDS.format(namespace=NAMESPACE, certificate=certificate, key=key))

    def get(self, path: str, token: str = "") -> tuple[int, Any]:
        """Ask for it; return status and JSON."""
        service = self._plane.rest().call("GET", f"/api/v1/namespaces/{NAMESPACE}/services/moorage-page")
        connection = http.client.HTTPSConnection(PAGE, timeout=60)
        with contextlib.closing(connection):
            connection.sock = self._trust.wrap_socket(self._to(service["spec"]["clusterIP"]), server_hostname=PAGE)
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
            answer = connection.getresponse()
            body = answer.read()
            is_packed = answer.headers["Content-Encoding"] == "gzip"
            return answer.status, json.loads(gzip.decompress(body) if is_packed else body)

    def _to(self, address: str) -> socket.socket:
        """Connect from within the node's network, on the way that the API server takes (tools/node/netns_proxy.py)."""
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(60)
        made.connect(str(self._plane.egress_path))
        made.sendall(f"CONNECT {address}:443 HTTP/1.1\r\n\r\n".encode())
        said = b""
        while not said.endswith(b"\r\n\r\n"):
            said += made.recv(1)
        assert b" 200 " in said, said
        return made


def test_the_chart_installs_and_two_halves_share_a_gpu_and_outlive_it(cluster: Machine, tmp_path: Path) -> None:
    machine, release = cluster, Release(cluster.plane, tmp_path, has_kubelets=True)
    page = Page(cluster.plane)
    values = [word for value in (*VALUES, *PAGE_VALUES) for word in ("--set", value)]
    notes = release.helm(
        *("install", "moorage", str(CHART), "--create-namespace", "--wait", "--timeout", "300s", *values)
    )
    assert "Shares of GPUs: annotate a pod with gpu-fraction" in notes
    running = [one for one in machine.pods(NAMESPACE) if one["status"]["phase"] == "Running"]
    assert {one["metadata"]["labels"]["app.kubernetes.io/component"] for one in running} == {*COMPONENTS, "page"}

    eventually(lambda: is_let_in(machine, "left", "0.5"), lambda: "a pod to be let in")
    machine.create(share("right", "0.5"))
    seen = machine.sees("left")
    assert seen < set(machine.devices)
    assert machine.sees("right") == seen
    token = machine.plane.service_account_token("default", "reader")
    assert eventually(lambda: tenants(page, token), lambda: "both on the page's map") == {"left", "right"}
    status, refused = page.get("/api/state")
    assert (status, refused.keys()) == (401, {"error"})
    with pytest.raises(RestError, match="gpu-fraction"):
        machine.create(share("wrong", "1.5"))

    # What it says goes with its pod; `moorage check` says the same.
    release.helm("test", "moorage", "--timeout", "180s")

    release.helm("uninstall", "moorage", "--wait", "--timeout", "180s")
    eventually(lambda: not machine.pods(NAMESPACE) or None, lambda: "the components to go")
    assert [machine.get(name)["status"]["phase"] for name in ("left", "right")] == ["Running", "Running"]
    assert len(machine.reservations()) == 1
