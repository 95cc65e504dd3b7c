"""Extended resources of pods, container by container."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.extended_resources import MOST_ASKS, by_claim, claim_name, extended_asks, is_extended
from scheduler.core.model.pod_class import Demand
from wire import names
from wire.core import Pod

_GPU = names.GPU_RESOURCE


def _container(name: str, requests: dict[str, str], *, limits: dict[str, str] | None = None, **more: Any) -> Any:
    return {"name": name, "resources": {"requests": requests, "limits": limits}, **more}


def _pod(*containers: Any, init: Any = (), status: Any = None) -> Pod:
    written = {"spec": {"containers": [*containers], "initContainers": [*init]}, "status": status or {}}
    return msgspec.convert(written, Pod)


def test_each_container_is_read_with_its_place_and_that_of_the_resource() -> None:
    pod = _pod(
        _container("main", {"cpu": "1", _GPU: "2", "a.example.com/nic": "1"}),
        _container("other", {"cpu": "1"}),
        init=[_container("first", {_GPU: "1"}), _container("beside", {_GPU: "3"}, restartPolicy="Always")],
    )
    found = [(e.container, e.index, e.resource, e.place, e.amount, e.is_brief) for e in extended_asks(pod)]
    assert found == [
        ("first", 0, _GPU, 0, 1, True),
        ("beside", 1, _GPU, 0, 3, False),
        ("main", 2, "a.example.com/nic", 0, 1, False),
        ("main", 2, _GPU, 2, 2, False),
    ]


@pytest.mark.parametrize("amount", ["0", "what"])
def test_what_is_nothing_or_can_t_be_read_is_left_out(amount: str) -> None:
    assert extended_asks(_pod(_container("main", {_GPU: amount}))) == ()


def test_a_limit_without_a_request_is_the_request() -> None:
    (ask,) = extended_asks(_pod(_container("main", {}, limits={_GPU: "2"})))
    assert (ask.amount, ask.place) == (2, 0)


def test_a_pod_with_more_than_a_claim_can_have_asks_nothing() -> None:
    containers = [_container(f"c{number}", {_GPU: "1"}) for number in range(MOST_ASKS + 1)]
    assert len(extended_asks(_pod(*containers[1:]))) == MOST_ASKS
    assert extended_asks(_pod(*containers)) == ()


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        (_GPU, True),
        ("deviceclass.resource.kubernetes.io/gpu", True),
        ("cpu", False),
        ("hugepages-2Mi", False),
        ("storage.kubernetes.io/x", False),
        ("requests.nvidia.com/gpu", False),
    ],
)
def test_resources_of_a_domain_of_others_are_extended(resource: str, expected: bool) -> None:
    assert is_extended(resource) is expected


def test_resources_that_the_status_maps_are_taken_from_a_claim() -> None:
    mapping = {"containerName": "main", "resourceName": _GPU, "requestName": "r"}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": [mapping]}}
    demand = Demand(cpu_milli=1, gpus=2, extended=(("example.com/nic", 1),))
    pod = _pod(_container("main", {_GPU: "2"}), status=status)
    assert claim_name(pod) == "c"
    assert by_claim(demand, pod) == Demand(cpu_milli=1, extended=(("example.com/nic", 1),), claimed=((_GPU, 2),))
    assert (claim_name(_pod()), by_claim(demand, _pod())) == ("", demand)
