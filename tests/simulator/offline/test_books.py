"""Devices are opened, joined, left and closed as the binder would."""

from __future__ import annotations

from gpu.bind_request import PlannedDevice
from scheduler.core.cluster import Cluster
from simulator.offline.books import Books
from tests.scheduler.core.objects import bound, cluster, free_gpus, next_rv, node, pod, reservation
from wire import names

HALF = 10**9 // 2


def books(made: Cluster) -> dict[str, list[str]]:
    held = made.snapshot().pods.reservations.values()
    return {each.group: sorted(each.book.entries) for each in held if each.book is not None}


def test_the_first_tenant_opens_a_device_and_the_last_closes_it() -> None:
    made = cluster(node("n1", 2, mem_mib=81920), pod("p", fraction="0.5"), pod("q", fraction="0.5"))
    shared, at = Books(made, next_rv), made.node("n1")
    p, q = made.pod("uid-p"), made.pod("uid-q")
    assert at is not None
    assert p is not None
    assert q is not None
    (held,) = shared.join(p, at, [PlannedDevice("g", HALF)])
    assert (held.group, held.nano, held.uuid, held.resource) == ("g", HALF, "GPU-g", names.GPU_RESOURCE)
    shared.join(q, at, [PlannedDevice("g", HALF)])
    assert books(made) == {"g": ["uid-p", "uid-q"]}
    assert free_gpus(made) == 1
    shared.leave("uid-p")
    assert books(made) == {"g": ["uid-q"]}
    shared.leave("uid-q")
    assert books(made) == {}
    assert free_gpus(made) == 2


def test_a_device_that_is_there_is_joined_and_left_as_its_book_says() -> None:
    ran = bound(pod("p", fraction="0.5"), "n1", ("g", HALF), reservation="r-g", uuid="GPU-1")
    made = cluster(node("n1", 1), reservation("g", book={"uid-p": HALF}), ran, pod("q", fraction="0.5"))
    shared, at, q = Books(made, next_rv), made.node("n1"), made.pod("uid-q")
    assert at is not None
    assert q is not None
    (held,) = shared.join(q, at, [PlannedDevice("g", HALF)])
    assert (held.reservation, held.uuid) == ("r-g", "GPU-1")
    made.remove_pod("uid-p")
    shared.leave("uid-p")
    assert books(made) == {"g": ["uid-q"]}


def test_a_part_of_a_slice_takes_the_slice() -> None:
    profile = "nvidia.com/mig-1g.10gb"
    made = cluster(node("n1", 0, extended={profile: "2"}), pod("p"))
    shared, at, p = Books(made, next_rv), made.node("n1"), made.pod("uid-p")
    assert at is not None
    assert p is not None
    shared.join(p, at, [PlannedDevice("g", HALF, resource=profile)])
    view = made.view("n1")
    assert view is not None
    assert made.validate() == []
    shared.close("reservation/n1/g")
    assert books(made) == {}
