from __future__ import annotations

import math

import pytest

from scheduler.conditions.paced_writes import ByNamespace, Turns


def always(_: str) -> bool:
    return True


def test_the_first_to_come_has_the_first_turn_and_the_next_one_waits_for_its_own() -> None:
    turns = Turns(per_s=4)
    for uid in ("a", "b", "a"):
        turns.put(uid, "team")
    assert turns.take(10.0, always) == "a"
    assert turns.next_at == 10.25
    assert turns.take(10.2, always) is None
    assert turns.take(10.25, always) == "b"
    assert turns.take(20.0, always) is None


def test_a_pod_that_is_not_due_any_more_takes_no_turn() -> None:
    turns = Turns(per_s=4)
    for uid in ("a", "b", "c"):
        turns.put(uid, "team")
    assert turns.take(10.0, lambda uid: uid == "c") == "c"
    assert turns.next_at == math.inf


def test_where_nobody_is_due_the_next_one_has_its_turn_at_once() -> None:
    turns = Turns(per_s=4)
    turns.put("a", "team")
    assert turns.take(10.0, lambda _: False) is None
    turns.put("b", "team")
    assert turns.take(10.0, always) == "b"


def test_turns_that_nobody_took_are_not_made_up_for() -> None:
    turns = Turns(per_s=4)
    turns.put("a", "team")
    assert turns.take(10.0, always) == "a"
    for uid in ("b", "c"):
        turns.put(uid, "team")
    assert turns.take(100.0, always) == "b"
    assert turns.take(100.0, always) is None


def test_a_namespace_with_many_pods_holds_up_no_other_one() -> None:
    turns = Turns(per_s=1)
    for number in range(1000):
        turns.put(f"flood-{number}", "flood")
    for uid in ("honest-0", "honest-1"):
        turns.put(uid, "honest")
    assert [turns.take(float(second), always) for second in range(5)] == [
        "flood-0",
        "honest-0",
        "flood-1",
        "honest-1",
        "flood-2",
    ]


def test_a_pod_that_is_taken_out_has_no_turn_and_leaves_no_namespace() -> None:
    pods = ByNamespace[str]()
    for uid, namespace in (("a", "one"), ("b", "two"), ("c", "one")):
        pods.put(uid, namespace)
    for uid in ("b", "x"):
        pods.discard(uid)
    assert (len(pods), pods.pop(), pods.pop(), len(pods)) == (2, "a", "c", 0)
    with pytest.raises(StopIteration):
        pods.pop()


def test_a_pod_that_is_queued_keeps_its_place() -> None:
    pods = ByNamespace[str]()
    for uid in ("a", "b", "a"):
        pods.put(uid, "one")
    assert [pods.pop(), pods.pop()] == ["a", "b"]
