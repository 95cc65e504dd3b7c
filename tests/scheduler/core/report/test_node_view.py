"""What is shown of a node is what is counted of it, and every closed device says why."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.bound_pod import ClaimedShare
from scheduler.core.nodes.table import GPUS
from scheduler.core.report.node_view import (
    UNKNOWN,
    Answer,
    Closed,
    DeviceUse,
    DeviceView,
    Kind,
    NodeUse,
    NodeView,
    PodUse,
    SlicesView,
    TenantView,
    node_use,
)
from tests.scheduler.core.objects import NANO, bind_request, bound, by_claim, changed, cluster, node, pod, reservation
from tests.values import there
from wire import names
from wire.core import Node, Pod

HALF, QUARTER = NANO // 2, NANO // 4
CARD_MIB = 81920


def view(*objects: Any, on: Node | None = None) -> NodeView:
    made = cluster(on or node(gpus=4, mem_mib=CARD_MIB), *objects)
    found = there(made.view("n1"))
    ledger = made.refresh()
    assert found.free_gpus == max(0, int(ledger.table.free[GPUS, ledger.row_of["n1"]])), "as the ledger counts"
    return found


def tenant(name: str, nano: int, *, is_bound: bool = True) -> TenantView:
    mem_mib = nano * CARD_MIB // NANO
    return TenantView(namespace="ns", name=name, uid=f"uid-{name}", nano=nano, mem_mib=mem_mib, is_bound=is_bound)


def free(number: int) -> DeviceView:
    return DeviceView(kind=Kind.FREE, number=number, mem_mib=CARD_MIB, free_nano=NANO)


def test_an_empty_node_has_all_its_devices_free() -> None:
    found = view()
    assert found.devices == tuple(free(number) for number in range(4))
    assert (found.gpus, found.free_gpus, found.lost_gpus) == (4, 4, 0)
    assert (found.used_nano, found.free_nano) == (0, 4 * NANO)


def test_a_node_that_is_not_there_is_not_shown() -> None:
    assert cluster().view("n1") is None


def test_a_shared_device_shows_who_has_how_much_of_it_and_what_is_left() -> None:
    found = view(
        reservation("g", uuid="GPU-1", book={"uid-a": HALF, "uid-b": QUARTER}),
        bound(pod("a", fraction="0.5"), "n1", ("g", HALF), uuid="GPU-1"),
        pod("b", fraction="0.25"),
    )
    shared = found.devices[0]
    assert (shared.kind, shared.uuid, shared.group, shared.closed) == (Kind.SHARED, "GPU-1", "g", ())
    assert shared.reservation_phase == "Running"
    assert shared.tenants == (tenant("a", HALF), tenant("b", QUARTER, is_bound=False))
    assert (shared.used_nano, shared.free_nano) == (HALF + QUARTER, QUARTER)
    assert (found.free_gpus, found.used_nano, found.free_nano) == (3, HALF + QUARTER, 3 * NANO + QUARTER)


def test_whole_devices_are_shown_one_by_one_with_their_pod() -> None:
    found = view(pod("w", gpus=3, bound_to="n1"))
    whole = [
        DeviceView(kind=Kind.WHOLE, number=number, mem_mib=CARD_MIB, used_nano=NANO, tenants=(tenant("w", NANO),))
        for number in range(3)
    ]
    assert found.devices == (*whole, free(3))
    assert (found.used_nano, found.free_nano) == (3 * NANO, NANO)


def test_a_device_whose_index_is_not_known_has_the_smallest_number_that_no_other_device_has() -> None:
    found = view(
        reservation("g", uuid="GPU-1", index=1, book={"uid-a": HALF}),
        bound(pod("a", fraction="0.5"), "n1", ("g", HALF), uuid="GPU-1"),
        pod("w", gpus=1, bound_to="n1"),
    )
    assert [(device.number, device.index, device.kind) for device in found.devices] == [
        (0, -1, Kind.WHOLE),
        (1, 1, Kind.SHARED),
        (2, -1, Kind.FREE),
        (3, -1, Kind.FREE),
    ]


def test_a_share_that_is_handed_over_has_its_place_before_its_reservation_is_there() -> None:
    waiting = pod("a", fraction="0.5")
    found = view(waiting, bind_request(waiting, "n1", ("new", HALF)))
    assert found.devices[0].tenants == (tenant("a", HALF, is_bound=False),)
    assert (found.devices[0].reservation, found.devices[0].closed) == ("", ())
    assert found.free_gpus == 3


def test_a_device_says_in_which_mode_its_tenants_run() -> None:
    asks = '[{"container": "c0", "name": "main", "nano": 500000000}]'
    record = f'{{"version": 1, "dialect": "hami", "asks": {asks}, "wishes": {{"mode": "mps"}}}}'
    tenant = bound(pod("t", annotations={names.GPU_RECORD: record}), "n1", ("g", HALF), uuid="GPU-1")
    assert view(reservation("g", uuid="GPU-1"), tenant).devices[0].modes == ("mps",)
    assert view(reservation("g", uuid="GPU-1"), TENANT).devices[0].modes == ()


def test_a_tenant_whose_pod_is_not_seen_is_named_by_its_book() -> None:
    (shared, *_) = view(reservation("g", book={"uid-x": HALF})).devices
    assert [(one.namespace, one.name, one.uid) for one in shared.tenants] == [("ns", "p", "uid-x")]


def test_a_share_in_the_book_of_a_pod_that_does_not_exist_is_kept() -> None:
    (shared, *_) = view(reservation("g", book={"uid-x": HALF, "uid-b": QUARTER}), pod("b", fraction="0.25")).devices
    said = {one.uid: (one.is_kept, one.is_on_its_way) for one in shared.tenants}
    assert said == {"uid-x": (True, False), "uid-b": (False, True)}


TENANT = bound(pod("t", fraction="0.5"), "n1", ("g", HALF), uuid="GPU-1")


@pytest.mark.parametrize(
    ("objects", "closed"),
    [
        pytest.param([reservation("g", uuid="GPU-1"), TENANT], (), id="open"),
        pytest.param([reservation("g", uuid="GPU-2"), TENANT], (Closed.CONTENDED,), id="contended"),
        pytest.param([reservation("g", uuid="GPU-1", is_ill=True), TENANT], (Closed.ILL,), id="ill"),
        pytest.param([reservation("g", uuid="GPU-1", deleting=True), TENANT], (Closed.LEAVING,), id="leaving"),
        pytest.param([reservation("g", uuid="GPU-1", has_book=False), TENANT], (Closed.NO_BOOK,), id="foreign"),
        pytest.param([TENANT], (Closed.LOST,), id="lost"),
        pytest.param([reservation("g", uuid="GPU-1", phase="Failed"), TENANT], (Closed.LOST,), id="ended"),
        pytest.param(
            [reservation("g", uuid="GPU-1", is_ill=True, deleting=True), TENANT],
            (Closed.ILL, Closed.LEAVING),
            id="ill-and-leaving",
        ),
    ],
)
def test_a_closed_device_says_why_and_what_is_left_is_nobodys(objects: list[Any], closed: tuple[Closed, ...]) -> None:
    found = view(*objects)
    (shared,) = [device for device in found.devices if device.kind is Kind.SHARED]
    assert shared.closed == closed
    assert found.free_nano == found.free_gpus * NANO + (0 if closed else shared.free_nano)


def test_two_reservations_of_one_group_are_two_devices_and_neither_takes_anybody() -> None:
    found = view(reservation("g", uuid="GPU-1"), reservation("g", uuid="GPU-2", uid="r-other"), TENANT)
    shared = [device for device in found.devices if device.kind is Kind.SHARED]
    assert {device.uuid for device in shared} == {"GPU-1", "GPU-2"}
    assert all(Closed.DISPUTED in device.closed for device in shared)
    assert found.used_nano == HALF, "a tenant is counted once"
    assert found.free_gpus == 2


def test_a_device_that_pods_use_and_nobody_holds_is_lost() -> None:
    found = view(reservation("g", uuid="GPU-2"), TENANT)
    assert (found.lost_gpus, found.free_gpus) == (1, 2)


def test_a_node_with_unequal_cards_says_of_no_free_device_how_large_it_is() -> None:
    uneven = node(gpus=2, annotations={"moorage.dev/gpu-memory-mib": "24576,81920"})
    found = view(on=uneven)
    assert (found.smallest_card_mib, found.largest_card_mib) == (24576, 81920)
    assert {device.mem_mib for device in found.devices} == {0}


def test_slices_are_counted_by_profile() -> None:
    sliced = node(gpus=0, extended={"nvidia.com/mig-1g.5gb": "7"})
    taker = pod("m", bound_to="n1", spec={
        "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/mig-1g.5gb": "2"}}}]
    })  # fmt: skip
    found = view(taker, on=sliced)
    assert found.slices == (SlicesView(profile="1g.5gb", total=7, used=2),)
    assert (found.is_mig, found.devices) == (True, ())


def test_whole_gpus_stand_in_the_order_of_their_pods_however_they_came() -> None:
    names_of_pods = [f"p{number}" for number in range(8)]
    for order in (names_of_pods, names_of_pods[::-1]):
        made = cluster(node(gpus=8), *(pod(name, gpus=1, bound_to="n1") for name in order))
        view = there(made.view("n1"))
        assert [tenant.name for device in view.devices for tenant in device.tenants] == names_of_pods


def test_a_device_that_claims_give_in_parts_shows_the_pods_that_have_some_of_it() -> None:
    share = ClaimedShare(driver="gpu.example.com", pool="n1", device="d0", nano=HALF, mem_mib=CARD_MIB, uuid="GPU-9")
    quarter = msgspec.structs.replace(share, nano=QUARTER)
    found = view(by_claim(pod("b", fraction="0.25", bound_to="n1"), quarter), on=node(gpus=0))
    (device,) = found.devices
    assert (device.kind, device.number, device.device) == (Kind.SHARED, 0, "gpu.example.com/n1/d0")
    assert (device.uuid, device.mem_mib, device.closed, device.reservation) == ("GPU-9", CARD_MIB, (), "")
    assert (device.tenants, device.free_nano) == ((tenant("b", QUARTER),), HALF + QUARTER)
    both = view(
        by_claim(pod("b", fraction="0.25", bound_to="n1"), quarter),
        by_claim(pod("a", fraction="0.5", bound_to="n1"), share),
        on=node(gpus=0),
    )
    assert both.devices[0].tenants == (tenant("a", HALF), tenant("b", QUARTER))
    assert (both.gpus, both.free_gpus, both.lost_gpus) == (0, 0, 0)
    assert (both.used_nano, both.free_nano) == (HALF + QUARTER, QUARTER)


def test_gpus_of_a_plugin_that_came_beside_claims_are_neither_free_nor_lost() -> None:
    share = ClaimedShare(driver="gpu.example.com", pool="n1", device="d0", nano=HALF, mem_mib=CARD_MIB)
    found = view(by_claim(pod("a", fraction="0.5", bound_to="n1"), share))
    assert (found.gpus, found.free_gpus, found.lost_gpus) == (4, 0, 0)


# Nodes in gpushare's terms: whole units, by index, never emptier than they are.

GPUSHARE_HALF = NANO // 2
GIB, MIB = 1024, 1


def gpushare_view(*objects: Any, gpus: int = 2, mem_mib: int = 81920) -> NodeView:
    return there(cluster(node(gpus=gpus, mem_mib=mem_mib), *objects).view("n1"))


def at(index: int, card: Pod) -> Pod:
    return changed(card, annotations={**(card.metadata.annotations or {}), names.DEVICE_INDEX: str(index)})


GPUSHARE_TENANT = bound(pod("t", fraction="0.5"), "n1", ("g", GPUSHARE_HALF), uuid="GPU-1")
CARD = at(1, reservation("g", uuid="GPU-1", book={"uid-t": GPUSHARE_HALF}))


def test_a_shared_device_stands_at_its_index_and_the_free_one_at_the_other() -> None:
    tenant = PodUse("t", "ns", 40)
    assert node_use(gpushare_view(CARD, GPUSHARE_TENANT), unit_mib=GIB) == NodeUse(
        name="n1",
        total=160,
        used=40,
        devices=(DeviceUse(id=0, total=80, used=0), DeviceUse(id=1, total=80, used=40, pods=(tenant,))),
    )


def test_the_fields_are_named_as_tools_read_them() -> None:
    answer = Answer((node_use(gpushare_view(CARD, GPUSHARE_TENANT), unit_mib=GIB),))
    assert msgspec.json.decode(msgspec.json.encode(answer)) == {
        "nodes": [
            {
                "name": "n1",
                "totalGPU": 160,
                "usedGPU": 40,
                "devs": [
                    {"id": 0, "totalGPU": 80, "usedGPU": 0, "pods": []},
                    {"id": 1, "totalGPU": 80, "usedGPU": 40, "pods": [{"name": "t", "namespace": "ns", "usedGPU": 40}]},
                ],
            }
        ]
    }


def test_of_a_whole_device_nobody_knows_which_one_it_is() -> None:
    use = node_use(gpushare_view(pod("w", gpus=1, bound_to="n1")), unit_mib=GIB)
    assert [(device.id, device.used) for device in use.devices] == [(UNKNOWN, 80), (UNKNOWN, 0)]
    assert (use.total, use.used) == (160, 80)


@pytest.mark.parametrize(
    ("nano", "mem_mib", "unit_mib", "used", "total"),
    [
        (GPUSHARE_HALF, 16276, MIB, 8138, 16276),
        (GPUSHARE_HALF, 16276, GIB, 8, 15),  # 7.94 GiB used, 15.89 there
        (NANO, 16276, GIB, 15, 15),  # never more than there is
        (NANO // 3, 24576, GIB, 8, 24),
        (NANO // 3 - 1, 24576, MIB, 8191, 24576),
        (1, 16276, GIB, 0, 15),  # less than a MiB
        (GPUSHARE_HALF, 0, GIB, 0, 0),  # a card of which nobody knows the memory
    ],
)
def test_what_is_used_is_rounded_up_and_what_is_there_down(
    nano: int, mem_mib: int, unit_mib: int, used: int, total: int
) -> None:
    tenant = bound(pod("t", fraction="0.5"), "n1", ("g", nano), uuid="GPU-1")
    card = at(0, reservation("g", uuid="GPU-1", book={"uid-t": nano}))
    device = node_use(gpushare_view(card, tenant, gpus=1, mem_mib=mem_mib), unit_mib=unit_mib).devices[0]
    assert (device.used, device.total) == (used, total)


@pytest.mark.parametrize("nano", [5120 * NANO // 16276, -(-5120 * NANO // 16276)])
def test_memory_in_units_is_what_was_asked(nano: int) -> None:
    """5 GiB of a card of 15.89 are charged a little less, or by older versions more, and told as 5 again."""
    tenant = bound(pod("t", mem=5120), "n1", ("g", nano), uuid="GPU-1")
    device = node_use(
        gpushare_view(at(0, reservation("g", book={"uid-t": nano})), tenant, gpus=1, mem_mib=16276), unit_mib=GIB
    )
    assert device.devices[0].pods == (PodUse("t", "ns", 5),)
    assert device.used == 5


def test_pods_are_rounded_up_one_by_one_and_their_device_once() -> None:
    third = NANO // 16 * 3  # of 8 GiB: one and a half
    tenants = [bound(pod(name, fraction="0.1"), "n1", ("g", third), uuid="GPU-1") for name in "abc"]
    use = node_use(gpushare_view(at(0, reservation("g")), *tenants, gpus=1, mem_mib=8192), unit_mib=GIB)
    assert [pod.used for pod in use.devices[0].pods] == [2, 2, 2]
    assert use.used == 5


def test_cards_of_two_sizes_count_as_the_smaller_until_one_is_known() -> None:
    uneven = node(gpus=2, annotations={names.NODE_CARDS: "24576,81920"})
    found = there(cluster(uneven, at(1, reservation("g", mem_mib=81920))).view("n1"))
    assert [(one.id, one.total) for one in node_use(found, unit_mib=GIB).devices] == [(0, 24), (1, 80)]
