"""Compared with Google's implementation of Protocol Buffers, by the definitions of kubelet's api.proto."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from nodeagent.kubeletapi import podresources
from nodeagent.kubeletapi.podresources import Devices, PodDevices
from wire.protobuf import Malformed, message, text

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


def test_ten_thousand_random_messages_read_as_google_reads_them() -> None:
    rng = random.Random(1)
    for _ in range(4_000):
        got = _random(rng, "GetPodResourcesResponse")
        assert podresources.got(got.SerializeToString()) == _pod(got.pod_resources)
    for _ in range(3_000):
        listed = _random(rng, "ListPodResourcesResponse")
        assert podresources.listed(listed.SerializeToString()) == tuple(map(_pod, listed.pod_resources))
    for _ in range(3_000):
        allocatable = _random(rng, "AllocatableResourcesResponse")
        assert podresources.allocatable(allocatable.SerializeToString()) == tuple(map(_devices, allocatable.devices))


def test_requests_have_googles_bytes() -> None:
    for namespace in WORDS:
        for name in WORDS:
            theirs = TYPES["GetPodResourcesRequest"](pod_name=name, pod_namespace=namespace)
            assert podresources.asked(namespace, name) == theirs.SerializeToString()


def test_what_a_played_kubelet_writes_google_reads() -> None:
    pod = PodDevices("ns", "one", (Devices("nvidia.com/gpu", ("GPU-1", "GPU-2")), Devices("", ())))
    theirs = TYPES["PodResources"].FromString(podresources.encoded(pod))
    assert _pod(theirs) == pod
    assert podresources.listed(message(1, podresources.encoded(pod))) == (pod,)


@pytest.mark.parametrize(
    "content",
    [b"\x0a", b"\x0a\x05ab", b"\x0b\x00", message(1, text(1, "a"))[:-1], message(1, message(1, b"\xff"))],
    ids=["no-length", "short", "group", "cut", "not-utf-8"],
)
def test_what_is_no_message_is_malformed(content: bytes) -> None:
    with pytest.raises(Malformed):
        podresources.got(content)
    with pytest.raises(Malformed):
        podresources.listed(content)
