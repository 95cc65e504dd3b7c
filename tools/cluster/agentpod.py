"""A pod of the node's agent that only lends its identity to a process outside it.

``with AgentPod(plane, "node-a") as pod: pod.token()``. The API server must have Moorage's namespaces and rights, and
the Node. A token of a pod is valid while the pod is there.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tools.cluster.plane import ControlPlane
from tools.node.settings import PAUSE_IMAGE
from tools.rest import RestError
from wire import names

_CONFLICT = 409
_NAMESPACE = f"/api/v1/namespaces/{names.NODE_NAMESPACE}"
_ACCOUNT = names.NODE_AGENT_SERVICE_ACCOUNT


class AgentPod:
    """The pod ``agent-<node>`` on ``node``, from the first token to the end of the ``with`` block."""

    def __init__(self, plane: ControlPlane, node: str) -> None:
        self._plane = plane
        self._node = node
        self._name = f"agent-{node}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
