from __future__ import annotations

import contextlib
import random
import socket as socketlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from typing_extensions import override

from nodeagent.kubeletapi import client
from nodeagent.kubeletapi.client import Devices, PodDevices, PodResources, Unanswered, identity, is_served
from nodeagent.kubeletapi.deviceplugin import (
    AllocateRequest,
    AllocateResponse,
    Choice,
    ContainerResponse,
    Device,
    DeviceList,
    Options,
    PreferredRequest,
    PreferredResponse,
)
from nodeagent.kubeletapi.service import NotRegistered, PluginService, Refusal, is_plugin, register
from tests.nodeagent.kubeletapi.kubelets import call, connected, kubelet, lists
from tests.nodeagent.kubeletapi.played import PlayedKubelet, listening
from wire.protobuf import Malformed, message, text

GPU = Devices("nvidia.com/gpu", ("GPU-1",))
ONE = PodDevices("ns", "one", (GPU,))


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


async def test_what_kubelet_has_given_a_pod_is_read_and_a_pod_that_it_does_not_know_is_none(socket: Path) -> None:
    played = PlayedKubelet([ONE], [GPU])
    async with listening(played, socket), PodResources(socket) as kubelet:
        assert await kubelet.get("ns", "one") == ONE
        assert await kubelet.get("ns", "two") is None
        assert await kubelet.get("other", "one") is None
        assert await kubelet.list() == (ONE,)
        assert await kubelet.allocatable() == (GPU,)
        assert await kubelet.resources() == frozenset({GPU.resource})


@pytest.mark.parametrize(
    ("refuses", "status"),
    [("PodResources API Get method disabled", Status.UNKNOWN), ("unknown method Get", Status.UNIMPLEMENTED)],
)
async def test_a_kubelet_without_get_is_asked_for_the_list_from_then_on(
    socket: Path, refuses: str, status: Status
) -> None:
    played = PlayedKubelet([ONE], refuses=refuses, status=status)
    async with listening(played, socket), PodResources(socket) as kubelet:
        assert await kubelet.get("ns", "one") == ONE
        assert await kubelet.get("ns", "two") is None
    assert played.asked == ["Get", "List", "List"]


async def test_the_next_kubelet_is_asked_for_get_again(socket: Path) -> None:
    older, newer = PlayedKubelet([ONE], refuses="Get method disabled"), PlayedKubelet([ONE])
    async with PodResources(socket) as kubelet:
        async with listening(older, socket):
            first = kubelet.life()
            await kubelet.get("ns", "one")
        assert kubelet.life() is None
        async with listening(newer, socket):
            assert kubelet.life() not in {first, None}
            assert await kubelet.get("ns", "one") == ONE
    assert newer.asked == ["Get"]


@pytest.mark.parametrize("status", [Status.RESOURCE_EXHAUSTED, Status.UNKNOWN, Status.INTERNAL])
async def test_any_other_error_of_kubelets_is_no_answer(socket: Path, status: Status) -> None:
    played = PlayedKubelet([ONE], refuses="rejected by rate limit", status=status)
    async with listening(played, socket), PodResources(socket) as kubelet:
        with pytest.raises(Unanswered, match=f"Get: {status.name}: rejected by rate limit"):
            await kubelet.get("ns", "one")
    assert played.asked == ["Get"]


async def test_where_nobody_listens_there_is_no_answer_and_a_later_call_connects(socket: Path) -> None:
    async with PodResources(socket) as kubelet:
        assert kubelet.life() is None
        with pytest.raises(Unanswered, match=r"Get: .*kubelet\.sock"):
            await kubelet.get("ns", "one")
        with pytest.raises(Unanswered, match="List: "):
            await kubelet.list()
        assert await kubelet.resources() is None
        async with listening(PlayedKubelet([ONE]), socket):
            assert await kubelet.get("ns", "one") == ONE


async def test_bytes_that_are_no_message_are_no_answer(socket: Path) -> None:
    class Garbled(PlayedKubelet):
        @override
        def list(self, _: bytes) -> bytes:
            return b"\x0a\x7f"

    async with listening(Garbled(), socket), PodResources(socket) as kubelet:
        with pytest.raises(Unanswered, match="unreadable answer"):
            await kubelet.list()


class Fixed:
    """Answers from a table."""

    def __init__(self, *ids: str) -> None:
        self.listed = [Device(each) for each in ids]

    def devices(self) -> bytes:
        return DeviceList(self.listed).encode()

    def preferred(self, request: PreferredRequest) -> PreferredResponse:
        return PreferredResponse([one.available[: one.size] for one in request.containers])

    def allocate(self, request: AllocateRequest) -> AllocateResponse:
        if any("x" in ids for ids in request.containers):
            raise Refusal("unknown device: x")
        return AllocateResponse([ContainerResponse(environment={"D": ",".join(ids)}) for ids in request.containers])


@pytest.fixture
def answers() -> Fixed:
    return Fixed("a", "b")


@pytest.fixture
async def service(tmp_path: Path, answers: Fixed) -> AsyncIterator[PluginService]:
    async with PluginService(tmp_path / "p.sock", answers) as made:
        yield made


async def test_devices_are_listed_at_once_and_again_after_each_change(
    service: PluginService, answers: Fixed, tmp_path: Path
) -> None:
    async with connected(tmp_path / "p.sock") as channel:
        async with lists(channel) as each:
            assert list(await anext(each)) == ["a", "b"]
            assert service.heard.is_set()
            answers.listed = [Device("a", is_healthy=False)]
            service.changed()
            assert await anext(each) == {"a": Device("a", is_healthy=False)}
        with anyio.fail_after(30):
            await service.left.wait()


async def test_kubelet_asks_for_advice_and_allocations(service: PluginService, tmp_path: Path) -> None:
    assert not service.heard.is_set()
    async with connected(tmp_path / "p.sock") as channel:
        assert Options.decode(await call(channel, "GetDevicePluginOptions")) == Options(preferred_allocation=True)
        choice = PreferredRequest((Choice(("a", "b"), (), 1),))
        assert await call(channel, "GetPreferredAllocation", choice.encode()) == PreferredResponse([["a"]]).encode()
        given = await call(channel, "Allocate", AllocateRequest((("a", "b"),)).encode())
        assert AllocateResponse.decode(given).containers[0].environment == {"D": "a,b"}
        assert await call(channel, "PreStartContainer") == b""


@pytest.mark.parametrize("request_", [AllocateRequest((("x",),)).encode(), b"\xff"])
async def test_a_refusal_and_odd_bytes_are_answered_and_the_service_goes_on(
    service: PluginService, tmp_path: Path, request_: bytes
) -> None:
    async with connected(tmp_path / "p.sock") as channel:
        with pytest.raises(GRPCError) as refused:
            await call(channel, "Allocate", request_)
        assert refused.value.status is Status.INVALID_ARGUMENT
        assert await call(channel, "Allocate", AllocateRequest((("a",),)).encode())
    assert service.is_there()


@pytest.mark.thorough
async def test_a_list_of_sixty_thousand_devices_is_sent(service: PluginService, answers: Fixed, tmp_path: Path) -> None:
    answers.listed = [Device(f"GPU-b1028956-cfa2-0990-bf4a-5da9abb51763::{number}", numa=1) for number in range(60_000)]
    async with connected(tmp_path / "p.sock") as channel, lists(channel) as each:
        assert len(await anext(each)) == 60_000


async def test_the_socket_is_for_root_alone_and_goes_at_the_end(tmp_path: Path, answers: Fixed) -> None:
    socket = tmp_path / "p.sock"
    socket.write_text("what a program left that was killed")
    async with PluginService(socket, answers) as service:
        assert socket.stat().st_mode & 0o777 == 0o600
        assert service.is_there()
        assert await is_served(socket)
    assert not socket.exists()
    assert not await is_served(socket)


async def test_a_socket_that_another_plugin_has_made_meanwhile_is_left(tmp_path: Path, answers: Fixed) -> None:
    socket = tmp_path / "p.sock"
    async with PluginService(socket, answers) as service:
        socket.unlink()
        assert not service.is_there()
        socket.touch()
        other = identity(socket)
    assert identity(socket) == other


async def test_kubelet_is_told_resource_and_socket(tmp_path: Path, answers: Fixed) -> None:
    async with kubelet(tmp_path) as registry, PluginService(tmp_path / "p.sock", answers):
        await register(tmp_path, "p.sock", "nvidia.com/gpu")
        request = (await registry.next()).request
    assert (request.version, request.endpoint, request.resource) == ("v1beta1", "p.sock", "nvidia.com/gpu")
    assert request.preferred_allocation


async def test_without_kubelet_nothing_is_registered(tmp_path: Path) -> None:
    with pytest.raises(NotRegistered):
        await register(tmp_path, "p.sock", "nvidia.com/gpu")


async def test_a_connection_that_is_closed_before_the_request_is_no_answer(socket: Path) -> None:
    with socketlib.socket(socketlib.AF_UNIX) as listening_one:
        listening_one.bind(str(socket))
        listening_one.listen()
        threading.Thread(target=_close_all, args=[listening_one], daemon=True).start()
        try:
            for _ in range(20):
                with pytest.raises(NotRegistered):
                    await register(socket.parent, "p.sock", "nvidia.com/gpu")
                assert not await is_plugin(socket)
                async with PodResources(socket) as kubelet:
                    with pytest.raises(Unanswered):
                        await kubelet.list()
        finally:
            listening_one.shutdown(socketlib.SHUT_RDWR)


def _close_all(listening_one: socketlib.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            listening_one.accept()[0].close()


async def test_a_plugin_is_known_by_its_answer(service: PluginService, tmp_path: Path) -> None:
    assert await is_plugin(tmp_path / "p.sock")
    async with kubelet(tmp_path / "."):
        assert not await is_plugin(tmp_path / "kubelet.sock")
    assert not await is_plugin(tmp_path / "none.sock")
    (tmp_path / "file.sock").touch()
    assert not await is_plugin(tmp_path / "file.sock")


# Compared with Google's implementation of Protocol Buffers, by the definitions of kubelet's api.proto.

_STRING, _INT64, _UINT64, _MESSAGE = 9, 3, 4, 11
_ONE, _MANY = 1, 3
#: Message -> fields: name, number, label, type, message type (k8s.io/kubelet v0.36.3, podresources/v1/api.proto).
_PROTO: dict[str, list[tuple[str, int, int, int, str]]] = {
    "NUMANode": [("ID", 1, _ONE, _INT64, "")],
    "TopologyInfo": [("nodes", 1, _MANY, _MESSAGE, "NUMANode")],
    "ContainerDevices": [
        ("resource_name", 1, _ONE, _STRING, ""),
        ("device_ids", 2, _MANY, _STRING, ""),
        ("topology", 3, _ONE, _MESSAGE, "TopologyInfo"),
    ],
    "ContainerMemory": [
        ("memory_type", 1, _ONE, _STRING, ""),
        ("size", 2, _ONE, _UINT64, ""),
        ("topology", 3, _ONE, _MESSAGE, "TopologyInfo"),
    ],
    "ContainerResources": [
        ("name", 1, _ONE, _STRING, ""),
        ("devices", 2, _MANY, _MESSAGE, "ContainerDevices"),
        ("cpu_ids", 3, _MANY, _INT64, ""),
        ("memory", 4, _MANY, _MESSAGE, "ContainerMemory"),
    ],
    "PodResources": [
        ("name", 1, _ONE, _STRING, ""),
        ("namespace", 2, _ONE, _STRING, ""),
        ("containers", 3, _MANY, _MESSAGE, "ContainerResources"),
    ],
    "ListPodResourcesResponse": [("pod_resources", 1, _MANY, _MESSAGE, "PodResources")],
    "GetPodResourcesRequest": [("pod_name", 1, _ONE, _STRING, ""), ("pod_namespace", 2, _ONE, _STRING, "")],
    "GetPodResourcesResponse": [("pod_resources", 1, _ONE, _MESSAGE, "PodResources")],
    "AllocatableResourcesResponse": [
        ("devices", 1, _MANY, _MESSAGE, "ContainerDevices"),
        ("cpu_ids", 2, _MANY, _INT64, ""),
        ("memory", 3, _MANY, _MESSAGE, "ContainerMemory"),
    ],
}


def _types() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="podresources.proto", package="v1", syntax="proto3")
    for name, fields in _PROTO.items():
        made = file.message_type.add(name=name)
        for field, number, label, kind, of in fields:
            made.field.add(name=field, number=number, label=label, type=kind, type_name=f".v1.{of}" if of else None)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1.{name}")) for name in _PROTO}


TYPES = _types()
#: Those that a byte's length, a second byte of a length, and UTF-8 of more than one byte meet.
WORDS = ("", "a", "nvidia.com/gpu", "GPU-1::7", "x" * 127, "y" * 128, "z" * 400, "grün", "\x00")


def _random(rng: random.Random, name: str) -> Any:
    made = TYPES[name]()
    for field, _, label, kind, of in _PROTO[name]:
        for _ in range(rng.randint(0, 3 if label == _MANY else 1)):
            value: Any = rng.choice(WORDS) if kind == _STRING else rng.choice((0, 1, 127, 128, 2**40))
            if kind == _MESSAGE:
                inner = _random(rng, of)
                getattr(made, field).append(inner) if label == _MANY else getattr(made, field).CopyFrom(inner)
            elif label == _MANY:
                getattr(made, field).append(value)
            else:
                setattr(made, field, value)
    return made


def _devices(theirs: Any) -> Devices:
    return Devices(theirs.resource_name, tuple(theirs.device_ids))


def _pod(theirs: Any) -> PodDevices:
    devices = tuple(_devices(each) for container in theirs.containers for each in container.devices)
    return PodDevices(theirs.namespace, theirs.name, devices)


@pytest.mark.thorough
def test_ten_thousand_random_messages_read_as_google_reads_them() -> None:
    rng = random.Random(1)
    for _ in range(4_000):
        got = _random(rng, "GetPodResourcesResponse")
        assert client.got(got.SerializeToString()) == _pod(got.pod_resources)
    for _ in range(3_000):
        listed = _random(rng, "ListPodResourcesResponse")
        assert client.listed(listed.SerializeToString()) == tuple(map(_pod, listed.pod_resources))
    for _ in range(3_000):
        allocatable = _random(rng, "AllocatableResourcesResponse")
        assert client.allocatable(allocatable.SerializeToString()) == tuple(map(_devices, allocatable.devices))


def test_requests_have_googles_bytes() -> None:
    for namespace in WORDS:
        for name in WORDS:
            theirs = TYPES["GetPodResourcesRequest"](pod_name=name, pod_namespace=namespace)
            assert client.asked(namespace, name) == theirs.SerializeToString()


def test_what_a_played_kubelet_writes_google_reads() -> None:
    pod = PodDevices("ns", "one", (Devices("nvidia.com/gpu", ("GPU-1", "GPU-2")), Devices("", ())))
    theirs = TYPES["PodResources"].FromString(client.encoded(pod))
    assert _pod(theirs) == pod
    assert client.listed(message(1, client.encoded(pod))) == (pod,)


@pytest.mark.parametrize(
    "content",
    [b"\x0a", b"\x0a\x05ab", b"\x0b\x00", message(1, text(1, "a"))[:-1], message(1, message(1, b"\xff"))],
    ids=["no-length", "short", "group", "cut", "not-utf-8"],
)
def test_what_is_no_message_is_malformed(content: bytes) -> None:
    with pytest.raises(Malformed):
        client.got(content)
    with pytest.raises(Malformed):
        client.listed(content)
