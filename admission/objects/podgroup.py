"""Whether a PodGroup may be created or changed: KAI's rules in KAI's order (kai-contract 2.2), then durations.

The first fault of the tree of subgroups ends the review. Minimums that don't fit the tree are told together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from admission.objects.findings import Allowed, Finding, Judgement, Refused, Rule, Word, broken_durations
from wire.crds.podgroup import PodGroup, PodGroupSpec, SubGroup

#: Subgroups that a review reads: some 50 ms of work.
MOST_SUB_GROUPS: Final = 10_000
#: Findings that one review tells. A group may have thousands of subgroups.
_MOST: Final = 16
#: KAI takes these from new groups and from changed ones: children may come later.
_WARNINGS: Final = frozenset({Rule.MIN_SUB_GROUP_TOO_LARGE, Rule.CHILDREN_TOO_FEW})
#: From changed groups it takes this as well.
_WARNINGS_OF_UPDATE: Final = _WARNINGS | {Rule.MIN_MEMBER_OF_PARENT}


class _Place(NamedTuple):
    """A subgroup, and the field that it stands in."""

    group: SubGroup
    field: str


def sub_groups(raw: Mapping[str, Any]) -> int:
    """Return how many subgroups an object has before anything of it is read; 0 where there is no list."""
    spec = raw.get("spec")
    found = spec.get("subGroups") if isinstance(spec, Mapping) else None
    return len(found) if isinstance(found, list) else 0


def too_many(number: int) -> Finding:
    """Say that a group has more subgroups than a review reads."""
    words: dict[str, Word] = {"most": MOST_SUB_GROUPS}
    return Finding(rule=Rule.TOO_MANY_SUB_GROUPS, field="spec.subGroups", value=f"{number} subgroups", words=words)


def judge_group(group: PodGroup, *, old: PodGroup | None) -> Judgement:
    """Judge a PodGroup as it would be stored. ``old``: as it is stored, None if it is new."""
    if (broken := _broken_tree(group.spec)) is not None:
        return Refused((broken,))
    found = [*_broken_minimums(group.spec), *_durations(group.spec)]
    lenient = _WARNINGS if old is None else _WARNINGS_OF_UPDATE
    stored = () if old is None else tuple(_durations(old.spec))
    warnings = tuple(each for each in found if each.rule in lenient or each in stored)
    errors = tuple(each for each in found if each.rule not in lenient and each not in stored)
    return Refused(errors[:_MOST], warnings[:_MOST]) if errors else Allowed(warnings[:_MOST])


def _durations(spec: PodGroupSpec) -> Iterator[Finding]:
    return broken_durations(preemptionDelay=spec.preemption_delay, stalenessGracePeriod=spec.staleness_grace_period)


def _broken_tree(spec: PodGroupSpec) -> Finding | None:
    """The first fault, if there is one: both minimums, then names, parents and cycles of subgroups."""
    if spec.min_member is not None and spec.min_sub_group is not None:
        return Finding(
            rule=Rule.BOTH_MINIMUMS, field="spec.minMember", value=str(spec.min_member), words={"most": spec.min_member}
        )
    places: dict[str, _Place] = {}
    for number, group in enumerate(spec.sub_groups or ()):
        place = _Place(group, f"spec.subGroups[{number}]")
        if group.name in places:
            return _finding(Rule.NAME_TWICE, place, "name", group.name)
        places[group.name] = place
    for place in places.values():
        if place.group.parent is not None and place.group.parent not in places:
            return _finding(Rule.SUB_GROUP_PARENT, place, "parent", place.group.parent)
    if (circular := _in_cycle(places)) is not None:
        return _finding(Rule.SUB_GROUP_CYCLE, circular, "parent", circular.group.parent or "")
    return next(_with_both(_sorted(places.values())), None)


def _with_both(places: Iterable[_Place]) -> Iterator[Finding]:
    for place in places:
        if place.group.min_member is not None and place.group.min_sub_group is not None:
            yield _finding(Rule.BOTH_MINIMUMS_OF_SUB_GROUP, place, "minMember", place.group.min_member)


def _in_cycle(places: Mapping[str, _Place]) -> _Place | None:
    """A subgroup that is below itself. Each is walked over once."""
    above_is_sound: set[str] = set()
    for start in places.values():
        path: dict[str, None] = {}
        at: str | None = start.group.name
        while at is not None and at not in above_is_sound:
            if at in path:
                return places[at]
            path[at] = None
            at = places[at].group.parent
        above_is_sound.update(path)
    return None


def _broken_minimums(spec: PodGroupSpec) -> Iterator[Finding]:
    """By the names of the subgroups, and the PodGroup's own at the end."""
    groups = spec.sub_groups or ()
    children = Counter(group.parent for group in groups)
    for place in _sorted(_Place(group, f"spec.subGroups[{number}]") for number, group in enumerate(groups)):
        below = children[place.group.name]
        yield from _broken_parent(place, below) if below else _broken_leaf(place)
    at_top = children[None]
    if spec.min_sub_group is not None and spec.min_sub_group > at_top:
        yield Finding(
            rule=Rule.CHILDREN_TOO_FEW,
            field="spec.minSubGroup",
            value=str(spec.min_sub_group),
            words={"found": spec.min_sub_group, "most": at_top},
        )


def _broken_leaf(place: _Place) -> Iterator[Finding]:
    if place.group.min_sub_group is not None:
        yield _finding(Rule.MIN_SUB_GROUP_OF_LEAF, place, "minSubGroup", place.group.min_sub_group)
    if place.group.min_member is None:
        yield _finding(Rule.MIN_MEMBER_MISSING, place, "minMember", "")


def _broken_parent(place: _Place, below: int) -> Iterator[Finding]:
    if place.group.min_member is not None:
        yield _finding(Rule.MIN_MEMBER_OF_PARENT, place, "minMember", place.group.min_member)
    least = place.group.min_sub_group
    if least is not None and least > below:
        yield _finding(Rule.MIN_SUB_GROUP_TOO_LARGE, place, "minSubGroup", least, most=below)


def _sorted(places: Iterable[_Place]) -> list[_Place]:
    return sorted(places, key=lambda place: place.group.name)


def _finding(rule: Rule, place: _Place, field: str, value: str | int, **words: int) -> Finding:
    said: dict[str, Word] = {"group": place.group.name, "found": value, **words}
    return Finding(rule=rule, field=f"{place.field}.{field}", value=str(value), words=said)
