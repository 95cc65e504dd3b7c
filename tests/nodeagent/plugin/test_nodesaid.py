from __future__ import annotations

import pytest

from nodeagent.plugin.node import NodeSaid, cleared, decoded, encoded, said

LABELS = {"moorage.dev/agent-config": "big", "nvidia.com/device-plugin.config": "small", "zone": "a"}


def test_of_a_node_only_what_is_meant_for_the_plugin_is_kept() -> None:
    found = said(LABELS, {"moorage.dev/gpu-cleared": "GPU-a", "other": "x"})
    assert found == NodeSaid({name: LABELS[name] for name in sorted(LABELS) if name != "zone"}, "GPU-a")
    assert said({}, {}) == NodeSaid()


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        (None, "GPU-a", set()),
        ("GPU-a", "GPU-a", set()),
        ("", "GPU-a", {"GPU-a"}),
        ("GPU-a", "GPU-b, GPU-a,\n GPU-c", {"GPU-a", "GPU-b", "GPU-c"}),
        ("GPU-a", "", set()),
        ("GPU-a", " , ", set()),
    ],
)
def test_a_new_value_counts_once(before: str | None, now: str, found: set[str]) -> None:
    was = None if before is None else NodeSaid(cleared=before)
    assert cleared(was, NodeSaid(cleared=now)) == found


def test_what_is_kept_is_read_again_and_anything_else_is_nothing() -> None:
    kept = said(LABELS, {"moorage.dev/gpu-cleared": "GPU-a"})
    assert decoded(encoded(kept)) == kept
    for content in (b"", b"[]", b'{"labels": {"a": 1}}', b'{"cleared": null}', b"[" * 100_000):
        assert decoded(content) is None
