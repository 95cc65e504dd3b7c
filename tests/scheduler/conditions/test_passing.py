from __future__ import annotations

import pytest

from scheduler.conditions.pod_scheduled import PASSING, Growing
from scheduler.core.model.plan import Explain
from scheduler.core.model.verdict import Code, Verdict

GANG = ("ns", "g")


def says(*uids: str, code: Code = Code.GANG_NOT_READY, group: tuple[str, str] | None = GANG) -> Explain:
    return Explain(pods=uids, pod_group=group, verdict=Verdict(code=code))


def test_a_member_is_told_a_second_after_the_last_one_came() -> None:
    growing = Growing()
    growing.take(says("a"), 10.0)
    assert growing.told_from("a") == 11.0
    growing.take(says("a", "b"), 10.8)
    assert growing.told_from("a") == growing.told_from("b") == 11.8


def test_a_member_that_said_it_already_does_not_count_as_growth() -> None:
    growing = Growing()
    growing.take(says("a", "b"), 10.0)
    growing.take(says("a", "b"), 12.0)
    assert growing.told_from("a") == 11.0


def test_a_member_is_told_after_five_seconds_however_the_gang_grows() -> None:
    growing = Growing()
    for number in range(10):
        growing.take(says(f"m{number}"), 10.0 + number)
    assert growing.told_from("m0") == 15.0
    assert growing.told_from("m9") == 20.0


def test_pods_of_no_gang_do_not_wait_for_each_other() -> None:
    growing = Growing()
    growing.take(says("a", code=Code.OWNER_NOT_SEEN, group=None), 10.0)
    growing.take(says("b", code=Code.OWNER_NOT_SEEN, group=None), 10.8)
    assert (growing.told_from("a"), growing.told_from("b")) == (11.0, 11.8)


@pytest.mark.parametrize("code", sorted(set(Code) - PASSING - {Code.WAITS_FOR_ROOM}, key=str))
def test_another_reason_is_told_at_once(code: Code) -> None:
    growing = Growing()
    growing.take(says("a"), 10.0)
    growing.take(says("a", code=code), 10.1)
    assert growing.told_from("a") < 10.1


def test_a_pod_for_which_room_is_made_is_told_ten_seconds_later() -> None:
    growing = Growing()
    growing.take(says("a", code=Code.WAITS_FOR_ROOM), 10.0)
    growing.take(says("a", code=Code.WAITS_FOR_ROOM), 15.0)  # another count: one victim is gone
    assert growing.told_from("a") == 20.0


@pytest.mark.parametrize("code", [Code.NO_NODE_FITS, Code.GANG_NOT_READY])
def test_its_time_begins_again_when_it_had_another_reason_in_between(code: Code) -> None:
    growing = Growing()
    growing.take(says("a", code=Code.WAITS_FOR_ROOM), 10.0)
    growing.take(says("a", code=code), 15.0)
    assert growing.told_from("a") < 20.0
    growing.take(says("a", code=Code.WAITS_FOR_ROOM), 17.0)
    assert growing.told_from("a") == 27.0


def test_nothing_is_kept_of_pods_that_are_gone() -> None:
    growing = Growing()
    growing.take(says("a", "b"), 10.0)
    growing.take(says("c", code=Code.WAITS_FOR_ROOM), 10.0)
    growing.forget(("a", "b", "c"))
    assert not growing._room_since
    assert not growing._since
    assert not growing._added_at
    assert not growing._members
