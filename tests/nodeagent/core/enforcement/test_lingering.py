from __future__ import annotations

from nodeagent.core.enforcement.container_edits import Lingering


def test_a_pod_is_kept_for_a_while_after_it_was_seen_last() -> None:
    kept = Lingering(60.0)
    assert kept.take({"a", "b"}, 0.0) == {"a", "b"}
    assert kept.take({"b"}, 59.0) == {"a", "b"}
    assert kept.take({"b"}, 60.0) == {"b"}
    assert kept.take({"a"}, 70.0) == {"a", "b"}
    assert kept.take((), 120.0) == {"a"}
