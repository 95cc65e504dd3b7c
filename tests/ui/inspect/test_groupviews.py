"""How PodGroups stand, by what their pods say and by the scheduler's own count of their minimum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from tests.scheduler.core.objects import bind_request, changed, changed_group, ended, pod, pod_group
from ui.inspect.groups import group_sheets, group_views
from ui.inspect.survey import Found
from ui.inspect.values import PodGroupView
from ui.tables import plain
from wire import names
from wire.core import Condition, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup, PodGroupStatus, SchedulingCondition, SchedulingReason

STAMP = "2026-11-27T08:00:00Z"


def waits(name: str, message: str = "", **how: Any) -> Pod:
    made = pod(name, gpus=1, group="g", **how)
    denied = [Condition(type="PodScheduled", status="False", reason="Unschedulable", message=message)]
    status = msgspec.structs.replace(made.status, phase="Pending", conditions=denied if message else None)
    return msgspec.structs.replace(made, status=status)


def runs(name: str, **how: Any) -> Pod:
    return pod(name, gpus=1, group="g", bound_to="n1", phase="Running", **how)


def starts(name: str) -> Pod:
    return pod(name, gpus=1, group="g", bound_to="n1", phase="Pending")


def succeeded(name: str) -> Pod:
    return ended(runs(name))


def views(*objects: Any, asked_for: Iterable[str] = ()) -> list[PodGroupView]:
    def of(kind: type) -> list[Any]:
        return [each for each in objects if isinstance(each, kind)]

    return group_views(
        Found(groups=of(PodGroup), pods=of(Pod), requests=of(BindRequest), asked_for=frozenset(asked_for))
    )


def one(*objects: Any, **how: Any) -> PodGroupView:
    (view,) = views(*objects, **how)
    return view


GOES = waits("goes")


@pytest.mark.parametrize(
    ("minimum", "pods", "phase", "counts"),
    [
        (2, [], "NoPods", (0, 0, 0, 0)),
        (2, [waits("a"), waits("b")], "Waiting", (2, 0, 2, 0)),
        (1, [GOES, bind_request(GOES, "n1")], "Starting", (1, 0, 1, 0)),
        (2, [starts("a"), runs("b")], "Starting", (2, 1, 0, 0)),
        (2, [runs("a"), runs("b"), waits("c")], "Running", (3, 2, 1, 0)),
        (2, [runs("a"), runs("b"), starts("c")], "Running", (3, 2, 0, 0)),
        (3, [runs("a"), runs("b")], "BelowMinimum", (2, 2, 0, 0)),
        (3, [runs("a"), runs("b"), waits("c")], "BelowMinimum", (3, 2, 1, 0)),
        # One more is on its way: its minimum is not lost, it is not there yet.
        (2, [runs("a"), GOES, bind_request(GOES, "n1")], "Starting", (2, 1, 1, 0)),
        (2, [succeeded("a"), runs("b")], "Running", (1, 1, 0, 1)),
        (2, [succeeded("a"), succeeded("b")], "Ended", (0, 0, 0, 2)),
    ],
)
def test_a_podgroup_has_a_phase_and_its_pods_by_state(
    minimum: int, pods: list[Any], phase: str, counts: tuple[int, ...]
) -> None:
    view = one(pod_group("g", minimum), *pods)
    assert (view.phase, view.minimum) == (phase, minimum)
    assert (view.pods, view.running, view.waiting, view.ended) == counts


def test_a_pod_that_is_being_deleted_neither_runs_nor_waits() -> None:
    leaving = changed(runs("a"), deletion_timestamp="2026-11-27T08:00:00Z")
    view = one(pod_group("g", 1), leaving, runs("b"))
    assert (view.pods, view.running, view.waiting) == (2, 1, 0)


def conditioned(pool: str, message: str, reason: str = "PodSchedulingErrors") -> PodGroup:
    said = SchedulingCondition(
        type="UnschedulableOnNodePool",
        node_pool=pool,
        status="True",
        reasons=[SchedulingReason(reason=reason, message=message)],
    )
    return msgspec.structs.replace(pod_group("g", 2), status=PodGroupStatus(scheduling_conditions=[said]))


@pytest.mark.parametrize(
    ("group", "told"),
    [
        (conditioned("default", "no\n nodes"), ("", "no nodes")),
        (conditioned("default", "too much", "OverLimit"), ("OverLimit", "too much")),
        # What a scheduler of another pool wrote once is not about now.
        (conditioned("a", "old"), ("", "Unschedulable: no GPUs")),
        (changed_group(conditioned("a", "of a"), labels={names.NODE_POOL_LABEL: "a"}), ("", "of a")),
        (pod_group("g", 2), ("", "Unschedulable: no GPUs")),
    ],
)
def test_a_podgroup_that_waits_has_the_reason_of_its_own_scheduler_or_else_of_its_pods(
    group: PodGroup, told: tuple[str, str]
) -> None:
    view = one(group, *(waits(f"w{number}", "no GPUs") for number in range(3)))
    assert (view.reason, view.message) == told


def test_reasons_of_pods_that_differ_are_counted() -> None:
    view = one(pod_group("g", 2), waits("a", "x"), waits("b", "x"), waits("c"))
    assert view.message == "2 of 3: Unschedulable: x; 1 of 3: nobody has looked at it yet"


def test_of_a_podgroup_below_its_minimum_it_is_said_since_when() -> None:
    stamped = pod_group("g", 3, annotations={names.STALE_SINCE: STAMP})
    assert one(stamped, runs("a")).message == f"below its minimum since {STAMP}"
    assert one(pod_group("g", 3), runs("a")).message == "below its minimum"


def test_what_comes_of_a_reason_is_over_once_pods_run() -> None:
    assert one(conditioned("default", "old"), runs("a"), runs("b")).message == ""


def test_pods_count_for_the_podgroup_of_their_own_namespace() -> None:
    other = pod("a", gpus=1, group="g", namespace="other", bound_to="n1", phase="Running")
    assert one(pod_group("g", 1), other).phase == "NoPods"


def test_sub_groups_have_their_own_pods() -> None:
    parts = [
        {"name": "all", "minSubGroup": 1},
        {"name": "a", "parent": "all", "minMember": 2},
        {"name": "b", "parent": "all", "minMember": 1},
    ]
    view = one(pod_group("g", subGroups=parts), runs("r", subgroup="a"), waits("w", subgroup="a"), asked_for=["g"])
    assert [(each.name, each.parent, each.minimum, each.pods, each.running) for each in view.sub_groups] == [
        ("all", "", 1, 0, 0),
        ("a", "all", 2, 2, 1),
        ("b", "all", 1, 0, 0),
    ]
    assert [sheet.title for sheet in group_sheets([view])] == ["", "Sub-groups of ns/g:", "Pods of ns/g:"]
    assert "all         -        1 sub-groups   0      0" in "\n".join(plain(group_sheets([view])[1]))


def test_a_row_a_podgroup_and_pods_of_those_that_are_named() -> None:
    groups = (pod_group("g", 2, queue="q"), pod_group("empty", 1))
    pods = (runs("a"), waits("b", "no GPUs"))
    (table,) = group_sheets(views(*groups, *pods))
    assert plain(table) == [
        "PODGROUP   QUEUE           MINIMUM   RUNNING   WAITING   PHASE          WHY",
        "ns/empty   default-queue   1         0         0         NoPods         -",
        "ns/g       q               2         1         1         BelowMinimum   below its minimum",
    ]
    _, members = group_sheets(views(groups[0], *pods, asked_for=["g"]))
    assert plain(members) == [
        "Pods of ns/g:",
        "PODGROUP   POD   SUB-GROUP   PHASE     NODE   ASKS                WHY",
        "ns/g       a     -           Running   n1     main: a whole GPU   -",
        "ns/g       b     -           Pending   -      main: a whole GPU   Unschedulable: no GPUs",
    ]


def test_the_wide_table_has_all_columns() -> None:
    labelled = changed_group(pod_group("g", 1), labels={names.NODE_POOL_LABEL: "a100"})
    (table,) = group_sheets([one(labelled, runs("a"), succeeded("b"))], wide=True)
    told = dict(zip(table.columns, (cell.text for cell in table.rows[0]), strict=True))
    assert {key: told[key] for key in ("PODS", "ENDED", "NODE POOL", "CREATED")} == {
        "PODS": "1",
        "ENDED": "1",
        "NODE POOL": "a100",
        "CREATED": "2026-01-01T00:00:00Z",
    }
