"""S7: who may be evicted for the pod's own sake, beside the rest of a broken gang (test_writes.py)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulator.made_up import A, B, Story, granted, reservation


def _tenant(health: str = "Healthy") -> dict[str, Any]:
    told = [{"name": "nvidia.com/gpu", "resources": [{"resourceID": "GPU-a", "health": health}]}]
    raw = granted("p", "g")
    return {**raw, "status": {**raw["status"], "containerStatuses": [{"allocatedResourcesStatus": told}]}}


def _evicted(story: Story) -> bool:
    """Whether the eviction of the tenant is allowed."""
    return "S7" not in story.writes("create", "pods", "p", subresource="eviction", code=201).broken()


@pytest.mark.parametrize(("card", "is_allowed"), [(A, False), (B, True)])
def test_who_was_given_a_card_of_another_machine_may_be_evicted(card: Any, is_allowed: bool) -> None:
    assert _evicted(Story(cards=(card,)).sees(reservation("r", "g")).sees(_tenant())) == is_allowed


def test_who_has_an_unhealthy_card_may_be_evicted_however_long_it_lasts() -> None:
    assert _evicted(Story().sees(reservation("r", "g")).sees(_tenant("Unhealthy")).after(1000))


@pytest.mark.parametrize(("seconds", "is_allowed"), [(300, True), (301, False)])
def test_that_a_card_has_recovered_may_not_be_heard_for_a_while(seconds: float, is_allowed: bool) -> None:
    story = Story().sees(reservation("r", "g")).sees(_tenant("Unhealthy")).after(10).sees(_tenant())
    assert _evicted(story.after(seconds)) == is_allowed
