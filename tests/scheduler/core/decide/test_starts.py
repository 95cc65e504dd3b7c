"""Starts of gangs: what they ask, their parts, and whether waiting members could complete one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pods import pod_record
from scheduler.core.decide.domain_search import StartParts, shares_of_leaves
from scheduler.core.decide.gang_search import are_in_domains, place_bounds
from scheduler.core.decide.gang_sleep import alike_of, asked_by_start, speaks_of
from scheduler.core.decide.stale_gangs import can_complete, candidates
from scheduler.core.groups.quorum import Quorum, quorum
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.scheduling_queue.unschedulable import KeptGang
from tests.scheduler.core.objects import (
    NANO,
    Fed,
    bound,
    claim,
    cluster,
    node,
    pod,
    pod_group,
    reservation,
    topology,
    volume,
)
from tests.values import there


def _members(count: int, *, of: str = "g", gpus: int = 1) -> list[PodRecord]:
    made = [pod(f"{of}-{number}", gpus=gpus, group=of) for number in range(count)]
    return [record for each in made if (record := pod_record(each, Settings())) is not None]


def _gang(minimum: int, *running: PodRecord, of: str = "g") -> tuple[PodGroupRecord, Quorum]:
    group = pod_group_record(pod_group(of, minimum))
    return group, quorum(group, running, lambda _: False)


def _kept(of: Hashable) -> KeptGang:
    verdict = Verdict(code=Code.GANG_INCOMPLETE)
    return KeptGang(
        verdict=verdict, asked=of, depends_on_all=False, sure_at=0, generation=0, charged=frozenset(), needs=None
    )


@pytest.mark.parametrize(("minimum", "waiting", "speaks"), [(3, 3, True), (3, 4, True), (3, 2, False), (2, 3, False)])
def test_a_verdict_is_still_true_of_a_gang_that_needs_the_same_and_has_no_fewer_members(
    minimum: int, waiting: int, speaks: bool
) -> None:
    kept = _kept(asked_by_start(*_gang(3), _members(3)))
    assert speaks_of(kept, *_gang(minimum), waiting) == speaks


def test_a_verdict_says_nothing_of_a_gang_of_which_more_is_bound() -> None:
    running = there(pod_record(bound(pod("g-9", gpus=1, group="g"), "n1"), Settings()))
    kept = _kept(asked_by_start(*_gang(3), _members(3)))
    assert not speaks_of(kept, *_gang(3, running), 3)
    assert not speaks_of(_kept(None), *_gang(3), 3)


def test_gangs_that_ask_the_same_are_alike_whatever_their_names() -> None:
    one = there(alike_of(*_gang(2), _members(2), 2))
    assert one == alike_of(*_gang(2, of="h"), _members(2, of="h"), 2)
    assert one != alike_of(*_gang(2), _members(2, gpus=2), 2)
    assert asked_by_start(*_gang(2), _members(2)) != asked_by_start(*_gang(2, of="h"), _members(2, of="h"))


def test_no_gang_is_like_one_that_has_begun_or_of_which_not_all_are_ready() -> None:
    running = there(pod_record(bound(pod("g-9", gpus=1, group="g"), "n1"), Settings()))
    assert alike_of(*_gang(2, running), _members(1), 1) is None
    assert alike_of(*_gang(2), _members(2), 3) is None


_TWO: list[Mapping[str, Any]] = [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}]
_NESTED: list[Mapping[str, Any]] = [{"name": "top"}, {"name": "a", "parent": "top"}, {"name": "b", "minMember": 1}]


def _parts(
    minimum: int | None, subgroups: list[Mapping[str, Any]], members: Mapping[str, int], **spec: Any
) -> tuple[StartParts, tuple[str, ...]]:
    pods = [pod(f"{of}{n}", group="g", subgroup=of) for of, count in members.items() for n in range(count)]
    made = cluster(pod_group("g", minimum, subGroups=subgroups, **spec), *pods)
    snapshot = made.snapshot()
    group = there(snapshot.pod_group("ns", "g"))
    state, ready = snapshot.quorum(group), snapshot.waiting_members("ns", "g", 0)
    return StartParts(state, ready, {}, shares_of_leaves(state, ready)), group.tree.names


@pytest.mark.parametrize(
    ("minimum", "subgroups", "members", "spec", "shares"),
    [
        pytest.param(2, _TWO, {"a": 3, "b": 3}, {}, {}, id="the minimums of subgroups are all"),
        pytest.param(4, _TWO, {"a": 3, "b": 3}, {}, {"a": 3}, id="the first members in their order"),
        pytest.param(5, _TWO, {"a": 3, "b": 3}, {}, {"a": 3, "b": 2}, id="as many as the gang needs"),
        pytest.param(3, _NESTED, {"a": 2, "b": 1}, {}, {"a": 2}, id="of one that needs none itself"),
        pytest.param(None, _TWO, {"a": 3, "b": 3}, {"minSubGroup": 1}, {}, id="none where there is a choice"),
    ],
)
def test_subgroups_provide_what_the_minimum_asks_in_all(
    minimum: int | None,
    subgroups: list[Mapping[str, Any]],
    members: Mapping[str, int],
    spec: Mapping[str, Any],
    shares: Mapping[str, int],
) -> None:
    parts, names = _parts(minimum, subgroups, members, **spec)
    assert {names[leaf]: count for leaf, count in parts.shares.items()} == shares


def test_a_subgroup_that_needs_nobody_itself_is_part_of_a_start_to_which_it_provides_members() -> None:
    parts, names = _parts(3, _NESTED, {"a": 2, "b": 1})
    assert sorted(names[leaf] for leaf in parts.of(0).leaves) == ["a", "b"]
    top = names.index("top")
    assert [each.name for each in parts.needed(top)] == ["a0", "a1"]
    assert [each.name for each in parts.under(top)] == ["a0", "a1"]


def test_a_subgroup_is_compared_with_others_unless_it_has_subgroups_or_one_of_its_members_is_like_no_other() -> None:
    two: list[Mapping[str, Any]] = [{"name": "top"}, {"name": "a", "parent": "top", "minMember": 2}]
    parts, names = _parts(None, [*two, {"name": "b", "minMember": 2}], {"a": 2, "b": 2})
    of_a, *others = parts.ready
    parts = StartParts(parts.state, [msgspec.structs.replace(of_a, alone=("claim",)), *others], {})
    assert [parts.is_like_no_other(names.index(name)) for name in ("top", "a", "b")] == [True, True, False]


def test_a_subgroup_that_provides_nobody_is_no_part_of_a_start() -> None:
    parts, names = _parts(1, _NESTED, {"a": 2, "b": 1})
    assert [names[leaf] for leaf in parts.of(0).leaves] == ["b"]


# Whether members that wait could complete a gang that lost some.

RUNS = bound(pod("runs", group="g", gpus=1), "n1")
WAITS = pod("waits", group="g", gpus=1)
BIG = pod("big", group="g", gpus=9)


@pytest.mark.parametrize(
    ("objects", "minimum", "is_completed"),
    [
        pytest.param([node(gpus=2), WAITS], 2, True, id="there is room"),
        pytest.param([node(gpus=1), WAITS], 2, False, id="there is none"),
        pytest.param([node(gpus=2)], 2, False, id="nobody waits"),
        pytest.param([node(gpus=8), WAITS], 3, False, id="too few wait"),
        pytest.param([node(gpus=2), BIG, WAITS], 2, True, id="one that fits nowhere is passed over"),
        pytest.param([node(gpus=2), reservation("idle"), WAITS], 2, True, id="an idle reservation goes for it"),
        pytest.param([node(gpus=2), reservation("x", book={"u": NANO}), WAITS], 2, False, id="one that is used"),
        pytest.param([node(gpus=2), pod("waits", group="g", gpus=1, gated=True)], 2, False, id="gated"),
        pytest.param([node(gpus=2), pod("waits", group="g", gpus=1, deleting=True)], 2, False, id="being deleted"),
        pytest.param([node(gpus=2), pod("waits", gpus=1)], 2, False, id="not a member"),
        pytest.param(
            [node(gpus=2), pod("waits", group="g", gpus=1, spec={"resourceClaims": [{"name": "c"}]})],
            2,
            False,
            id="kept waiting by what it asks",
        ),
    ],
)
def test_a_gang_can_be_completed_by_members_that_wait_for_room_only(
    objects: list[Any], minimum: int, is_completed: bool
) -> None:
    made = cluster(*objects, RUNS, pod_group("g", minimum))
    group = there(made.pod_group("ns", "g"))
    before = made.generation
    assert can_complete(made.snapshot(), group, candidates(made.snapshot(), group, 0), 0) is is_completed
    assert (made.generation, made.validate()) == (before, [])


def test_a_member_that_backs_off_does_not_complete_a_gang_until_its_time_has_come() -> None:
    made = cluster(node(gpus=2), RUNS, WAITS, pod_group("g", 2))
    group = there(made.pod_group("ns", "g"))
    made.commits.failed("uid-waits", "", "Refused: by nobody", now_ns=0)
    setback = there(made.setback("uid-waits"))
    for now_ns, is_completed in ((setback.until_ns - 1, False), (setback.until_ns, True)):
        assert can_complete(made.snapshot(), group, candidates(made.snapshot(), group, now_ns), now_ns) is is_completed


def test_a_node_that_is_out_for_a_member_does_not_complete_its_gang() -> None:
    made = cluster(node(gpus=2), RUNS, WAITS, pod_group("g", 2))
    group = there(made.pod_group("ns", "g"))
    made.commits.failed("uid-waits", "n1", "Refused: by n1", now_ns=0)
    setback = there(made.setback("uid-waits"))
    assert setback.excluded_at(setback.until_ns) == ("n1",)
    assert not can_complete(
        made.snapshot(), group, candidates(made.snapshot(), group, setback.until_ns), setback.until_ns
    )


def test_members_of_a_subgroup_that_has_enough_do_not_stand_in_the_way_of_those_that_are_missing() -> None:
    subgroups = [{"name": "s1", "minMember": 1}, {"name": "s2", "minMember": 1}]
    runs = bound(pod("runs", group="g", subgroup="s1", gpus=1), "n1")
    waits = [pod("a", group="g", subgroup="s1", gpus=1), pod("b", group="g", subgroup="s2", gpus=1)]
    made = cluster(node(gpus=2), runs, *waits, pod_group("g", subGroups=subgroups))
    group = there(made.pod_group("ns", "g"))
    waiting = candidates(made.snapshot(), group, 0)
    assert [each.name for each in waiting] == ["a", "b"]
    assert can_complete(made.snapshot(), group, waiting, 0)
    assert not can_complete(made.snapshot(), group, waiting[:1], 0)


def test_members_that_need_one_claim_for_themselves_do_not_complete_a_gang_together() -> None:
    mounts = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
    waits = [pod(name, group="g", gpus=1, spec=mounts) for name in ("a", "b")]
    disk: list[Fed] = [claim("data", "pv", modes=["ReadWriteOncePod"]), volume("pv")]
    for minimum, is_completed in ((2, True), (3, False)):
        made = cluster(node(gpus=8), *disk, RUNS, *waits, pod_group("g", minimum))
        group = there(made.pod_group("ns", "g"))
        assert can_complete(made.snapshot(), group, candidates(made.snapshot(), group, 0), 0) is is_completed


def test_what_fitted_nowhere_beside_one_choice_of_subgroups_may_fit_with_another() -> None:
    subgroups = [{"name": name, "minMember": least} for name, least in (("runs", 1), ("a", 2), ("b", 2))]
    runs = bound(pod("runs", group="g", subgroup="runs", gpus=1), "n1")
    of_a = [pod("a0", group="g", subgroup="a", gpus=2), pod("a1", group="g", subgroup="a", gpus=1)]
    of_b = [pod(name, group="g", subgroup="b", gpus=1) for name in ("b0", "b1")]
    for gpus, is_completed in ((2, False), (3, True)):
        made = cluster(node(gpus=gpus), runs, *of_a, *of_b, pod_group("g", minSubGroup=2, subGroups=subgroups))
        group = there(made.pod_group("ns", "g"))
        assert can_complete(made.snapshot(), group, candidates(made.snapshot(), group, 0), 0) is is_completed


#: In the order of their names: racks x, x, y, and none.
NODES = [node("a", labels={"rack": "x"}), node("b", labels={"rack": "x"}), node("c", labels={"rack": "y"}), node("d")]
RACK: Mapping[str, Any] = {"topologyConstraint": {"topology": "t", "requiredTopologyLevel": "rack"}}
BEST: Mapping[str, Any] = {"topologyConstraint": {"topology": "t", "preferredTopologyLevel": "rack"}}


@pytest.mark.parametrize(
    ("spec", "subgroup", "runs_on", "places", "are_in"),
    [
        pytest.param(RACK, {}, "", [("", 0), ("", 1)], True, id="one rack"),
        pytest.param(RACK, {}, "", [("", 0), ("", 2)], False, id="two racks"),
        pytest.param(RACK, {}, "", [("", 3)], False, id="no rack"),
        pytest.param(RACK, {}, "", [("", 0), ("", None)], False, id="a node that is not there"),
        pytest.param(RACK, {}, "a", [("", 1)], True, id="beside one that runs"),
        pytest.param(RACK, {}, "a", [("", 2)], False, id="not beside one that runs"),
        pytest.param(RACK, {}, "d", [("", 2)], True, id="one that runs in no rack holds none"),
        pytest.param(BEST, {}, "a", [("", 0), ("", 2)], True, id="nothing is required"),
        pytest.param({}, RACK, "", [("s", 0), ("other", 2)], True, id="others of the gang may be anywhere"),
        pytest.param({}, RACK, "", [("s", 0), ("s", 2)], False, id="two racks for a subgroup"),
        pytest.param(RACK, {}, "", [("s", 0), ("other", 2)], False, id="two racks for a gang of subgroups"),
    ],
)
def test_kept_places_are_where_the_gang_has_to_be(
    spec: Mapping[str, Any],
    subgroup: Mapping[str, Any],
    runs_on: str,
    places: Sequence[tuple[str, int | None]],
    are_in: bool,
) -> None:
    subgroups = [{"name": "s", "minMember": 1, **subgroup}, {"name": "other", "minMember": 1}]
    running = [pod("runs", group="g", bound_to=runs_on)] if runs_on else []
    made = cluster(topology("t", "rack"), *NODES, pod_group("g", subGroups=subgroups, **spec), *running)
    snapshot = made.snapshot()
    group = there(snapshot.pod_group("ns", "g"))
    bounds = place_bounds(snapshot, group)
    assert not isinstance(bounds, Verdict)
    assert are_in_domains(group.tree, bounds, places) == are_in
