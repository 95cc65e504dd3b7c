"""What keeps pods that wait off one node."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.what_if.explanation import node_explained
from tests.scheduler.core.objects import cluster, node, pod


def explained(*objects: Any) -> tuple[int, int, dict[tuple[str, str], int]]:
    """Pods that wait, that fit, and those kept off by reason and resource."""
    found = node_explained(cluster(*objects).prepared(0), "n1", 0)
    assert found is not None
    return found.waiting, found.fits, {(each.reason.kind, each.reason.resource): each.pods for each in found.kept_off}


GPUS = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("objects", "waiting", "fits", "kept"),
    [
        ((node(gpus=2), pod("a", gpus=4), pod("b", gpus=4), pod("c", gpus=1)), 3, 1, {("insufficient", GPUS): 2}),
        ((node(cordoned=True), pod("a")), 1, 0, {("cordoned", ""): 1}),
        ((node(), node("n2", cordoned=True), pod("a", cpu="99")), 1, 0, {("insufficient", "cpu"): 1}),
        ((node(gpus=0), pod("a", fraction="0.5")), 1, 0, {("insufficient", "gpu-share"): 1}),
        ((node(), pod("gated", gated=True)), 0, 0, {}),
    ],
)
def test_pods_are_counted_by_what_keeps_them_off(
    objects: tuple[Any, ...], waiting: int, fits: int, kept: dict[tuple[str, str], int]
) -> None:
    assert explained(*objects) == (waiting, fits, kept)


def test_a_node_that_is_not_there_is_none() -> None:
    assert node_explained(cluster(node()).prepared(0), "x", 0) is None


def test_forms_beyond_the_first_two_hundred_are_counted_as_left_out() -> None:
    found = node_explained(
        cluster(node(), *(pod(f"p{at}", cpu=f"{at + 1}m") for at in range(203))).prepared(0), "n1", 0
    )
    assert found is not None
    assert (found.waiting, found.fits, found.left_out) == (203, 200, 3)
