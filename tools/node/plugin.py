"""A device plug-in for emulated GPUs, over kubelet's real API.

``python -m tools.node.plugin GPUS [--folder SOCKETS] [--resource NAME]``
As the one for real GPUs it advertises ``nvidia.com/gpu`` (or the given resource), tells the chosen devices by
``NVIDIA_VISIBLE_DEVICES`` and registers again whenever kubelet was restarted (which removes the plug-ins' sockets).
``GPUS`` is a folder of tools/node/gpus.py; a change there is reported within 0.1 s. Devices for claims are left out.
"""

from __future__ import annotations

import argparse
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from nodeagent.kubeletapi import deviceplugin as deviceapi
from tools.node import gpus
from tools.node.settings import identity, registered

RESOURCE = "nvidia.com/gpu"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
_POLL_S = 0.1
_REGISTER_WITHIN_S = 5.0
#: kubelet keeps one ListAndWatch open and asks for one allocation at a time.
_WORKERS = 4


class Plugin:
    """What kubelet calls: a list of devices that is sent again whenever it changes, and allocations from it."""

    def __init__(self, read: Callable[[], dict[str, bool]]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._listeners: list[queue.SimpleQueue[dict[str, bool] | None]] = []
        self._told = read()
        #: Set when a list has been sent whole.
        self.heard = threading.Event()

    def poll(self) -> None:
        """Tell all listeners if the devices have changed."""
        now = self._read()
        with self._lock:
            if now == self._told:
                return
            self._told = now
            for listener in self._listeners:
                listener.put(now)

    def hang_up(self) -> None:
        """End all lists."""
        with self._lock:
            for listener in self._listeners:
                listener.put(None)

    def list_and_watch(self, _request: bytes, _context: grpc.ServicerContext) -> Iterator[bytes]:
        """Tell the devices now, and all of them again after each change."""
        listener: queue.SimpleQueue[dict[str, bool] | None] = queue.SimpleQueue()
        with self._lock:
            self._listeners.append(listener)
            listener.put(self._told)
        try:
            while (devices := listener.get()) is not None:
                _say(f"tells {sum(devices.values())} healthy of {len(devices)} devices")
                yield deviceapi.DeviceList([deviceapi.Device(*each) for each in devices.items()]).encode()
                self.heard.set()
        finally:
            with self._lock:
                self._listeners.remove(listener)

    def allocate(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Name the devices in the container's environment; refuse such as we don't have."""
        containers = deviceapi.AllocateRequest.decode(request).containers
        if unknown := {uuid for devices in containers for uuid in devices} - self._read().keys():
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unknown devices: {', '.join(sorted(unknown))}")
        _say(f"allocates {containers}")
        given = [deviceapi.ContainerResponse(environment={VISIBLE_DEVICES: ",".join(each)}) for each in containers]
        return deviceapi.AllocateResponse(given).encode()

    def options(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:
        """No preferred allocation, no call before a container starts."""
        return deviceapi.NOTHING

    def service(self) -> grpc.GenericRpcHandler:
        """Its methods, for a server. Bytes go in and out: the messages are ours to read."""
        handlers = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(self.options),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self.list_and_watch),
            "Allocate": grpc.unary_unary_rpc_method_handler(self.allocate),
        }
        return grpc.method_handlers_generic_handler(deviceapi.PLUGIN_SERVICE, handlers)


def register(folder: Path, socket: str, resource: str) -> None:
    """Introduce the plug-in that listens at this socket of the folder to kubelet.

    Raises grpc.RpcError, at once when nobody listens. A dead kubelet's socket stays until the next one takes away all
    sockets in the folder, ours too, and listens.
    """
    # Without it grpcio sends the socket's path as the authority, which Go's HTTP/2 refuses.
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix://{folder / deviceapi.KUBELET_SOCKET}", options) as channel:
        call = channel.unary_unary(deviceapi.REGISTER)
        call(deviceapi.RegisterRequest(socket, resource).encode(), timeout=_REGISTER_WITHIN_S)


def serve(machine: Path, folder: Path, resource: str) -> None:
    """Serve until killed, one life for each of kubelet's."""
    while True:
        kubelet = identity(folder / deviceapi.KUBELET_SOCKET)
        if kubelet is not None:
            _serve_one(machine, folder / f"moorage-{resource.replace('/', '-')}.sock", resource, kubelet)
        time.sleep(_POLL_S)


def _serve_one(machine: Path, socket: Path, resource: str, kubelet: tuple[int, int]) -> None:
    """Serve for as long as this kubelet listens; return for its successor, or when it does not take us."""
    plugin, folder = Plugin(lambda: healthy(machine)), socket.parent
    socket.unlink(missing_ok=True)
    server = grpc.server(ThreadPoolExecutor(_WORKERS), handlers=[plugin.service()])
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    try:
        register(folder, socket.name, resource)
        # kubelet asks for the devices after it has answered: until it has them it refuses pods that want one.
        if not plugin.heard.wait(_REGISTER_WITHIN_S):
            _say("was not asked for its devices")
            return
        _say(registered(kubelet))
        while socket.exists() and identity(folder / deviceapi.KUBELET_SOCKET) in {kubelet, None}:
            plugin.poll()
            time.sleep(_POLL_S)
    except grpc.RpcError as error:
        _say(f"is not registered: {error}")
    finally:
        plugin.hang_up()
        server.stop(grace=None).wait()


def healthy(machine: Path) -> dict[str, bool]:
    """Return UUID -> whether it is well, of each device that is not for claims."""
    ill, others = gpus.read_unhealthy(machine), gpus.read_claimable(machine)
    return {uuid: uuid not in ill for uuid in gpus.read_machine(machine) if uuid not in others}


def _say(what: str) -> None:
    print(f"device plug-in {what}", flush=True)


def main(arguments: list[str]) -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m tools.node.plugin")
    parser.add_argument("machine", type=Path, metavar="GPUS")
    parser.add_argument("--folder", type=Path, default=Path(deviceapi.FOLDER))
    parser.add_argument("--resource", default=RESOURCE)
    given = parser.parse_args(arguments)
    serve(given.machine, given.folder, given.resource)


if __name__ == "__main__":
    main(sys.argv[1:])
