from __future__ import annotations

import pytest

from gpu.bind_request import PlannedDevice
from gpu.request import FractionAsk
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pods import pod_record
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.queues import use
from tests.scheduler.core.model.test_records import HALF, TENTH, said
from tests.scheduler.core.objects import NANO, bound, node, pod, recorded
from wire.core import Pod


def read(obj: Pod) -> PodRecord:
    record = pod_record(obj, Settings())
    assert record is not None
    return record


def card(mem_mib: int) -> NodeRecord:
    return node_record(node(mem_mib=mem_mib))


@pytest.mark.parametrize(
    ("obj", "card_mib", "expected"),
    [
        (pod(cpu="1500m", memory="500M"), 0, Resources(1500, 500_000_000, 0)),
        (pod(gpus=2), 0, Resources(gpu_nano=2 * NANO)),
        (pod(fraction="0.25"), 0, Resources(gpu_nano=NANO // 4)),
        (pod(fraction="0.25", devices=3), 0, Resources(gpu_nano=3 * NANO // 4)),
        (pod(mem=10_000), 40_000, Resources(gpu_nano=NANO // 4)),
        (pod(mem=10_000), 0, Resources(gpu_nano=NANO)),
        (pod(extended={"nvidia.com/mig-3g.20gb": "2"}), 0, Resources(gpu_nano=6 * NANO)),
        (pod(extended={"nvidia.com/mig-1c.2g.10gb": "1"}), 0, Resources(gpu_nano=2 * NANO)),
        (recorded(said((FractionAsk(NANO // 2, profile="3g.40gb"),))), 0, Resources(gpu_nano=3 * NANO // 2)),
        (pod(extended={"rdma/hca": "4"}), 0, Resources()),
    ],
    ids=[
        "cpu and memory",
        "whole",
        "part",
        "parts",
        "memory",
        "unknown card",
        "slices",
        "compute slices",
        "part of a slice",
        "other",
    ],
)
def test_a_pod_counts_for_what_it_asks(obj: Pod, card_mib: int, expected: Resources) -> None:
    assert use.asked(read(obj).cls, card_mib) == expected


def test_a_pod_that_runs_counts_for_what_it_was_given() -> None:
    runs = bound(pod(fraction="0.25", cpu="1"), "n1", ("g", 300_000_000))
    assert use.held(read(runs), card(0)) == Resources(1000, 0, 300_000_000)


def test_a_pod_without_a_grant_counts_for_what_it_asks_of_its_nodes_card() -> None:
    runs = bound(pod(mem=10_000), "n1", ("g", 0), with_grant=False)
    assert use.held(read(runs), card(40_000)) == Resources(gpu_nano=NANO // 4)
    assert use.held(read(runs), None) == Resources(gpu_nano=NANO)


@pytest.mark.parametrize(("groups", "nano"), [("g", HALF), ("gh", HALF + TENTH), ("ghi", HALF + 2 * TENTH)])
def test_asks_that_differ_stand_for_the_groups_of_a_pod_without_a_grant_in_their_order(groups: str, nano: int) -> None:
    asks = recorded(said((FractionAsk(HALF), FractionAsk(TENTH))))
    runs = bound(asks, "n1", *((group, 1) for group in groups), with_grant=False)
    assert use.held(read(runs), card(0)) == Resources(gpu_nano=nano)


def test_a_part_of_a_slice_counts_as_a_part_of_its_compute_slices() -> None:
    devices = [PlannedDevice("g", NANO // 2, resource="nvidia.com/mig-3g.20gb"), PlannedDevice("h", NANO // 4)]
    assert use.planned(read(pod(cpu="1")).cls.demand, devices) == Resources(1000, 0, 1_750_000_000)


def test_the_least_is_what_the_largest_card_would_cost() -> None:
    assert use.least(read(pod(mem=10_000)).cls, 80_000) == Resources(gpu_nano=NANO // 8)


@pytest.mark.parametrize(
    ("priority", "said", "of_group", "expected"),
    [
        (99, None, None, False),
        (100, None, None, True),
        (0, False, None, True),
        (200, True, None, False),
        (0, None, PodGroupRecord(namespace="", name="", uid="", rv="", minimum=1, is_preemptible=False), True),
        (200, False, PodGroupRecord(namespace="", name="", uid="", rv="", minimum=1, is_preemptible=True), False),
        (200, True, PodGroupRecord(namespace="", name="", uid="", rv="", minimum=1), True),
    ],
)
def test_who_cannot_be_preempted(
    priority: int, said: bool | None, of_group: PodGroupRecord | None, expected: bool
) -> None:
    labels = {} if said is None else {"kai.scheduler/preemptibility": "preemptible" if said else "non-preemptible"}
    assert use.is_fixed(read(pod(priority=priority, labels=labels)), of_group) is expected


def test_a_node_adds_what_it_has_while_it_is_ready() -> None:
    made = node(gpus=8, cpu="64", memory="1Gi", extended={"nvidia.com/mig-2g.10gb": "3"})
    assert use.allocatable(node_record(made)) == Resources(64_000, 2**30, 14 * NANO)
    assert use.allocatable(node_record(node(ready=False))) == Resources()
