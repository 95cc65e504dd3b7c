"""Suggestions in words, and advice for every reason."""

from __future__ import annotations

import pytest

from scheduler.conditions import advice
from scheduler.conditions.advice import anchor, link
from scheduler.conditions.messages import KIND_WORDS
from scheduler.conditions.suggestion_messages import (
    BOUND_WORDS,
    KEPT_WORDS,
    edit_text,
    guarded_text,
    hint_text,
    suggestion_text,
)
from scheduler.core.model.preemption import Bound, Kept
from scheduler.core.model.verdict import Code
from scheduler.core.what_if.edit_text import read_edit
from scheduler.core.what_if.edits import Edit
from scheduler.core.what_if.known_ends import KnownEnd, Wait
from scheduler.core.what_if.suggestions import Suggestion

END = KnownEnd(namespace="team", name="job", at_s=1_800_000_000, by="deadline")


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (read_edit("gpu-fraction=0.3"), "request 0.3 of a GPU per pod"),
        (read_edit("gpu-memory=8000"), "request 8000 MiB of GPU memory per pod"),
        (read_edit("gpus=1"), "request 1 GPU per pod"),
        (read_edit("gpus=2"), "request 2 GPUs per pod"),
        (read_edit("cpu=1.5"), "request 1.5 CPU cores per pod"),
        (read_edit("memory=8Gi"), "request 8192 MiB of memory per pod"),
        (read_edit("members=6"), "start with 6 pods (minMember: 6)"),
        (read_edit("members=1"), "start with 1 pod (minMember: 1)"),
        (read_edit("without nodeSelector zone"), "leave out nodeSelector zone"),
        (read_edit("without podAffinity"), "leave out podAffinity"),
        (read_edit("tolerate k=v:NoSchedule"), "tolerate the taint k=v:NoSchedule"),
        (read_edit("limit team-a gpu=16"), "set the limit of queue team-a to 16 GPUs"),
        (read_edit("queue=team-b"), "use queue team-b"),
        (read_edit("finish team/job"), "end team/job"),
        (read_edit("drain n4"), "drain n4"),
        (read_edit("node +1 like n1"), "add 1 node like n1"),
        (read_edit("node +2 like n1"), "add 2 nodes like n1"),
        (Wait(until_s=1_800_000_000), "wait until 2027-01-15 08:00:00Z, if nothing else changes"),
        (
            Wait(until_s=1_800_000_000, uids=("a", "b", "c"), ends=(END,)),
            "wait until 2027-01-15 08:00:00Z at the latest, when team/job (by its activeDeadlineSeconds) "
            "and 2 more pods ended, if nothing else changes",
        ),
    ],
)
def test_an_edit_is_an_imperative(edit: Edit, text: str) -> None:
    assert edit_text(edit) == text


def test_two_edits_are_joined() -> None:
    assert suggestion_text(Suggestion((read_edit("members=2"), read_edit("gpus=1")))) == (
        "start with 2 pods (minMember: 2) and request 1 GPU per pod"
    )


@pytest.mark.parametrize(
    ("edits", "text"),
    [
        (
            (read_edit("gpus=2"),),
            "This change lets it start (tried, and renewed within 10 minutes): request 2 GPUs per pod.",
        ),
        (
            (Wait(until_s=1_800_000_000, uids=("a", "b"), ends=(END,)), read_edit("members=2")),
            "Each of these changes, alone, lets it start (tried, and renewed within 10 minutes): wait until "
            "2027-01-15 08:00:00Z at the latest, when 2 pods ended, if nothing else changes; start with 2 pods "
            "(minMember: 2).",
        ),
    ],
)
def test_a_condition_says_what_helps_and_names_nobody(edits: tuple[Edit, ...], text: str) -> None:
    assert hint_text(edits, renewed_s=600) == text


def test_there_is_advice_for_every_reason_and_for_no_other() -> None:
    assert set(advice.OF_CODES) == set(Code)
    assert set(advice.OF_NODES) == {*KIND_WORDS, "insufficient"}
    assert set(advice.OF_KEPT) == set(KEPT_WORDS) == set(Kept)
    assert set(BOUND_WORDS) == set(Bound)


def test_every_reason_has_a_name_of_its_own_in_the_documentation() -> None:
    reasons = [code.value for code in Code] + [*advice.OF_NODES] + [kept.value for kept in Kept]
    assert len({anchor(reason) for reason in reasons}) == len(reasons)
    assert link("NoNodeFits") == "docs/pending.md#no-node-fits"


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        (
            1,
            "1 pod that could be evicted for it is protected. A PodDisruptionBudget allows no eviction of it, "
            "or the API server refused to evict it.",
        ),
        (
            3,
            "3 pods that could be evicted for it are protected. A PodDisruptionBudget allows no eviction of them, "
            "or the API server refused to evict them.",
        ),
    ],
)
def test_pods_that_may_not_be_evicted_are_told_with_both_causes(pods: int, expected: str) -> None:
    assert guarded_text(pods) == expected
