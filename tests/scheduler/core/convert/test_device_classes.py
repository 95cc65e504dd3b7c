"""Device classes, and selectors of classes and requests, as they are written."""

from __future__ import annotations

import msgspec
import pytest

from scheduler.core.convert.devices import device_class_record
from tests.scheduler.core.device_objects import device_class
from wire.resource import DeviceClass


def test_a_class_keeps_its_expressions_and_parameters() -> None:
    opaque = {"opaque": {"driver": "d", "parameters": {"kind": "GpuConfig", "mode": [1, 2]}}}
    record = device_class("gpu", "device.driver == 'd'", config=[opaque, {}])
    assert (record.key, record.selectors, record.wrong) == ("gpu", ("device.driver == 'd'",), "")
    assert [(driver, msgspec.json.decode(text)) for driver, text in record.configs] == [
        ("d", {"kind": "GpuConfig", "mode": [1, 2]})
    ]


@pytest.mark.parametrize(
    ("selectors", "wrong"),
    [
        ([{}], "spec.selectors[0].cel"),
        ([{"cel": {"expression": "true"}}, {"unheard": {}}], "spec.selectors[1].cel"),
        ([{"cel": {"expression": "x" * 10241}}], "spec.selectors[0].cel.expression: longer than 10240 bytes"),
        ([{"cel": {"expression": "true"}}] * 33, "spec.selectors: 33, at most 32 are read"),
    ],
)
def test_a_class_with_a_selector_that_is_not_read_names_it(selectors: list[object], wrong: str) -> None:
    written = msgspec.convert({"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}, DeviceClass)
    assert device_class_record(written).wrong == wrong


def test_a_class_for_an_extended_resource_names_it() -> None:
    written = msgspec.convert({"spec": {"extendedResourceName": "example.com/gpu"}}, DeviceClass)
    assert device_class_record(written).extended_resource == "example.com/gpu"
