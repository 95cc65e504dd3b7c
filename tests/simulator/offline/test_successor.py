"""What is made again asks what was asked first, and has nothing of what its Binding wrote."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.pods import pod_record
from scheduler.core.model.settings import Settings
from simulator.offline.shell import bound, has_successor, leaves_drained_node, successor
from tests.scheduler.core import objects
from tests.scheduler.core.objects import pod
from tests.simulator.offline.given import JOB

SETTINGS = Settings()


@pytest.mark.parametrize(
    "asked", [{"gpus": 2}, {"fraction": "0.5"}, {"mem": 8000}, {"cpu": "2"}, {"spec": {"nodeSelector": {"zone": "a"}}}]
)
def test_a_successor_asks_what_the_first_asked(asked: dict[str, Any]) -> None:
    first = pod("p", owner=JOB, **asked)
    ran = bound(objects.bound(first, "n1", ("g", 10**9 // 2)), "n1", rv="2000", started="2026-01-01T00:00:00Z")
    again = successor(ran, uid="next", rv="3000", created="2026-01-02T00:00:00Z")
    before, after = pod_record(first, SETTINGS), pod_record(again, SETTINGS)
    assert before is not None
    assert after is not None
    assert after == msgspec.structs.replace(before, uid="next", rv="3000", created="2026-01-02T00:00:00Z")


def test_a_pod_that_is_bound_runs_where_it_was_placed() -> None:
    record = pod_record(bound(pod("p", gpus=1), "n1", rv="2", started="2026-01-01T00:00:00Z"), SETTINGS)
    assert record is not None
    assert (record.node, record.rv, record.started_s) == ("n1", "2", 1_767_225_600)


@pytest.mark.parametrize(
    ("owner", "is_made_again", "leaves"),
    [(None, False, True), (JOB, True, True), (("apps/v1", "DaemonSet"), True, False), (("v1", "Node"), True, False)],
)
def test_who_leaves_a_drained_node(owner: tuple[str, str] | None, is_made_again: bool, leaves: bool) -> None:
    made = pod("p", owner=owner)
    assert (has_successor(made), leaves_drained_node(made)) == (is_made_again, leaves)
