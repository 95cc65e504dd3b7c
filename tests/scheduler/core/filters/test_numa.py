"""Nodes whose kubelet could not align a pod even if nobody else were there."""

from __future__ import annotations

import msgspec
import pytest

from scheduler.core.convert.numa import numa_ask
from scheduler.core.filters.numa import NumaAlignment
from scheduler.core.filters.registry import FILTERS, OK
from scheduler.core.model.pod_class import Constraints
from tests.scheduler.core.device_objects import node
from tests.scheduler.core.numa_objects import GPU, RESTRICTED, record, spec
from tests.scheduler.core.objects import pod

_NODES = {
    "none": node("n1"),
    "two": msgspec.structs.replace(node("n1"), numa=record({GPU: (4, 0)}, {GPU: (4, 0)})),
    "one": msgspec.structs.replace(node("n1"), numa=record({GPU: 8})),
    "restricted": msgspec.structs.replace(node("n1"), numa=record({GPU: 4}, {GPU: 4}, policy=RESTRICTED)),
}


@pytest.mark.parametrize(
    ("gpus", "admitting"),
    [
        (1, {"none", "two", "one", "restricted"}),
        (5, {"none", "one", "restricted"}),
        (9, {"none"}),
    ],
)
def test_a_node_is_out_where_the_pod_would_be_refused_without_others(gpus: int, admitting: set[str]) -> None:
    asked = numa_ask(pod(spec=spec({GPU: str(gpus)})))
    assert asked is not None
    made = Constraints(aligned=asked)
    number = FILTERS.number(NumaAlignment)
    judged = {name: FILTERS.judge(each, made) for name, each in _NODES.items()}
    assert {name for name, found in judged.items() if found == OK} == admitting
    assert {found for found in judged.values() if found != OK} <= {number}
    assert NumaAlignment().effort(asked) == 4


def test_a_pod_that_gets_nothing_aligned_is_not_looked_at() -> None:
    assert NumaAlignment().asked(Constraints()) is None


def test_a_node_is_judged_again_when_it_reports_something_else() -> None:
    assert len({NumaAlignment().reads(each) for each in _NODES.values()}) == len(_NODES)
