from __future__ import annotations

from nodeagent.core.enforcement.container_edits import KEPT_S, MOST, Leftovers


def test_a_folder_stays_for_a_day_after_it_was_left() -> None:
    left = Leftovers()
    assert left.expired({"a"}, 5.0) == frozenset()
    assert left.expired({"a", "b"}, 4.0 + KEPT_S) == frozenset()
    assert left.expired({"a", "b"}, 5.0 + KEPT_S) == {"a"}


def test_a_tenant_that_comes_back_begins_another_day_when_it_goes() -> None:
    left = Leftovers()
    left.expired({"a"}, 0.0)
    left.expired((), 10.0)
    assert left.expired({"a"}, KEPT_S) == frozenset()
    assert left.expired({"a"}, 2 * KEPT_S) == {"a"}


def test_of_too_many_those_go_that_were_left_first() -> None:
    left = Leftovers()
    left.expired({"first", "second"}, 0.0)
    many = {f"x{number}" for number in range(MOST - 1)}
    assert left.expired({"first", "second"} | many, 1.0) == {"first"}
    assert left.expired({"second"} | many, 2.0) == frozenset()
