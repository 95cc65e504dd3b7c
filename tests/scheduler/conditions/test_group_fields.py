from __future__ import annotations

import pytest

from scheduler.conditions.status_fields import condition, is_alike, shown_condition, with_condition
from scheduler.core.model.verdict import Code, NodeReason, QueueCause, Verdict
from scheduler.core.report.state import GroupState
from wire.crds.podgroup import PodGroupStatus, SchedulingCondition

NOW, EARLIER = "2026-01-02T03:04:05Z", "2026-01-01T00:00:00Z"


def nodes(**counts: int) -> Verdict:
    """No node fits: so many for each kind; ``gpus`` for want of GPUs."""
    kinds = {"gpus": ("insufficient", "nvidia.com/gpu"), "cordoned": ("cordoned", ""), "taint": ("taint", "")}
    reasons = tuple(NodeReason(*kinds[kind], count) for kind, count in counts.items())
    return Verdict(code=Code.NO_NODE_FITS, node_reasons=reasons)


def limit(queue: str, held: int) -> Verdict:
    cause = QueueCause(at=queue, resource="gpu", most=8 * 10**9, held=held * 10**9, asked=10**9)
    return Verdict(code=Code.OVER_LIMIT, detail="team", queue=cause)


def made(*verdicts: Verdict, status: PodGroupStatus | None = None) -> SchedulingCondition:
    state = GroupState(verdicts=verdicts)
    return condition(
        state, status or PodGroupStatus(), lambda _: None, namespace="ns", pool="default", is_fixed=False, now=NOW
    )


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param(nodes(gpus=3), nodes(gpus=12), True, id="another count"),
        pytest.param(nodes(gpus=9, taint=2), nodes(gpus=2, taint=10), True, id="counts that change the order"),
        pytest.param(nodes(gpus=3), nodes(gpus=2, cordoned=1), True, id="a node was cordoned"),
        pytest.param(nodes(gpus=3), nodes(gpus=3, taint=1), False, id="another reason"),
        pytest.param(limit("dept", 3), limit("dept", 7), True, id="a limit with other numbers"),
        pytest.param(limit("dept", 3), limit("other", 3), False, id="another queue's limit"),
        pytest.param(nodes(gpus=3), limit("dept", 3), False, id="another kind"),
    ],
)
def test_two_conditions_are_alike_if_they_give_the_same_reasons(one: Verdict, other: Verdict, expected: bool) -> None:
    assert is_alike(made(one), made(other)) is expected


@pytest.mark.parametrize(
    ("ids", "expected"),
    [([], "1"), (["3", "11"], "12"), (["x", ""], "1"), (["9" * 400], "1"), (["-4", "٣"], "1")],
)
def test_transitions_are_counted_whatever_others_wrote(ids: list[str], expected: str) -> None:
    others = [SchedulingCondition(type="Other", transition_id=each) for each in ids]
    assert made(nodes(gpus=1), status=PodGroupStatus(scheduling_conditions=others)).transition_id == expected


def test_the_time_of_a_condition_is_when_the_group_began_to_wait() -> None:
    first = made(nodes(gpus=1))
    assert first.last_transition_time == NOW
    shown = SchedulingCondition(type=first.type, node_pool=first.node_pool, status="True", last_transition_time=EARLIER)
    assert made(nodes(taint=1), status=PodGroupStatus(scheduling_conditions=[shown])).last_transition_time == EARLIER


def test_a_group_with_several_reasons_lists_them_all() -> None:
    found = made(limit("dept", 3), nodes(gpus=1))
    assert [each.reason for each in found.reasons or ()] == ["OverLimit", "PodSchedulingErrors"]
    assert found.message == "\n".join(each.message for each in found.reasons or ())


@pytest.mark.parametrize(
    ("there", "pool", "kept"), [("default", "a", True), ("", "a", True), ("a", "a", False), ("", "default", False)]
)
def test_conditions_of_other_node_pools_are_kept(there: str, pool: str, kept: bool) -> None:
    other = SchedulingCondition(type="UnschedulableOnNodePool", node_pool=there)
    status = PodGroupStatus(scheduling_conditions=[other])
    wanted = condition(
        GroupState(verdicts=(nodes(gpus=1),)),
        status,
        lambda _: None,
        namespace="ns",
        pool=pool,
        is_fixed=False,
        now=NOW,
    )
    assert wanted.node_pool == pool
    left = with_condition(status, None, pool)
    assert ([each.get("nodePool", "") for each in left] == [there]) is kept
    assert (shown_condition(status, pool) is None) is kept
