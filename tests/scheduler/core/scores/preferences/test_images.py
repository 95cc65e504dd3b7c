"""Images that nodes have already."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.model.pod_class import Weights
from tests.scheduler.core.objects import node
from tests.scheduler.core.scores.preferences.scoring import scores, with_images

_NODES = (with_images(node("a"), big=2000, small=20), with_images(node("b"), big=1000), node("c"), node("d"))


def _spec(*images: str, **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": f"c{i}", "image": image} for i, image in enumerate(images)], **more}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        # Two of four nodes have it, so half of its bytes count: from 23 MiB to 1,000 MiB a container.
        (_spec("big"), {"a": 100, "b": 48, "c": 0, "d": 0}),
        (_spec("big:latest"), {"a": 100, "b": 48, "c": 0, "d": 0}),
        (_spec("big", "none"), {"a": 49, "b": 24, "c": 0, "d": 0}),
        (_spec("big", "big"), {"a": 100, "b": 49, "c": 0, "d": 0}),
        (_spec("small"), {"a": 0, "b": 0, "c": 0, "d": 0}),
        (_spec("none", volumes=[{"name": "v", "image": {"reference": "big"}}]), {"a": 100, "b": 48, "c": 0, "d": 0}),
    ],
)
def test_bytes_that_are_there_count(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert scores("images", spec=spec, nodes=_NODES) == expected


def test_they_do_not_count_unless_that_is_set() -> None:
    assert Weights().images == 0
    assert scores("images", spec=_spec("big"), nodes=_NODES, weights=Weights()) == {}
