"""What nominations keep on a node: places less what victims still hold there, per resource and per shared device."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.bind_request import PlannedDevice
from scheduler.core.cluster import Cluster
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.preemption import Action, Nomination, Place, Victim
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.node_usage import KeptPlace, NominatedPlace, Occupancy, count_kept
from scheduler.core.nodes.table import CPU, GPUS, PODS
from tests.scheduler.core.objects import NANO, Fed, bound, cluster, feed, free_gpus, node, pod, reservation

HALF = NANO // 2


def nomination(*places: Place, victims: tuple[str, ...] = (), id_: str = "i", node_name: str = "n1") -> Nomination:
    gone = tuple(Victim(pod_uid=f"uid-{v}", namespace="ns", name=v, node=node_name, owner=f"uid-{v}") for v in victims)
    return Nomination(id=id_, action=Action.RECLAIM, namespace="ns", places=places, victims=gone)


def place(name: str, *devices: tuple[str, int], node_name: str = "n1", emptied: tuple[str, ...] = ()) -> Place:
    return Place(f"uid-{name}", node_name, tuple(PlannedDevice(*device) for device in devices), emptied)


def running(name: str, gpus: int) -> Fed:
    return bound(pod(name, gpus=gpus), "n1")


def share(name: str, nano: int, group: str = "g") -> Fed:
    return bound(pod(name, fraction=str(nano / NANO)), "n1", (group, nano), reservation=f"r-{group}", uuid="GPU-1")


def left(made: Cluster, row: int) -> int:
    ledger = made.refresh()
    assert made.validate() == []
    return int(ledger.table.free[row, ledger.row_of["n1"]])


def left_of_device(made: Cluster, group: str = "g") -> int | None:
    ledger = made.refresh()
    assert made.validate() == []
    return next((d.free_nano for d in ledger.table.devices[ledger.row_of["n1"]] if d.group == group), None)


@pytest.mark.parametrize(
    ("victims", "others", "asked", "free"),
    [
        ({"v": 4}, {}, 4, 4),  # while they are there they hold all that it needs
        ({"v": 4}, {}, 6, 2),  # and what it needs beside is taken of what is free
        ({"v": 4, "w": 4}, {}, 6, 0),
        ({"v": 2}, {"o": 2}, 4, 2),  # others' GPUs are no victim's
        ({"v": 6}, {}, 2, 2),  # more than it needs frees nothing before it goes
    ],
)
def test_charged_is_what_places_need_beyond_what_victims_hold(
    victims: dict[str, int], others: dict[str, int], asked: int, free: int
) -> None:
    pods = [running(name, gpus) for name, gpus in (victims | others).items()]
    made = cluster(node(), *pods, pod("h", gpus=asked))
    made.commits.nominations.put(nomination(place("h"), victims=tuple(victims)))
    assert free_gpus(made) == free


_AMOUNT = st.integers(0, 4)
_DEMANDS = st.lists(
    st.builds(Demand, cpu_milli=_AMOUNT, mem_mib=_AMOUNT, ephemeral_mib=_AMOUNT, gpus=_AMOUNT), min_size=1, max_size=3
)


@given(_DEMANDS, _DEMANDS, st.integers(0, 3))
def test_places_that_ask_only_what_every_node_has_are_counted_as_all_others_are(
    asked: list[Demand], had: list[Demand], gone: int
) -> None:
    victims = [bound(pod(f"v{at}"), "n1") for at in range(len(had))]
    made = cluster(node(), *victims)
    records = [made.pod(f"uid-v{at}") for at in range(len(had))]
    there = [
        msgspec.structs.replace(record, cls=msgspec.structs.replace(record.cls, demand=demand))
        for record, demand in zip(records, had, strict=True)
        if record is not None
    ]

    def counted(*, is_plain: bool) -> tuple[int, ...]:
        """An amount of nothing makes a place one that asks more than every node has."""
        extended = () if is_plain else (("example.com/none", 0),)
        places = [KeptPlace("uid-h", msgspec.structs.replace(each, extended=extended)) for each in asked]
        room = NominatedPlace("i", tuple(places), frozenset(each.uid for each in there))
        assert room.is_plain == is_plain
        used = count_kept(Occupancy(), [room], pods=there[gone:], node=None, settings=Settings())
        return used.cpu_milli, used.mem_mib, used.ephemeral_mib, used.pods, used.gpus, used.kept_gpus

    assert counted(is_plain=True) == counted(is_plain=False)


def test_what_a_victim_leaves_is_kept_and_what_is_free_beside_stays_usable() -> None:
    made = cluster(node(), running("v", 4), running("w", 2), pod("h", gpus=5, cpu="3"))
    made.commits.nominations.put(nomination(place("h"), victims=("v", "w")))
    assert (free_gpus(made), left(made, CPU), left(made, PODS)) == (2, 61_000, 108)
    made.remove_pod("uid-v")
    assert (free_gpus(made), left(made, PODS)) == (3, 109)
    made.remove_pod("uid-w")
    assert (free_gpus(made), left(made, PODS)) == (3, 109)
    made.commits.nominations.drop("i")
    assert (free_gpus(made), left(made, CPU), left(made, PODS)) == (8, 64_000, 110)


def test_of_a_shared_device_only_the_part_is_kept_that_a_victim_had() -> None:
    tenants = {"uid-v": NANO // 4, "uid-o": NANO // 4}
    made = cluster(node(), reservation("g", book=tenants), share("v", NANO // 4), share("o", NANO // 4))
    feed(made, pod("h", fraction="0.5"))
    made.commits.nominations.put(nomination(place("h", ("g", HALF)), victims=("v",)))
    assert left_of_device(made) == NANO // 4
    feed(made, reservation("g", book={"uid-o": NANO // 4}))
    made.remove_pod("uid-v")
    assert (left_of_device(made), free_gpus(made)) == (NANO // 4, 7)


def test_a_device_that_is_to_be_whole_is_nobody_elses_until_its_reservation_is_gone_nor_afterwards() -> None:
    made = cluster(node(gpus=1), reservation("g", book={"uid-v": HALF}), share("v", HALF), pod("h", gpus=1))
    made.commits.nominations.put(nomination(place("h", emptied=("g",)), victims=("v",)))
    assert (left_of_device(made), free_gpus(made)) == (0, 0)
    feed(made, reservation("g", book={}))
    made.remove_pod("uid-v")
    assert (left_of_device(made), free_gpus(made)) == (0, 0)  # its reservation still holds it, and nobody joins
    made.remove_pod("r-g")
    assert (left_of_device(made), free_gpus(made)) == (None, 0)  # now it is the holder's
    made.commits.nominations.drop("i")
    assert free_gpus(made) == 1


def test_a_device_that_is_opened_on_a_victims_gpu_is_no_device_that_others_join() -> None:
    made = cluster(node(gpus=2), running("v", 2), pod("h", fraction="0.5"))
    made.commits.nominations.put(nomination(place("h", ("new", HALF)), victims=("v",)))
    assert (left_of_device(made, "new"), free_gpus(made)) == (None, 0)
    made.remove_pod("uid-v")
    assert (left_of_device(made, "new"), free_gpus(made), left(made, PODS)) == (None, 1, 108)


def test_two_nominations_on_one_node_charge_beside_each_other() -> None:
    made = cluster(node(), running("v", 2), running("w", 3), pod("h", gpus=3), pod("k", gpus=3))
    made.commits.nominations.put(nomination(place("h"), victims=("v",), id_="i"))
    made.commits.nominations.put(nomination(place("k"), victims=("w",), id_="j"))
    assert free_gpus(made) == 2
    made.remove_pod("uid-v")
    assert free_gpus(made) == 2
    made.remove_pod("uid-w")
    assert free_gpus(made) == 2
    assert left(made, GPUS) == 2


def test_more_than_the_node_has_is_less_than_nothing_for_others() -> None:
    made = cluster(node(gpus=4), running("v", 4), pod("h", gpus=4))
    made.commits.nominations.put(nomination(place("h"), victims=("v",)))
    made.remove_pod("uid-v")
    feed(made, bound(pod("foreign", gpus=2, scheduler="another"), "n1"))
    assert free_gpus(made) == -2


def test_what_is_kept_is_shown_as_neither_free_nor_lost() -> None:
    made = cluster(node(), running("w", 2), pod("h", gpus=5))
    made.commits.nominations.put(nomination(place("h")))
    view = made.view("n1")
    assert view is not None
    assert (view.gpus, view.free_gpus, view.lost_gpus) == (8, 1, 0)
