"""S7: who is evicted. L2: what one pod may cost."""

from __future__ import annotations

import pytest

from simulator.checks.checker import POD_GROUPS
from simulator.checks.evictions import Bounds
from tests.simulator.made_up import Story, pod, pod_group

GANG = {"pod-group-name": "gang"}


def broken_gang(minimum: int = 2) -> Story:
    """A gang was whole, and one of its two members is gone."""
    story = Story(release_s=60.0).sees(pod_group("gang", minimum), kind=POD_GROUPS)
    story.sees(pod("p", annotations=GANG)).sees(pod("q", annotations=GANG))
    return story.after(10).sees(pod("q", annotations=GANG), event="DELETED")


def test_the_rest_of_a_broken_gang_may_be_evicted_after_its_grace_time() -> None:
    story = broken_gang().after(60).writes("create", "pods", "p", subresource="eviction", code=201)
    assert story.broken() == set()


def test_an_eviction_before_the_grace_time_breaks_s7() -> None:
    story = broken_gang().after(59).writes("create", "pods", "p", subresource="eviction", code=201)
    assert story.broken() == {"S7"}


@pytest.mark.parametrize(("name", "broken"), [("p", set[str]()), ("other", {"S7"})])
def test_a_restored_member_brings_the_grace_time_of_its_gang_back(name: str, broken: set[str]) -> None:
    """After a restore of etcd the PodGroup says again since when its gang has been broken."""
    story = broken_gang().after(50).sees(pod("p", annotations=GANG), event="DELETED")
    story.after(5).sees(pod(name, annotations=GANG))
    story.after(5).writes("create", "pods", name, subresource="eviction", code=201)
    assert story.sees(pod(name, annotations=GANG), event="DELETED").broken() == broken


def test_an_eviction_from_a_gang_that_is_large_enough_breaks_s7() -> None:
    story = broken_gang(minimum=1).after(60).writes("create", "pods", "p", subresource="eviction", code=201)
    assert story.broken() == {"S7"}


def test_an_eviction_of_a_pod_alone_breaks_s7() -> None:
    story = Story().sees(pod("p")).after(100).writes("create", "pods", "p", subresource="eviction", code=201)
    assert story.broken() == {"S7"}


@pytest.mark.parametrize(("user", "code"), [("scheduler", 429), ("somebody", 201)])
def test_refused_evictions_and_those_of_users_are_no_matter(user: str, code: int) -> None:
    story = Story().sees(pod("p")).writes("create", "pods", "p", subresource="eviction", code=code, user=user)
    assert story.broken() == set()


def test_a_users_pod_that_we_delete_breaks_s7() -> None:
    assert Story().sees(pod("p")).writes("delete", "pods", "p").broken() == {"S7"}


@pytest.mark.parametrize("namespace", ["kai-resource-reservation", "kai-scale-adjust"])
def test_reservation_pods_and_scaling_pods_are_ours_to_delete(namespace: str) -> None:
    assert Story().writes("delete", "pods", "r", namespace=namespace).broken() == set()


@pytest.mark.parametrize(("seconds", "broken"), [(0.5, {"L2"}), (5.0, set())])
def test_attempts_without_a_pause_break_l2(seconds: float, broken: set[str]) -> None:
    story = Story()
    for _ in range(Bounds().attempts + 5):
        story.after(seconds).writes("create", "pods", "p", subresource="binding", code=409)
    assert story.broken() == broken


def test_conditions_without_a_pause_break_l2() -> None:
    story = Story()
    for _ in range(Bounds().writes + 1):
        story.after(0.1).writes("patch", "pods", "p", subresource="status")
    assert story.broken() == {"L2"}


def test_each_pod_has_its_own_measure() -> None:
    story = Story()
    for number in range(Bounds().attempts + 5):
        story.writes("create", "bindrequests", f"p-{number % 2}")
    assert story.broken() == set()
