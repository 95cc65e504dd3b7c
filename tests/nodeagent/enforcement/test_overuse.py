from __future__ import annotations

import re

import pytest

from admission.node_policies import CAP_NOTE
from nodeagent.core.enforcement.messages import Done
from nodeagent.core.enforcement.overuse import MIB, Action, Deed, Process
from nodeagent.enforcement.memory import note
from nodeagent.enforcement.memory_enforcer import loop

ABOVE = "1500 MiB of GPU-1 are in use, the cap is 1000 MiB"


def done(*outcomes: str, names: tuple[str, ...] = ("train",), dry: bool = False) -> Done:
    victims = tuple(Process(number, 1, 1500 * MIB, None, "uid", name=name) for number, name in enumerate(names))
    return Done(Deed("uid", "GPU-1", 1500 * MIB + 1, 1000, Action.END_LARGEST, victims, dry), outcomes)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (done("ended"), f"{ABOVE}: process train was killed"),
        (done("ended", "ended", "gone", names=("a", "b", "c")), f"{ABOVE}: process a was killed; so for 2 more"),
        (done(dry=True), f"{ABOVE}: process train would be killed; the warden is in dry run and kills nobody"),
        (done("ended", names=("",)), f"{ABOVE}: process without a name was killed"),
        (done("ended", names=("a\nb\u202ec",)), f"{ABOVE}: process a?b?c was killed"),
        (done(names=()), ABOVE),
        (done("a word of a later version"), f"{ABOVE}: process train is in an unknown state"),
    ],
)
def test_use_cap_and_what_became_of_the_largest_process_are_said(of: Done, said: str) -> None:
    assert note(of) == said


@pytest.mark.parametrize("word", [loop.ENDED, loop.ASKED, loop.GONE, loop.OTHER, loop.REFUSED])
def test_each_outcome_of_the_warden_has_words(word: str) -> None:
    assert "unknown" not in note(done(word))


@pytest.mark.parametrize("word", [loop.ENDED, loop.ASKED, loop.GONE, loop.OTHER, loop.REFUSED, "?"])
@pytest.mark.parametrize("is_dry", [False, True])
def test_every_note_is_of_the_form_that_the_policy_of_events_allows(word: str, *, is_dry: bool) -> None:
    for names in ((), ("a: b" * 16,), ("\n" * 64, *["x"] * 10_000)):
        assert re.match(CAP_NOTE, note(done(word, names=names, dry=is_dry))) is not None
