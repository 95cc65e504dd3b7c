"""Whether members that wait could complete a gang that lost some."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.decide.stale_gangs import can_complete, candidates
from tests.scheduler.core.objects import NANO, Fed, bound, claim, cluster, node, pod, pod_group, reservation, volume

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
    group = made.pod_group("ns", "g")
    assert group is not None
    before = made.generation
    assert can_complete(made.snapshot(), group, candidates(made.snapshot(), group, 0), 0) is is_completed
    assert (made.generation, made.validate()) == (before, [])


def test_a_member_that_backs_off_does_not_complete_a_gang_until_its_time_has_come() -> None:
    made = cluster(node(gpus=2), RUNS, WAITS, pod_group("g", 2))
    group = made.pod_group("ns", "g")
    assert group is not None
    made.commits.failed("uid-waits", "", "Refused: by nobody", now_ns=0)
    setback = made.setback("uid-waits")
    assert setback is not None
    for now_ns, is_completed in ((setback.until_ns - 1, False), (setback.until_ns, True)):
        assert can_complete(made.snapshot(), group, candidates(made.snapshot(), group, now_ns), now_ns) is is_completed


def test_a_node_that_is_out_for_a_member_does_not_complete_its_gang() -> None:
    made = cluster(node(gpus=2), RUNS, WAITS, pod_group("g", 2))
    group = made.pod_group("ns", "g")
    assert group is not None
    made.commits.failed("uid-waits", "n1", "Refused: by n1", now_ns=0)
    setback = made.setback("uid-waits")
    assert setback is not None
    assert setback.excluded_at(setback.until_ns) == ("n1",)
    assert not can_complete(
        made.snapshot(), group, candidates(made.snapshot(), group, setback.until_ns), setback.until_ns
    )


def test_members_of_a_subgroup_that_has_enough_do_not_stand_in_the_way_of_those_that_are_missing() -> None:
    subgroups = [{"name": "s1", "minMember": 1}, {"name": "s2", "minMember": 1}]
    runs = bound(pod("runs", group="g", subgroup="s1", gpus=1), "n1")
    waits = [pod("a", group="g", subgroup="s1", gpus=1), pod("b", group="g", subgroup="s2", gpus=1)]
    made = cluster(node(gpus=2), runs, *waits, pod_group("g", subGroups=subgroups))
    group = made.pod_group("ns", "g")
    assert group is not None
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
        group = made.pod_group("ns", "g")
        assert group is not None
        assert can_complete(made.snapshot(), group, candidates(made.snapshot(), group, 0), 0) is is_completed


def test_what_fitted_nowhere_beside_one_choice_of_subgroups_may_fit_with_another() -> None:
    subgroups = [{"name": name, "minMember": least} for name, least in (("runs", 1), ("a", 2), ("b", 2))]
    runs = bound(pod("runs", group="g", subgroup="runs", gpus=1), "n1")
    of_a = [pod("a0", group="g", subgroup="a", gpus=2), pod("a1", group="g", subgroup="a", gpus=1)]
    of_b = [pod(name, group="g", subgroup="b", gpus=1) for name in ("b0", "b1")]
    for gpus, is_completed in ((2, False), (3, True)):
        made = cluster(node(gpus=gpus), runs, *of_a, *of_b, pod_group("g", minSubGroup=2, subGroups=subgroups))
        group = made.pod_group("ns", "g")
        assert group is not None
        assert can_complete(made.snapshot(), group, candidates(made.snapshot(), group, 0), 0) is is_completed
