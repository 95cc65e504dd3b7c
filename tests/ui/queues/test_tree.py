from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.core.objects import bound, node, queue
from tests.ui.queues.seen import of, views
from ui.queues.tables import in_tree, tree_sheets
from ui.tables import plain

CLUSTER = (
    node(gpus=8, cpu="64", memory="256Gi"),
    queue("dept", gpu=(4, 1, 6)),
    queue("a", "dept", gpu=(2, 1, -1)),
    queue("b", "dept", gpu=(0.5, 2, -1), priority=50),
    queue("lost", "nowhere"),
    bound(of("a", "runs", gpus=3, cpu="8"), "n1"),
    bound(of("a", "leaves", deleting=True), "n1"),
    of("b", "waits", gpus=9),
)


def shown(*objects: Any, wide: bool = False) -> list[str]:
    return [line for sheet in tree_sheets(views(*objects), wide=wide) for line in plain(sheet)]


def test_queues_stand_below_their_parents_with_their_gpus() -> None:
    assert shown(*CLUSTER) == [
        "GPUs:",
        "QUEUE   QUOTA   FAIR SHARE   ALLOCATED   REQUESTED   LIMIT",
        "dept    4       6            4           12          6",
        "  a     2       3            4           3           unlimited",
        "  b     0.5     3            0           9           unlimited",
        "lost    0       -            0           0           unlimited",
        "Queues that take nobody:",
        "QUEUE   WHY",
        "lost    Queue lost can't be used: queue nowhere, a parent of it, does not exist",
    ]


def test_wide_has_each_resource() -> None:
    head, *rows = shown(*CLUSTER, wide=True)
    assert head.split("   ")[0] == "QUEUE"
    assert "NON-PREEMPTIBLE" in head
    assert [row.split() for row in rows[3:6]] == [
        ["a", "GPUs", "2", "3", "4", "3", "unlimited", "0", "1", "1", "100", "2"],
        ["a", "Memory", "(GB)", "unlimited", "0", "0", "0", "unlimited", "0", "0", "1", "100", "2"],
        ["a", "CPU", "cores", "unlimited", "8", "8", "8", "unlimited", "0", "0", "1", "100", "2"],
    ]


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        ([("b", ""), ("a", ""), ("c", "a")], [("a", 0), ("c", 1), ("b", 0)]),
        ([("x", "y"), ("y", "x"), ("z", "y")], [("x", 0), ("y", 1), ("z", 2)]),
        ([("own", "own")], [("own", 0)]),
    ],
    ids=["a tree", "a cycle", "below itself"],
)
def test_every_queue_stands_once(queues: list[tuple[str, str]], expected: list[tuple[str, int]]) -> None:
    told = in_tree(views(*(queue(name, parent) for name, parent in queues)))
    assert [(view.name, depth) for depth, view in told] == expected


def test_a_chain_of_thousands_is_no_matter() -> None:
    chain = [queue(f"q{at:04}", f"q{at - 1:04}" if at else "") for at in range(3000)]
    assert [depth for depth, _ in in_tree(views(*chain))] == list(range(3000))


def test_without_queues_that_is_said() -> None:
    assert shown(node(gpus=1)) == ["There are no Queues: no pod is limited, even if it names a queue."]
