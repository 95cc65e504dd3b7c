from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.book import Entry
from sharing.entries import (
    LEARNS_S,
    LONGEST_SILENCE_S,
    UNSEEN_GRACE_S,
    WRITE_TIMEOUT_S,
    Evidence,
    Judgement,
    is_plain,
    is_suspicious,
    judge,
)
from sharing.pods import PodView
from tests.sharing.made import attempt, bound, pod

ENTRY = Entry(500_000_000, attempt().id, "10", 1000, "team/p")
OLD = WRITE_TIMEOUT_S + 1
#: How long pods with a grace period of 30 s, of 300 s, and those that were never seen are waited for.
SHORT, LONG, UNSEEN = LEARNS_S + 35, LEARNS_S + 305, LEARNS_S + UNSEEN_GRACE_S


def evidence(**changes: Any) -> Evidence:
    times = {"gone_for_s": 0.0, "heard_for_s": 0.0, "seen_for_s": 0.0}
    plain = Evidence(group="g", pod=pod(), last=None, has_request=False, **times)
    return msgspec.structs.replace(plain, **changes)


def heard(for_s: float, *, gone_for_s: float | None = None) -> dict[str, Any]:
    """A pod that vanished, and for how long its machine has been heard of since."""
    return {"pod": None, "gone_for_s": for_s if gone_for_s is None else gone_for_s, "heard_for_s": for_s}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"pod": bound()}, Judgement.LIVE),
        ({"pod": bound(deleting=True)}, Judgement.LIVE),
        # KAI's pods have labels only.
        ({"pod": pod(node="node-1", groups=("g",))}, Judgement.LIVE),
        ({"pod": bound(groups=())}, Judgement.LIVE),
        ({"pod": bound(ended=True)}, Judgement.DEAD),
        ({"pod": pod(node="node-2", groups=("other",))}, Judgement.DEAD),
        ({"pod": pod(node="node-2")}, Judgement.DEAD),
        # Unbound at another version: no Binding at the entry's can land.
        ({"pod": pod(rv="11")}, Judgement.DEAD),
        ({"pod": pod(rv="11"), "has_request": True}, Judgement.DEAD),
        # Unbound at the entry's version.
        ({"has_request": True, "seen_for_s": OLD}, Judgement.LIVE),
        ({"seen_for_s": OLD}, Judgement.FENCE_FIRST),
        ({"seen_for_s": OLD - 1}, Judgement.WAIT),
        # Gone.
        ({"pod": None, "last": pod()}, Judgement.DEAD),
        ({"pod": None, "last": bound(ended=True)}, Judgement.DEAD),
        ({"last": bound(grace_s=30), **heard(30.0)}, Judgement.WAIT),
        ({"last": bound(grace_s=30), **heard(float(SHORT))}, Judgement.WAIT),
        ({"last": bound(grace_s=30), **heard(SHORT + 0.1)}, Judgement.DEAD),
        ({"last": bound(grace_s=300), **heard(float(LONG))}, Judgement.WAIT),
        ({"last": bound(grace_s=300), **heard(LONG + 0.1)}, Judgement.DEAD),
        (heard(float(UNSEEN)), Judgement.WAIT),
        (heard(UNSEEN + 0.1), Judgement.DEAD),
        # Ready all the time, though a kubelet that was cut off may not have learned of the deletion yet.
        ({"last": bound(grace_s=30), **heard(35.1)}, Judgement.WAIT),
        ({"last": bound(grace_s=0), **heard(float(LEARNS_S))}, Judgement.WAIT),
        (heard(UNSEEN_GRACE_S + 0.1), Judgement.WAIT),
        # Cut off for 49 s, and deaf for a minute more: it learns of the deletion after 109 s, and takes 30 s to end.
        ({"last": bound(grace_s=30), **heard(49.0 + 60.0 + 30.0)}, Judgement.WAIT),
        # Gone, and its machine is silent, or is heard of again: the kubelet has to learn of the deletion first.
        ({"last": bound(grace_s=30), **heard(0.0, gone_for_s=LONGEST_SILENCE_S)}, Judgement.WAIT),
        ({"last": bound(grace_s=30), **heard(float(SHORT), gone_for_s=LONGEST_SILENCE_S)}, Judgement.WAIT),
        ({"last": bound(grace_s=30), **heard(SHORT + 0.1, gone_for_s=LONGEST_SILENCE_S)}, Judgement.DEAD),
        (heard(0.0, gone_for_s=LONGEST_SILENCE_S + float(UNSEEN)), Judgement.WAIT),
        (heard(0.0, gone_for_s=LONGEST_SILENCE_S + UNSEEN + 0.1), Judgement.DEAD),
        ({"last": bound(grace_s=300), **heard(0.0, gone_for_s=LONGEST_SILENCE_S + float(LONG))}, Judgement.WAIT),
        ({"last": bound(grace_s=300), **heard(0.0, gone_for_s=LONGEST_SILENCE_S + LONG + 0.1)}, Judgement.DEAD),
    ],
)
def test_an_entry_is_judged_by_what_was_read(found: dict[str, Any], expected: Judgement) -> None:
    assert judge(ENTRY, evidence(**found)) is expected


@pytest.mark.parametrize(
    ("seen", "at_work", "seen_for_s", "expected"),
    [
        (None, True, 0, True),
        (bound(ended=True), True, 0, True),
        (bound(), False, OLD, False),
        (pod(node="node-2"), False, 0, True),
        (pod(rv="11"), True, OLD, False),
        (pod(rv="11"), False, 0, True),
        (pod(), False, 0, False),
        (pod(), False, WRITE_TIMEOUT_S, False),
        (pod(), False, OLD, True),
    ],
)
def test_only_what_looks_dead_costs_reads(
    seen: PodView | None, at_work: bool, seen_for_s: float, expected: bool
) -> None:
    assert is_suspicious(ENTRY, "g", seen, at_work=at_work, seen_for_s=seen_for_s) is expected


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (bound(), True),
        # KAI's pods have labels only; ours have a grant, even where somebody took the labels away.
        (pod(node="node-1", groups=("g",)), True),
        (bound(groups=()), True),
        (bound(attempt(groups=("g", "h")), groups=()), True),
        (bound(attempt(groups=("h", "g")), groups=()), True),
        (None, False),
        (pod(groups=("g",)), False),
        (bound(ended=True), False),
        (bound(attempt(groups=("h",))), False),
        (pod(node="node-1"), False),
    ],
)
def test_the_entry_of_a_bound_pod_that_holds_the_group_needs_no_second_look(
    seen: PodView | None, expected: bool
) -> None:
    assert is_plain("g", seen) is expected
    if seen is not None:
        assert seen.holds("g") is ("g" in seen.held_groups)
