from __future__ import annotations

import pytest

from gpu import enforcement
from gpu.enforcement import COMPUTE_CAP, MEMORY_CAP, WORDS, Listed
from gpu.refusal import Refusal
from gpu.translation import Wishes
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
    ],
)
def test_a_node_says_in_words_what_it_enforces(
    text: str | None, known: tuple[str, ...], unknown: tuple[str, ...]
) -> None:
    assert enforcement.listed(text) == Listed(known, unknown)


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
    assert enforcement.needed(wishes) == needed
    assert enforcement.lacking(wishes, ()) == needed
    assert enforcement.lacking(wishes, needed) == ()


def test_only_what_a_node_does_not_say_is_lacking() -> None:
    wishes = Wishes(memory_cap=True, compute_cap=True, mode="mps")
    assert enforcement.lacking(wishes, ("mps", MEMORY_CAP, "mig")) == (COMPUTE_CAP,)


@pytest.mark.parametrize(("text", "is_required"), [(None, False), ("false", False), ("true", True)])
def test_a_pod_says_whether_it_insists(text: str | None, is_required: bool) -> None:
    said = {} if text is None else {names.REQUIRE_ENFORCEMENT: text}
    assert enforcement.is_required(said) is is_required
    assert enforcement.is_required(None) is False


@pytest.mark.parametrize("text", ["", "True", "1", "yes"])
def test_another_word_is_refused_and_named(text: str) -> None:
    refusal = enforcement.is_required({names.REQUIRE_ENFORCEMENT: text})
    assert isinstance(refusal, Refusal)
    assert (refusal.field, refusal.value, refusal.allowed) == (names.REQUIRE_ENFORCEMENT, text, "true or false")
