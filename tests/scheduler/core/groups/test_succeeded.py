"""Members that have succeeded count as bound for those that are made again after them."""

from __future__ import annotations

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Bind, Explain, Gang
from scheduler.core.model.verdict import Code
from tests.scheduler.core.objects import bound, changed, cluster, ended, feed, free_gpus, node, pod, pod_group
from wire.core import OwnerReference, Pod
from wire.crds.podgroup import PodGroup


def _owned(obj: Pod, by: str) -> Pod:
    return changed(obj, owner_references=[OwnerReference("batch/v1", "Job", "o", by, controller=True)] if by else None)


def _member(name: str, *, by: str = "run-1", subgroup: str = "") -> Pod:
    return _owned(pod(name, group="g", subgroup=subgroup, gpus=1), by)


def _done(name: str, *, by: str = "run-1", subgroup: str = "") -> Pod:
    return ended(bound(_member(name, by=by, subgroup=subgroup), "n1"))


def _group(minimum: int = 3, *, made_for: str = "", subgroups: dict[str, int] | None = None) -> PodGroup:
    said = [{"name": name, "minMember": least} for name, least in (subgroups or {}).items()]
    group = pod_group("g", minimum, subGroups=said or None)
    owner = OwnerReference("kubeflow.org/v1", "PyTorchJob", "o", made_for, controller=True)
    meta = msgspec.structs.replace(group.metadata, owner_references=[owner] if made_for else None)
    return msgspec.structs.replace(group, metadata=meta)


def _started(known: Cluster) -> list[str]:
    """Names of the pods that a decision starts, of whichever gang."""
    started: list[str] = []
    for entry in known.decide(0).entries:
        if isinstance(entry, Gang):
            started += [placement.name for placement in entry.placements]
        elif isinstance(entry, Bind):
            started.append(entry.placement.name)
    return sorted(started)


def test_a_member_that_is_made_again_after_the_others_succeeded_is_started() -> None:
    known = cluster(node(gpus=8), _group(), _done("a"), _done("b"), _member("c"))
    assert _started(known) == ["c"]


def test_below_its_minimum_with_those_that_succeeded_it_waits_and_counts_them() -> None:
    known = cluster(node(gpus=8), _group(4), _done("a"), _done("b"), _member("c"))
    (told,) = [entry for entry in known.decide(0).entries if isinstance(entry, Explain)]
    assert (told.verdict.code, told.verdict.required, told.verdict.present) == (Code.GANG_NOT_READY, 4, 3)


@pytest.mark.parametrize(
    ("made_for", "earlier", "is_started"),
    [("", "run-1", False), ("", "", False), ("", "run-2", True), ("job", "run-1", True), ("job", "", True)],
    ids=[
        "another run's",
        "nobody's",
        "the same run's",
        "another owner's, in a PodGroup of one workload",
        "nobody's, in a PodGroup of one workload",
    ],
)
def test_pods_of_an_earlier_run_start_no_later_one_in_part(made_for: str, earlier: str, is_started: bool) -> None:
    known = cluster(
        node(gpus=8),
        _group(made_for=made_for),
        _done("a", by=earlier),
        _done("b", by=earlier),
        _member("c", by="run-2"),
    )
    assert _started(known) == (["c"] if is_started else [])


def test_each_counts_for_its_subgroup() -> None:
    group = _group(3, subgroups={"leader": 1, "worker": 2})
    there = [_done("w0", subgroup="worker"), _done("w1", subgroup="worker")]
    assert _started(cluster(node(gpus=8), group, *there, _member("l", subgroup="leader"))) == ["l"]
    assert _started(cluster(node(gpus=8), group, *there, _member("w2", subgroup="worker"))) == []


def test_a_gang_of_which_the_rest_succeeded_is_not_broken() -> None:
    known = cluster(node(gpus=8), _group(2), _done("a"), bound(_member("b"), "n1"))
    assert known.broken_gangs() == []
    known.remove_pod("uid-a")
    assert [group.name for group in known.broken_gangs()] == ["g"]


def test_they_hold_nothing_and_are_forgotten_with_their_pods() -> None:
    done = [_done("a"), _done("b")]
    known = cluster(node(gpus=8), _group(), *done, _member("c"))
    assert free_gpus(known) == 8
    assert known.pods_beside({"uid-c"}) == [each.metadata.uid for each in done]
    for each in done:
        known.remove_pod(each.metadata.uid)
    assert known.pods_beside({"uid-c"}) == []
    assert _started(known) == []


def test_one_that_fails_does_not_count() -> None:
    failed = [ended(bound(_member(name), "n1"), "Failed") for name in ("a", "b")]
    assert _started(cluster(node(gpus=8), _group(), *failed, _member("c"))) == []


def test_a_success_that_is_seen_wakes_a_gang_that_waits() -> None:
    running = [bound(_member(name), "n1") for name in ("a", "b")]
    known = cluster(node(gpus=8), _group(4), *running, _member("c"))
    assert _started(known) == []
    feed(known, _done("d"))
    assert _started(known) == ["c"]


@pytest.mark.parametrize(
    ("ended_at", "is_started"),
    [
        ("2026-01-01T00:00:09Z", False),
        ("2026-01-01T00:00:10Z", False),
        ("2026-01-01T00:00:11Z", True),
        ("nonsense", False),
        (None, False),
    ],
    ids=["before", "in the same second", "after", "at no time", "nobody knows when"],
)
@pytest.mark.parametrize("has_restarted", [False, True])
def test_those_that_ended_after_a_member_came_count_for_it_without_a_controller(
    ended_at: str | None, *, is_started: bool, has_restarted: bool
) -> None:
    late = changed(_member("late", by=""), creation_timestamp="2026-01-01T00:00:10Z")
    running = [bound(_member(name, by=""), "n1") for name in ("a", "b")]
    done = [ended(each, at=ended_at) for each in running]
    if has_restarted:
        known = cluster(node(gpus=8), _group(), late, *done)
    else:
        known = cluster(node(gpus=8), _group(), *running)
        feed(known, late)
        feed(known, *done)
    assert _started(known) == (["late"] if is_started else [])


def test_the_first_member_without_a_controller_says_since_when_others_count() -> None:
    done = [ended(bound(_member(name, by=""), "n1"), at="2026-01-01T00:00:15Z") for name in ("a", "b")]
    late = changed(_member("late", by=""), creation_timestamp="2026-01-01T00:00:20Z")
    first = changed(_member("first", by=""), creation_timestamp="2026-01-01T00:00:10Z")
    assert _started(cluster(node(gpus=8), _group(4), *done, late)) == []
    assert _started(cluster(node(gpus=8), _group(4), *done, late, first)) == ["first", "late"]
    assert _started(cluster(node(gpus=8), _group(4), *done, late, _member("of-a-job"))) == []


def test_pods_that_could_be_whole_by_themselves_start_together_whoever_succeeded_before() -> None:
    done = [_done(name) for name in ("a", "b", "c")]
    again = [_member(name) for name in ("d", "e", "f")]
    assert _started(cluster(node(gpus=2), _group(), *done, *again)) == []
    assert _started(cluster(node(gpus=3), _group(), *done, *again)) == ["d", "e", "f"]


def test_a_running_gang_of_which_one_succeeded_is_not_below_its_minimum_and_takes_the_next() -> None:
    known = cluster(node(gpus=8), _group(), _done("a"), *(bound(_member(name), "n1") for name in ("b", "c")))
    feed(known, _member("d"))
    assert known.broken_gangs() == []
    assert _started(known) == ["d"]


@pytest.mark.parametrize(("gpus", "started"), [(2, ["b0", "b1"]), (1, [])])
def test_who_can_satisfy_a_choice_without_those_that_succeeded_starts_whole(gpus: int, started: list[str]) -> None:
    parts = [{"name": "a", "minMember": 2}, {"name": "b", "minMember": 2}]
    group = pod_group("g", subGroups=parts, minSubGroup=1)
    done = [_done("a0", subgroup="a"), _done("a1", subgroup="a")]
    known = cluster(node(gpus=gpus), group, *done, _member("b0", subgroup="b"), _member("b1", subgroup="b"))
    assert _started(known) == started


def test_a_gang_is_not_broken_while_a_subgroup_that_it_can_do_with_has_succeeded() -> None:
    parts = [{"name": "a", "minMember": 2}, {"name": "b", "minMember": 2}]
    done = [_done("a0", subgroup="a"), _done("a1", subgroup="a")]
    for least, broken in ((1, []), (2, ["g"])):
        group = pod_group("g", subGroups=parts, minSubGroup=least)
        known = cluster(node(gpus=8), group, *done, bound(_member("b0", subgroup="b"), "n1"))
        assert [each.name for each in known.broken_gangs()] == broken
