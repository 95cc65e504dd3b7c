"""What is known of moving within one look."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.decide.preemption import MovesOfLook
from scheduler.core.model.preemption import NoMoves
from scheduler.core.preemption.trial import Trial
from tests.scheduler.core.objects import node, queue
from tests.scheduler.core.preemption.scenes import need_of, running, trial_of, waiting
from tests.scheduler.core.preemption.test_moving import preempting_cluster

_NOWHERE: frozenset[str] = frozenset()


def _trial(*objects: Any, **b: Any) -> Trial:
    queues = (queue("a"), queue("b", **b))
    full = [each for name in ("n1", "n2") for each in (node(name, 4), running(f"on-{name}", "a", name, gpus=3))]
    return trial_of(preempting_cluster(*queues, *full, waiting("mine", "a", gpus=2), *objects))


def _searched(trial: Trial) -> MovesOfLook:
    known = MovesOfLook()
    assert not known.is_known(need_of(trial, "mine"), trial, _NOWHERE)
    assert isinstance(known.find(need_of(trial, "mine"), trial, _NOWHERE), NoMoves)
    return known


def test_one_search_says_no_to_all_that_ask_the_same_until_something_is_charged() -> None:
    trial = _trial(waiting("other", "b", gpus=2))
    known = _searched(trial)
    assert known.is_known(need_of(trial, "other"), trial, _NOWHERE)
    known.has_charged()
    assert not known.is_known(need_of(trial, "other"), trial, _NOWHERE)


@pytest.mark.parametrize(
    ("other", "b", "off"),
    [
        pytest.param({"gpus": 1}, {}, _NOWHERE, id="asks something else"),
        pytest.param({"gpus": 2}, {"gpu": (0, 1, 4)}, _NOWHERE, id="its queue has a limit"),
        pytest.param({"gpus": 2}, {}, frozenset({"n1"}), id="is kept off other nodes"),
        pytest.param({"gpus": 2, "spec": {"nodeSelector": {"zone": "x"}}}, {}, _NOWHERE, id="asks for other nodes"),
        pytest.param({"gpus": 2, "priority": 60}, {}, _NOWHERE, id="has another priority"),
    ],
)
def test_it_says_nothing_of_others(other: dict[str, Any], b: dict[str, Any], off: frozenset[str]) -> None:
    trial = _trial(waiting("other", "b", **other), **b)
    assert not _searched(trial).is_known(need_of(trial, "other"), trial, off)
