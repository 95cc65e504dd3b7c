"""Scenarios on a real node; what its control plane tells of pods is watched by a thread."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from tests.node.histories.telling import Telling
from tests.node.pods import NAMESPACE, Machine
from tools.cluster.plane import ControlPlane
from tools.controlplane import KUBELET
from tools.node.node import PLUGIN

_PODS = "/api/v1/pods"
_LONGEST_S = 600


class RealStage:
    """The machine of all tests."""

    def __init__(self, machine: Machine) -> None:
        self.telling = Telling()
        self._machine = machine

    async def create(self, *pods: dict[str, Any]) -> None:
        """Create pods."""
        self._machine.create(*pods)

    async def delete(self, *pods: str, grace_s: int | None = None) -> None:
        """Delete pods."""
        query = "" if grace_s is None else f"?gracePeriodSeconds={grace_s}"
        for name in pods:
            self._machine.plane.rest().call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}{query}")

    async def kill(self, name: str) -> None:
        """Kill the process of a pod's container."""
        self._machine.kill(name)

    async def end(self, name: str) -> None:
        """Tell the program of a pod's container that its time is over."""
        self._machine.signal(name, "SIGUSR1")

    async def stop_kubelet(self) -> None:
        """End it as a crash does."""
        self._machine.node.kill(KUBELET)

    async def start_kubelet(self) -> None:
        """Start it again: what the node says until then is of before, and who asks for GPUs would be refused."""
        self._machine.node.start_again(KUBELET)
        self._machine.node.wait_until_ready()

    async def stop_plugin(self) -> None:
        """End it as a crash does."""
        self._machine.node.kill(PLUGIN)

    async def start_plugin(self) -> None:
        """Start it again."""
        self._machine.node.start_again(PLUGIN)

    async def reboot(self, *, plugin: bool) -> None:
        """End everything, and start it from the disk."""
        self._machine.node.reboot(plugin=plugin)

    async def fall_ill(self, name: str) -> None:
        """Have the devices of a pod called unhealthy."""
        statuses = self._machine.get(name)["status"]["containerStatuses"] if name else ()
        told = [each for one in statuses for each in one["allocatedResourcesStatus"]]
        self._machine.node.set_unhealthy([one["resourceID"] for each in told for one in each["resources"]])

    async def seen(self, name: str) -> set[str]:
        """What the program has written."""
        return self._machine.sees(name)

    async def offers(self) -> int:
        """What the node's object says."""
        return self._machine.allocatable()


@contextlib.contextmanager
def real(machine: Machine) -> Iterator[RealStage]:
    """The machine as it was found, with nothing on it, before and after."""
    stage = RealStage(machine)
    machine.clear()
    machine.await_empty()
    try:
        with _watched(machine.plane, stage.telling):
            yield stage
    finally:
        machine.node.set_unhealthy([])
        machine.node.wait_until_ready()
        machine.clear()


@contextlib.contextmanager
def _watched(plane: ControlPlane, telling: Telling) -> Iterator[None]:
    """Have a history told of all that happens to pods from here on."""
    listing = plane.rest().call("GET", _PODS)
    version = listing["metadata"]["resourceVersion"]
    there = {one["metadata"]["uid"] for one in listing["items"]}
    address = urlsplit(plane.url)
    assert address.hostname is not None
    trust = ssl.create_default_context(cadata=plane.ca_pem)
    connection = http.client.HTTPSConnection(address.hostname, address.port, timeout=_LONGEST_S, context=trust)
    path = f"{_PODS}?watch=1&timeoutSeconds={_LONGEST_S}&resourceVersion={version}"
    connection.request("GET", path, headers={"Authorization": f"Bearer {plane.token}"})
    answer = connection.getresponse()

    def follow() -> None:
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            for line in answer:
                event = json.loads(line)
                if event["object"]["metadata"]["uid"] not in there:
                    telling.pod(event["type"], event["object"])

    follower = threading.Thread(target=follow, name="history")
    follower.start()
    try:
        yield
    finally:
        connection.sock.shutdown(socket.SHUT_RDWR)
        follower.join(30)
        connection.close()
