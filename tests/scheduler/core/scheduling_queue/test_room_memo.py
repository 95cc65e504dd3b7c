from __future__ import annotations

from scheduler.core.model.preemption import NoRoom
from scheduler.core.scheduling_queue.signatures import Refused, RoomMemo


def test_a_need_that_asks_something_else_was_refused_on_another_ground() -> None:
    memo = RoomMemo(1, ("now",), {key: Refused(("now",), 1, NoRoom()) for key in ("a", "b")})
    found = memo.without_answers_to(["b", "unknown"])
    assert {key: refused.stamp for key, refused in found.refused.items()} == {"a": ("now",), "b": ()}
    assert found.stamp == ()


def test_nothing_is_copied_where_none_does() -> None:
    memo = RoomMemo(1, ("now",))
    assert memo.without_answers_to(()) is memo
