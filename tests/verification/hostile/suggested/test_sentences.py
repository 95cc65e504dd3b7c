"""Suggested changes are read from the text of a condition as the product writes it."""

from __future__ import annotations

import pytest

from scheduler.conditions.messages import with_help
from scheduler.conditions.suggestion_messages import hint_text
from scheduler.core.what_if.group_changes import CPU, FRACTION, GPU_MEMORY, GPUS, MEMORY, Asking, Members
from scheduler.core.what_if.known_ends import Wait
from verification.hostile.suggestions import Sentence, Unreadable, WaitUntil, sentence_of

_REASON = "no nodes with enough resources were found: 2 node(s) didn't have enough resources: GPUs."
_EDITS: list[Asking | Members] = [
    Asking(FRACTION, 300_000_000),
    Asking(FRACTION, 10_000_000),
    Asking(GPU_MEMORY, 8_000),
    Asking(GPUS, 1),
    Asking(GPUS, 4),
    Asking(CPU, 1_500),
    Asking(MEMORY, 64),
    Members(1),
    Members(7),
]


@pytest.mark.parametrize("edit", _EDITS, ids=lambda edit: edit.spelled())
def test_a_change_is_read_as_it_was_meant(edit: Asking | Members) -> None:
    message = with_help(_REASON, hint_text((edit,), renewed_s=600))
    assert sentence_of(message) == Sentence((edit,), 600)


def test_several_changes_are_read_each() -> None:
    wait = Wait(until_s=1_767_225_661, uids=("a", "b"))
    message = with_help(_REASON, hint_text((wait, *_EDITS), renewed_s=120))
    assert sentence_of(message) == Sentence((WaitUntil(1_767_225_661), *_EDITS), 120)


def test_a_reason_alone_suggests_nothing() -> None:
    assert sentence_of(_REASON) is None


def test_what_is_no_change_is_refused() -> None:
    with pytest.raises(Unreadable, match="pray"):
        sentence_of("This change lets it start (tried, and renewed within 10 minutes): pray.")
