from __future__ import annotations

from nodeagent.core.enforcement.container_edits import Lasting


def test_a_thing_counts_once_it_was_so_all_the_time() -> None:
    lasting = Lasting(30.0)
    assert lasting.take(["a"], 0.0) == set()
    assert lasting.take(["a", "b"], 29.0) == set()
    assert lasting.take(["a", "b"], 30.0) == {"a"}
    assert lasting.take(["b"], 59.0) == {"b"}
    assert lasting.take(["a", "b"], 60.0) == {"b"}


def test_what_was_so_before_counts_at_once_and_begins_again_as_any_other() -> None:
    lasting = Lasting(30.0)
    lasting.begin(["a", "b"])
    assert lasting.take(["a", "c"], 0.0) == {"a"}
    assert lasting.take(["a", "b"], 1.0) == {"a"}
    assert lasting.take([], 2.0) == set()
    assert lasting.take(["a"], 31.0) == set()
