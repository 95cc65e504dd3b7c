"""A log of what a cluster was told makes another cluster the same (test_machine.py does this with long histories)."""

from __future__ import annotations

from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from tests.scheduler.core.footprint import footprint
from tests.scheduler.core.objects import feed, node, pod, pod_group
from verification.event_log import EventLog


def test_a_cluster_that_is_told_the_same_makes_the_same_plans_and_is_the_same() -> None:
    log, recorded, again = EventLog(), Cluster(Settings()), Cluster(Settings())
    made = log.recording(recorded)
    feed(made, node(), pod("a", gpus=8), pod("b", gpus=1))
    made.decide(0)
    made.commits.failed("uid-b", "n1", "refused", now_ns=1)
    made.scheduling_queue.recount_ns = 5
    made.decide(2)
    assert [event.path[-1] for event in log.events][-4:] == ["decide", "failed", "recount_ns", "decide"]
    assert log.replay(again) == log.plans
    assert len(log.plans) == 2
    assert footprint(again) == footprint(recorded)


def test_an_event_is_kept_as_it_was_whatever_becomes_of_its_list_later() -> None:
    log, again = EventLog(), Cluster(Settings())
    groups = [pod_group("g", 2)]
    log.recording(Cluster(Settings())).replace_pod_groups(groups)
    groups.clear()
    log.replay(again)
    assert again.pod_group("ns", "g") is not None
