from __future__ import annotations

import pytest

from scheduler.core.assumed.backoff import Setback
from scheduler.core.model.plan import Bind, Explain
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, NodeReason
from tests.scheduler.core.objects import bound, cluster, feed, node, pod

SETTINGS = Settings(back_off_ns=10, longest_back_off_ns=100, exclusion_ns=1000, longest_exclusion_ns=5000)


@pytest.mark.parametrize(
    ("failures", "waits_ns", "excluded_ns"),
    [(1, 10, 1000), (2, 20, 2000), (3, 40, 4000), (4, 80, 5000), (99, 100, 5000)],
)
def test_each_failure_waits_twice_as_long_up_to_the_longest(failures: int, waits_ns: int, excluded_ns: int) -> None:
    setback = Setback()
    for _ in range(failures):
        setback.fail("n1", "why", now_ns=0, settings=SETTINGS)
    assert setback.until_ns == waits_ns
    assert setback.excluded_at(excluded_ns - 1) == ("n1",)
    assert setback.excluded_at(excluded_ns) == ()


def test_a_pod_whose_attempt_failed_waits_then_goes_elsewhere_and_in_the_end_may_come_back() -> None:
    made = cluster(node("n1"), node("n2"), pod(gpus=1), settings=SETTINGS)
    made.commits.failed("uid-p", "n1", "the device did not come", now_ns=0)
    waiting = made.decide(5)
    assert waiting.wake_at_ns == 10
    assert isinstance(waiting.entries[0], Explain)
    assert waiting.entries[0].verdict.code is Code.BACKING_OFF
    assert waiting.entries[0].verdict.detail == "the device did not come"
    elsewhere = made.decide(10)
    assert isinstance(elsewhere.entries[0], Bind)
    assert elsewhere.entries[0].placement.node == "n2"
    assert elsewhere.wake_at_ns == 1000
    back = made.decide(1000)
    assert isinstance(back.entries[0], Bind)
    assert back.entries[0].placement.node == "n1"
    assert back.wake_at_ns is None


def test_a_node_that_refused_pods_like_it_is_out_and_the_pod_does_not_wait() -> None:
    made = cluster(node("n1"), node("n2"), pod(gpus=1), settings=SETTINGS)
    made.commits.keep_off("uid-p", "n1", 2, now_ns=0)
    for now_ns, at in ((0, "n2"), (1999, "n2"), (2000, "n1")):
        (entry,) = made.decide(now_ns).entries
        assert isinstance(entry, Bind)
        assert entry.placement.node == at
    made.commits.keep_off("uid-gone", "n1", 1, now_ns=0)
    assert made.commits.setback("uid-gone") is None


def test_a_node_that_is_out_is_named_among_the_reasons() -> None:
    made = cluster(node("n1"), pod(gpus=1), settings=SETTINGS)
    made.commits.failed("uid-p", "n1", "", now_ns=0)
    entry = made.decide(10).entries[0]
    assert isinstance(entry, Explain)
    assert entry.verdict.node_reasons == (NodeReason("excluded", "", 1),)


def test_an_excluded_pod_does_not_condemn_its_class() -> None:
    made = cluster(node("n1"), pod("a", gpus=1), pod("b", gpus=1), settings=SETTINGS)
    made.commits.failed("uid-a", "n1", "", now_ns=0)
    plan = made.decide(10)
    assert [entry.placement.pod_uid for entry in plan.entries if isinstance(entry, Bind)] == ["uid-b"]


def test_a_failure_that_is_not_the_nodes_fault_excludes_nothing() -> None:
    made = cluster(node("n1"), pod(gpus=1), settings=SETTINGS)
    made.commits.failed("uid-p", "", "somebody changed the pod", now_ns=0)
    assert isinstance(made.decide(10).entries[0], Bind)


def test_a_pod_that_got_bound_after_all_has_no_history() -> None:
    waiting = pod(gpus=1)
    made = cluster(node("n1"), waiting, settings=SETTINGS)
    made.commits.failed("uid-p", "n1", "", now_ns=0)
    feed(made, bound(waiting, "n1"))
    made.commits.failed("uid-p", "n1", "", now_ns=0)
    assert made.setback("uid-p") is None


def test_a_pod_that_is_changed_too_often_to_be_bound_is_tried_again_at_once_only_a_few_times() -> None:
    made = cluster(node("n1"), pod(gpus=1), settings=SETTINGS)
    for _ in range(SETTINGS.free_overtakings):
        made.commits.overtaken("uid-p", "PodChanged: all the time", now_ns=0)
        assert isinstance(made.decide(0).entries[0], Bind)
    made.commits.overtaken("uid-p", "PodChanged: all the time", now_ns=0)
    waiting = made.decide(0)
    assert waiting.wake_at_ns == SETTINGS.back_off_ns
    assert isinstance(waiting.entries[0], Explain)
    assert waiting.entries[0].verdict.detail.startswith("PodChanged")
    assert isinstance(made.decide(SETTINGS.back_off_ns).entries[0], Bind)
