"""How many pods a node holds at most."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.preemption.capacity import slots
from tests.scheduler.core.objects import NANO, cluster, node, pod, queue, reservation
from tests.scheduler.core.preemption.scenes import Scene, device, need_of, sharing, trial_of, waiting


def _slots(*objects: Any) -> list[int]:
    trial = trial_of(cluster(queue("a"), *objects))
    found: list[int] = slots(trial.statement, need_of(trial, "mine").pods[0].cls).tolist()
    return found


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"gpus": 2}, [3, 0]),
        ({"gpus": 2, "cpu": "30"}, [2, 0]),
        ({"cpu": "32"}, [2, 1]),
        ({"fraction": "0.3"}, [21, 0]),
        ({"fraction": "0.6", "devices": 2}, [3, 0]),
        ({"gpus": 1, "extended": {"example.com/none": "1"}}, [0, 0]),
        ({"gpus": 1, "spec": {"nodeSelector": {"zone": "x"}}}, [0, 0]),
    ],
    ids=["gpus", "cpu is short", "cpu", "parts", "two devices", "nobody has it", "elsewhere"],
)
def test_of_what_is_free_the_scarcest_counts(asked: dict[str, Any], found: list[int]) -> None:
    assert _slots(node("n1", 7), node("n2", 0, cpu="40"), waiting("mine", "a", **asked)) == found


def test_parts_of_devices_in_use_count_each_by_itself() -> None:
    shares = [device("g", "n1", x=NANO // 2), sharing("x", "a", "n1", "g", NANO // 2)]
    assert _slots(node("n1", 2), *shares, waiting("mine", "a", fraction="0.3")) == [4]


def test_gpus_that_idle_reservations_hold_count_as_free() -> None:
    assert _slots(node("n1", 2), reservation("g", "n1", book={}), waiting("mine", "a", gpus=2)) == [1]


def test_a_node_where_attempts_failed_is_out() -> None:
    trial = trial_of(cluster(queue("a"), node("n1", 1), node("n2", 1), pod("mine", gpus=1)))
    cls = need_of(trial, "mine").pods[0].cls
    out = msgspec.structs.replace(cls, excluded=frozenset({"n2"}))
    assert (slots(trial.statement, cls).tolist(), slots(trial.statement, out).tolist()) == ([1, 1], [1, 0])


@given(st.integers(0, 1 << 32))
def test_no_node_is_ever_given_more_pods_than_it_has_slots(seed: int) -> None:
    trial = trial_of(Scene(seed).cluster())
    need = need_of(trial, "mine")
    trial.statement.evict(
        *(record for record in trial.pods.records.values() if record.node and not record.is_reservation)
    )
    most = {cls: slots(trial.statement, cls).tolist() for cls in {pod.cls for pod in need.pods}}
    cls_of = {pod.uid: pod.cls for pod in need.pods}
    held = Counter((cls_of[place.pod_uid], place.node) for place in trial.paper.place(need) or ())
    for (cls, name), count in held.items():
        assert count <= most[cls][trial.statement.position_of[name]]
