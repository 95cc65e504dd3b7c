"""Marks: what a run reached, and what a soak says of those that no run reached."""

from __future__ import annotations

import pytest

from verification.hostile.actions import Action, CreatePod, CreatePodGroup
from verification.hostile.faults.components import ListExpired
from verification.hostile.faults.kinds import Fault
from verification.hostile.faults.nodes import KubeletRefuses
from verification.hostile.faults.requests import Conflicts
from verification.hostile.run import run
from verification.hostile.scenario import Scenario

HALF = {"gpu-fraction": "0.5"}
#: What every share comes to, and two beside each other.
SHARED = {
    *("handed over", "bound by the binder", "reservation made", "reservation told its device"),
    *("book empty again", "reservation deleted"),
}
BESIDE = SHARED | {"device shared by two", "bound by the scheduler"}


def reached(*actions: Action, faults: tuple[Fault, ...] = ()) -> set[str]:
    scenario = Scenario(seed=1, shapes=("1x1x40GiB",), actions=actions, faults=faults, calm_s=30.0)
    return set(run(scenario).marks)


@pytest.mark.parametrize(
    ("actions", "faults", "marks"),
    [
        ((), (), set()),
        ((CreatePod(at_s=0, name="p", gpus=1),), (), {"bound by the scheduler"}),
        ((CreatePod(at_s=0, name="p", gpus=2),), (), {"told why it waits"}),
        ((CreatePod(at_s=0, name="p", annotations=HALF),), (), SHARED),
        ([CreatePod(at_s=0, name=n, annotations=HALF) for n in "pq"], (), BESIDE),
        (
            (
                CreatePodGroup(at_s=0, name="g", minimum=2),
                *(CreatePod(at_s=0.5, name=n, annotations=HALF, group="g") for n in "pq"),
            ),
            (),
            SHARED | {"device shared by two", "gang planned"},
        ),
        (
            (CreatePod(at_s=1, name="p", gpus=1),),
            (KubeletRefuses(at_s=0, for_s=20, node="node-0", count=1),),
            {"bound by the scheduler", "pod refused by kubelet"},
        ),
        ((), (ListExpired(at_s=1, for_s=20),), {"listed again"}),
    ],
)
def test_a_run_reaches_what_happens_in_it_and_no_more(
    actions: tuple[Action, ...], faults: tuple[Fault, ...], marks: set[str]
) -> None:
    assert reached(*actions, faults=faults) - {"told why it waits", "race lost"} == marks - {"told why it waits"}
    assert "told why it waits" not in marks or "told why it waits" in reached(*actions, faults=faults)


def test_a_binding_that_somebody_else_was_faster_than_is_a_mark_of_its_own() -> None:
    faults = (Conflicts(at_s=0, for_s=5, user="scheduler", plural="pods"),)
    assert "binding refused" not in reached(CreatePod(at_s=1, name="p", gpus=1), faults=faults)
