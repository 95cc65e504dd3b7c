"""What may be done to PodGroups, as tables: KAI's rules with their texts, in KAI's order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.objects.findings import Allowed, Judgement, Refused, told
from admission.objects.podgroup import judge_group
from tests.admission.objects.queues import Raw
from tests.values import of_kind
from wire.crds.podgroup import PodGroup


def group(*parts: Raw, **spec: Any) -> PodGroup:
    return msgspec.convert({"metadata": {"name": "g"}, "spec": {**spec, "subGroups": list(parts)}}, PodGroup)


def part(name: str, parent: str | None = None, *, pods: int | None = None, below: int | None = None) -> Raw:
    """A subgroup with ``minMember`` and ``minSubGroup``."""
    return {"name": name, "parent": parent, "minMember": pods, "minSubGroup": below}


def texts(judgement: Judgement) -> list[str]:
    """Messages as KAI has them: without field, value and what is allowed."""
    found = judgement.findings if isinstance(judgement, Refused) else judgement.warnings
    return [told(each).split(" (spec.")[0] for each in found]


BOTH = (
    "minMember and minSubGroup are mutually exclusive: set minMember (0) to schedule a fixed number of pods, or set "
    "minSubGroup to require a minimum number of child SubGroups, but not both"
)
MID_LEVEL = (
    'subgroup "mid": minMember cannot be set on a mid-level SubGroup (has child SubGroups); use minSubGroup instead'
)

REFUSED: dict[str, tuple[PodGroup, list[str]]] = {
    "both minimums": (group(minMember=0, minSubGroup=1), [BOTH]),
    "both minimums before a name that stands twice": (group(part("a"), part("a"), minMember=0, minSubGroup=1), [BOTH]),
    "a name that stands twice": (group(part("a", pods=1), part("a", pods=1)), ["duplicate subgroup name a"]),
    "a name that stands twice before a parent that is missing": (
        group(part("a", "gone", pods=1), part("b", pods=1), part("b", pods=1)),
        ["duplicate subgroup name b"],
    ),
    "a parent that is missing": (group(part("a", "gone", pods=1)), ["parent gone of a was not found"]),
    "an empty parent": (group(part("a", "", pods=1)), ["parent  of a was not found"]),
    "a parent that is missing before a cycle": (
        group(part("a", "b"), part("b", "a"), part("c", "gone")),
        ["parent gone of c was not found"],
    ),
    "its own parent": (group(part("a", "a", pods=1)), ["cycle detected in subgroups"]),
    "a cycle beside sound ones": (
        group(part("top", below=1), part("leaf", "top", pods=1), part("a", "b"), part("b", "c"), part("c", "a")),
        ["cycle detected in subgroups"],
    ),
    "both minimums of the first of two subgroups, by name": (
        group(part("b", pods=1, below=1), part("a", pods=1, below=1)),
        ['subgroup "a": minMember and minSubGroup are mutually exclusive'],
    ),
    "both minimums of a subgroup, and no word of another's minimum": (
        group(part("a"), part("b", pods=1, below=1)),
        ['subgroup "b": minMember and minSubGroup are mutually exclusive'],
    ),
    "a leaf that counts subgroups, and not pods": (
        group(part("a", below=1)),
        [
            'subgroup "a": minSubGroup cannot be set on a leaf SubGroup (no child SubGroups)',
            "subgroup a: minMember is required",
        ],
    ),
    "leaves without minimum, by name": (
        group(part("b"), part("a")),
        ["subgroup a: minMember is required", "subgroup b: minMember is required"],
    ),
    "a new one with pods above a leaf": (group(part("mid", pods=1), part("leaf", "mid", pods=1)), [MID_LEVEL]),
    "a duration that is none": (group(preemptionDelay="soon"), ["the duration cannot be read"]),
}

WARNED: dict[str, tuple[PodGroup, list[str]]] = {
    "more subgroups than there are": (
        group(part("a", pods=1), minSubGroup=2),
        ["minSubGroup (2) exceeds the number of direct child SubGroups (1)"],
    ),
    "more subgroups than a subgroup has, and than there are at the top": (
        group(part("mid", below=2), part("leaf", "mid", pods=0), minSubGroup=3),
        [
            'subgroup "mid": minSubGroup (2) exceeds the number of direct child SubGroups (1)',
            "minSubGroup (3) exceeds the number of direct child SubGroups (1)",
        ],
    ),
}

SILENT: dict[str, PodGroup] = {
    "nothing said": group(),
    "no pod needed": group(minMember=0),
    "subgroups without minimum at the top": group(part("a", pods=1), part("b", pods=2)),
    "a tree of three levels": group(
        part("top", below=1), part("mid", "top", below=1), part("leaf", "mid", pods=3), minSubGroup=1
    ),
    "no subgroup needed": group(part("a", pods=1), minSubGroup=0),
    "negative and whole durations": group(preemptionDelay="30s", stalenessGracePeriod="-1s"),
}


@pytest.mark.parametrize(("made", "said"), REFUSED.values(), ids=REFUSED)
def test_a_group_is_refused_in_kais_words_and_order(made: PodGroup, said: list[str]) -> None:
    judgement = of_kind(Refused, judge_group(made, old=None))
    assert texts(judgement) == said


@pytest.mark.parametrize(("made", "said"), WARNED.values(), ids=WARNED)
@pytest.mark.parametrize("old", [None, group()], ids=["new", "changed"])
def test_a_minimum_above_what_is_there_is_a_warning_since_children_may_come_later(
    made: PodGroup, said: list[str], old: PodGroup | None
) -> None:
    judgement = of_kind(Allowed, judge_group(made, old=old))
    assert [told(each) for each in judgement.warnings] == said


@pytest.mark.parametrize("made", SILENT.values(), ids=SILENT)
def test_a_group_without_fault_is_allowed_in_silence(made: PodGroup) -> None:
    assert judge_group(made, old=None) == Allowed()


def test_pods_of_a_parent_are_a_warning_where_the_group_is_there_already() -> None:
    made = group(part("mid", pods=1), part("leaf", "mid", pods=1))
    judgement = of_kind(Allowed, judge_group(made, old=made))
    assert texts(judgement) == [MID_LEVEL]


def test_errors_come_with_the_warnings_beside_them() -> None:
    judgement = of_kind(Refused, judge_group(group(part("a"), minSubGroup=2), old=None))
    assert texts(judgement) == ["subgroup a: minMember is required"]
    assert [told(each) for each in judgement.warnings] == [
        "minSubGroup (2) exceeds the number of direct child SubGroups (1)"
    ]


def test_field_value_and_what_is_allowed_follow_kais_words() -> None:
    judgement = of_kind(Refused, judge_group(group(part("b", pods=1), part("a", "gone", pods=1)), old=None))
    assert told(judgement.findings[0]) == (
        'parent gone of a was not found (spec.subGroups[1].parent is "gone"; '
        "allowed: the name of a subgroup of this PodGroup)"
    )


def test_a_duration_that_is_stored_is_a_warning_and_another_one_is_refused() -> None:
    old = group(preemptionDelay="soon")
    assert isinstance(judge_group(group(preemptionDelay="soon", minMember=2), old=old), Allowed)
    assert isinstance(judge_group(group(preemptionDelay="later"), old=old), Refused)


def test_thousands_of_faults_are_told_in_part() -> None:
    judgement = of_kind(Refused, judge_group(group(*(part(f"p{number:04}") for number in range(3000))), old=None))
    assert len(judgement.findings) == 16


_NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
_PARTS = st.lists(
    st.builds(
        part,
        _NAMES,
        st.one_of(st.none(), _NAMES),
        pods=st.one_of(st.none(), st.integers(0, 3)),
        below=st.one_of(st.none(), st.integers(0, 3)),
    ),
    max_size=6,
    unique_by=lambda one: one["name"],
)


@given(_PARTS, st.one_of(st.none(), st.integers(0, 3)))
def test_a_group_is_allowed_exactly_where_every_leaf_counts_pods_and_every_parent_subgroups(
    parts: list[Raw], least: int | None
) -> None:
    judgement = judge_group(group(*parts, minSubGroup=least), old=None)
    parents = {one["name"]: one["parent"] for one in parts}
    is_tree = all(_reaches_the_top(name, parents) for name in parents)
    above = set(parents.values())
    fits = all(_counts_what_it_has(one, is_parent=one["name"] in above) for one in parts)
    assert isinstance(judgement, Allowed) == (is_tree and fits)


def _counts_what_it_has(one: Raw, *, is_parent: bool) -> bool:
    counts_pods, counts_groups = one["minMember"] is not None, one["minSubGroup"] is not None
    return not counts_pods if is_parent else counts_pods and not counts_groups


def _reaches_the_top(name: str, parents: dict[str, str | None]) -> bool:
    at: str | None = name
    for _ in range(len(parents)):
        at = parents.get(at) if at in parents else at
        if at is None:
            return True
    return False
