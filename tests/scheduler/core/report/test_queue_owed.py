from __future__ import annotations

import pytest

from scheduler.core.model.quota import UNLIMITED, QueueRecord, Resources
from scheduler.core.queues.accounts import accounts
from scheduler.core.queues.sums import Sum
from scheduler.core.queues.tree import Tree
from scheduler.core.report.state import owed_nano_gpus

GPU = 10**9


def gpus(count: int) -> Resources:
    return Resources(gpu_nano=count * GPU)


def queue(name: str, quota: int, limit: int = -1, parent: str = "") -> QueueRecord:
    most = UNLIMITED if limit < 0 else limit * GPU
    guaranteed = UNLIMITED if quota < 0 else quota * GPU
    return QueueRecord(
        name=name, parent=parent, quota=Resources(gpu_nano=guaranteed), limit=Resources(UNLIMITED, UNLIMITED, most)
    )


def using(held: int, waits: int = 0, leaving: int = 0) -> Sum:
    return Sum(held=gpus(held + leaving), kept=gpus(held), asked=gpus(held + waits), pods=1)


@pytest.mark.parametrize(
    ("records", "sums", "expected"),
    [
        pytest.param([queue("a", 4)], {"a": using(1, waits=2)}, {"a": 2}, id="asks within its quota"),
        pytest.param([queue("a", 4)], {"a": using(1, waits=9)}, {"a": 3}, id="asks for more than its quota"),
        pytest.param([queue("a", 4)], {"a": using(4, waits=9)}, {"a": 0}, id="has its quota"),
        pytest.param([queue("a", 4)], {"a": using(6, waits=9)}, {"a": 0}, id="has more than its quota"),
        pytest.param([queue("a", 4)], {"a": using(2)}, {"a": 0}, id="waits for nothing"),
        pytest.param([queue("a", 0)], {"a": using(0, waits=5)}, {"a": 0}, id="has no quota"),
        pytest.param([queue("a", -1)], {"a": using(2, waits=5)}, {"a": 0}, id="quota without end"),
        pytest.param([queue("a", 4, limit=2)], {"a": using(1, waits=9)}, {"a": 1}, id="its limit is below its quota"),
        pytest.param([queue("a", 4)], {"a": using(1, waits=2, leaving=2)}, {"a": 1}, id="pods are terminating"),
        pytest.param(
            [queue("top", 4), queue("a", 0, parent="top")],
            {"a": using(1, waits=2)},
            {"top": 2, "a": 0},
            id="the department has a quota, the team has none",
        ),
        pytest.param(
            [queue("top", 8), queue("a", 4, limit=2, parent="top")],
            {"a": using(2, waits=9)},
            {"top": 0, "a": 0},
            id="the team is at its limit, so its department is not starved",
        ),
        pytest.param(
            [queue("top", 0, limit=3), queue("a", 4, parent="top"), queue("b", 0, parent="top")],
            {"a": using(0, waits=4), "b": using(2)},
            {"top": 0, "a": 1, "b": 0},
            id="the department is near its limit",
        ),
        pytest.param(
            [queue("top", 4), queue("a", 4, parent="top")],
            {"top": using(0, waits=3)},
            {"top": 0, "a": 0},
            id="pods of a queue with children",
        ),
    ],
)
def test_owed_is_what_pods_wait_for_within_quota_and_limits(
    records: list[QueueRecord], sums: dict[str, Sum], expected: dict[str, int]
) -> None:
    tree = Tree(records)
    owed = owed_nano_gpus(accounts(tree, sums, gpus(16)))
    assert {each.name: owed[each.number] // GPU for each in tree.queues} == expected
