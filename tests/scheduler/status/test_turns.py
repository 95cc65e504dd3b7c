from __future__ import annotations

import math

from scheduler.status.turns import Turns


def always(_: str) -> bool:
    return True


def test_the_first_to_come_has_the_first_turn_and_the_next_one_waits_for_its_own() -> None:
    turns = Turns(per_s=4)
    for uid in ("a", "b", "a"):
        turns.put(uid)
    assert turns.take(10.0, always) == "a"
    assert turns.next_at == 10.25
    assert turns.take(10.2, always) is None
    assert turns.take(10.25, always) == "b"
    assert turns.take(20.0, always) is None


def test_a_pod_that_is_not_due_any_more_takes_no_turn() -> None:
    turns = Turns(per_s=4)
    for uid in ("a", "b", "c"):
        turns.put(uid)
    assert turns.take(10.0, lambda uid: uid == "c") == "c"
    assert turns.next_at == math.inf


def test_where_nobody_is_due_the_next_one_has_its_turn_at_once() -> None:
    turns = Turns(per_s=4)
    turns.put("a")
    assert turns.take(10.0, lambda _: False) is None
    turns.put("b")
    assert turns.take(10.0, always) == "b"


def test_turns_that_nobody_took_are_not_made_up_for() -> None:
    turns = Turns(per_s=4)
    turns.put("a")
    assert turns.take(10.0, always) == "a"
    for uid in ("b", "c"):
        turns.put(uid)
    assert turns.take(100.0, always) == "b"
    assert turns.take(100.0, always) is None
