"""Stands between kubelet and a containerd that knows no CDI, and applies CDI devices to containers.

``python -m tools.node.cdiproxy LISTEN CONTAINERD [--folder CDI]``, sockets both. Calls are passed on as the bytes that
they are. The one exception is CreateContainer: the edits of the CDI devices that kubelet names are added to it
(tools/node/cdi.py). A device that no file has fails the call, as in a runtime that knows CDI.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
from typing_extensions import override

from tools.node import cdi

CREATE_CONTAINER: Final = "/runtime.v1.RuntimeService/CreateContainer"
#: The calls whose answer is a stream.
_STREAMS: Final = ("/GetContainerEvents", "/Stream")
#: Calls that wait for a container to end hold one each.
_WORKERS: Final = 64
#: containerd's own bound of a message.
_LARGEST_BYTES: Final = 16 << 20
_SIZES: Final = [("grpc.max_receive_message_length", _LARGEST_BYTES), ("grpc.max_send_message_length", _LARGEST_BYTES)]
_HEADROOM_S: Final = 0.1


class Passage(grpc.GenericRpcHandler):  # type: ignore[misc] # grpcio has no types
    """Serves every method by calling it behind ``channel``."""

    def __init__(self, channel: grpc.Channel, folder: Path) -> None:
        self._channel = channel
        self._folder = folder

    @override
    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler:
        """Return a handler for any method."""
        method = str(handler_call_details.method)
        name = method[method.rfind("/") :]
        if name.startswith(_STREAMS):
            return grpc.unary_stream_rpc_method_handler(self._streaming(method))
        return grpc.unary_unary_rpc_method_handler(self._passing(method))

    def _passing(self, method: str) -> Any:
        call = self._channel.unary_unary(method)

        def passed(request: bytes, context: grpc.ServicerContext) -> bytes:
            if method == CREATE_CONTAINER:
                request = self._with_devices(request, context)
            try:
                answer: bytes = call(request, timeout=_left_s(context))
            except grpc.RpcError as error:
                _fail(context, error)
            return answer

        return passed

    def _streaming(self, method: str) -> Any:
        call = self._channel.unary_stream(method)

        def passed(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            answers = call(request, timeout=_left_s(context))
            context.add_callback(answers.cancel)
            try:
                yield from answers
            except grpc.RpcError as error:
                _fail(context, error)

        return passed

    def _with_devices(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        names = cdi.wanted(request)
        if not names:
            return request
        print("adds", *names, flush=True)
        try:
            return cdi.edited(request, cdi.resolved(cdi.read(self._folder), names))
        except cdi.Unresolvable as error:
            context.abort(grpc.StatusCode.UNKNOWN, f"failed to inject CDI devices: {error}")
            raise


def _left_s(context: grpc.ServicerContext) -> float | None:
    """The caller's own deadline comes first, so that it is the caller who finds that time is over."""
    left_s: float | None = context.time_remaining()
    return None if left_s is None else left_s + _HEADROOM_S


def _fail(context: grpc.ServicerContext, error: Any) -> NoReturn:
    context.abort(error.code(), error.details())
    raise AssertionError("abort raises")


def serve(listen: Path, containerd: Path, folder: Path) -> grpc.Server:
    """Start serving. Returns the server."""
    # Without it grpcio sends the socket's path as the authority, which Go's HTTP/2 refuses.
    options = [("grpc.default_authority", "localhost"), *_SIZES]
    channel = grpc.insecure_channel(f"unix://{containerd}", options)
    server = grpc.server(ThreadPoolExecutor(_WORKERS), handlers=[Passage(channel, folder)], options=_SIZES)
    listen.unlink(missing_ok=True)
    server.add_insecure_port(f"unix://{listen}")
    server.start()
    return server


def main(arguments: list[str]) -> None:
    """Read the command line and serve until killed."""
    parser = argparse.ArgumentParser(prog="python -m tools.node.cdiproxy")
    parser.add_argument("listen", type=Path)
    parser.add_argument("containerd", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(cdi.FOLDER))
    given = parser.parse_args(arguments)
    server = serve(given.listen, given.containerd, given.folder)
    print("ready", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1:])
