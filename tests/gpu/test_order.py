"""Which BindRequests are orders of ours."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu import bind_request
from gpu.bind_request import Foreign, Handover, Order, PlannedDevice
from wire import names
from wire.crds.bindrequest import BindRequest

HANDED = Handover("10", (PlannedDevice("g", 500_000_000),), "plan", 2)


def _request(meta: dict[str, Any] | None = None, spec: dict[str, Any] | None = None) -> BindRequest:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}
    plain = {"name": "p", "namespace": "team", "uid": "attempt-p", "ownerReferences": [owner]}
    annotations = {"annotations": {names.HANDOVER: bind_request.render(HANDED)}}
    said = {"podName": "p", "selectedNode": "node-1", "selectedGPUGroups": ["g"]}
    body = {"metadata": {**plain, **annotations, **(meta or {})}, "spec": {**said, **(spec or {})}}
    return msgspec.convert(body, BindRequest)


def test_a_request_of_ours_is_an_order() -> None:
    assert bind_request.read(_request()) == Order("uid-p", HANDED)


@pytest.mark.parametrize(
    ("meta", "spec", "why"),
    [
        ({"ownerReferences": None}, {}, "it names no pod by UID"),
        ({"ownerReferences": [{"kind": "Job", "uid": "u"}]}, {}, "it names no pod by UID"),
        ({"ownerReferences": [{"kind": "Pod"}]}, {}, "it names no pod by UID"),
        ({"annotations": None}, {}, "the annotation is missing"),
        ({"annotations": {names.HANDOVER: "{}"}}, {}, names.HANDOVER),
        ({}, {"selectedGPUGroups": ["h"]}, "name different groups"),
        ({}, {"selectedNode": ""}, "spec.selectedNode is empty"),
        ({}, {"podName": "q"}, "its name is not spec.podName, 'q'"),
    ],
)
def test_an_incomplete_request_is_foreign_and_says_why(meta: dict[str, Any], spec: dict[str, Any], why: str) -> None:
    read = bind_request.read(_request(meta, spec))
    assert isinstance(read, Foreign)
    assert why in read.why
