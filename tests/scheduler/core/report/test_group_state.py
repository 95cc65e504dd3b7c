from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from scheduler.core.model.quota import Resources
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code, NodeReason, Verdict
from scheduler.core.queues.tree import Sum
from scheduler.core.report.state import MOST_VERDICTS, GroupState, group_state
from tests.scheduler.core.objects import cluster, pod

BLANK = cluster().read_pod(pod("blank")).record
NOT_READY = Verdict(code=Code.GANG_NOT_READY, required=3, present=1)
FULL = Verdict(code=Code.NO_NODE_FITS, node_reasons=(NodeReason("insufficient", "nvidia.com/gpu", 3),))
FULLER = Verdict(code=Code.NO_NODE_FITS, node_reasons=(NodeReason("insufficient", "nvidia.com/gpu", 4),))


def member(name: str, node: str = "", *, deleting: bool = False) -> PodRecord:
    assert BLANK is not None
    return msgspec.structs.replace(BLANK, uid=name, name=name, node=node, deleting=deleting)


def stands(members: list[PodRecord], verdicts: Mapping[str, Verdict], in_flight: str = "") -> GroupState:
    return group_state(None, members, verdicts.get, lambda uid: uid == in_flight)


def test_its_sum_is_shown() -> None:
    total = Sum(held=Resources(1, 2, 3), fixed=Resources(1, 0, 0), asked=Resources(4, 5, 6), pods=2)
    found = group_state(total, [], dict[str, Verdict]().get, lambda _: False)
    assert (found.has_pods, found.held, found.fixed, found.asked) == (True, total.held, total.fixed, total.asked)


@pytest.mark.parametrize(
    ("members", "verdicts", "expected"),
    [
        pytest.param([], {}, (), id="no pods"),
        pytest.param([member("a")], {}, None, id="nothing decided yet"),
        pytest.param([member("a"), member("b")], {"a": FULL, "b": FULL}, (FULL,), id="all for one reason"),
        pytest.param([member("a"), member("b")], {"a": FULL, "b": FULLER}, (FULL,), id="one reason, other counts"),
        pytest.param([member("a"), member("b")], {"a": FULL, "b": NOT_READY}, (NOT_READY, FULL), id="two reasons"),
        pytest.param([member("a"), member("b")], {"a": FULL}, (FULL,), id="one is not decided yet"),
        pytest.param([member("a"), member("b", "n1")], {"a": FULL}, (), id="one runs"),
        pytest.param([member("a"), member("z")], {"a": FULL}, (), id="one is on its way"),
        pytest.param([member("a", deleting=True)], {}, (), id="one that is deleted waits for nothing"),
    ],
)
def test_it_waits_for_the_reasons_of_its_pods_while_none_has_a_place(
    members: list[PodRecord], verdicts: dict[str, Verdict], expected: tuple[Verdict, ...] | None
) -> None:
    assert stands(members, verdicts, in_flight="z").verdicts == expected


def test_of_very_many_reasons_a_few_are_shown_always_the_same() -> None:
    members = [member(f"m{number:02}") for number in range(20)]
    verdicts = {f"m{number:02}": Verdict(code=Code.BACKING_OFF, detail=f"{number:02}") for number in range(20)}
    found = stands(members, verdicts).verdicts
    assert found == tuple(verdicts[f"m{number:02}"] for number in range(MOST_VERDICTS))
    assert stands(members[::-1], verdicts).verdicts == found
