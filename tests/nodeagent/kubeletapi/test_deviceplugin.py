"""Messages of the device-plugin API against Google's own encoder and decoder."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

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
    RegisterRequest,
)
from wire.protobuf import Malformed

# k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto: message -> (field, number, kind). "*": repeated, "{}": a map.
_API = {
    "DevicePluginOptions": [("pre_start_required", 1, "bool"), ("get_preferred_allocation_available", 2, "bool")],
    "RegisterRequest": [
        ("version", 1, "string"),
        ("endpoint", 2, "string"),
        ("resource_name", 3, "string"),
        ("options", 4, "DevicePluginOptions"),
    ],
    "ListAndWatchResponse": [("devices", 1, "*Device")],
    "TopologyInfo": [("nodes", 1, "*NUMANode")],
    "NUMANode": [("ID", 1, "int64")],
    "Device": [("ID", 1, "string"), ("health", 2, "string"), ("topology", 3, "TopologyInfo")],
    "PreferredAllocationRequest": [("container_requests", 1, "*ContainerPreferredAllocationRequest")],
    "ContainerPreferredAllocationRequest": [
        ("available_deviceIDs", 1, "*string"),
        ("must_include_deviceIDs", 2, "*string"),
        ("allocation_size", 3, "int32"),
    ],
    "PreferredAllocationResponse": [("container_responses", 1, "*ContainerPreferredAllocationResponse")],
    "ContainerPreferredAllocationResponse": [("deviceIDs", 1, "*string")],
    "AllocateRequest": [("container_requests", 1, "*ContainerAllocateRequest")],
    "ContainerAllocateRequest": [("devices_ids", 1, "*string")],
    "CDIDevice": [("name", 1, "string")],
    "AllocateResponse": [("container_responses", 1, "*ContainerAllocateResponse")],
    "ContainerAllocateResponse": [
        ("envs", 1, "{}"),
        ("mounts", 2, "*Mount"),
        ("devices", 3, "*DeviceSpec"),
        ("annotations", 4, "{}"),
        ("cdi_devices", 5, "*CDIDevice"),
    ],
    "Mount": [("container_path", 1, "string"), ("host_path", 2, "string"), ("read_only", 3, "bool")],
    "DeviceSpec": [("container_path", 1, "string"), ("host_path", 2, "string"), ("permissions", 3, "string")],
}
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
}


def _generated() -> dict[str, Any]:
    """Classes as protoc's generated code has them."""
    file = descriptor_pb2.FileDescriptorProto(name="api.proto", package="v1beta1", syntax="proto3")
    for name, fields in _API.items():
        message = file.message_type.add(name=name)
        for field, number, declared in fields:
            made = message.field.add(name=field, number=number, label=_Field.LABEL_OPTIONAL)
            kind = declared.lstrip("*")
            if declared != kind or kind == "{}":
                made.label = _Field.LABEL_REPEATED
            if declared == "{}":
                kind = f"{name}.{field.capitalize()}Entry"
                entry = message.nested_type.add(name=f"{field.capitalize()}Entry")
                entry.options.map_entry = True
                for part, at in (("key", 1), ("value", 2)):
                    entry.field.add(name=part, number=at, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
            if kind in _SCALARS:
                made.type = _SCALARS[kind]
            else:
                made.type, made.type_name = _Field.TYPE_MESSAGE, f".v1beta1.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1beta1.{name}")) for name in _API}


GENERATED = _generated()
TEXT = st.text(max_size=6)
IDS = st.lists(TEXT, max_size=4)
PAIRS = st.dictionaries(TEXT, TEXT, max_size=3)
#: A map has no order of its own: with one entry its bytes are compared, with more its entries are.
ENTRY = st.dictionaries(TEXT, TEXT, max_size=1)


def same(ours: Any, name: str, theirs: Any) -> None:
    """Whether both write the same bytes, and we read them as what was written."""
    generated = GENERATED[name](**theirs).SerializeToString(deterministic=True)
    assert ours.encode() == generated
    assert type(ours).decode(generated) == ours


@given(TEXT, TEXT, TEXT, st.booleans())
def test_registration(endpoint: str, resource: str, version: str, wants_more: bool) -> None:
    options = {"get_preferred_allocation_available": wants_more}
    same(
        RegisterRequest(endpoint, resource, version, wants_more),
        "RegisterRequest",
        {"version": version, "endpoint": endpoint, "resource_name": resource, "options": options},
    )
    same(Options(wants_more), "DevicePluginOptions", options)


@given(st.lists(st.tuples(TEXT, st.booleans(), st.none() | st.integers(-(2**63), 2**63 - 1)), max_size=5))
def test_list_of_devices(devices: list[tuple[str, bool, int | None]]) -> None:
    theirs = [
        {
            "ID": uuid,
            "health": "Healthy" if well else "Unhealthy",
            **({} if numa is None else {"topology": {"nodes": [{"ID": numa}]}}),
        }
        for uuid, well, numa in devices
    ]
    same(DeviceList(tuple(Device(*one) for one in devices)), "ListAndWatchResponse", {"devices": theirs})


@given(st.lists(IDS, max_size=3))
def test_allocation_request(containers: list[list[str]]) -> None:
    theirs = [{"devices_ids": ids} for ids in containers]
    same(AllocateRequest(tuple(map(tuple, containers))), "AllocateRequest", {"container_requests": theirs})


@given(st.lists(st.tuples(ENTRY, PAIRS, PAIRS, ENTRY, IDS), max_size=2))
def test_allocation_response(containers: list[tuple[Any, Any, Any, Any, list[str]]]) -> None:
    theirs = [
        {
            "envs": environment,
            "mounts": [{"container_path": a, "host_path": b, "read_only": True} for a, b in mounts.items()],
            "devices": [{"container_path": a, "host_path": b, "permissions": "rw"} for a, b in files.items()],
            "annotations": annotations,
            "cdi_devices": [{"name": name} for name in cdi],
        }
        for environment, mounts, files, annotations, cdi in containers
    ]
    ours = [
        ContainerResponse(environment=e, mounts=m, files=f, annotations=a, cdi_devices=tuple(c))
        for e, m, f, a, c in containers
    ]
    same(AllocateResponse(ours), "AllocateResponse", {"container_responses": theirs})


@given(PAIRS)
def test_maps_of_several_entries(environment: dict[str, str]) -> None:
    ours = ContainerResponse(environment=environment)
    generated = GENERATED["ContainerAllocateResponse"](envs=environment)
    assert generated == type(generated).FromString(ours.encode())
    assert ContainerResponse.decode(generated.SerializeToString()) == ours


@given(st.lists(st.tuples(IDS, IDS, st.integers(-(2**31), 2**31 - 1)), max_size=3), st.lists(IDS, max_size=3))
def test_preferred_allocation(choices: list[tuple[list[str], list[str], int]], answers: list[list[str]]) -> None:
    theirs = [
        {"available_deviceIDs": free, "must_include_deviceIDs": included, "allocation_size": size}
        for free, included, size in choices
    ]
    ours = PreferredRequest(tuple(Choice(tuple(free), tuple(included), size) for free, included, size in choices))
    same(ours, "PreferredAllocationRequest", {"container_requests": theirs})
    answered = [{"deviceIDs": ids} for ids in answers]
    same(PreferredResponse(answers), "PreferredAllocationResponse", {"container_responses": answered})


MESSAGES = (RegisterRequest, DeviceList, AllocateRequest, AllocateResponse, PreferredRequest, PreferredResponse)


@given(st.binary(max_size=40), st.sampled_from(MESSAGES))
def test_any_bytes_are_read_or_malformed(content: bytes, kind: Any) -> None:
    try:
        kind.decode(content)
    except Malformed:
        return


def test_sixty_thousand_devices_are_within_what_kubelet_reads() -> None:
    uuid = "MIG-b1028956-cfa2-0990-bf4a-5da9abb51763"
    devices = [Device(f"{uuid}::{number}", is_healthy=False, numa=127) for number in range(60_000)]
    assert len(DeviceList(devices).encode()) < 4 << 20


def test_a_message_that_ends_too_soon_is_malformed() -> None:
    with pytest.raises(Malformed):
        RegisterRequest.decode(RegisterRequest("a.sock", "nvidia.com/gpu").encode()[:-1])
