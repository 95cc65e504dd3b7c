from __future__ import annotations

import math
import random

from binder.collect.collector import Due


def test_groups_are_taken_when_their_time_has_come_and_once() -> None:
    due = Due()
    due.put("a", 10.0)
    due.put("b", 5.0)
    assert due.next_at == 5.0
    assert due.take(4.9) == []
    assert due.take(5.0) == ["b"]
    assert "b" not in due
    assert due.next_at == 10.0
    assert due.take(20.0) == ["a"]
    assert (due.take(20.0), due.next_at) == ([], math.inf)


def test_the_earliest_time_of_a_group_counts() -> None:
    due = Due()
    for at in (10.0, 5.0, 7.0):
        due.put("a", at)
    assert due.next_at == 5.0
    assert due.take(20.0) == ["a"]
    due.put("a", 10.0)
    assert due.take(20.0) == ["a"]
    assert due.take(20.0) == []


def test_it_takes_what_a_table_of_all_times_would_give() -> None:
    rng = random.Random(7)
    for _ in range(200):
        due, table = Due(), dict[str, float]()
        for now in range(30):
            for _ in range(rng.randrange(4)):
                group, at = f"g{rng.randrange(5)}", float(now + rng.randrange(6))
                due.put(group, at)
                table[group] = min(at, table.get(group, math.inf))
            over = sorted(group for group, at in table.items() if at <= now)
            assert sorted(due.take(now)) == over
            table = {group: at for group, at in table.items() if group not in over}
            assert due.next_at == min(table.values(), default=math.inf)
