from __future__ import annotations

import random

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.sharing.made import attempt
from tests.sharing.stories.walking import Walk, a_contender


def walked(seed: int, steps: int) -> Walk:
    """Pods that want more of two devices than there is; in some runs two of them belong together."""
    rng = random.Random(seed)
    gang = {"plan": "plan", "members": 2} if rng.random() < 0.4 else {}
    walk = Walk([a_contender(f"p{i}", rng, **(gang if i < 2 else {})) for i in range(3)], rng)
    for _ in range(steps):
        walk.happen()
    return walk


@hypothesis.given(seed=st.integers(0, 2**32), steps=st.integers(0, 400))
def test_no_device_is_given_more_than_it_has_and_everything_comes_to_rest(seed: int, steps: int) -> None:
    walk = walked(seed, steps)
    walk.settle()
    assert walk.units == {}
    assert walk.server.requests == {}
    for group, held in walk.server.books.items():
        assert held.book is not None
        running = dict(walk.server.running_on(group, walk.now))
        assert {uid: entry.nano for uid, entry in held.book.entries.items()} == running


@pytest.mark.parametrize("seed", range(20))
def test_without_faults_all_that_fits_is_bound(seed: int) -> None:
    rng = random.Random(seed)
    made = [attempt(f"p{i}", groups=("g",) if i < 2 else ("h",)) for i in range(4)]
    walk = Walk(made, rng)
    walk.settle(60)
    assert all(one.is_bound for one in walk.server.pods.values())
