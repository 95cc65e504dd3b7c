"""The device plug-in against a kubelet that is not real: its sockets, grpcio and the bytes are."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from nodeagent.kubeletapi import deviceplugin as deviceapi
from tools.node import gpus
from tools.node.plugin import Plugin, healthy, register
from wire.protobuf import parts, strings

GPUS = gpus.made_up("node-a", 2)
UUIDS = [gpu.uuid for gpu in GPUS]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    gpus.write_machine(tmp_path, GPUS)
    gpus.write_unhealthy(tmp_path, ())
    return tmp_path


@pytest.fixture
def plugin(machine: Path) -> Plugin:
    return Plugin(lambda: healthy(machine))


@pytest.fixture
def channel(plugin: Plugin, tmp_path: Path) -> Iterator[grpc.Channel]:
    server = grpc.server(ThreadPoolExecutor(4), handlers=[plugin.service()])
    server.add_insecure_port(f"unix://{tmp_path}/p.sock")
    server.start()
    with grpc.insecure_channel(f"unix://{tmp_path}/p.sock") as made:
        yield made
        plugin.hang_up()
    server.stop(grace=None).wait()


def call(channel: grpc.Channel, method: str, request: bytes) -> Any:
    return channel.unary_unary(f"/{deviceapi.PLUGIN_SERVICE}/{method}")(request, timeout=60)


def devices(answer: bytes) -> dict[str, str]:
    return {strings(one, 1)[0]: strings(one, 2)[0] for one in parts(answer, 1)}


def test_each_change_is_told_once_and_as_a_whole(channel: grpc.Channel, plugin: Plugin, machine: Path) -> None:
    told = channel.unary_stream(f"/{deviceapi.PLUGIN_SERVICE}/ListAndWatch")(b"", timeout=60)
    assert devices(next(told)) == dict.fromkeys(UUIDS, "Healthy")
    assert plugin.heard.wait(60)
    plugin.poll()
    gpus.write_unhealthy(machine, UUIDS[:1])
    plugin.poll()
    assert devices(next(told)) == {UUIDS[0]: "Unhealthy", UUIDS[1]: "Healthy"}
    gpus.write_machine(machine, GPUS[1:])
    plugin.poll()
    assert devices(next(told)) == {UUIDS[1]: "Healthy"}


def test_devices_for_claims_are_left_out(machine: Path) -> None:
    gpus.write_unhealthy(machine, UUIDS[:1])
    assert healthy(machine) == {UUIDS[0]: False, UUIDS[1]: True}
    gpus.write_claimable(machine, UUIDS[1:])
    assert healthy(machine) == {UUIDS[0]: False}


def test_the_chosen_devices_are_told_by_environment(channel: grpc.Channel) -> None:
    answer = call(channel, "Allocate", deviceapi.AllocateRequest((tuple(UUIDS),)).encode())
    given = deviceapi.ContainerResponse(environment={"NVIDIA_VISIBLE_DEVICES": ",".join(UUIDS)})
    assert answer == deviceapi.AllocateResponse([given]).encode()


def test_a_device_that_the_machine_does_not_have_is_not_allocated(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError, match="unknown devices: GPU-x"):
        call(channel, "Allocate", deviceapi.AllocateRequest((("GPU-x",),)).encode())


def test_it_asks_for_no_further_calls(channel: grpc.Channel) -> None:
    assert call(channel, "GetDevicePluginOptions", b"") == b""


def test_it_introduces_itself_to_kubelet(tmp_path: Path) -> None:
    heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def hear(request: bytes, _context: grpc.ServicerContext) -> bytes:
        heard.put(request)
        return b""

    kubelet = grpc.server(ThreadPoolExecutor(1))
    handlers = {"Register": grpc.unary_unary_rpc_method_handler(hear)}
    kubelet.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.Registration", handlers),))
    kubelet.add_insecure_port(f"unix://{tmp_path}/kubelet.sock")
    kubelet.start()
    register(tmp_path, "plugin.sock", "nvidia.com/gpu")
    kubelet.stop(grace=None).wait()
    request = heard.get(timeout=60)
    assert strings(request, 1) == ["v1beta1"]
    assert strings(request, 2) == ["plugin.sock"]
    assert strings(request, 3) == ["nvidia.com/gpu"]
