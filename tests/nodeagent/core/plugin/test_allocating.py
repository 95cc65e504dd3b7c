from __future__ import annotations

from typing import Any

import pytest

from nodeagent.core.plugin.allocation import Given, Refused, allocate
from nodeagent.core.plugin.resources import Device, Resource, by_id
from nodeagent.core.plugin.settings import Delivery, IdStrategy, PluginSettings

CDI = "k8s.device-plugin.nvidia.com/gpu="
DEVICES = {
    **by_id(Resource("x", (Device(uuid="GPU-a", card="GPU-a", index="0", minor=3, replicas=2),))),
    **by_id(Resource("x", (Device(uuid="GPU-b", card="GPU-b", index="1", minor=0),))),
    **by_id(Resource("x", (Device(uuid="MIG-c", card="GPU-b", index="1:0", minor=0),))),
}


def give(*chosen: str, present: tuple[str, ...] = (), **settings: Any) -> Given | Refused:
    return allocate(
        chosen,
        resource="nvidia.com/gpu",
        devices=DEVICES,
        settings=PluginSettings(**settings),
        present_files=present,
        number="7",
    )


@pytest.mark.parametrize(
    ("chosen", "deliveries", "strategy", "given"),
    [
        (["GPU-b"], "envvar", "uuid", Given(environment={"NVIDIA_VISIBLE_DEVICES": "GPU-b"})),
        (["GPU-b"], "envvar", "index", Given(environment={"NVIDIA_VISIBLE_DEVICES": "1"})),
        (["MIG-c"], "envvar", "index", Given(environment={"NVIDIA_VISIBLE_DEVICES": "1:0"})),
        (["GPU-b", "GPU-a::1"], "envvar", "uuid", Given(environment={"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"})),
        (["GPU-a::0", "GPU-a::1"], "envvar", "uuid", Given(environment={"NVIDIA_VISIBLE_DEVICES": "GPU-a"})),
        (
            ["GPU-b", "GPU-a::0"],
            "volume-mounts",
            "uuid",
            Given(
                environment={"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"},
                mounts={
                    "/var/run/nvidia-container-devices/GPU-a": "/dev/null",
                    "/var/run/nvidia-container-devices/GPU-b": "/dev/null",
                },
            ),
        ),
        (
            ["GPU-b"],
            "volume-mounts",
            "index",
            Given(
                environment={"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"},
                mounts={"/var/run/nvidia-container-devices/1": "/dev/null"},
            ),
        ),
        (["GPU-b"], "cdi-cri", "index", Given(cdi_devices=[f"{CDI}GPU-b"])),
        (
            ["GPU-b", "GPU-a::0"],
            "cdi-annotations",
            "uuid",
            Given(annotations={"cdi.k8s.io/nvidia-device-plugin_7": f"{CDI}GPU-a,{CDI}GPU-b"}),
        ),
        (
            ["GPU-b"],
            "envvar,cdi-cri",
            "uuid",
            Given(environment={"NVIDIA_VISIBLE_DEVICES": "GPU-b"}, cdi_devices=[f"{CDI}GPU-b"]),
        ),
    ],
)
def test_each_way_of_delivery(chosen: list[str], deliveries: str, strategy: str, given: Given) -> None:
    found = give(*chosen, deliveries=frozenset(map(Delivery, deliveries.split(","))), id_strategy=IdStrategy(strategy))
    assert found == given


def test_device_files_are_those_of_the_gpus_and_of_all_that_are_there() -> None:
    found = give("GPU-b", "MIG-c", "GPU-a::0", pass_device_specs=True, present=("/dev/nvidiactl", "/dev/nvidia-uvm"))
    assert isinstance(found, Given)
    assert found.files == {
        "/dev/nvidia3": "/dev/nvidia3",
        "/dev/nvidia0": "/dev/nvidia0",
        "/dev/nvidiactl": "/dev/nvidiactl",
        "/dev/nvidia-uvm": "/dev/nvidia-uvm",
    }


@pytest.mark.parametrize(
    ("roots", "host"), [({"driver_root": "/run/nvidia"}, "/run/nvidia"), ({"dev_root": "/x/"}, "/x")]
)
def test_device_files_are_below_the_root_of_the_driver(roots: dict[str, Any], host: str) -> None:
    found = give("GPU-b", pass_device_specs=True, **roots)
    assert isinstance(found, Given)
    assert found.files == {"/dev/nvidia0": f"{host}/dev/nvidia0"}


def test_an_annotation_has_the_prefix_of_the_file() -> None:
    found = give("GPU-b", deliveries=frozenset({Delivery.CDI_ANNOTATIONS}), cdi_annotation_prefix="nvidia.cdi/")
    assert isinstance(found, Given)
    assert list(found.annotations) == ["nvidia.cdi/nvidia-device-plugin_7"]


def test_several_replicas_are_refused_where_the_file_wants_it() -> None:
    found = give("GPU-a::0", "GPU-a::1", fail_requests_greater_than_one=True)
    assert found == Refused(
        "invalid request for 'nvidia.com/gpu': maximum request size for shared resources is 1; found 2"
    )
    assert isinstance(give("GPU-a::0", fail_requests_greater_than_one=True), Given)
    assert isinstance(give("GPU-b", "MIG-c", fail_requests_greater_than_one=True), Given)


def test_a_device_that_is_not_there_is_refused() -> None:
    assert give("GPU-b", "GPU-x" * 100) == Refused(
        "invalid allocation request for 'nvidia.com/gpu': unknown device: " + ("GPU-x" * 100)[:200]
    )
