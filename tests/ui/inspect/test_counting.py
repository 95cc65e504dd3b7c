"""What is counted for an inspection is what the scheduler counts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.convert.demand import readable_demand
from scheduler.core.model.settings import Settings
from scheduler.core.report.fragmentation import Cause
from tests.scheduler.core.objects import NANO, bind_request, bound, ended, node, pod, reservation
from ui.inspect.survey import Beside, Count, Found, fed, matters
from wire import names
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest

NODES = (node("n1", gpus=4, mem_mib=24576), node("n2", gpus=2, mem_mib=81920, cordoned=True))
HALF = bound(pod("half", fraction="0.5"), "n1", ("g", NANO // 2), uuid="GPU-1")
WHOLE = bound(pod("whole", gpus=2), "n2")
HELD = reservation("g", book={"uid-half": NANO // 2, "uid-gone": NANO // 4})
WAITS = pod("w", fraction="0.5")
ORDER = bind_request(WAITS, "n1", ("new", NANO // 2))


def found(*objects: Any) -> Found:
    def of(kind: type) -> list[Any]:
        return [each for each in objects if isinstance(each, kind)]

    return Found(nodes=of(Node), pods=of(Pod), requests=of(BindRequest))


@pytest.mark.parametrize(
    "objects",
    [
        NODES,
        (*NODES, HELD, HALF, WHOLE),
        (*NODES, HELD, ended(HALF), ended(WHOLE)),
        (*NODES, reservation("g", book={"uid-half": NANO // 2}, phase="Succeeded"), HALF),
        (*NODES, reservation("g", book={"uid-half": NANO // 2}, deleting=True), HALF),
        (*NODES, HELD, HALF, WAITS, ORDER),
        (*NODES, ended(WAITS), ORDER),
        (*NODES, ORDER),
        (*NODES, bound(pod("legacy", gpus=1), "n2"), bound(pod("elsewhere", gpus=1), "n9")),
        (HELD, HALF, WAITS, ORDER),
    ],
    ids=[
        "nothing there", "shares and whole", "ended pods", "an ended reservation", "one that is deleted",
        "on its way", "on its way, and ended", "on its way, and not there", "on no node that is there", "no node",
    ],
)  # fmt: skip
def test_the_views_are_those_of_the_scheduler(objects: tuple[Any, ...]) -> None:
    these = found(*objects)
    ours, theirs = fed(Count(Settings()), these), fed(Cluster(Settings()), these)
    assert ours.node_names() == theirs.node_names()
    assert [ours.view(name) for name in ours.node_names()] == [theirs.view(name) for name in theirs.node_names()]
    assert ours.view("nowhere") is None


def test_a_hand_over_is_seen_before_its_pod_is_bound() -> None:
    """The cases above are no empty ones."""
    view = fed(Count(Settings()), found(*NODES, WAITS, ORDER)).view("n1")
    assert view is not None
    assert [tenant.name for device in view.devices for tenant in device.tenants] == ["w"]


def beside(*objects: Any) -> dict[str, Beside]:
    """What pods without GPUs take, as it is read (reading.py)."""
    taken: dict[str, Beside] = {}
    for each in objects:
        if isinstance(each, Pod) and not matters(each):
            demand = readable_demand(each)
            taken[each.spec.node_name] = taken.get(each.spec.node_name, Beside()) + Beside(
                demand.cpu_milli, demand.mem_mib, 1
            )
    return taken


def unusable(*objects: Any) -> dict[Cause, int]:
    """Counted here, of pods that matter alone and what others take."""
    these = found(*(each for each in objects if not isinstance(each, Pod) or matters(each)))
    return dict(fed(Count(Settings()), these).unusable(beside(*objects)))


CPU_ALONE = pod("cpu", cpu="30", memory="1Gi", bound_to="n1")


@pytest.mark.parametrize(
    ("objects", "causes"),
    [
        ((node("n1", gpus=2), pod("w", gpus=2)), {}),
        ((node("n1", gpus=2), pod("w", gpus=3)), {Cause.PIECES: 2 * NANO}),
        ((node("n1", gpus=2, cordoned=True), pod("w", gpus=3)), {Cause.CORDONED: 2 * NANO}),
        ((node("n1", gpus=2, cpu="32"), CPU_ALONE, pod("w", gpus=1, cpu="4")), {Cause.CPU: 2 * NANO}),
        ((node("n1", gpus=2, cpu="32"), CPU_ALONE, pod("w", gpus=1, cpu="2")), {}),
        ((node("n1", gpus=2, mem_mib=24576), HELD, HALF, pod("w", fraction="0.9")), {Cause.PIECES: NANO // 4}),
        ((*NODES, HELD, HALF, WHOLE, WAITS, ORDER), {Cause.PIECES: NANO // 4}),
        # Without a pod that waits, or enough that came, nobody knows what would be of use.
        ((node("n1", gpus=2),), {}),
    ],
)
def test_free_gpus_that_fit_no_pod_are_those_that_the_scheduler_reports(
    objects: tuple[Any, ...], causes: dict[Cause, int]
) -> None:
    cluster = fed(Cluster(Settings()), found(*objects))
    theirs: Counter[Cause] = Counter()
    for found_there in cluster.fragmentation().values():
        theirs.update(found_there)
    assert unusable(*objects) == causes == dict(+theirs)


def test_pods_of_another_node_pool_make_no_gpu_usable() -> None:
    a, b = ({names.NODE_POOL_LABEL: pool} for pool in "ab")
    nodes = (node("na", gpus=2, labels=a), node("nb", gpus=4, labels=b))
    assert unusable(*nodes, pod("w", gpus=4, labels=a), pod("v", gpus=4, labels=b)) == {Cause.PIECES: 2 * NANO}


def test_kinds_of_pods_that_run_are_usual_once_enough_of_them_are_known() -> None:
    there = [node(f"n{number}", gpus=8) for number in range(8)]
    running = [pod(f"r{number}", gpus=1, bound_to=f"n{number % 7}") for number in range(49)]
    few = pod("w", gpus=9)
    assert unusable(*there, few, *running) == {Cause.PIECES: 15 * NANO}
    assert unusable(*there, few, *running, pod("r49", gpus=1, bound_to="n7")) == {}
