"""A node's GPUs take as many of the missing slices as they can, where that destroys and loses least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import pytest

from scheduler.core.mig_partitioning import layouts as cutting
from scheduler.core.mig_partitioning.layouts import CardCut, Cutter
from scheduler.core.model.mig import MigCard, MigSlice
from tests.scheduler.core.mig_partitioning.cards import ONE, PROFILES, SEVEN, THREE, TWO, card


def cutter(most: int = 32) -> Cutter:
    made = Cutter()
    made.begin(most)
    return made


def cuts(
    made: Cutter, cards: Iterable[MigCard], missing: Mapping[str, int], spoken: Collection[str]
) -> tuple[list[CardCut], Counter[str]]:
    """All steps; each is one search."""
    steps, before = cutting.cuts(made, cards, missing, spoken, may_search=True), made.left
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: tuple[list[CardCut], Counter[str]] = end.value
            return found
        assert made.left == before - 1
        before = made.left


def layouts(found: list[CardCut]) -> list[tuple[str, list[str]]]:
    return [(each.uuid, [f"{profile[:2]}@{start}" for profile, start in each.layout]) for each in found]


@pytest.mark.parametrize(
    ("cards", "missing", "expected", "left"),
    [
        pytest.param([card("a")], {TWO: 1}, [("a", ["2g@0"])], {}, id="an empty GPU"),
        pytest.param([card("a", "1g@0!")], {THREE: 1}, [("a", ["1g@0", "3g@4"])], {}, id="beside a slice in use"),
        pytest.param([card("a", "1g@0!")], {SEVEN: 1}, [], {SEVEN: 1}, id="a slice in use is in the way"),
        pytest.param([card("a", "1g@0")], {SEVEN: 1}, [("a", ["7g@0"])], {}, id="a free one goes"),
        pytest.param([card("a", "1g@0"), card("b")], {SEVEN: 1}, [("b", ["7g@0"])], {}, id="where none goes"),
        pytest.param([card("a"), card("b", "3g@0!")], {THREE: 1}, [("b", ["3g@0", "3g@4"])], {}, id="the fuller GPU"),
        pytest.param([card("a"), card("b")], {SEVEN: 2}, [("a", ["7g@0"]), ("b", ["7g@0"])], {}, id="two GPUs"),
        pytest.param([card("a")], {THREE: 3}, [("a", ["3g@0", "3g@4"])], {THREE: 1}, id="as many as it takes"),
        pytest.param([card("a")], {"nvidia.com/mig-9g.90gb": 1}, [], {"nvidia.com/mig-9g.90gb": 1}, id="no such one"),
        pytest.param([card("a")], {}, [], {}, id="nothing"),
    ],
)
def test_cuts_of_a_node(
    cards: list[MigCard],
    missing: dict[str, int],
    expected: list[tuple[str, list[str]]],
    left: dict[str, int],
) -> None:
    found, rest = cuts(cutter(), cards, Counter(missing), ())
    assert (layouts(found), rest) == (expected, left)


def test_what_goes_and_comes_is_counted() -> None:
    (found,), _ = cuts(cutter(), [card("a", "1g@0", "1g@1", "1g@2!")], Counter({TWO: 1, ONE: 1}), ())
    assert found.gone == ()
    (found,), _ = cuts(cutter(), [card("a", *(f"1g@{at}" for at in range(7)))], Counter({TWO: 1, THREE: 1}), ())
    assert sum(number for _, number in found.gone) >= 5
    assert found.new == ((TWO, 1), (THREE, 1))


def test_slices_that_pods_on_their_way_will_take_stay() -> None:
    assert cuts(cutter(), [card("a", "1g@0")], Counter({SEVEN: 1}), {ONE}) == ([], Counter({SEVEN: 1}))


def test_gpus_that_are_alike_are_searched_once_and_no_more_than_there_is_time_for() -> None:
    made = cutter(2)
    alike = [card(f"GPU-{number}") for number in range(100)]
    found, left = cuts(made, alike, Counter({SEVEN: 2}), ())
    # One search for two slices of which it takes one, one for the other.
    assert (len(found), left, made.left) == (2, Counter(), 0)
    assert cuts(made, [card("a", "1g@0!")], Counter({TWO: 1}), ()) == ([], Counter({TWO: 1}))
    made.begin(1)
    assert layouts(cuts(made, [card("a", "1g@0!")], Counter({TWO: 1}), ())[0]) == [("a", ["1g@0", "2g@2"])]


def test_without_a_search_only_what_is_known_is_found() -> None:
    made = cutter()
    known = cutting.cuts(made, [card("a")], Counter({TWO: 1}), (), may_search=False)
    with pytest.raises(StopIteration) as nothing:
        next(known)
    assert (nothing.value.value, made.left) == (([], Counter({TWO: 1})), 32)
    found = cuts(made, [card("a")], Counter({TWO: 1}), ())
    with pytest.raises(StopIteration) as same:
        next(cutting.cuts(made, [card("a")], Counter({TWO: 1}), (), may_search=False))
    assert (same.value.value, made.left) == (found, 31)


def test_gpus_are_of_one_kind_only_where_they_can_be_cut_alike() -> None:
    like = card("a", "1g@0!", "2g@2")
    assert like.kind == card("b", "1g@0!", "2g@2", attempt="moorage-1", state="done").kind
    assert like.unused == (TWO,)
    odd = MigSlice("1g.10gb", 0, 1, True, is_whole=False)
    # What an agent may call a profile, so that its GPU would be taken for another.
    forged = MigSlice('1g.10gb",0,1,true,true],["2g.20gb', 2, 2, False)
    others = [
        card("a", "1g@0", "2g@2"),
        card("a", "1g@1!", "2g@2"),
        card("a", "1g@0!"),
        MigCard(uuid="a", is_ready=True, profiles={}, slices=like.slices),
        MigCard(uuid="a", is_ready=True, profiles=PROFILES, slices=(odd, like.slices[1])),
        MigCard(uuid="a", is_ready=True, profiles=PROFILES, slices=(forged,)),
    ]
    assert len({like.kind, *(each.kind for each in others)}) == 1 + len(others)


def test_a_cut_that_is_known_is_found_for_another_gpu_without_a_search() -> None:
    made = Cutter()
    made.begin(1)
    nodes = [[card(f"{node}-{gpu}", "1g@0!") for gpu in range(8)] for node in range(100)]
    found = [layouts(cuts(made, cards, {TWO: 1}, ())[0]) for cards in nodes]
    assert found == [[(f"{node}-0", ["1g@0", "2g@2"])] for node in range(100)]
    assert made.left == 0
