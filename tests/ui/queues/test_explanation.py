"""The explanation of a queue in tables, as people read it."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.queues.order import Criterion
from scheduler.core.queues.use_over_time import NOT_COUNTED, Source, UseOverTime
from tests.scheduler.core.objects import bound, node, queue
from tests.ui.queues.seen import explained, of
from ui.commands.explain import _BECAUSE, queue_sheets
from ui.tables import plain

CLUSTER: tuple[Any, ...] = (
    node(gpus=9),
    queue("dept", gpu=(4, 1, -1)),
    queue("other", gpu=(0, 1, -1)),
    queue("a", "dept", gpu=(1, 2, -1)),
    queue("b", "dept", gpu=(0, 1, -1)),
    bound(of("b", "runs", gpus=2), "n1"),
    of("a", "a1", gpus=9),
    of("b", "b1", gpus=9),
    of("other", "o1", gpus=9),
)


def told(name: str, *objects: Any, wide: bool = False, used: UseOverTime = NOT_COUNTED) -> list[str]:
    return [line for sheet in queue_sheets(explained(name, *objects, used=used), wide=wide) for line in plain(sheet)]


def test_a_queue_is_explained_from_its_numbers_to_its_turn() -> None:
    lines = told("b", *CLUSTER)
    assert lines[0] == "Queue b < dept can be used. Pods that name it: 2."
    at = lines.index("GPUs of the share of dept: 7, divided among 2 queues.")
    assert lines[at + 1 : at + 9] == [
        "QUEUE   PRIORITY   QUOTA   LIMIT       WEIGHT   REQUESTED   FAIR SHARE",
        "a       100        1       unlimited   2        9           5",
        "b       100        0       unlimited   1        11          2",
        "STEP                    OFFERED   a   b",
        "quotas                  7         1   0",
        "round 1, priority 100   6         4   2",
        "nobody gets             0",
        "Turns of the queues at the top:",
    ]
    assert "CPU cores of the cluster: 64. Each queue gets what it requests." in lines
    at = lines.index("Turns of the queues below dept:")
    assert lines[at + 1 :] == [
        "TURN   QUEUE   NEXT WORKLOAD   REQUESTS   WHY NOT EARLIER",
        "1      a       Pod ns/a1       9 GPUs",
        "2      b       Pod ns/b1       9 GPUs     uses more of its share with it",
        "Next in b: Pod ns/b1, which requests 9 GPUs.",
    ]


def test_the_numbers_are_those_of_each_queue_up_to_the_root() -> None:
    lines = told("b", *CLUSTER)
    for name, fair in (("b", "2"), ("dept", "7")):
        at = lines.index(f"{name}, priority 100:")
        assert [line.split()[-1] for line in lines[at + 2 : at + 10]][-1] == fair
    at = lines.index("b, priority 100:")
    assert [line.split() for line in lines[at + 1 : at + 4]] == [
        ["CPU", "CORES", "MEMORY", "(GB)", "GPUS"],
        ["quota", "unlimited", "unlimited", "0"],
        ["limit", "unlimited", "unlimited", "unlimited"],
    ]


def test_wide_tells_each_step_of_each_resource() -> None:
    lines = told("b", *CLUSTER, wide=True)
    assert "CPU cores of the share of dept: 0, divided among 2 queues." in lines
    assert not any("gets what it requests" in line for line in lines)


def test_of_many_siblings_the_queue_and_the_largest_shares_are_shown_and_the_sum_of_the_rest() -> None:
    others = [queue(f"q{at:02}", gpu=(0, 1, -1)) for at in range(30)]
    pods = [of(f"q{at:02}", f"p{at}", gpus=9) for at in range(30)]
    lines = told("small", node(gpus=62), queue("small", gpu=(0, 0, -1)), *others, *pods, of("small", "s", gpus=1))
    at = next(number for number, line in enumerate(lines) if line.startswith("GPUs of the cluster"))
    assert lines[at] == "GPUs of the cluster: 62, divided among 31 queues. Not shown: 19 more."
    assert sum(line.startswith("q") and "unlimited" in line for line in lines[at:]) == 11
    steps = [line.split() for line in lines[at + 14 : at + 18]]
    assert steps == [
        ["STEP", "OFFERED", "small", "OTHERS"],
        ["quotas", "62", "0", "0"],
        ["round", "1,", "priority", "100", "62", "0", "60"],
        ["leftovers,", "priority", "100", "2", "0", "2"],
    ]


@pytest.mark.parametrize(
    ("name", "objects", "expected"),
    [
        ("lost", [queue("lost", "nowhere")], "Queue lost takes nobody: Queue lost can't be used: queue nowhere"),
        ("dept", CLUSTER, "It has queues below it, so it takes no pods itself."),
        ("dept", [*CLUSTER, of("dept", "x")], "takes no pods itself. 1 pods name it and wait."),
    ],
)
def test_whether_it_can_be_used_comes_first(name: str, objects: list[Any], expected: str) -> None:
    assert expected in told(name, *objects)[0]


def test_what_holds_its_next_workload_back_comes_last() -> None:
    limited = [node(gpus=8), queue("a", gpu=(0, 1, 2)), bound(of("a", "runs"), "n1"), of("a", "waits", gpus=2)]
    assert told("a", *limited)[-1] == (
        "Next in a: Pod ns/waits, which requests 2 GPUs. It waits: a quota has reached the allowable limit of GPUs. "
        "Limit is 2 GPUs, currently 1 GPUs allocated and workload requested 2 GPUs"
    )
    assert told("a", *limited[:-1])[-1] == "Nothing waits in a."


def test_there_are_words_for_everything_that_puts_a_queue_behind_another() -> None:
    assert set(_BECAUSE) == {criterion.value for criterion in Criterion}


def test_names_are_never_cut_and_the_tables_of_usual_ones_fit_a_terminal() -> None:
    name = "team-of-fifteen"
    lines = told(name, node(gpus=4), queue(name), queue("b"), of(name, "p", gpus=9), of("b", "q", gpus=9))
    assert max(map(len, lines)) <= 80, max(lines, key=len)
    long = f"{name}-" * 10
    assert any(
        line.startswith(f"{long}   100") for line in told(long, node(gpus=1), queue(long), of(long, "p", gpus=9))
    )


def test_use_over_time_stands_beside_the_weight_that_it_changes() -> None:
    used = UseOverTime(of={"a": (0, 0, 750_000_000)})
    lines = told("b", *CLUSTER, used=used)
    at = lines.index("GPUs of the share of dept: 5, divided among 2 queues.")
    assert lines[at + 1 : at + 4] == [
        "QUEUE   PRIORITY   QUOTA   LIMIT       WEIGHT   USED BEFORE   REQUESTED   FAIR SHARE",
        "a       100        1       unlimited   2        75%           9           3",
        "b       100        0       unlimited   1        0%            11          2",
    ]


@pytest.mark.parametrize(
    ("since_s", "expected"), [(0, "has never answered"), (1_790_000_000, "answered last at 2026-09-21T14:13:20Z")]
)
def test_use_that_counts_no_more_is_told_with_the_last_answer(since_s: int, expected: str) -> None:
    lines = told("b", *CLUSTER, used=UseOverTime(source=Source.STALE, since_s=since_s))
    assert f"Use over time counts for no queue now: Prometheus {expected}." in lines
    assert not any("USED BEFORE" in line for line in lines)
    assert not any("Prometheus" in line for line in told("b", *CLUSTER))
