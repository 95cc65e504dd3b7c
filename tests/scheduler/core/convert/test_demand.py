"""What is kept of a pod's labels and words, and how a pod counts of which not all is kept."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.convert import bounds
from scheduler.core.convert.demand import MalformedDemand, demand
from scheduler.core.filters.pod_rule import TakenByAll
from scheduler.core.filters.spread import Staying
from scheduler.core.model.pod_class import AntiTerm, Demand, Requirement
from scheduler.core.model.settings import NodePool, Settings
from scheduler.core.model.verdict import Code
from tests.scheduler.core.convert.reading import read
from tests.scheduler.core.objects import bound, feed, node, pod
from wire import names
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
        mem_mib=2, ephemeral_mib=1, gpus=2, extended=(("example.com/nic", 3), ("hugepages-2Mi", 4 * 2**20))
    )


def test_a_request_that_is_no_quantity_is_refused() -> None:
    with pytest.raises(MalformedDemand, match=r"cpu .*much"):
        demand(_pod(spec={"containers": [_c({"cpu": "much"})]}))


APP = (Requirement("app", "In", ("a",)),)
NO_APP = (Requirement("app", "DoesNotExist", ()),)
MANY = {f"k{number}": "v" for number in range(9_000)}


def _labels(count: int, value: str = "v") -> dict[str, str]:
    return {f"k{number:04d}": value for number in range(count)}


@pytest.mark.parametrize(
    ("labels", "is_kept"),
    [
        ({}, True),
        (_labels(256), True),
        (_labels(257), False),
        (_labels(240, "v" * 63), True),  # 68 bytes each
        (_labels(241, "v" * 63), False),
    ],
)
def test_labels_are_kept_up_to_a_number_and_a_number_of_bytes(labels: dict[str, str], is_kept: bool) -> None:
    found = read(bound(pod(labels=labels, scheduler="other"), "n1"))
    assert (found.labels == labels, found.are_labels_cut) == (is_kept or not labels, not is_kept)


def test_thousands_of_labels_take_no_memory() -> None:
    """2.9 MiB of each such pod were kept, so 360 of them filled what the chart allows."""
    found = read(bound(pod(labels=MANY, scheduler="other"), "n1"))
    assert sys.getsizeof(found.labels) < 100


def test_the_label_of_its_node_pool_is_kept_in_any_case() -> None:
    pool = NodePool(value="a")
    assert bounds.kept_labels({**MANY, pool.key: "a"}, pool) == {pool.key: "a"}


def test_a_pod_of_ours_with_more_labels_waits_and_says_so() -> None:
    blocker = read(pod(labels=MANY)).blocker
    assert blocker is not None
    assert (blocker.code, blocker.detail) == (
        Code.UNSUPPORTED_CONSTRAINT,
        "more than 256 labels or 16384 bytes of them",
    )


@pytest.mark.parametrize(("selector", "takes"), [(APP, True), (NO_APP, True), ((), True), (None, False)])
@pytest.mark.parametrize("unknown", [True, False])
def test_a_selector_takes_a_pod_without_known_labels_where_that_is_the_safe_answer(
    selector: Any, takes: bool, unknown: bool
) -> None:
    """Anti-affinity (``unknown``) keeps off it, required affinity does not rely on it."""
    placed = read(bound(pod(labels=MANY, scheduler="other"), "n1"))
    term = AntiTerm("zone", selector=selector, namespaces=frozenset({"ns"}), namespace_selector=None)
    expected = takes and (unknown or not selector)
    assert TakenByAll((term,), unknown=unknown).takes(placed, lambda _: {}) is expected
    assert Staying("ns", APP).takes(placed, lambda _: {})
    other = AntiTerm("zone", selector=selector, namespaces=frozenset({"elsewhere"}), namespace_selector=None)
    assert not TakenByAll((other,), unknown=unknown).takes(placed, lambda _: {})


@pytest.mark.parametrize(("labels", "at"), [(MANY, "n2"), ({"app": "b"}, "n1")])
def test_anti_affinity_keeps_off_a_node_with_a_pod_whose_labels_nobody_knows(labels: dict[str, str], at: str) -> None:
    """As columns of pods count it: labels are looked at once for all pods that are alike in them."""
    term = {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": {"matchLabels": {"app": "a"}}}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    made = Cluster(Settings(gpu_strategy="binpack"))
    others = [bound(pod(f"o{number}", labels={"app": "b"}, scheduler="other"), "n1") for number in range(3)]
    feed(made, node("n1", 4), node("n2", 8), *others, bound(pod("x", labels=labels, scheduler="other"), "n1"))
    feed(made, pod("p", gpus=1, spec={"affinity": anti}), bound(pod("full", gpus=1), "n1"))
    (entry,) = [each for each in made.decide(1).entries if hasattr(each, "placement")]
    assert entry.placement.node == at


@pytest.mark.parametrize("length", [317, 318, 262_144])
def test_a_word_that_is_longer_than_a_name_is_kept_as_its_digest(length: int) -> None:
    one, other = "x" * length, "x" * (length - 1) + "y"
    assert (bounds.name(one) == one) is (length <= 317)
    assert len(bounds.name(one)) <= 317
    assert bounds.name(one) != bounds.name(other)
    long = pod(annotations={names.POD_GROUP_NAME: one})
    assert read(long).pod_group == bounds.name(one)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"tolerations": [{"key": "k", "value": "v" * 40_000}]}, "32768 bytes of constraints"),
        ({"volumes": [{"name": f"v{number}"} for number in range(257)]}, "more than 256 volumes"),
    ],
)
def test_a_pod_that_asks_more_than_is_kept_waits_and_says_so(spec: dict[str, Any], text: str) -> None:
    found = read(pod(spec=spec))
    assert found.blocker is not None
    assert text in found.blocker.detail
    assert found.cls.constraints.tolerations == ()


@pytest.mark.parametrize(("number", "is_kept"), [(bounds.MOST_RESOURCES, True), (bounds.MOST_RESOURCES + 1, False)])
def test_of_very_many_resources_those_are_kept_that_nodes_offer(number: int, is_kept: bool) -> None:
    fakes = [(f"example.com/r{each:04d}", 1) for each in range(number - 2)]
    real = [("nvidia.com/mig-1g.5gb", 2), ("rdma/hca", 3)]
    demand = Demand(extended=(*fakes, *real))
    kept = bounds.resources_in_use(demand, ["cpu", "nvidia.com/mig-1g.5gb", "rdma/hca", "rdma/other"])
    assert kept.extended == ((*fakes, *real) if is_kept else tuple(real))
