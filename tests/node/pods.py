"""Pods for a real node, and what they and the node say."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tests.pauses import pause_s
from tools.cluster.plane import ControlPlane
from tools.node.node import CTR, Node
from wire import names

Pod = dict[str, Any]
T = TypeVar("T")
#: Where time is not what a test is about: a busy machine takes three times what it usually takes.
PATIENCE_S = 180.0
#: A share whose pod went unseen is kept for up to three minutes (sharing/entries.py), and its reservation with it.
_GIVEN_BACK_WITHIN_S = 240.0
NAMESPACE = "default"
#: Has a Python with pynvml, which is all that a user's image needs here.
IMAGE = "localhost/moorage/reservation:latest"

#: What a user's program finds out without help.
_LISTS_ITS_DEVICES = """
import signal, pynvml
# The first process of a container is not ended by signals that it does nothing about.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
pynvml.nvmlInit()
devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
print("sees", *map(pynvml.nvmlDeviceGetUUID, devices), flush=True)
signal.sigwait([signal.SIGTERM])
"""


def pod(name: str, *, gpus: int = 0, env: Mapping[str, str] | None = None, **spec: Any) -> Pod:
    """A pod that lists its devices and stays."""
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/usr/bin/python3", "-c", _LISTS_ITS_DEVICES],
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "runtimeClassName": "nvidia",
            **spec,
        },
    }


def share(name: str, fraction: str) -> Pod:
    """A pod that asks for a part of a GPU."""
    wanted = pod(name, schedulerName=names.SCHEDULER_NAME)
    wanted["metadata"]["annotations"] = {names.GPU_FRACTION: fraction}
    return wanted


def two_devices(name: str) -> Pod:
    """A pod that asks for half of each of two devices."""
    wanted = share(name, "0.5")
    wanted["metadata"]["annotations"][names.GPU_FRACTION_NUM_DEVICES] = "2"
    return wanted


def memory(name: str) -> Pod:
    """A pod that asks for memory of a GPU."""
    wanted = share(name, "")
    wanted["metadata"]["annotations"] = {names.GPU_MEMORY: "2000"}
    return wanted


def whole(name: str) -> Pod:
    """A pod of one whole GPU, for Moorage."""
    return pod(name, gpus=1, schedulerName=names.SCHEDULER_NAME)


class Machine:
    """A node and its control plane, as a test looks at them."""

    def __init__(self, plane: ControlPlane, node: Node) -> None:
        self.plane = plane
        self.node = node

    @property
    def devices(self) -> list[str]:
        """UUIDs of the node's devices, in its order."""
        return [gpu.uuid for gpu in self.node.gpus]

    def create(self, *pods: Pod) -> None:
        """Create pods."""
        for wanted in pods:
            self.plane.rest().call("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", wanted)

    def get(self, name: str, namespace: str = NAMESPACE) -> Pod:
        """One pod."""
        return dict(self.plane.rest().call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}"))

    def pods(self, namespace: str) -> list[Pod]:
        """All pods of a namespace."""
        return list(self.plane.rest().call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"])

    def reached(self, name: str, phase: str, *, within_s: float = PATIENCE_S) -> Pod:
        """Wait until a pod has a phase, and return it."""

        def there() -> Pod | None:
            found = self.get(name)
            return found if found["status"]["phase"] == phase else None

        return eventually(there, lambda: f"{name} to be {phase}: {self.get(name)['status']}", within_s=within_s)

    def sees(self, name: str) -> set[str]:
        """Wait until the program in a pod has listed its devices, and return them."""
        uid = self.get(name)["metadata"]["uid"]

        def said() -> list[str] | None:
            lines = self.node.output(NAMESPACE, name, "main", uid=uid).splitlines()
            return next((line.split()[1:] for line in lines if line.startswith("sees")), None)

        told = eventually(said, lambda: f"{name} to list its devices: {self.get(name)['status']}")
        assert len(set(told)) == len(told)
        return set(told)

    def restarted(self, name: str, namespace: str = NAMESPACE) -> Pod:
        """Wait until all containers of a pod run in their second life, and return it."""

        def again() -> Pod | None:
            found = self.get(name, namespace)
            statuses = found["status"].get("containerStatuses", ())
            is_again = statuses and all(one["restartCount"] == 1 and one["ready"] for one in statuses)
            return found if is_again else None

        what = f"{name} to start again"
        return eventually(again, lambda: f"{what}: {self.get(name, namespace)['status']}")

    def events(self, namespace: str) -> list[dict[str, Any]]:
        """What was said of the objects of a namespace."""
        return list(self.plane.rest().call("GET", f"/api/v1/namespaces/{namespace}/events")["items"])

    def told(self, reason: str, name: str, namespace: str = NAMESPACE) -> str:
        """Wait until something was said of a pod for this reason, and return the last note: it comes after the kill."""

        def said() -> str | None:
            about = [one for one in self.events(namespace) if one["involvedObject"]["name"] == name]
            return next((str(one["message"]) for one in reversed(about) if one["reason"] == reason), None)

        return eventually(said, lambda: f"an event {reason} of {name}: {self.events(namespace)}")

    def remove(self, *gone: str) -> None:
        """Delete pods and wait until kubelet has ended them."""
        for name in gone:
            self.plane.rest().send("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
        eventually(
            lambda: not {one["metadata"]["name"] for one in self.pods(NAMESPACE)} & set(gone) or None,
            lambda: f"{', '.join(gone)} to go",
        )

    def reservations(self) -> list[Pod]:
        """All reservation pods."""
        return self.pods(names.RESERVATION_NAMESPACE)

    def clear(self) -> None:
        """Take every pod away, and see that their reservations go.

        Before a binder is replaced, too: the next one would not have seen the pods run, and waits a minute more for
        what vanished unseen.
        """
        self.remove(*(one["metadata"]["name"] for one in self.pods(NAMESPACE)))
        eventually(
            lambda: not self.reservations() or None,
            lambda: f"reservations to go: {self.reservations()}",
            within_s=_GIVEN_BACK_WITHIN_S,
        )

    def await_empty(self) -> None:
        """Wait until no pod is left in any namespace, and no container on the node.

        A pod that was deleted by force, or that a test before left in another namespace, takes a slot of the node.
        """

        def found() -> list[str]:
            pods = self.plane.rest().call("GET", "/api/v1/pods")["items"]
            tasks = self.node.run(*CTR, "tasks", "ls", "--quiet").split()
            return [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in pods] + tasks

        eventually(lambda: not found() or None, lambda: f"pods and containers to go: {found()}")

    def kill(self, name: str, namespace: str = NAMESPACE) -> None:
        """Kill the process of a pod's only container."""
        self.signal(name, "SIGKILL", namespace)

    def signal(self, name: str, signal: str, namespace: str = NAMESPACE) -> None:
        """Send a signal to the process of a pod's only container."""
        (status,) = self.get(name, namespace)["status"]["containerStatuses"]
        container = status["containerID"].removeprefix("containerd://")
        self.node.run(*CTR, "task", "kill", "--signal", signal, container)

    def allocatable(self) -> int:
        """Devices that pods can have, as the node says."""
        return int(self.node.status()["status"]["allocatable"]["nvidia.com/gpu"])


def eventually(probe: Callable[[], T | None], what: Callable[[], str], *, within_s: float = PATIENCE_S) -> T:
    """Wait until ``probe`` answers with something. A real machine's time is not ours to turn."""
    began_at = time.monotonic()
    while (found := probe()) is None:
        waited_s = time.monotonic() - began_at
        if waited_s > within_s:
            raise AssertionError(f"waited {within_s} s for {what()}")
        time.sleep(pause_s(waited_s))
    return found
