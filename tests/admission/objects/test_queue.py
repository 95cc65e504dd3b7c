"""What may be done to Queues, as tables: every rule with its text, and what KAI takes."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.objects.findings import TEXTS, Allowed, Judgement, Refused, Rule, told
from admission.objects.queue import Others, judge_deleted, judge_written
from tests.admission.objects.queues import beside, gpus, queue
from tests.values import of_kind
from wire import names
from wire.crds.queue import TOO_MANY_UNITS, UNITS, Queue


def texts(judgement: Judgement) -> list[str]:
    found = judgement.findings if isinstance(judgement, Refused) else judgement.warnings
    return [told(each) for each in found]


def new(made: Queue, *others: Queue) -> Judgement:
    return judge_written(made, old=None, others=beside(*others))


TEAM = queue("team", resources=gpus(8))

#: Name -> the queue, the others, what the user reads.
REFUSED: dict[str, tuple[Queue, tuple[Queue, ...], list[str]]] = {
    "no resources": (
        msgspec.convert({"metadata": {"name": "a"}}, Queue),
        (),
        [
            'resources must be specified (spec.resources is ""; allowed: a map of cpu, memory and gpu, each with '
            "quota, limit and overQuotaWeight)"
        ],
    ),
    "a quota below zero": (
        queue("a", resources=gpus(-2)),
        (),
        [
            'the gpu quota is not a valid amount (spec.resources.gpu.quota is "-2.0"; '
            "allowed: -1 for unlimited, or a number from 0 to 1152921504)"
        ],
    ),
    "a limit of more memory than 60 bits of bytes": (
        queue("a", resources={"memory": {"limit": 1.2e12}}),
        (),
        [
            'the memory limit is not a valid amount (spec.resources.memory.limit is "1200000000000.0"; '
            "allowed: -1 for unlimited, or a number from 0 to 1152921504606)"
        ],
    ),
    "not a number": (
        queue("a", resources={"cpu": {"quota": math.nan}}),
        (),
        [
            'the cpu quota is not a valid amount (spec.resources.cpu.quota is "nan"; '
            "allowed: -1 for unlimited, or a number from 0 to 1152921504606846975)"
        ],
    ),
    "an unlimited weight": (
        queue("a", resources={"gpu": {"overQuotaWeight": -1}}),
        (),
        [
            'the gpu overQuotaWeight is not a valid weight (spec.resources.gpu.overQuotaWeight is "-1.0"; '
            "allowed: a number from 0 to 1152921504606)"
        ],
    ),
    "an infinite weight": (
        queue("a", resources={"gpu": {"overQuotaWeight": math.inf}}),
        (),
        [
            'the gpu overQuotaWeight is not a valid weight (spec.resources.gpu.overQuotaWeight is "inf"; '
            "allowed: a number from 0 to 1152921504606)"
        ],
    ),
    "a priority of 65 bits": (
        queue("a", priority=2**63),
        (),
        [
            'the priority does not fit into 64 bits (spec.priority is "9223372036854775808"; '
            "allowed: a whole number from -9223372036854775808 to 9223372036854775807)"
        ],
    ),
    "two durations that are none": (
        queue("a", preemptMinRuntime="5 minutes", reclaimMinRuntime=""),
        (),
        [
            'the duration cannot be read (spec.preemptMinRuntime is "5 minutes"; '
            "allowed: numbers with units of Go's durations, such as 90s or 1h30m)",
            'the duration cannot be read (spec.reclaimMinRuntime is ""; '
            "allowed: numbers with units of Go's durations, such as 90s or 1h30m)",
        ],
    ),
    "a patience that is none": (
        queue("a", annotations={names.PATIENCE: "ten minutes"}),
        (),
        [
            'the duration cannot be read (metadata.annotations[moorage.dev/patience] is "ten minutes"; '
            "allowed: numbers with units of Go's durations, such as 90s or 1h30m)"
        ],
    ),
    "its own parent": (
        queue("a", "a"),
        (),
        [
            'queue a would be below itself: [a a] (spec.parentQueue is "a"; '
            'allowed: a queue that is not below a, or "" for the top)'
        ],
    ),
    "below its grandchild": (
        queue("a", "c"),
        (queue("b", "a"), queue("c", "b")),
        [
            'queue a would be below itself: [a c b a] (spec.parentQueue is "c"; '
            'allowed: a queue that is not below a, or "" for the top)'
        ],
    ),
}

WARNED: dict[str, tuple[Queue, tuple[Queue, ...], list[str]]] = {
    "a parent that does not exist": (
        queue("a", "team"),
        (),
        ['failed to get parent queue team: queues.scheduling.run.ai "team" not found'],
    ),
    "a parent without resources": (
        queue("a", "team"),
        (msgspec.convert({"metadata": {"name": "team"}}, Queue),),
        ["parent queue team has no resources defined"],
    ),
    "more than the parent": (
        queue("a", "team", resources=gpus(9)),
        (TEAM,),
        [
            "child queue GPU quota (9) exceeds parent queue team GPU quota (8)",
            "total children GPU quota (9) exceeds parent queue team GPU quota (8)",
        ],
    ),
    "without end below an end": (
        queue("a", "team", resources={"cpu": {"quota": -1, "limit": -1}}),
        (queue("team", resources={"cpu": {"quota": 1500.5}}),),
        [
            "child queue CPU quota (unlimited) exceeds parent queue team CPU quota (1500.5)",
            "total children CPU quota (unlimited) exceeds parent queue team CPU quota (1500.5)",
        ],
    ),
    "with its siblings more than the parent": (
        queue("a", "team", resources=gpus(4.5)),
        (TEAM, queue("b", "team", resources=gpus(4))),
        ["total children GPU quota (8.5) exceeds parent queue team GPU quota (8)"],
    ),
    "less than the children": (
        TEAM,
        (queue("b", "team", resources=gpus(9)), queue("a", "team", resources=gpus(1))),
        [
            "child queue b GPU quota (9) exceeds parent GPU quota (8)",
            "total children GPU quota (10) exceeds parent GPU quota (8)",
        ],
    ),
    "a quota above the limit": (
        queue("a", resources={"memory": {"quota": 3, "limit": 2.5}}),
        (),
        ["Memory quota (3) exceeds the queue's Memory limit (2.5)"],
    ),
    "a quota without a limit, which allows nothing": (
        queue("a", resources={"gpu": {"quota": 1}}),
        (),
        ["GPU quota (1) exceeds the queue's GPU limit (0)"],
    ),
}

SILENT: dict[str, tuple[Queue, tuple[Queue, ...]]] = {
    "empty resources": (queue("a"), ()),
    "a patience without end": (queue("a", annotations={names.PATIENCE: "-1s"}), ()),
    "negative priority and durations, as KAI": (queue("a", priority=-5, preemptMinRuntime="-1s"), ()),
    "tenths that make up the parent's quota": (
        queue("a", "team", resources=gpus(0.1)),
        (queue("team", resources=gpus(0.3)), queue("b", "team", resources=gpus(0.2))),
    ),
    "a sibling that is being deleted": (
        queue("a", "team", resources=gpus(8)),
        (TEAM, queue("b", "team", resources=gpus(8), is_leaving=True)),
    ),
    "a parent without end": (queue("a", "top", resources=gpus(-1)), (queue("top", resources=gpus(-1)),)),
    "a cycle of other queues": (queue("a", "b"), (queue("b", "c"), queue("c", "b"))),
}


@pytest.mark.parametrize(("made", "others", "said"), REFUSED.values(), ids=REFUSED)
def test_a_queue_is_refused_with_field_value_and_what_is_allowed(
    made: Queue, others: tuple[Queue, ...], said: list[str]
) -> None:
    judgement = of_kind(Refused, new(made, *others))
    assert texts(judgement) == said


@pytest.mark.parametrize(("made", "others", "said"), WARNED.values(), ids=WARNED)
def test_a_queue_that_kai_takes_is_allowed_with_warnings(
    made: Queue, others: tuple[Queue, ...], said: list[str]
) -> None:
    judgement = of_kind(Allowed, new(made, *others))
    assert texts(judgement) == said


@pytest.mark.parametrize(("made", "others"), SILENT.values(), ids=SILENT)
def test_a_queue_without_fault_is_allowed_in_silence(made: Queue, others: tuple[Queue, ...]) -> None:
    assert new(made, *others) == Allowed()


def test_a_queue_with_children_is_not_deleted() -> None:
    others = beside(queue("b", "team"), queue("a", "team"), queue("c", "other"))
    judgement = of_kind(Refused, judge_deleted(TEAM, others=others))
    assert texts(judgement) == [
        'cannot delete queue team: it has child queues [a b] (metadata.name is "team"; allowed: a queue without '
        "children: delete them first, or give them another parent)"
    ]


def test_a_queue_is_deleted_after_its_children() -> None:
    assert judge_deleted(TEAM, others=beside(queue("a", "team", is_leaving=True))) == Allowed()


@pytest.mark.parametrize(
    "judgement",
    [judge_written(queue("a", "team"), old=None, others=None), judge_deleted(TEAM, others=None)],
    ids=["written", "deleted"],
)
def test_where_the_others_cannot_be_read_a_queue_is_allowed_and_that_is_said(judgement: Judgement) -> None:
    assert isinstance(judgement, Allowed)
    assert texts(judgement) == [
        "the other queues could not be read, so parent, cycles, children and sums of quotas were not checked"
    ]


def test_fields_are_checked_where_the_others_cannot_be_read() -> None:
    assert isinstance(judge_written(queue("a", resources=gpus(-2)), old=None, others=None), Refused)


def test_a_value_that_was_stored_before_the_rule_is_a_warning_and_a_new_one_is_refused() -> None:
    old = queue("a", resources=gpus(-2))
    mended = of_kind(Allowed, judge_written(queue("a", resources=gpus(-2), displayName="A"), old=old, others=beside()))
    assert texts(mended)[0].startswith("the gpu quota is not a valid amount")
    assert isinstance(judge_written(queue("a", resources=gpus(-3)), old=old, others=beside()), Refused)


def test_queues_of_a_cycle_can_be_changed_and_taken_out_of_it() -> None:
    ring = beside(queue("b", "a"))
    assert isinstance(judge_written(queue("a", "b", displayName="A"), old=queue("a", "b"), others=ring), Allowed)
    assert isinstance(judge_written(queue("a"), old=queue("a", "b"), others=ring), Allowed)
    assert isinstance(judge_written(queue("a", "b"), old=queue("a"), others=ring), Refused)


def test_a_queue_with_thousands_of_children_has_few_warnings() -> None:
    below = [queue(f"c{number}", "team", resources=gpus(9)) for number in range(2000)]
    judgement = of_kind(Allowed, new(TEAM, *below))
    assert len(judgement.warnings) == 16


_AMOUNTS = st.one_of(st.floats(), st.sampled_from([-1.0, 0.0, 1.0, 0.5, 1e308, 5e-324, 1152921504.0, 1152921505.0]))
_NAMES = st.sampled_from(["a", "b", "c", "d"])


@st.composite
def resources(draw: st.DrawFn) -> Any:
    fields = st.fixed_dictionaries({}, optional=dict.fromkeys(("quota", "limit", "overQuotaWeight"), _AMOUNTS))
    return draw(st.fixed_dictionaries({}, optional=dict.fromkeys(UNITS, fields)))


@st.composite
def trees(draw: st.DrawFn) -> tuple[Queue, Others]:
    """Any queue that KAI's default takes, among any others."""
    parents = draw(st.dictionaries(_NAMES, st.one_of(st.just(""), _NAMES, st.just("gone")), min_size=1))
    made = [queue(name, parent, resources=draw(resources())) for name, parent in parents.items()]
    return made[0], beside(*made[1:])


@given(trees())
def test_what_kai_takes_is_refused_only_by_the_rules_of_our_own_that_it_breaks(tree: tuple[Queue, Others]) -> None:
    made, others = tree
    judgement = judge_written(made, old=None, others=others)
    broken = {found.rule for found in judgement.findings} if isinstance(judgement, Refused) else set()
    assert (Rule.AMOUNT in broken) == any(not _is_amount(value, units) for value, units in _amounts(made))
    assert (Rule.WEIGHT in broken) == any(not _is_counted(value, 10**6) for value in _weights(made))
    assert (Rule.PARENT_CYCLE in broken) == _is_below_itself(made, others)
    assert broken <= {Rule.AMOUNT, Rule.WEIGHT, Rule.PARENT_CYCLE}
    assert all(told(each) for each in judgement.warnings)


def _amounts(made: Queue) -> list[tuple[float, int]]:
    said = [(getattr(made.spec.resources, name), units) for name, units in UNITS.items()]
    each = [(value, units) for one, units in said if one is not None for value in (one.quota, one.limit)]
    return [(value, units) for value, units in each if value is not None]


def _weights(made: Queue) -> list[float]:
    said = [getattr(made.spec.resources, name) for name in UNITS]
    return [one.over_quota_weight for one in said if one is not None and one.over_quota_weight is not None]


def _is_amount(value: float, units: int) -> bool:
    return value == -1 or _is_counted(value, units)


def _is_counted(value: float, units: int) -> bool:
    return 0 <= value < math.inf and value * units < TOO_MANY_UNITS


def _is_below_itself(made: Queue, others: Others) -> bool:
    at = made.spec.parent_queue
    for _ in range(len(others) + 1):
        if at == made.metadata.name:
            return True
        above = others.find(at)
        at = above.spec.parent_queue if above is not None else ""
    return False


def test_every_rule_has_a_text_of_one_line() -> None:
    assert TEXTS.keys() == set(Rule)
    assert all("\n" not in text.message + text.allowed for text in TEXTS.values())
