"""A device that kubelet named before the process of its reservation runs: who uses it, and who does not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Alone, Attempt, Hold, Retire
from tests.scheduler.core.objects import NANO, bound, changed, cluster, commit, feed, node, pod, reservation
from wire import names
from wire.core import ContainerState, ContainerStatus, Pod

HALF = NANO // 2
DEVICE_REPORTS = {names.DEVICE_REPORTER: names.REPORTER_KUBELET}
PULLING = ContainerStatus(name="main", state=ContainerState(waiting={"reason": "ImagePullBackOff"}))
CRASHED = msgspec.structs.replace(
    PULLING, restart_count=1, state=ContainerState(waiting={"reason": "CrashLoopBackOff"})
)


def held(status: ContainerStatus, *, phase: str = "Pending", is_reported: bool = True, **fields: Any) -> Pod:
    """A reservation of node n whose only container is as told."""
    made = reservation("g", "n", **{"uid": "r", "uuid": "GPU-1", "mem_mib": 81920, **fields}, phase=phase)
    annotations = {**(made.metadata.annotations or {}), **(DEVICE_REPORTS if is_reported else {})}
    state = msgspec.structs.replace(made.status, container_statuses=[status])
    return changed(msgspec.structs.replace(made, status=state), annotations=annotations)


def tenant() -> Pod:
    return bound(pod("old", fraction="0.5", bound_to="n"), "n", ("g", HALF), reservation="r", uuid="GPU-1")


def where(made: Cluster) -> dict[str, str]:
    placed = [entry for entry in made.decide(0).entries if isinstance(entry, Alone)]
    return {entry.placement.name: type(entry).__name__ for entry in placed}


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (held(PULLING, book={"uid-old": HALF}), "Join"),
        (held(PULLING, book={"uid-old": HALF}, is_reported=False), "Attempt"),
        (held(CRASHED, book={"uid-old": HALF}, phase="Running"), "Attempt"),
    ],
    ids=["named by kubelet", "named by nobody", "its process failed"],
)
def test_a_further_share_joins_a_device_that_kubelet_named(one: Pod, expected: str) -> None:
    made = cluster(node("n", gpus=1), one, tenant(), pod("new", fraction="0.5"))
    assert where(made) == {"new": expected}


@pytest.mark.parametrize("is_reported", [True, False])
def test_an_idle_one_makes_room_for_a_whole_gpu_once_its_device_is_known(is_reported: bool) -> None:
    made = cluster(node("n", gpus=1), held(PULLING, is_reported=is_reported), pod("whole", gpus=1))
    retired = [entry for entry in made.decide(0).entries if isinstance(entry, Retire)]
    assert bool(retired) is is_reported


def test_kubelets_word_is_an_answer_of_its_node() -> None:
    made = cluster(node("n", gpus=2), node("z", gpus=1), pod("p1", fraction="0.5"), pod("p2", fraction="0.5"))
    plan = made.decide(0)
    assert [type(entry) for entry in plan.entries] == [Attempt, Hold]
    commit(made, plan)
    feed(made, held(PULLING, uuid="", is_reported=False, book={"uid-p1": HALF}))
    # It did not begin to pull: nothing is heard of it.
    silent = reservation("g", "n", uid="r", uuid="", book={"uid-p1": HALF}, phase="Pending")
    feed(made, changed(silent))
    assert made.commits.late("r")
    feed(made, held(PULLING, book={"uid-p1": HALF}))
    assert made.doubts() == {}
    assert not made.commits.late("r")
