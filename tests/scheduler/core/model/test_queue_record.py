from __future__ import annotations

from scheduler.core.model.quota import NOTHING, WITHOUT_END, QueueRecord


def test_a_queue_that_says_nothing_guarantees_nothing_and_limits_nothing() -> None:
    record = QueueRecord(name="a")
    assert (record.key, record.quota, record.limit, record.priority) == ("a", NOTHING, WITHOUT_END, 100)
