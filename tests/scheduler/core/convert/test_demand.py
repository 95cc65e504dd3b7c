from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.demand import MalformedDemand, demand
from scheduler.core.model.pod_class import Demand
from wire.core import Pod


def _pod(**fields: Any) -> Pod:
    return msgspec.convert({"spec": fields.pop("spec"), "status": fields.pop("status", {})}, Pod)


def _c(requests: dict[str, Any] | None = None, *, always: bool = False, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"name": "c", "resources": {"requests": requests}, **fields}
    return {**made, "restartPolicy": "Always"} if always else made


@pytest.mark.parametrize(
    ("spec", "cpu_milli"),
    [
        ({"containers": [_c({"cpu": "1"}), _c({"cpu": "250m"})]}, 1250),
        # A plain init container runs before the others; only the larger of both counts.
        ({"containers": [_c({"cpu": "1"})], "initContainers": [_c({"cpu": "3"})]}, 3000),
        ({"containers": [_c({"cpu": "1"})], "initContainers": [_c({"cpu": "500m"})]}, 1000),
        # A sidecar (KEP-753) runs on, beside the containers and beside the init containers after it.
        ({"containers": [_c({"cpu": "1"})], "initContainers": [_c({"cpu": "2"}, always=True)]}, 3000),
        ({"containers": [_c({"cpu": "1"})], "initContainers": [_c({"cpu": "2"}, always=True), _c({"cpu": "4"})]}, 6000),
        ({"containers": [_c({"cpu": "1"})], "initContainers": [_c({"cpu": "4"}), _c({"cpu": "2"}, always=True)]}, 4000),
        ({"containers": [_c({"cpu": "1"})], "overhead": {"cpu": "100m"}}, 1100),
        # Pod-level resources (KEP-2837) stand for the sum, and overhead comes on top.
        ({"containers": [_c({"cpu": "1"})], "resources": {"requests": {"cpu": "5"}}, "overhead": {"cpu": "1"}}, 6000),
        ({"containers": [_c()], "resources": {"limits": {"cpu": "2"}}}, 2000),
        # A limit without a request is the request.
        ({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}, 2000),
        ({"containers": [_c({"cpu": "0.0001"})]}, 1),
        ({"containers": [_c()], "initContainers": [_c({"cpu": "0"})]}, 0),
    ],
)
def test_cpu_is_counted_as_kubelet_counts_it(spec: dict[str, Any], cpu_milli: int) -> None:
    assert demand(_pod(spec=spec)).cpu_milli == cpu_milli


@pytest.mark.parametrize(
    ("status", "cpu_milli"),
    [
        ({"name": "c", "allocatedResources": {"cpu": "4"}}, 4000),
        ({"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "3"}}}, 3000),
        ({"name": "c", "allocatedResources": {"cpu": "1"}}, 2000),
        ({"name": "other", "allocatedResources": {"cpu": "9"}}, 2000),
    ],
)
def test_a_resized_pod_counts_with_the_larger_of_asked_and_allocated(status: dict[str, Any], cpu_milli: int) -> None:
    pod = _pod(spec={"containers": [_c({"cpu": "2"})]}, status={"containerStatuses": [status]})
    assert demand(pod).cpu_milli == cpu_milli


def test_a_resized_sidecar_counts_with_what_is_allocated() -> None:
    spec = {"containers": [_c({"cpu": "1"})], "initContainers": [_c({"cpu": "1"}, always=True)]}
    pod = _pod(spec=spec, status={"initContainerStatuses": [{"name": "c", "allocatedResources": {"cpu": "3"}}]})
    assert demand(pod).cpu_milli == 4000


def test_the_status_of_an_init_container_that_ends_does_not_count() -> None:
    spec = {"containers": [_c({"cpu": "1"})], "initContainers": [_c({"cpu": "2"})]}
    pod = _pod(spec=spec, status={"initContainerStatuses": [{"name": "c", "allocatedResources": {"cpu": "3"}}]})
    assert demand(pod).cpu_milli == 2000


def _three(**fields: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "3"}, **fields}


@pytest.mark.parametrize(
    ("spec", "status", "cpu_milli"),
    [
        # From 3 CPUs to 1: what is in force, or allocated, counts until it has been given back.
        ({"resources": {"requests": {"cpu": "1"}}}, _three(), 3000),
        ({"resources": {"requests": {"cpu": "1"}}}, _three(allocatedResources={"cpu": "1"}), 3000),
        ({"resources": {"requests": {"cpu": "1"}}}, _three(resources={"requests": {"cpu": "1"}}), 3000),
        ({"resources": {"requests": {"cpu": "1"}}}, _three(resources=None), 3000),
        # From 3 CPUs to 5: what is asked counts at once.
        ({"resources": {"requests": {"cpu": "5"}}}, _three(), 5000),
        # Without an ask of the pod's own its status tells the sum of its containers.
        ({}, _three(), 3000),
        # Overhead comes on top.
        ({"resources": {"requests": {"cpu": "1"}}, "overhead": {"cpu": "1"}}, _three(), 4000),
    ],
)
def test_a_resize_of_the_whole_pod_counts_with_the_largest_of_asked_allocated_and_in_force(
    spec: dict[str, Any], status: dict[str, Any], cpu_milli: int
) -> None:
    assert demand(_pod(spec={"containers": [_c({"cpu": "500m"})], **spec}, status=status)).cpu_milli == cpu_milli


@pytest.mark.parametrize(("reason", "cpu_milli"), [("Infeasible", 3000), ("Deferred", 5000)])
def test_a_resize_that_the_kubelet_called_infeasible_counts_what_is_allocated(reason: str, cpu_milli: int) -> None:
    pending = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]}
    whole = {"containers": [_c()], "resources": {"requests": {"cpu": "5"}}}
    assert demand(_pod(spec=whole, status={**pending, **_three()})).cpu_milli == cpu_milli
    asking = {"containers": [_c({"cpu": "5", "nvidia.com/gpu": "2"})]}
    made = demand(_pod(spec=asking, status={**pending, "containerStatuses": [{"name": "c", **_three()}]}))
    assert (made.cpu_milli, made.gpus) == (cpu_milli, 2)


def test_an_infeasible_resize_of_which_nothing_is_known_counts_what_is_asked() -> None:
    pending = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
    assert demand(_pod(spec={"containers": [_c({"cpu": "5"})]}, status=pending)).cpu_milli == 5000


def test_each_resource_goes_to_its_place_and_bytes_round_up_once() -> None:
    asked = {"memory": 2**20 + 1, "ephemeral-storage": "1", "nvidia.com/gpu": "2", "example.com/nic": 3, "pods": 1}
    half = {"memory": 2**20 - 1, "hugepages-2Mi": "4Mi"}
    assert demand(_pod(spec={"containers": [_c(asked), _c(half)]})) == Demand(
        mem_mib=2,
        ephemeral_mib=1,
        gpus=2,
        extended=(("example.com/nic", 3), ("hugepages-2Mi", 4 * 2**20)),
    )


def test_a_request_that_is_no_quantity_is_refused() -> None:
    with pytest.raises(MalformedDemand, match=r"cpu .*much"):
        demand(_pod(spec={"containers": [_c({"cpu": "much"})]}))
