"""Slices are withdrawn, then destroyed, then others made; what the driver refuses is made good as far as it can be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.core.mig_partitioning import (
    KUBELET_SETTLES_NS,
    PATIENCE_NS,
    Destroy,
    Make,
    Outcome,
    Partitioning,
    Present,
    Seen,
    State,
    Step,
    done,
    due,
    failed,
    step,
)
from tests.nodeagent.core.mig.cards import CLEAR_S, SECOND_NS, ask, began, present, seen, spot

A = "MIG-1g@0"


def under_way(*there: Present | str, to: tuple[str, ...]) -> Partitioning:
    partitioning = began(there, *to).partitioning
    assert partitioning is not None
    return partitioning


def on(partitioning: Partitioning, look: Seen) -> Step:
    return step(partitioning, partitioning.ask, look, look.at_ns)


def test_a_layout_that_is_there_is_done_without_a_change() -> None:
    assert on(under_way("1g@0", to=("1g@0",)), seen("1g@0")).outcome == Outcome("a", State.DONE)


def test_the_slices_to_go_are_withdrawn_first_and_nothing_is_destroyed() -> None:
    found = began(["1g@0", "1g@1"], "1g@1", "2g@2")
    assert found.partitioning is not None
    assert found.partitioning.withdrawn == {A}
    assert (found.action, found.outcome) == (None, Outcome("a", State.UNDER_WAY))


def test_a_slice_is_destroyed_after_two_looks_that_show_it_free() -> None:
    partitioning = under_way("1g@0", to=("2g@0",))
    first = on(partitioning, seen("1g@0", at_s=101))
    assert first.action is None
    assert first.partitioning is not None
    assert on(first.partitioning, seen("1g@0", at_s=101 + CLEAR_S - 0.1)).action is None
    assert on(first.partitioning, seen("1g@0", at_s=101 + CLEAR_S)).action == Destroy(present("1g@0"))


@pytest.mark.parametrize(
    "look",
    [
        pytest.param({"offered": [A]}, id="kubelet offers it"),
        pytest.param({"kubelet_since_s": 104 + CLEAR_S - KUBELET_SETTLES_NS / SECOND_NS}, id="kubelet started"),
    ],
)
def test_a_look_that_shows_it_offered_begins_the_wait_again(look: dict[str, object]) -> None:
    first = on(under_way("1g@0", to=("2g@0",)), seen("1g@0", at_s=101)).partitioning
    assert first is not None
    between = on(first, seen("1g@0", at_s=101 + CLEAR_S, **look))  # type: ignore[arg-type]  # a table of keywords
    assert between.action is None
    assert between.partitioning is not None
    assert between.partitioning.clear_ns is None


@pytest.mark.parametrize("look", [{"given": [A]}, {"booked": [A]}], ids=["a pod", "a reservation"])
def test_an_attempt_whose_slice_is_taken_meanwhile_is_refused(look: dict[str, list[str]]) -> None:
    first = on(under_way("1g@0", to=("2g@0",)), seen("1g@0", at_s=101)).partitioning
    assert first is not None
    found = on(first, seen("1g@0", at_s=101 + CLEAR_S, **look))  # type: ignore[arg-type]  # a table of keywords
    assert found.partitioning is None
    assert found.outcome is not None
    assert found.outcome.state is State.REFUSED


@pytest.mark.parametrize(
    "there",
    [
        pytest.param(seen(present("1g@0", has_process=True)), id="a process"),
        pytest.param(seen("1g@0", given=[A]), id="a pod"),
        pytest.param(seen("1g@0", booked=[A]), id="a book"),
    ],
)
def test_an_attempt_at_a_used_slice_is_refused_at_once(there: Seen) -> None:
    found = step(None, ask("2g@0"), there, there.at_ns)
    assert found.partitioning is None
    assert found.outcome is not None
    assert found.outcome.state is State.REFUSED


def test_a_used_slice_that_stays_is_no_matter() -> None:
    look = seen(present("1g@0", has_process=True), given=[A], booked=[A])
    found = step(None, ask("1g@0", "2g@2"), look, look.at_ns)
    assert found.partitioning is not None
    assert on(found.partitioning, look).action == Make(spot("2g@2"))


def test_a_layout_that_the_driver_cannot_make_is_refused_before_anything_is_destroyed() -> None:
    found = began(["1g@0"], "3g@0", "1g@1")
    assert found == Step(outcome=Outcome("a", State.REFUSED, "1g.10gb at 1 overlaps another slice of the layout"))


@pytest.mark.parametrize("state", [State.DONE, State.REFUSED, State.FAILED])
def test_an_attempt_that_has_ended_is_not_begun_again(state: State) -> None:
    assert due(ask("2g@0"), Outcome("a", state)) is None
    assert step(None, None, seen("1g@0"), 0) == Step()


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(None, id="the first"),
        pytest.param(Outcome("b", State.DONE), id="after another"),
        pytest.param(Outcome("a", State.UNDER_WAY), id="one whose agent has ended"),
    ],
)
def test_an_attempt_that_has_not_ended_is_begun(last: Outcome | None) -> None:
    assert due(ask("2g@0"), last) == ask("2g@0")


def test_nothing_is_begun_without_an_answer_of_driver_and_kubelet() -> None:
    assert step(None, ask("2g@0"), None, 0) == Step()


def test_slices_that_do_not_come_free_are_offered_again() -> None:
    partitioning = under_way("1g@0", to=("2g@0",))
    late = seen("1g@0", at_s=100 + PATIENCE_NS / SECOND_NS, offered=[A])
    found = on(partitioning, late)
    assert found.partitioning is None
    assert found.outcome == Outcome("a", State.REFUSED, "slices to go were not free within 30 s")
    assert step(partitioning, partitioning.ask, None, late.at_ns) == found


def test_an_attempt_that_is_withdrawn_ends_before_the_first_cut_and_not_after_it() -> None:
    partitioning = under_way("1g@0", to=("2g@0",))
    for other in (None, ask("3g@0", attempt="b")):
        found = step(partitioning, other, seen("1g@0"), 100 * SECOND_NS)
        assert found == Step(outcome=Outcome("a", State.REFUSED, "the attempt was withdrawn"))
        cutting = done(partitioning)
        assert step(cutting, other, seen(), 100 * SECOND_NS) == Step(cutting, Make(spot("2g@0")))


def test_the_old_slice_is_made_again_when_the_driver_refuses_the_new_one() -> None:
    partitioning = done(under_way("1g@0", "1g@1", to=("2g@0",)))
    broken = failed(partitioning, Make(spot("2g@0")), "Insufficient Resources")
    assert on(broken, seen()).action == Make(spot("1g@0"))
    assert on(broken, seen("1g@0")).action == Make(spot("1g@1"))
    ended = on(broken, seen("1g@0", "1g@1"))
    assert ended == Step(outcome=Outcome("a", State.FAILED, "create 2g.20gb at 0: Insufficient Resources"))


def test_an_old_slice_is_left_out_where_a_new_one_lies_or_the_driver_refuses_it() -> None:
    partitioning = done(under_way("1g@0", "1g@2", "1g@3", to=("2g@0", "3g@4")))
    broken = failed(partitioning, Make(spot("3g@4")), "Unknown Error")
    assert on(broken, seen("2g@0")).action == Make(spot("1g@2"))
    assert on(broken, seen(present("2g@0", uuids=[]))).action == Make(spot("1g@2"))
    refused = failed(broken, Make(spot("1g@2")), "Unknown Error")
    assert on(refused, seen("2g@0")).action == Make(spot("1g@3"))
    assert on(refused, seen("2g@0", "1g@3")).outcome == Outcome("a", State.FAILED, "create 3g.40gb at 4: Unknown Error")


def test_the_driver_refuses_to_destroy_a_slice() -> None:
    partitioning = failed(under_way("1g@0", to=("2g@0",)), Destroy(present("1g@0")), "In use by another client")
    refused = Outcome("a", State.FAILED, "destroy 1g.10gb at 0: In use by another client")
    assert on(partitioning, seen("1g@0")).outcome == refused
    # That it is withdrawn meanwhile does not hide what became of it.
    assert step(partitioning, None, seen("1g@0"), 100 * SECOND_NS).outcome == refused


def test_a_slice_that_is_used_between_two_cuts_is_not_destroyed() -> None:
    partitioning = replace(done(under_way("1g@0", "1g@1", to=("3g@0",))), clear_ns=0)
    found = on(partitioning, seen("1g@1", given=["MIG-1g@1"]))
    assert found.action is None
    assert found.partitioning is not None
    assert on(found.partitioning, seen("1g@1", given=["MIG-1g@1"])).action == Make(spot("1g@0"))


def test_a_gpu_instance_without_compute_instance_is_made_whole_where_it_is_wanted() -> None:
    partitioning = under_way(present("2g@0", uuids=[]), to=("2g@0",))
    assert partitioning.withdrawn == frozenset()
    assert on(partitioning, seen(present("2g@0", uuids=[]))).action == Make(spot("2g@0"))


def test_a_gpu_instance_without_compute_instance_is_destroyed_where_it_is_in_the_way() -> None:
    rest = present("1g@0", uuids=[])
    first = on(under_way(rest, to=("2g@0",)), seen(rest, at_s=101)).partitioning
    assert first is not None
    assert on(first, seen(rest, at_s=101 + CLEAR_S)).action == Destroy(rest)


def test_nobody_answers_during_a_cut() -> None:
    partitioning = done(under_way("1g@0", to=("2g@0",)))
    assert step(partitioning, partitioning.ask, None, 10**18) == Step(partitioning)
