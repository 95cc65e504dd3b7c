from __future__ import annotations

import pytest

from kube.events import SLOW_S, EventPace


def at_most(most: int = 16) -> EventPace:
    pace = EventPace(most)
    for _ in range(1000):
        pace.answered(0.0, 0.01)
    return pace


def test_answers_in_time_allow_one_more_a_round_up_to_the_most() -> None:
    pace = EventPace(16)
    assert pace.in_flight == 4
    for _ in range(5):
        pace.answered(0.0, 0.01)
    assert pace.in_flight == 5
    assert at_most().in_flight == 16


def test_a_slow_answer_halves_what_is_allowed_down_to_one() -> None:
    pace, seen = at_most(), []
    for number in range(6):
        pace.answered(number * 10.0, number * 10.0 + SLOW_S + 0.1)
        seen.append(pace.in_flight)
    assert seen == [8, 4, 2, 1, 1, 1]
    assert pace.resume_at < 0.0


def test_an_answer_that_took_just_as_long_as_it_may_is_in_time() -> None:
    pace = EventPace(16)
    for _ in range(5):
        pace.answered(10.0, 10.0 + SLOW_S)
    assert pace.in_flight == 5


def test_writes_that_fail_together_count_once() -> None:
    pace = at_most()
    waits_s = {pace.failed(1.0, 1.5, retry_after_s=None) for _ in range(16)}
    assert pace.in_flight == 8
    assert waits_s == {0.25}


def test_pauses_double_while_rounds_fail_and_start_again_after_a_success() -> None:
    pace, waits_s, now = at_most(), [], 0.0
    for _ in range(8):
        now += 20.0
        waits_s.append(pace.failed(now, now, retry_after_s=None))
    assert waits_s == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    pace.answered(now + 20.0, now + 20.0)
    assert pace.failed(now + 40.0, now + 40.0, retry_after_s=None) == 0.25


@pytest.mark.parametrize(("asked_s", "waits_s"), [(None, 0.25), (0.1, 0.25), (3.0, 3.0)])
def test_the_pause_is_not_shorter_than_the_server_asks(asked_s: float | None, waits_s: float) -> None:
    pace = at_most()
    assert pace.failed(5.0, 5.0, retry_after_s=asked_s) == waits_s
    assert pace.resume_at == 5.0 + waits_s
