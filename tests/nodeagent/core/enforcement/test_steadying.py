from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.enforcement.caps import PAUSE_NS, Steady, is_weaker, steadied

SECOND = 10**9
PAUSE_S = PAUSE_NS // SECOND


def told(looks: Sequence[tuple[int, str]]) -> list[str]:
    """What a tenant is told to be limited by after each look: (second, what is so)."""
    kept: dict[str, Steady] = {}
    found = []
    for at_s, word in looks:
        kept = steadied(kept, {"pod": word}, at_s * SECOND)
        found.append(kept["pod"].word)
    return found


@pytest.mark.parametrize(
    ("looks", "words"),
    [
        # A first gain and a loss are reported at once.
        ([(0, ""), (1, "kill"), (2, "driver")], ["", "kill", "driver"]),
        ([(0, "driver"), (1, "kill"), (2, "")], ["driver", "kill", ""]),
        # What comes back waits for the end of the pause.
        ([(0, "kill"), (1, ""), (2, "kill"), (PAUSE_S, "kill"), (1 + PAUSE_S, "kill")], ["kill", "", "", "", "kill"]),
        ([(0, "kill"), (1, ""), (2, "kill"), (3, ""), (1 + PAUSE_S, "")], ["kill", "", "", "", ""]),
        # A better one as well, and a loss meanwhile begins another pause.
        ([(0, "driver"), (1, "kill"), (2, "driver"), (31, "driver")], ["driver", "kill", "kill", "driver"]),
        ([(0, "driver"), (1, "kill"), (20, ""), (31, "kill"), (50, "kill")], ["driver", "kill", "", "", "kill"]),
    ],
)
def test_a_loss_is_told_at_once_and_what_comes_back_after_a_pause(
    looks: Sequence[tuple[int, str]], words: Sequence[str]
) -> None:
    assert told(looks) == words


def test_a_tenant_that_is_gone_is_forgotten() -> None:
    kept = steadied({"a": Steady("kill", 5), "b": Steady("", 5)}, {"b": "kill", "c": "driver"}, 6)
    assert kept == {"b": Steady("", 5), "c": Steady("driver")}


WORDS = st.sampled_from(["", "hami-core", "mps", "kill", "driver"])


@given(st.lists(WORDS, min_size=2, max_size=60))
def test_nobody_is_told_to_be_limited_better_than_it_is(words: Sequence[str]) -> None:
    looks = list(enumerate(words))
    for word, said in zip(words, told(looks), strict=True):
        assert not is_weaker(word, said)


@given(st.lists(st.sampled_from(["", "kill"]), min_size=120, max_size=120))
def test_what_alternates_is_told_twice_in_a_pause_at_most(words: Sequence[str]) -> None:
    said = told(list(enumerate(words)))
    changes = [number for number in range(1, len(said)) if said[number] != said[number - 1]]
    for first, third in zip(changes, changes[2:], strict=False):
        assert third - first >= PAUSE_S - 1
