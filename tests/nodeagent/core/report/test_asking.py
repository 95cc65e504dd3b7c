from __future__ import annotations

import itertools
import math

import pytest

from nodeagent.core.report.devices import LONGEST_FORBIDDEN_S, SELDOM_S, Asking, Outcome
from tests.nodeagent.core.report.test_status import DEVICE_REPORTER, OF_A, pod


def questions(asking: Asking, until_s: float, outcome: Outcome, *, start_s: float = 0.0) -> list[float]:
    """Times at which kubelet is asked, where each answer has this outcome."""
    times, now = [], start_s
    while (now := max(now, asking.next_s())) <= until_s:
        times.append(round(now, 3))
        for held in asking.due(now):
            asking.answered(held.uid, outcome, now, uuid="GPU-a")
    return times


def test_a_pod_is_asked_about_at_once_then_often_then_seldom() -> None:
    asking = Asking()
    asking.see(pod(), 100.0)
    times = questions(asking, 200.0, Outcome.NO_DEVICE, start_s=100.0)
    gaps = [round(later - earlier, 3) for earlier, later in itertools.pairwise(times)]
    assert times[0] == 100.0
    # Floats: the last of the often ones may come a hair before or after the fifth second.
    assert gaps.count(0.05) in {100, 101}
    assert gaps.count(1.0) in {55, 56}
    assert gaps == sorted(gaps)
    assert gaps[-1] == SELDOM_S


@pytest.mark.parametrize("outcome", [Outcome.TOLD, Outcome.AGREES, Outcome.CONTRADICTED, Outcome.LEFT_TO_PROCESS])
def test_a_pod_that_is_settled_is_not_asked_about_for_an_hour(outcome: Outcome) -> None:
    asking = Asking()
    asking.see(pod(), 0.0)
    assert questions(asking, 3600.0, outcome) == [0.0]
    assert asking.next_s() == math.inf


def test_what_we_wrote_coming_back_by_the_watch_is_no_reason_to_ask() -> None:
    asking = Asking()
    asking.see(pod(), 0.0)
    asking.answered("u", Outcome.TOLD, 0.1, uuid="GPU-a")
    asking.see(pod({**OF_A, **DEVICE_REPORTER}), 0.2)
    asking.see(pod({**OF_A, **DEVICE_REPORTER}, phase="Running"), 0.3)
    assert asking.next_s() == math.inf
    told = asking.get("u")
    assert told is not None
    assert told.is_reported


@pytest.mark.parametrize("changed", [{}, OF_A, {**OF_A, "run.ai/reserve_for_gpu_index": "GPU-b", **DEVICE_REPORTER}])
def test_what_somebody_else_wrote_is_asked_about_again(changed: dict[str, str]) -> None:
    asking = Asking()
    asking.see(pod(), 0.0)
    asking.answered("u", Outcome.TOLD, 0.1, uuid="GPU-a")
    asking.see(pod(changed), 50.0)
    assert [held.uid for held in asking.due(50.0)] == ["u"]
    assert asking.asked_for_s("u", 51.0) == 1.0


def test_another_kubelet_is_asked_about_all() -> None:
    asking = Asking()
    asking.see(pod({**OF_A, **DEVICE_REPORTER}), 0.0)
    asking.answered("u", Outcome.AGREES, 0.0)
    assert asking.due(1000.0) == []
    asking.another_kubelet(1000.0)
    assert [held.uid for held in asking.due(1000.0)] == ["u"]


def test_nothing_is_asked_about_a_pod_before_kubelet_has_admitted_it_and_after_its_end() -> None:
    asking = Asking()
    asking.see(pod(startTime=None), 0.0)
    assert (set(asking.uids()), asking.next_s()) == ({"u"}, math.inf)
    asking.see(pod(), 1.0)
    assert asking.uids() == {"u"}
    asking.see(pod(phase="Failed"), 2.0)
    assert (asking.uids(), asking.next_s(), asking.get("u")) == (frozenset(), math.inf, None)
    asking.see(pod(), 3.0)
    asking.forget("u")
    asking.forget("u")
    asking.answered("u", Outcome.TOLD, 3.0)
    asking.postpone("u", 3.0)
    assert (asking.uids(), asking.asked_for_s("u", 9.0)) == (frozenset(), 0.0)


@pytest.mark.parametrize(("is_forbidden", "longest_s"), [(False, SELDOM_S), (True, LONGEST_FORBIDDEN_S)])
def test_after_writes_that_failed_pauses_double_until_one_succeeds(is_forbidden: bool, longest_s: float) -> None:
    asking, now, pauses = Asking(), 0.0, []
    asking.see(pod(), now)
    for _ in range(12):
        asking.failed("u", now, is_forbidden=is_forbidden)
        pauses.append(asking.next_s() - now)
        now = asking.next_s()
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == longest_s
    asking.answered("u", Outcome.TOLD, now, uuid="GPU-a")
    asking.another_kubelet(now)
    asking.failed("u", now, is_forbidden=is_forbidden)
    assert asking.next_s() - now == 1.0
    asking.failed("gone", now, is_forbidden=is_forbidden)


def test_a_question_without_an_answer_is_asked_again_at_the_same_pace() -> None:
    asking = Asking()
    asking.see(pod(), 0.0)
    asking.postpone("u", 0.0)
    assert asking.next_s() == 0.05
    asking.postpone("u", 30.0)
    assert asking.next_s() == 31.0


def test_a_pod_that_was_seen_before_its_admission_is_told_at_once() -> None:
    asking = Asking()
    asking.another_kubelet(0.0)
    asking.see(pod(startTime=None), 1.0)
    asking.see(pod(), 2.0)
    assert asking.may_tell("u", 2.0)
    assert not asking.may_tell("another", 2.0)


def test_a_pod_that_another_kubelet_may_have_admitted_is_told_when_this_one_has_settled() -> None:
    asking = Asking()
    asking.another_kubelet(0.0)
    asking.see(pod(), 1.0)
    assert [asking.may_tell("u", now) for now in (1.0, 9.9, 10.0)] == [False, False, True]
    asking.see(pod(startTime=None, phase="Running"), 11.0)
    asking.another_kubelet(20.0)
    assert [asking.may_tell("u", now) for now in (20.0, 29.9, 30.0)] == [False, False, True]


def test_a_pod_that_was_seen_under_the_kubelet_before_is_none_of_this_ones() -> None:
    asking = Asking()
    asking.see(pod(startTime=None), 0.0)
    asking.another_kubelet(5.0)
    asking.see(pod(), 6.0)
    assert [asking.may_tell("u", now) for now in (6.0, 15.0)] == [False, True]
