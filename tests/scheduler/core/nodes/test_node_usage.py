"""What is used of a node, seen through the cluster: every rule of scheduler-core.md on GPUs and groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpu.request import FractionAsk
from scheduler.core.convert.nodes import node_record
from scheduler.core.model.plan import Retire
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.node_usage import Occupancy
from scheduler.core.nodes.table import GPUS, PODS
from tests.scheduler.core.objects import (
    NANO,
    bind_request,
    bound,
    cluster,
    ended,
    feed,
    free_gpus,
    node,
    pod,
    reservation,
)
from tests.scheduler.core.stories.test_slices import asking
from wire import names
from wire.core import Pod

HALF = NANO // 2


def _free(made: Any, group: str, name: str = "n1") -> int:
    ledger = made.refresh()
    return int(next(d.free_nano for d in ledger.table.devices[ledger.row_of[name]] if d.group == group))


def _is_open(made: Any, group: str, name: str = "n1") -> bool:
    ledger = made.refresh()
    return bool(next(d.is_open for d in ledger.table.devices[ledger.row_of[name]] if d.group == group))


TENANT = pod("t", fraction="0.5")
#: It uses GPU-1.
LOST = bound(TENANT, "n1", ("g", HALF), uuid="GPU-1")


@pytest.mark.parametrize(
    ("objects", "free"),
    [
        ([], 8),
        ([pod("a", gpus=3, bound_to="n1")], 5),
        ([pod("a", gpus=3, bound_to="n1", scheduler="default-scheduler")], 5),
        ([pod("a", gpus=3, bound_to="n1", deleting=True)], 5),
        ([ended(pod("a", gpus=3, bound_to="n1"))], 8),
        ([pod("a", gpus=3)], 8),
        ([reservation("g")], 7),
        ([reservation("g", deleting=True)], 7),
        ([reservation("g", phase="Failed")], 8),
        ([reservation("g", phase="Pending", uuid="")], 7),
        ([reservation("g"), reservation("h", uuid="GPU-2")], 6),
        # A share pod charges its group, not the count of devices.
        ([reservation("g", book={"uid-t": HALF}), bound(TENANT, "n1", ("g", HALF))], 7),
        # The reservation is missing: its tenants still hold the device.
        ([bound(TENANT, "n1", ("g", HALF))], 7),
        ([bound(TENANT, "n1", ("g", HALF)), reservation("g", phase="Failed")], 7),
        # A hand-over of a new group holds one device, and no second one when the reservation appears.
        ([TENANT, bind_request(TENANT, "n1", ("g", HALF))], 7),
        ([TENANT, bind_request(TENANT, "n1", ("g", HALF)), reservation("g", book={"uid-t": HALF})], 7),
        ([reservation("g", book={"uid-t": HALF}), TENANT, bind_request(TENANT, "n1", ("g", HALF))], 7),
        # Two reservations of one group are two devices.
        ([reservation("g"), reservation("g", uid="r2")], 6),
        # A tenant uses another device than its reservation holds now: that is one more.
        ([reservation("g", uuid="GPU-2"), LOST], 6),
        # The holder of the other one counts for it; before the reservation reports its device, nobody knows of two.
        ([reservation("g", uuid="GPU-2"), LOST, reservation("h", uuid="GPU-1")], 6),
        ([reservation("g", uuid=""), LOST], 7),
    ],
)
def test_devices_are_counted_once_whoever_holds_them(objects: list[Any], free: int) -> None:
    assert free_gpus(cluster(node(), *objects)) == free
    assert free_gpus(cluster(*reversed(objects), node())) == free


@pytest.mark.parametrize(
    ("book", "grant", "in_flight", "charged"),
    [
        (300, None, None, 300),
        (None, 300, None, 300),
        (None, None, 300, 300),
        (300, 500, None, 500),
        (500, 300, None, 500),
        (300, None, 500, 500),
        (500, None, 300, 500),
    ],
)
def test_a_pod_is_charged_the_most_that_anybody_says(
    book: int | None, grant: int | None, in_flight: int | None, charged: int
) -> None:
    objects: list[Any] = [node(), reservation("g", book={} if book is None else {"uid-t": book})]
    if grant is not None:
        objects.append(bound(TENANT, "n1", ("g", grant)))
    if in_flight is not None:
        objects += [TENANT, bind_request(TENANT, "n1", ("g", in_flight))]
    assert _free(cluster(*objects), "g") == NANO - charged


def test_an_entry_of_a_pod_that_nobody_knows_counts() -> None:
    assert _free(cluster(node(), reservation("g", book={"stranger": 700})), "g") == NANO - 700


@pytest.mark.parametrize(
    ("asked", "mem_mib", "reported", "charged"),
    [
        ({"fraction": "0.25"}, 0, 0, NANO // 4),
        ({"mem": 10000}, 40000, 0, NANO // 4),
        ({"mem": 10000}, 40000, 20000, HALF),
        ({"mem": 10000}, 0, 0, NANO),
        ({}, 40000, 0, NANO),
    ],
)
def test_a_pod_bound_by_kai_is_charged_what_its_annotations_ask(
    asked: dict[str, Any], mem_mib: int, reported: int, charged: int
) -> None:
    tenant = bound(pod("k", **asked), "n1", ("g", 1), with_grant=False)
    made = cluster(node(mem_mib=mem_mib), reservation("g", mem_mib=reported, has_book=False), tenant)
    assert _free(made, "g") == NANO - charged


def test_a_pod_bound_by_kai_on_two_devices_is_charged_on_both() -> None:
    tenant = bound(pod("k", fraction="0.5", devices=2), "n1", ("g", 1), ("h", 1), with_grant=False)
    made = cluster(node(), tenant)
    assert (_free(made, "g"), _free(made, "h"), free_gpus(made)) == (HALF, HALF, 6)


@pytest.mark.parametrize(
    ("objects", "is_open"),
    [
        ([reservation("g")], True),
        ([reservation("g", uuid="", phase="Pending")], True),
        ([reservation("g", deleting=True)], False),
        ([reservation("g", has_book=False)], False),
        ([reservation("g"), reservation("g", uid="r2")], False),
        ([bound(TENANT, "n1", ("g", HALF))], False),
        ([bound(TENANT, "n1", ("g", HALF)), reservation("g", phase="Failed")], False),
        ([TENANT, bind_request(TENANT, "n1", ("g", HALF))], True),
        ([TENANT, bind_request(TENANT, "n1", ("g", HALF)), reservation("g", phase="Failed")], False),
        ([reservation("g", uuid="GPU-2"), LOST], False),
        ([reservation("g", is_ill=True)], False),
        # Two reservations tell one device: neither is joined, but for one that is only late to go.
        ([reservation("g"), reservation("h")], False),
        ([reservation("g", book={"uid-t": HALF}), LOST, reservation("h")], False),
        ([reservation("g"), reservation("h", deleting=True)], True),
        ([reservation("g", uuid="GPU-1"), bound(TENANT, "n1", ("h", HALF), uuid="GPU-1")], False),
    ],
)
def test_a_device_takes_tenants_only_through_a_sound_reservation(objects: list[Any], is_open: bool) -> None:
    assert _is_open(cluster(node(), *objects), "g") == is_open


def test_an_idle_device_that_others_lost_is_not_given_back_for_a_whole_one() -> None:
    objects = [reservation("g", uuid="GPU-2"), LOST, reservation("h", uuid="GPU-1")]
    made = cluster(node(gpus=2), *objects, pod("whole", gpus=1))
    assert not any(isinstance(entry, Retire) for entry in made.decide(0).entries)


@pytest.mark.parametrize(("uuid", "is_given_back"), [("GPU-1", True), ("", False)])
def test_an_idle_device_that_is_not_known_yet_is_not_given_back_for_a_whole_one(uuid: str, is_given_back: bool) -> None:
    made = cluster(node(gpus=1), reservation("g", uuid=uuid), pod("whole", gpus=1))
    assert any(isinstance(entry, Retire) for entry in made.decide(0).entries) == is_given_back


def test_a_reservation_that_is_about_to_be_made_has_its_slot() -> None:
    made = cluster(node(pods=10), TENANT, bind_request(TENANT, "n1", ("g", HALF)))
    ledger = made.refresh()
    assert ledger.table.free[PODS, ledger.row_of["n1"]] == 8
    feed(made, reservation("g", book={"uid-t": HALF}))
    assert made.refresh().table.free[PODS, ledger.row_of["n1"]] == 8


def test_the_requests_of_a_reservation_that_is_about_to_be_made_are_charged() -> None:
    settings = Settings(reservation_cpu_milli=100, reservation_mem_mib=64)
    made = cluster(node(cpu="1", memory="1Gi"), TENANT, bind_request(TENANT, "n1", ("g", HALF)), settings=settings)
    ledger = made.refresh()
    assert ledger.table.free[:2, ledger.row_of["n1"]].tolist() == [900, 960]


def test_pods_on_a_node_that_comes_back_are_still_there() -> None:
    made = cluster(node(), pod("a", gpus=3, bound_to="n1"))
    made.remove_node("n1")
    feed(made, node("n0"), node())
    assert (free_gpus(made), free_gpus(made, "n0")) == (5, 8)


def test_a_node_that_lost_devices_has_less_than_nothing_and_takes_nobody() -> None:
    made = cluster(node(gpus=2), pod("a", gpus=2, bound_to="n1"))
    feed(made, node(gpus=1))
    assert free_gpus(made) == -1


def test_validate_notices_a_wrong_cell() -> None:
    made = cluster(node(), reservation("g"))
    ledger = made.refresh()
    ledger.table.free[GPUS, ledger.row_of["n1"]] += 1
    ledger.table.share_nano[0, ledger.row_of["n1"]] = 5
    assert len(made.validate()) == 2


def test_shared_devices_of_a_node_with_slices_take_nobody() -> None:
    made = cluster(node(labels={names.NODE_MIG_STRATEGY: "single"}), reservation("g"))
    ledger = made.refresh()
    assert (ledger.table.share_nano[:, ledger.row_of["n1"]] == -1).all()


@pytest.mark.parametrize("invented", [100, 101, 3_000])
def test_a_running_pod_counts_for_resources_that_it_names_however_many_it_invents(invented: int) -> None:
    asked = {f"example.com/fake-{number}": "1" for number in range(invented)} | {"rdma/hca": "1"}
    has = node(extended={"nvidia.com/mig-1g.10gb": "7", "rdma/hca": "4"})
    made = cluster(has, pod("greedy", bound_to="n1", extended=asked))
    ledger = made.refresh()
    free = dict(zip(ledger.table.resources, ledger.table.free[:, ledger.row_of["n1"]].tolist(), strict=True))
    assert (free["nvidia.com/mig-1g.10gb"], free["rdma/hca"]) == (7, 3)
    assert made.validate() == []


def test_of_a_running_pod_no_names_of_resources_are_kept_that_no_node_offers() -> None:
    asked = {f"example.com/fake-{number}": "1" for number in range(3_000)} | {"rdma/hca": "1"}
    made = cluster(node(extended={"rdma/hca": "4"}), pod("greedy", bound_to="n1", extended=asked))
    kept = made.pod("uid-greedy")
    assert kept is not None
    assert kept.cls.demand.extended == (("rdma/hca", 1),)


def test_counting_a_node_does_not_grow_with_the_resources_that_its_pods_name() -> None:
    demand = Demand(extended=tuple((f"example.com/r{number:05}", 1) for number in range(3_000)))
    used = Occupancy()
    used.take(demand, node_record(node(extended={"example.com/r00007": "2"})))
    assert used.extended == {"example.com/r00007": 1}


@pytest.mark.parametrize(
    ("tenant", "groups", "charged"),
    [
        # No reservation has told a memory: that of the node's cards counts.
        (pod("k", mem=10_000), ("g",), [NANO // 4]),
        # Asks that differ stand for its groups in their order, the last one for all that are beyond them.
        (asking(FractionAsk(HALF), FractionAsk(NANO // 10), name="k"), ("g", "h"), [HALF, NANO // 10]),
        (pod("k", fraction="0.5"), ("g", "h", "i"), [HALF, HALF, HALF]),
    ],
)
def test_a_pod_without_a_grant_is_charged_by_what_it_asks_on_each_of_its_groups(
    tenant: Pod, groups: Sequence[str], charged: Sequence[int]
) -> None:
    made = cluster(node(mem_mib=40_000), bound(tenant, "n1", *((group, 1) for group in groups), with_grant=False))
    assert [NANO - _free(made, group) for group in groups] == list(charged)


@pytest.mark.parametrize(("gpus", "is_silent"), [({}, False), ({"t": HALF}, True)])
def test_a_reservation_says_nothing_only_where_somebody_waits_for_its_answer(
    gpus: dict[str, int], is_silent: bool
) -> None:
    ledger = cluster(node(gpus=1), reservation("g", uuid="", book=gpus)).refresh()
    assert [dev.is_silent for dev in ledger.table.devices[ledger.row_of["n1"]]] == [is_silent]
