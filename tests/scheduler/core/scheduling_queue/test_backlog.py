"""When time alone, or what a node loses, lets pods and gangs that sleep be decided on again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gpu.request import FractionAsk
from gpu.translation import Cards
from scheduler.core.cluster import Cluster
from scheduler.core.convert.owners import job_record
from scheduler.core.decide.allowance import Limits
from scheduler.core.model.plan import Explain, placements
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.model.verdict import Code
from tests.scheduler.core.model.test_records import said
from tests.scheduler.core.objects import NANO, Fed, bound, cluster, feed, node, pod, pod_group, recorded, reservation
from wire.core import Job, Pod

_S = 1_000_000_000
#: No verdict is judged again for its counts alone.
_PLAIN = Limits(retold=0)


def _placed(made: Cluster, now_ns: int = 0) -> list[str]:
    plan = made.decide(now_ns, _PLAIN)
    made.told([entry for entry in plan.entries if isinstance(entry, Explain)])
    return sorted(placement.name for placement in placements(plan.entries))


def _wake_at_ns(made: Cluster, now_ns: int = 0) -> int | None:
    return made.decide(now_ns, _PLAIN).wake_at_ns


def _seen_job(made: Cluster, uid: str) -> None:
    made.owners.jobs.put(job_record(msgspec.convert({"metadata": {"namespace": "ns", "name": "o", "uid": uid}}, Job)))


def _of_job(name: str, uid: str) -> Any:
    made = pod(name, gpus=1, owner=("batch/v1", "Job"))
    owners = [msgspec.structs.replace(each, uid=uid) for each in made.metadata.owner_references or ()]
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, owner_references=owners))


def test_pods_whose_time_comes_at_once_start_at_once() -> None:
    names = ["p0", "p1", "p2", "p3"]
    made = cluster(node(), *(pod(name, gpus=1) for name in names), settings=Settings(back_off_ns=1))
    for name in names:
        made.commits.failed(f"uid-{name}", "", "Refused", now_ns=0)
    assert _placed(made) == []
    assert _wake_at_ns(made) == 1
    assert _placed(made, 1) == names


def test_a_time_that_an_earlier_one_took_the_place_of_holds_up_no_other() -> None:
    made = cluster(node(), _of_job("p", "j"))
    assert _placed(made) == []
    assert _wake_at_ns(made) == 10 * _S
    made.commits.failed("uid-p", "", "Refused", now_ns=0)
    _seen_job(made, "j")
    assert _placed(made) == []
    assert _wake_at_ns(made) == 1 * _S
    feed(made, _of_job("q", "k"))
    assert _placed(made, _S // 2) == []
    assert _placed(made, 1 * _S) == ["p"]
    made.remove_pod("uid-p")
    assert _wake_at_ns(made, 2 * _S) == 10 * _S + _S // 2, "the time of a pod that is gone is none"
    assert _placed(made, 11 * _S) == ["q"]


def test_a_pod_that_excludes_a_device_is_tried_again_though_that_has_only_become_full() -> None:
    """What is in use could have served it before, so it was to open no other (placer.py)."""
    wanted = recorded(said((FractionAsk(NANO // 2),), cards=Cards(not_uuids=("GPU-a",))))
    made = cluster(node("n1", 2), reservation("g", book={"t": NANO // 4}, uuid="GPU-a"), wanted)
    assert _placed(made) == []
    feed(made, reservation("g", book={"t": NANO // 4, "u": NANO // 2}, uuid="GPU-a"))
    assert _placed(made) == ["p"]


@pytest.mark.parametrize("runs", [[], [bound(pod("m", group="g"), "n1")]], ids=["none runs", "one runs"])
def test_a_gang_of_unlike_members_is_tried_again_though_a_node_has_only_lost_something(runs: list[Pod]) -> None:
    """The first member goes to the emptier node. Once that is the other one, the second member has its CPU."""
    members = [pod("a", group="g", gpus=3), pod("b", group="g", gpus=2, cpu="10")]
    made = cluster(
        node("n1", 4),
        node("n2", 3, cpu="4"),
        pod_group("g", 2 + len(runs)),
        *runs,
        *members,
        settings=Settings(gpu_strategy=Strategy.SPREAD),
    )
    assert _placed(made) == []
    feed(made, pod("r", gpus=2, bound_to="n1", scheduler="default-scheduler"))
    assert _placed(made) == ["a", "b"]


def test_a_gang_of_unlike_members_says_that_it_is_incomplete_as_long_as_nothing_changes() -> None:
    made = cluster(node(gpus=2), pod_group("g", 2), pod("a", group="g", gpus=1), pod("b", group="g", gpus=2))
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Explain)
    assert (entry.verdict.code, entry.verdict.placed, entry.verdict.required) == (Code.GANG_INCOMPLETE, 1, 2)
    feed(made, node("elsewhere", 0))
    assert _placed(made) == []
    feed(made, node("more", 2))
    assert _placed(made) == ["a", "b"]


def test_of_very_many_kinds_of_pods_each_is_tried_again_when_a_node_has_more() -> None:
    """The first thousand are compared with the node before they are woken, the others are woken at once."""
    names = [f"p{number:04}" for number in range(1_010)]
    made = cluster(node(cpu="1", pods=2_000), *(pod(name, cpu=f"{2_000 + at}m") for at, name in enumerate(names)))
    limits = Limits(most=10**9, retold=0)
    assert list(placements(made.decide(0, limits).entries)) == []
    feed(made, node(cpu="9000", pods=2_000))
    assert sorted(placement.name for placement in placements(made.decide(1, limits).entries)) == names


def test_a_member_beyond_the_minimum_waits_while_others_of_its_gang_have_another_class() -> None:
    """One of two classes may fit after a change: the gang wakes, and only that member starts."""
    running = bound(pod("r", group="g", gpus=1), "n1")
    made = cluster(
        node("n1", 1), pod_group("g", 1), running, pod("a", group="g", gpus=2), pod("b", group="g", cpu="100")
    )
    assert _placed(made) == []
    feed(made, node("n2", 1))
    assert _placed(made) == []
    feed(made, node("n3", 2))
    assert _placed(made) == ["a"]
    feed(made, node("n4", 0, cpu="128"))
    assert "b" in _placed(made)


def _keeps_off(app: str) -> dict[str, Any]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def test_a_pod_that_is_kept_off_since_it_was_filed_is_not_placed_there_and_others_of_its_class_are() -> None:
    """What keeps pods off is compared when they have their turn, not each time that a pod comes."""
    first, second = pod("a", gpus=1, labels={"app": "a"}), pod("b", gpus=1, labels={"app": "b"})
    made = cluster(node("n1", 0), first, second)
    assert _placed(made) == []
    feed(made, bound(pod("r", spec=_keeps_off("a")), "n2"))
    assert _placed(made) == []
    feed(made, node("n2", 2))
    assert _placed(made) == ["b"]
    while _wake_at_ns(made) == 0:
        _placed(made)
    verdict = made.backlog.said.verdict("uid-a")
    assert verdict is not None
    assert "others-anti-affinity" in {reason.kind for reason in verdict.node_reasons}
    made.remove_pod("uid-r")
    assert "a" in _placed(made)


def test_a_pod_that_is_kept_off_since_it_was_filed_is_placed_elsewhere_in_the_same_decision() -> None:
    made = cluster(node("n1", 0), pod("a", gpus=1, labels={"app": "a"}))
    assert _placed(made) == []
    feed(made, bound(pod("r", spec=_keeps_off("a")), "n2"))
    feed(made, node("n2", 2), node("n3", 1))
    assert _placed(made) == ["a"]


_GATED = pod("b", group="g", gpus=1, gated=True)
_MEMBERS = (pod("a", group="g", gpus=1), pod("b", group="g", gpus=1))


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param((pod_group("g", 3), *_MEMBERS), id="too few are there"),
        pytest.param((pod_group("g", 2), _MEMBERS[0], _GATED), id="one is gated"),
        pytest.param((pod_group("g", 2, minSubGroup=1), *_MEMBERS), id="its structure is not supported"),
        pytest.param(_MEMBERS, id="its PodGroup is not there"),
        pytest.param((pod_group("g", 2), *_MEMBERS), id="there is no room"),
        pytest.param((pod_group("g", 1), bound(_MEMBERS[0], "n1"), _MEMBERS[1]), id="none for one beyond the minimum"),
    ],
)
def test_a_gang_that_can_not_start_is_not_decided_on_until_something_happens(objects: Sequence[Fed]) -> None:
    made = cluster(node("n1", 0), *objects)
    assert _placed(made) == []
    assert made.backlog.awake_gangs() == []
    feed(made, node("n2", 0))
    _placed(made)
    assert made.backlog.awake_gangs() == []
    made.remove_pod("uid-a")
    made.remove_pod("uid-b")
    _placed(made)
    made.forget_gone()
    assert not made.backlog.gangs()
