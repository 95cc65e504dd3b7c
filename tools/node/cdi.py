"""CDI for a containerd that knows none: a proxy between kubelet and containerd applies the node's CDI files.

``python -m tools.node.cdi LISTEN CONTAINERD [--folder CDI]``, sockets both. Calls are passed on as the bytes that
they are, but for CreateContainer: the edits of the CDI devices that kubelet names are added to it. A device that no
file has fails the call, as in a runtime that knows CDI.

Debian's containerd (1.6) knows no CDI; from 1.7 on it does what is here. Environment and bind mounts are enough for
emulated devices; a file that wants more is refused. Sources: the CDI specification 0.6.0; CRI's runtime/v1/api.proto,
whose field numbers are below.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

import grpc
from typing_extensions import override

from wire.protobuf import flag, message, parts, strings, text

#: Where drivers put files of devices that come and go.
FOLDER: Final = "/var/run/cdi"
VERSION: Final = "0.6.0"
_ENV, _MOUNTS = "env", "mounts"
_READ_ONLY: Final = "ro"
#: CreateContainerRequest.config, and in it envs, mounts, CDI_devices.
_CONFIG, _CONFIG_ENVS, _CONFIG_MOUNTS, _CONFIG_CDI_DEVICES = 2, 6, 7, 17

#: Edits of a container as a CDI file has them.
Edits: TypeAlias = Mapping[str, Any]


class Unresolvable(Exception):
    """Raised when a container can't get a CDI device; the text says why."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One CDI file: devices of one kind (``vendor/class``) by name, and what each container with one of them gets."""

    kind: str
    devices: Mapping[str, Edits]
    common: Edits

    @classmethod
    def decode(cls, content: str) -> Spec:
        """Read a file. Raises Unresolvable."""
        try:
            read = json.loads(content)
            devices = {str(each["name"]): each["containerEdits"] for each in read["devices"]}
            return cls(str(read["kind"]), devices, read.get("containerEdits", {}))
        except (ValueError, KeyError, TypeError) as error:
            raise Unresolvable(f"not a CDI file: {error!r}") from error


def read(folder: Path) -> list[Spec]:
    """Return the files of a folder by name; none if there is no folder. Raises Unresolvable."""
    return [Spec.decode(path.read_text()) for path in sorted(folder.glob("*.json"))]


def write(path: Path, spec: Spec) -> None:
    """Write a file as a whole."""
    devices = [{"name": name, "containerEdits": edits} for name, edits in spec.devices.items()]
    content = {"cdiVersion": VERSION, "kind": spec.kind, "devices": devices, "containerEdits": spec.common}
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(content))
    fresh.replace(path)


def wanted(request: bytes) -> list[str]:
    """Return the CDI devices that a CreateContainerRequest names. Raises wire.protobuf.Malformed."""
    named = (part for config in parts(request, _CONFIG) for part in parts(config, _CONFIG_CDI_DEVICES))
    return [name for part in named for name in strings(part, 1)]


def resolved(specs: Iterable[Spec], names: Sequence[str]) -> list[Edits]:
    """Return the edits of devices: each device's own, and once what its file has for all. Raises Unresolvable."""
    by_name = {f"{spec.kind}={name}": (spec, edits) for spec in specs for name, edits in spec.devices.items()}
    if unknown := [name for name in names if name not in by_name]:
        raise Unresolvable(f"unresolvable CDI devices {', '.join(unknown)}")
    files = {id(by_name[name][0]): by_name[name][0].common for name in names}
    return [*(by_name[name][1] for name in names), *files.values()]


def edited(request: bytes, edits: Iterable[Edits]) -> bytes:
    """Return a CreateContainerRequest with these edits. Raises Unresolvable for edits of other kinds.

    A message that is there a second time is merged into the first one, and repeated fields are added to.
    """
    added = b"".join(map(_encoded, edits))
    return request + message(_CONFIG, added) if added else request


def _encoded(edits: Edits) -> bytes:
    if other := edits.keys() - {_ENV, _MOUNTS}:
        raise Unresolvable(f"edits {', '.join(sorted(other))}: {_ENV} and {_MOUNTS} are all that is served here")
    variables = (entry.partition("=")[::2] for entry in edits.get(_ENV, ()))
    envs = b"".join(message(_CONFIG_ENVS, text(1, name) + text(2, value)) for name, value in variables)
    return envs + b"".join(message(_CONFIG_MOUNTS, _mount(each)) for each in edits.get(_MOUNTS, ()))


def _mount(mount: Mapping[str, Any]) -> bytes:
    is_read_only = _READ_ONLY in mount.get("options", ())
    return text(1, mount["containerPath"]) + text(2, mount["hostPath"]) + flag(3, value=is_read_only)


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
        names = wanted(request)
        if not names:
            return request
        print("adds", *names, flush=True)
        try:
            return edited(request, resolved(read(self._folder), names))
        except Unresolvable as error:
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
    parser = argparse.ArgumentParser(prog="python -m tools.node.cdi")
    parser.add_argument("listen", type=Path)
    parser.add_argument("containerd", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(FOLDER))
    given = parser.parse_args(arguments)
    server = serve(given.listen, given.containerd, given.folder)
    print("ready", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1:])
