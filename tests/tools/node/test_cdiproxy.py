"""The passage to containerd: a server that answers with what it was asked stands behind it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from typing_extensions import override

from tools.node import cdi
from tools.node.cdi import CREATE_CONTAINER, serve
from wire.protobuf import message, text

KIND = "gpu.test/device"
SPEC = cdi.Spec(KIND, {"a": {"env": ["A=1"]}}, {})
WANTS = message(2, message(17, text(1, f"{KIND}=a")))
WITHIN_S = 60


class Containerd(grpc.GenericRpcHandler):  # type: ignore[misc] # grpcio has no types
    """Echoes; fails a method by its name; streams one name in three parts."""

    @override
    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler:
        """Answer any method."""
        method = handler_call_details.method

        def echoed(request: bytes, context: grpc.ServicerContext) -> bytes:
            if method.endswith("/StopContainer"):
                context.abort(grpc.StatusCode.NOT_FOUND, "no such container")
            return request

        if method.endswith("/GetContainerEvents"):
            return grpc.unary_stream_rpc_method_handler(lambda request, _context: iter([request] * 3))
        return grpc.unary_unary_rpc_method_handler(echoed)


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[grpc.Channel]:
    containerd = grpc.server(ThreadPoolExecutor(4), handlers=[Containerd()])
    containerd.add_insecure_port(f"unix://{tmp_path}/containerd.sock")
    containerd.start()
    proxy = serve(tmp_path / "cdi.sock", tmp_path / "containerd.sock", tmp_path / "cdi")
    with grpc.insecure_channel(f"unix://{tmp_path}/cdi.sock") as made:
        yield made
    proxy.stop(grace=None).wait()
    containerd.stop(grace=None).wait()


def test_a_call_is_passed_on_as_it_is(channel: grpc.Channel) -> None:
    assert channel.unary_unary("/runtime.v1.ImageService/ListImages")(WANTS, timeout=WITHIN_S) == WANTS
    assert channel.unary_unary(CREATE_CONTAINER)(b"\x0a\x01x", timeout=WITHIN_S) == b"\x0a\x01x"


def test_a_stream_is_passed_on(channel: grpc.Channel) -> None:
    answers = channel.unary_stream("/runtime.v1.RuntimeService/GetContainerEvents")(WANTS, timeout=WITHIN_S)
    assert list(answers) == [WANTS] * 3


def test_what_containerd_refuses_is_refused_in_its_words(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary("/runtime.v1.RuntimeService/StopContainer")(b"", timeout=WITHIN_S)
    assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.NOT_FOUND, "no such container")


def test_a_container_gets_the_edits_of_its_devices(channel: grpc.Channel, tmp_path: Path) -> None:
    (tmp_path / "cdi").mkdir()
    cdi.write(tmp_path / "cdi" / "spec.json", SPEC)
    answer = channel.unary_unary(CREATE_CONTAINER)(WANTS, timeout=WITHIN_S)
    assert answer == WANTS + message(2, message(6, text(1, "A") + text(2, "1")))


def test_a_container_whose_device_no_file_has_is_refused(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(CREATE_CONTAINER)(WANTS, timeout=WITHIN_S)
    assert "unresolvable CDI devices gpu.test/device=a" in refused.value.details()
