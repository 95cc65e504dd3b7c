from __future__ import annotations

from scheduler.core.scheduling_queue.queue import Timers


def test_what_is_due_is_taken_once_the_earliest_first() -> None:
    timers = Timers()
    for at_ns, item in ((30, "c"), (10, "a"), (20, ("ns", "gang")), (20, "b")):
        timers.put(at_ns, item)
    assert list(timers.due(20)) == ["a", ("ns", "gang"), "b"]
    assert list(timers.due(20)) == []
    assert timers.next_ns == 30


def test_of_several_times_of_one_the_earliest_counts() -> None:
    timers = Timers()
    timers.put(20, "a")
    timers.put(30, "a")
    assert timers.next_ns == 20
    timers.put(10, "a")
    assert list(timers.due(40)) == ["a"]
    assert timers.next_ns is None


def test_who_was_due_may_ask_for_another_time() -> None:
    timers = Timers()
    timers.put(10, "a")
    assert list(timers.due(10)) == ["a"]
    timers.put(30, "a")
    assert timers.next_ns == 30
    assert list(timers.due(29)) == []
    assert list(timers.due(30)) == ["a"]
