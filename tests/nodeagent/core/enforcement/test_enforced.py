from __future__ import annotations

import pytest

from gpu.node_use import STRENGTHS
from nodeagent.core.enforcement.caps import is_weaker, strongest


@pytest.mark.parametrize(
    ("back_ends", "said"),
    [
        (set[str](), ""),
        ({"hami-core"}, "hami-core"),
        ({"hami-core", "kill"}, "kill"),
        ({"mps", "hami-core"}, "mps"),
        (set(STRENGTHS), "driver"),
        ({"nobody's"}, ""),
    ],
)
def test_of_several_back_ends_the_strongest_is_said(back_ends: set[str], said: str) -> None:
    assert strongest(back_ends) == said


def test_every_word_that_readers_know_is_ranked() -> None:
    assert [strongest({name}) for name in STRENGTHS] == list(STRENGTHS)


@pytest.mark.parametrize(
    ("word", "than", "is_so"),
    [("", "kill", True), ("kill", "driver", True), ("kill", "", False), ("kill", "kill", False), ("", "", False)],
)
def test_a_weaker_one_holds_less_well(word: str, than: str, *, is_so: bool) -> None:
    assert is_weaker(word, than) is is_so
