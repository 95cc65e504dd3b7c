"""The agent of a node as a process of this machine, and the pod on that node that lends it its identity.

The API server must have Moorage's namespaces, rights and kinds, and the Node.
"""

from __future__ import annotations

import http.client
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Self

from typing_extensions import override

from tools.cluster.plane import ControlPlane
from tools.flags import LOOPBACK
from tools.goprogram import cache_root
from tools.node.settings import PAUSE_IMAGE
from tools.nvml_stub import build as nvml_stub
from tools.ports import free_port
from tools.processes import Child, Programs, wait_until
from tools.rest import RestError
from wire import names

_CONFLICT = 409
_NAMESPACE = f"/api/v1/namespaces/{names.NODE_NAMESPACE}"
_ACCOUNT = names.NODE_AGENT_SERVICE_ACCOUNT


class AgentPod:
    """The pod ``agent-<node>`` on ``node``: ``with AgentPod(plane, "node-a") as pod: pod.token()``.

    It exists from the first token to the end of the ``with`` block; its tokens are valid while it does.
    """

    def __init__(self, plane: ControlPlane, node: str) -> None:
        self._plane = plane
        self._node = node
        self._name = f"agent-{node}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        # It takes one of the node's slots for pods.
        self._plane.rest().send("DELETE", f"{self._path}?gracePeriodSeconds=0")

    def token(self) -> str:
        """Ask for a token as kubelet does for a pod of the agent on this node, which is made if it is not there."""
        container = {"name": "agent", "image": PAUSE_IMAGE, "imagePullPolicy": "Never"}
        spec = {"serviceAccountName": _ACCOUNT, "nodeName": self._node, "containers": [container]}
        try:
            self._plane.rest().call("POST", f"{_NAMESPACE}/pods", {"metadata": {"name": self._name}, "spec": spec})
        except RestError as error:
            if error.code != _CONFLICT:
                raise
        uid = self._plane.rest().call("GET", self._path)["metadata"]["uid"]
        bound = {"kind": "Pod", "apiVersion": "v1", "name": self._name, "uid": uid}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
        answer = self._plane.rest().call("POST", f"{_NAMESPACE}/serviceaccounts/{_ACCOUNT}/token", request)
        return str(answer["status"]["token"])

    @property
    def _path(self) -> str:
        return f"{_NAMESPACE}/pods/{self._name}"


_ROOT = Path(__file__).parent.parent.parent
_READY_WITHIN_S = 60.0


class NodeAgent(Programs):
    """``with NodeAgent(plane, "node-a", socket=..., machine=...) as agent:`` is ready when it has read its node.

    ``socket``: of kubelet's pod-resources API. ``machine``: the NVML stub's file of GPUs. ``further``: options.
    """

    def __init__(
        self,
        plane: ControlPlane,
        node: str,
        *,
        socket: Path,
        machine: Path,
        further: Mapping[str, str | Path] = MappingProxyType({}),
    ) -> None:
        self._plane = plane
        self._node = node
        self._pod = AgentPod(plane, node)
        self._socket = socket
        self._machine = machine
        self._further = further
        super().__init__(TemporaryDirectory(prefix="agent-"))
        self._port, self._metrics = free_port(), free_port()
        self._child: Child | None = None

    @override
    def _start(self) -> None:
        (self.folder / "ca.pem").write_text(self._plane.ca_pem)
        (self.folder / "token").write_text(self._pod.token())
        self.start()

    @override
    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._pod.__exit__(*error)

    def start(self) -> None:
        """Start the process, and return when it is ready. Raises ProcessDied and TimeoutError."""
        library = nvml_stub.build(cache_root(os.environ))
        environment = [f"PYTHONPATH={_ROOT}", f"FAKE_NVML_STATE={self._machine}", f"LD_LIBRARY_PATH={library}"]
        options = {
            "server": self._plane.url,
            "ca-file": self.folder / "ca.pem",
            "token-file": self.folder / "token",
            "node-name": self._node,
            "pod-resources-socket": self._socket,
            "health-probe-bind-address": f"{LOOPBACK}:{self._port}",
            "metrics-bind-address": f"{LOOPBACK}:{self._metrics}",
            **self._further,
        }
        flags = [f"--{key}={value}" for key, value in options.items()]
        command = [sys.executable, "-m", "cli.main", "node-agent", *flags]
        self._child = self._family.start("agent", ["/usr/bin/env", *environment, *command])
        wait_until(self.is_ready, self._family, "the agent to be ready", within_s=_READY_WITHIN_S)

    def is_ready(self) -> bool:
        """Ask as kubelet does."""
        return self._get(self._port, "/readyz")[0] == http.HTTPStatus.OK

    def metrics(self) -> str:
        """What it counts."""
        return self._get(self._metrics, "/metrics")[1]

    @property
    def pid(self) -> int:
        """The process."""
        return self._running().process.pid

    def resident_kib(self) -> int:
        """Resident memory, as the kernel counts it."""
        return self._running().resident_kib()

    def cpu_s(self) -> float:
        """CPU time of the process and of those that it waited for, in the kernel's ticks."""
        fields = Path(f"/proc/{self._running().process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> int:
        """Tell it to end, as kubelet does; return its exit code."""
        child = self._running()
        os.kill(child.process.pid, signal.SIGTERM)
        code = child.process.wait(10.0)
        self._family.children.remove(child)
        return code

    def kill(self) -> None:
        """End it as a crash does."""
        self._family.kill(self._running())

    def log(self) -> str:
        """What it has written."""
        return self._running().log.read_text()

    def _running(self) -> Child:
        if self._child is None:
            raise RuntimeError("the agent was not started")
        return self._child

    @staticmethod
    def _get(port: int, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()
