"""Nodes in gpushare's terms: whole units, by index, never emptier than they are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.report.node_view import UNKNOWN, Answer, DeviceUse, NodeUse, NodeView, PodUse, node_use
from tests.scheduler.core.objects import NANO, bound, changed, cluster, node, pod, reservation
from wire import names
from wire.core import Pod

HALF = NANO // 2
GIB, MIB = 1024, 1


def view(*objects: Any, gpus: int = 2, mem_mib: int = 81920) -> NodeView:
    found = cluster(node(gpus=gpus, mem_mib=mem_mib), *objects).view("n1")
    assert found is not None
    return found


def at(index: int, card: Pod) -> Pod:
    return changed(card, annotations={**(card.metadata.annotations or {}), names.DEVICE_INDEX: str(index)})


TENANT = bound(pod("t", fraction="0.5"), "n1", ("g", HALF), uuid="GPU-1")
CARD = at(1, reservation("g", uuid="GPU-1", book={"uid-t": HALF}))


def test_a_shared_device_stands_at_its_index_and_the_free_one_at_the_other() -> None:
    tenant = PodUse("t", "ns", 40)
    assert node_use(view(CARD, TENANT), unit_mib=GIB) == NodeUse(
        name="n1",
        total=160,
        used=40,
        devices=(DeviceUse(id=0, total=80, used=0), DeviceUse(id=1, total=80, used=40, pods=(tenant,))),
    )


def test_the_fields_are_named_as_tools_read_them() -> None:
    answer = Answer((node_use(view(CARD, TENANT), unit_mib=GIB),))
    assert msgspec.json.decode(msgspec.json.encode(answer)) == {
        "nodes": [
            {
                "name": "n1",
                "totalGPU": 160,
                "usedGPU": 40,
                "devs": [
                    {"id": 0, "totalGPU": 80, "usedGPU": 0, "pods": []},
                    {
                        "id": 1,
                        "totalGPU": 80,
                        "usedGPU": 40,
                        "pods": [{"name": "t", "namespace": "ns", "usedGPU": 40}],
                    },
                ],
            }
        ]
    }


def test_of_a_whole_device_nobody_knows_which_one_it_is() -> None:
    use = node_use(view(pod("w", gpus=1, bound_to="n1")), unit_mib=GIB)
    assert [(device.id, device.used) for device in use.devices] == [(UNKNOWN, 80), (UNKNOWN, 0)]
    assert (use.total, use.used) == (160, 80)


@pytest.mark.parametrize(
    ("nano", "mem_mib", "unit_mib", "used", "total"),
    [
        (HALF, 16276, MIB, 8138, 16276),
        (HALF, 16276, GIB, 8, 15),  # 7.94 GiB used, 15.89 there
        (NANO, 16276, GIB, 15, 15),  # never more than there is
        (NANO // 3, 24576, GIB, 8, 24),
        (NANO // 3 - 1, 24576, MIB, 8191, 24576),
        (1, 16276, GIB, 0, 15),  # less than a MiB
        (HALF, 0, GIB, 0, 0),  # a card of which nobody knows the memory
    ],
)
def test_what_is_used_is_rounded_up_and_what_is_there_down(
    nano: int, mem_mib: int, unit_mib: int, used: int, total: int
) -> None:
    tenant = bound(pod("t", fraction="0.5"), "n1", ("g", nano), uuid="GPU-1")
    card = at(0, reservation("g", uuid="GPU-1", book={"uid-t": nano}))
    device = node_use(view(card, tenant, gpus=1, mem_mib=mem_mib), unit_mib=unit_mib).devices[0]
    assert (device.used, device.total) == (used, total)


@pytest.mark.parametrize("nano", [5120 * NANO // 16276, -(-5120 * NANO // 16276)])
def test_memory_in_units_is_what_was_asked(nano: int) -> None:
    """5 GiB of a card of 15.89 are charged a little less, or by older versions more, and told as 5 again."""
    tenant = bound(pod("t", mem=5120), "n1", ("g", nano), uuid="GPU-1")
    device = node_use(view(at(0, reservation("g", book={"uid-t": nano})), tenant, gpus=1, mem_mib=16276), unit_mib=GIB)
    assert device.devices[0].pods == (PodUse("t", "ns", 5),)
    assert device.used == 5


def test_pods_are_rounded_up_one_by_one_and_their_device_once() -> None:
    third = NANO // 16 * 3  # of 8 GiB: one and a half
    tenants = [bound(pod(name, fraction="0.1"), "n1", ("g", third), uuid="GPU-1") for name in "abc"]
    use = node_use(view(at(0, reservation("g")), *tenants, gpus=1, mem_mib=8192), unit_mib=GIB)
    assert [pod.used for pod in use.devices[0].pods] == [2, 2, 2]
    assert use.used == 5


def test_cards_of_two_sizes_count_as_the_smaller_until_one_is_known() -> None:
    uneven = node(gpus=2, annotations={names.NODE_CARDS: "24576,81920"})
    found = cluster(uneven, at(1, reservation("g", mem_mib=81920))).view("n1")
    assert found is not None
    assert [(one.id, one.total) for one in node_use(found, unit_mib=GIB).devices] == [(0, 24), (1, 80)]
