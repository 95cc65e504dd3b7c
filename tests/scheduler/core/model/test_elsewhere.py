"""Whose a pod is, and what it counts for where it is another scheduler's."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pods import pod_record
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.seen_pods import Elsewhere
from scheduler.core.model.settings import NodePool, Settings
from tests.scheduler.core.objects import changed_group, pod, pod_group
from wire import names

A = NodePool(value="a")
KEY = names.NODE_POOL_LABEL


def _pod(label: str = "", group: str = "", **asked: Any) -> PodRecord:
    read = pod_record(pod(labels={KEY: label} if label else {}, group=group, gpus=1, **asked), Settings())
    assert read is not None
    return read


def _groups(label: str) -> dict[tuple[str, str], PodGroupRecord]:
    found = changed_group(pod_group("g"), labels={KEY: label})
    return {("ns", "g"): pod_group_record(found, A)}


@pytest.mark.parametrize(
    ("label", "of_group", "is_elsewhere"),
    [
        ("a", None, False),
        ("b", None, True),
        ("", None, True),
        ("a", "b", True),
        ("b", "a", False),
        ("", "a", False),
    ],
)
def test_its_podgroup_says_whose_a_pod_is_and_its_own_label_without_one(
    label: str, of_group: str | None, is_elsewhere: bool
) -> None:
    groups = {} if of_group is None else _groups(of_group)
    assert Elsewhere(A, groups).seen(_pod(label, group="g")).is_elsewhere is is_elsewhere


def test_a_pod_of_another_pool_is_in_no_queue_and_counts_as_another_schedulers() -> None:
    found = Elsewhere(A, {}).seen(_pod("b"))
    assert (found.queue, found.is_foreign, found.moves_as) == ("", True, None)


def test_a_pod_that_comes_to_this_pool_is_what_it_was() -> None:
    groups = _groups("b")
    elsewhere, read = Elsewhere(A, groups), _pod("", group="g")
    out = elsewhere.seen(read)
    groups.update(_groups("a"))
    assert elsewhere.seen_again(out) == read


def test_pods_of_other_schedulers_are_left_as_they_are() -> None:
    read = _pod("b", scheduler="default-scheduler", bound_to="n1")
    assert Elsewhere(A, {}).seen(read) is read


def test_a_cluster_that_is_not_divided_has_none() -> None:
    read = _pod("b")
    assert Elsewhere(None, {}).seen(read) is read
