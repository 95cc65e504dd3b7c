from __future__ import annotations

from collections.abc import Hashable

import pytest

from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pods import pod_record
from scheduler.core.decide.gang_waits import alike_of, asked_by_start, speaks_of
from scheduler.core.groups.quorum import Quorum, quorum
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.scheduling_queue.unschedulable import KeptGang
from tests.scheduler.core.objects import bound, pod, pod_group


def _members(count: int, *, of: str = "g", gpus: int = 1) -> list[PodRecord]:
    made = [pod(f"{of}-{number}", gpus=gpus, group=of) for number in range(count)]
    return [record for each in made if (record := pod_record(each, Settings())) is not None]


def _gang(minimum: int, *running: PodRecord, of: str = "g") -> tuple[PodGroupRecord, Quorum]:
    group = pod_group_record(pod_group(of, minimum))
    return group, quorum(group, running, lambda _: False)


def _kept(of: Hashable) -> KeptGang:
    verdict = Verdict(code=Code.GANG_INCOMPLETE)
    return KeptGang(
        verdict=verdict, asked=of, depends_on_all=False, sure_at=0, generation=0, charged=frozenset(), needs=None
    )


@pytest.mark.parametrize(("minimum", "waiting", "speaks"), [(3, 3, True), (3, 4, True), (3, 2, False), (2, 3, False)])
def test_a_verdict_is_still_true_of_a_gang_that_needs_the_same_and_has_no_fewer_members(
    minimum: int, waiting: int, speaks: bool
) -> None:
    kept = _kept(asked_by_start(*_gang(3), _members(3)))
    assert speaks_of(kept, *_gang(minimum), waiting) == speaks


def test_a_verdict_says_nothing_of_a_gang_of_which_more_is_bound() -> None:
    running = pod_record(bound(pod("g-9", gpus=1, group="g"), "n1"), Settings())
    assert running is not None
    kept = _kept(asked_by_start(*_gang(3), _members(3)))
    assert not speaks_of(kept, *_gang(3, running), 3)
    assert not speaks_of(_kept(None), *_gang(3), 3)


def test_gangs_that_ask_the_same_are_alike_whatever_their_names() -> None:
    one = alike_of(*_gang(2), _members(2), 2)
    assert one is not None
    assert one == alike_of(*_gang(2, of="h"), _members(2, of="h"), 2)
    assert one != alike_of(*_gang(2), _members(2, gpus=2), 2)
    assert asked_by_start(*_gang(2), _members(2)) != asked_by_start(*_gang(2, of="h"), _members(2, of="h"))


def test_no_gang_is_like_one_that_has_begun_or_of_which_not_all_are_ready() -> None:
    running = pod_record(bound(pod("g-9", gpus=1, group="g"), "n1"), Settings())
    assert running is not None
    assert alike_of(*_gang(2, running), _members(1), 1) is None
    assert alike_of(*_gang(2), _members(2), 3) is None
