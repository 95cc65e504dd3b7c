from __future__ import annotations

import pytest

from gpu import limits
from gpu.limits import COMPUTE_CAP, DRIVER_CAP, MEMORY_CAP, WORDS, Listed, Requirement
from gpu.translation import Refusal, Wishes
from wire import names


@pytest.mark.parametrize(
    ("text", "known", "unknown"),
    [
        (None, (), ()),
        ("", (), ()),
        (" , ,", (), ()),
        ("mps", ("mps",), ()),
        ("mps,memory-cap , mps", (MEMORY_CAP, "mps"), ()),
        ("MPS,memory_cap,mig", ("mig",), ("MPS", "memory_cap")),
        (",".join(WORDS), tuple(sorted(WORDS)), ()),
        ("memory-cap/hard", (MEMORY_CAP, "memory-cap/hard"), ()),
        ("compute-cap/hard,memory-cap/soft", (COMPUTE_CAP, "compute-cap/hard", MEMORY_CAP), ()),
        ("memory-cap/after,memory-cap/hard", (MEMORY_CAP, "memory-cap/hard"), ()),
        ("memory-cap=driver/hard", (DRIVER_CAP,), ()),
        ("memory-cap=hami-core", ("memory-cap=hami-core",), ()),
        ("compute-cap=hami-core", ("compute-cap=hami-core",), ()),
        ("memory-cap=mps,compute-cap=mps,mps", ("compute-cap=mps", "memory-cap=mps", "mps"), ()),
        ("memory-cap=mps/hard", (), ("memory-cap=mps/hard",)),
        (
            "memory-cap/firm,mps/hard,memory-cap=driver/soft,/hard",
            (),
            ("/hard", "memory-cap/firm", "memory-cap=driver/soft", "mps/hard"),
        ),
    ],
)
def test_a_node_says_in_words_what_it_enforces(
    text: str | None, known: tuple[str, ...], unknown: tuple[str, ...]
) -> None:
    assert limits.listed(text) == Listed(known, unknown)


@pytest.mark.parametrize(
    ("wishes", "needed"),
    [
        (Wishes(), ()),
        (Wishes(mode="time-slicing"), ()),
        (Wishes(memory_cap=True), (MEMORY_CAP,)),
        (Wishes(memory_cap=True, compute_cap=True, mode="hami-core"), (COMPUTE_CAP, "hami-core", MEMORY_CAP)),
        (Wishes(mode="sm-sharing"), ("sm-sharing",)),
    ],
)
def test_whatever_sharing_does_not_do_by_itself_is_needed_of_a_node(wishes: Wishes, needed: tuple[str, ...]) -> None:
    assert limits.needed(wishes) == needed
    assert limits.lacking(wishes, ()) == needed
    assert limits.lacking(wishes, needed) == ()


def test_only_what_a_node_does_not_say_is_lacking() -> None:
    wishes = Wishes(memory_cap=True, compute_cap=True, mode="mps")
    assert limits.lacking(wishes, ("mps", MEMORY_CAP, "mig")) == (COMPUTE_CAP,)


@pytest.mark.parametrize(
    ("wishes", "by_driver", "needed"),
    [
        (Wishes(memory_cap=True, compute_cap=True), False, ("compute-cap/hard", "memory-cap/hard")),
        (Wishes(memory_cap=True, mode="mps"), True, (DRIVER_CAP, "mps")),
        (Wishes(mode="hami-core"), False, ("hami-core",)),
        (Wishes(), False, ()),
    ],
)
def test_caps_that_have_to_be_hard_are_another_word_and_the_drivers_is_hard(
    wishes: Wishes, by_driver: bool, needed: tuple[str, ...]
) -> None:
    assert limits.needed(wishes, by_driver=by_driver, is_hard=True) == needed


@pytest.mark.parametrize(
    ("text", "requirement"),
    [(None, Requirement.NONE), ("false", Requirement.NONE), ("true", Requirement.ANY), ("hard", Requirement.HARD)],
)
def test_a_pod_says_whether_it_insists(text: str | None, requirement: Requirement) -> None:
    said = {} if text is None else {names.REQUIRE_ENFORCEMENT: text}
    assert limits.requirement(said) is requirement
    assert limits.requirement(None) is Requirement.NONE


@pytest.mark.parametrize("text", ["", "True", "1", "yes", "Hard"])
def test_another_word_is_refused_and_named(text: str) -> None:
    refusal = limits.requirement({names.REQUIRE_ENFORCEMENT: text})
    assert isinstance(refusal, Refusal)
    assert (refusal.field, refusal.value, refusal.allowed) == (names.REQUIRE_ENFORCEMENT, text, "true, hard or false")


@pytest.mark.parametrize(
    ("by_agents", "says", "lacking"),
    [
        (("hami-core",), "memory-cap=hami-core", (COMPUTE_CAP,)),
        (("hami-core",), "memory-cap=hami-core,compute-cap=hami-core", ()),
        (("hami-core", "mps"), "memory-cap=mps,compute-cap=hami-core", ()),
        (("hami-core",), "memory-cap,compute-cap=hami-core", ()),
        (("hami-core",), "memory-cap=mps,compute-cap=mps", (COMPUTE_CAP, MEMORY_CAP)),
        (("mps",), "memory-cap=mps,compute-cap=hami-core", (COMPUTE_CAP,)),
        (("hami-core", "mps"), "mps", (COMPUTE_CAP, MEMORY_CAP)),
        ((), "memory-cap=hami-core,compute-cap=hami-core", (COMPUTE_CAP, MEMORY_CAP)),
        ((), "memory-cap,compute-cap=hami-core", (COMPUTE_CAP,)),
    ],
)
def test_a_cap_of_the_agents_back_end_holds_only_pods_that_it_serves(
    by_agents: tuple[str, ...], says: str, lacking: tuple[str, ...]
) -> None:
    wishes = Wishes(memory_cap=True, compute_cap=True)
    assert limits.lacking(wishes, limits.listed(says).known, by_agents=by_agents) == lacking


def test_no_back_end_of_an_agent_holds_a_cap_that_has_to_be_hard() -> None:
    (word,) = limits.needed(Wishes(memory_cap=True), is_hard=True, by_agents=("hami-core", "mps"))
    assert not limits.does(word, limits.listed("memory-cap=hami-core,memory-cap=mps").known)
