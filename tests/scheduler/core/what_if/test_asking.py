"""A search asks one question at a time, and whoever answers may go on from another state of the cluster in between."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.model.steps import ended
from scheduler.core.what_if.group_changes import Members
from scheduler.core.what_if.suggestions import searching, suggestions
from scheduler.core.what_if.trials import Finding, Question, about, answered, first
from tests.scheduler.core.objects import cluster, node, pod, pod_group
from tests.scheduler.core.what_if.given import spelled, tries, trying

GANG: tuple[Any, ...] = (pod_group("g", 3), *(pod(name, gpus=2, group="g") for name in "pqr"))


def three() -> Finding:
    for minimum in (1, 2, 3):
        if (yield Question()):
            yield Members(minimum)


def test_the_questions_are_passed_on_until_enough_is_found() -> None:
    search = first(1, three())
    next(search)
    search.send(False)
    with pytest.raises(StopIteration) as done:
        search.send(True)
    assert done.value.value == [Members(2)]


def test_each_edit_comes_before_the_next_question() -> None:
    tried = tries(node(gpus=4), pod("p", gpus=1))
    found = answered(tried, three())
    assert next(found) == Members(1)
    assert tried.tries == 1


def test_a_question_about_several_edits_is_the_groups_own_only_if_all_are() -> None:
    tried = tries(node(gpus=4), *GANG)
    assert about(tried, Members(1), Members(2)).is_own
    assert len(about(tried, Members(1), Members(2)).changes) == 2


def test_a_search_goes_on_from_another_state_of_the_cluster() -> None:
    made = cluster(node(gpus=4), *GANG)
    tried = trying(made)
    told = suggestions(trying(made))
    search, asked = searching(tried), 0
    with pytest.raises(StopIteration) as done:  # noqa: PT012 - it ends when nothing is left to ask
        question = next(search)
        while True:
            made.upsert_node(node(f"other{asked}", 0))  # every answer so far is of an older state
            asked += 1
            now = trying(made)
            tried.go_on_from(now.snapshot, now.subject, now_ns=0, wall_s=now.wall_s)
            question = search.send(ended(question.answering(tried)))
    assert [spelled(each.edits) for each in done.value.value] == [spelled(each.edits) for each in told]
    assert asked > 2
