"""When a need is looked at again: after a change and a pause, or when time alone may change the answer."""

from __future__ import annotations

import pytest

from scheduler.core.decide.preemption_needs import Looks, pause_ns
from scheduler.core.model.preemption import NoRoom
from scheduler.core.scheduling_queue.signatures import Passed, Refused, Stamp

S = 1_000_000_000
_THEN: Stamp = (1,)
_NOW: Stamp = (2,)


def refused(stamp: Stamp, at_s: int, *, again_s: int | None = None, placed: int = 0) -> Refused:
    return Refused(stamp, at_s * S, NoRoom(placed=placed), None if again_s is None else again_s * S)


@pytest.mark.parametrize(
    ("before", "is_due"),
    [
        (None, True),
        (refused(_THEN, 9), True),
        (refused(_THEN, 10), False),  # a change, and no pause yet
        (refused(_THEN, 5, placed=2_000), False),  # what costs much is not searched for again soon
        (refused(_NOW, 1), False),
        (refused(_NOW, 1, again_s=10), True),
        (refused(_NOW, 1, again_s=11), False),
        (refused(_NOW, 11), True),  # the clock went back
    ],
)
def test_a_need_is_due_when_its_answer_may_be_another_one(before: Refused | None, is_due: bool) -> None:
    looks = Looks(10 * S, (_NOW,), {"k": before} if before else {})
    assert looks.is_due("k") is is_due
    assert looks.has_news("k") is is_due


def test_one_that_needed_no_room_is_due_and_is_news_once_something_has_changed() -> None:
    for stamp, has_news in ((_NOW, False), (_THEN, True)):
        looks = Looks(10 * S, (_NOW,), passed={"k": Passed(stamp, 3 * S)})
        assert (looks.is_due("k"), looks.has_news("k"), looks.at_ns("k")) == (True, has_news, 3 * S)


def test_the_last_look_counts_whatever_came_of_it() -> None:
    looks = Looks(10 * S, (_NOW,), {"k": refused(_NOW, 4)}, {"k": Passed(_NOW, 6 * S)})
    assert (looks.at_ns("k"), looks.at_ns("other")) == (6 * S, -1)


def test_without_a_stamp_everything_is_due() -> None:
    assert Looks(refused={"k": refused(_NOW, 1)}).is_due("k")


def test_the_pause_is_a_second_or_grows_with_what_the_search_placed() -> None:
    assert [pause_ns(refused(_NOW, 1, placed=placed)) for placed in (0, 100, 1_000)] == [S, S, 5 * S]
