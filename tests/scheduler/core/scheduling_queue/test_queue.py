"""When time alone, or what a node loses, lets pods and gangs that sleep be decided on again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gpu.request import FractionAsk
from gpu.translation import Cards
from scheduler.core.cluster import Cluster
from scheduler.core.convert.owners import job_record
from scheduler.core.decide.allowance import Limits
from scheduler.core.decide.decide import decide
from scheduler.core.model.plan import Explain, placements
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.preemption import NoVictims
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.scheduling_queue.effects import Said
from scheduler.core.scheduling_queue.queue import Resting, Timers
from scheduler.core.scheduling_queue.signatures import PreemptionMemo, Ranked, Refused, Shape, ShapeKey, Turns
from tests.scheduler.core.decide.test_nominees import preempting_cluster
from tests.scheduler.core.model.test_records import said
from tests.scheduler.core.nodes.test_nominated_usage import nomination, place
from tests.scheduler.core.objects import NANO, Fed, bound, cluster, feed, node, pod, pod_group, recorded, reservation
from tests.values import there
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


@pytest.mark.thorough
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
    verdict = there(made.scheduling_queue.said.verdict("uid-a"))
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
    assert made.scheduling_queue.awake_gangs() == []
    feed(made, node("n2", 0))
    _placed(made)
    assert made.scheduling_queue.awake_gangs() == []
    made.remove_pod("uid-a")
    made.remove_pod("uid-b")
    _placed(made)
    made.forget_gone()
    assert not made.scheduling_queue.gangs()


# Which verdicts are kept, and for how long.

_NOWHERE = Verdict(code=Code.NO_NODE_FITS)


def _class(made: Cluster, name: str) -> PodClass:
    record = there(made.pod(f"uid-{name}"))
    return record.cls


def test_a_verdict_that_is_kept_again_is_the_newest() -> None:
    made = cluster(node(), pod("a", cpu="100"), pod("b", cpu="101"))
    unschedulable, first, second = made.scheduling_queue.unschedulable, _class(made, "a"), _class(made, "b")
    for cls in (first, second, first):
        unschedulable.put(cls, unschedulable.kept(cls, _NOWHERE, charged=(), generation=made.generation))
    assert unschedulable.oldest(1) == []  # no count has changed since
    feed(made, node("n2"))
    made.refresh()
    assert unschedulable.oldest(1) == [second]


def test_a_class_that_names_the_first_device_of_a_node_is_judged_again_after_any_change() -> None:
    made = cluster(node(), pod("a", fraction="0.5"))
    unschedulable, anywhere = made.scheduling_queue.unschedulable, _class(made, "a")
    (container,) = anywhere.request.containers
    (ask,) = container.asks
    assert isinstance(ask, FractionAsk)
    for index, is_sure in ((-1, True), (0, False), (1, False)):
        named = replace(container, asks=(replace(ask, index=index),))
        cls = replace(anywhere, request=replace(anywhere.request, containers=(named,)))
        unschedulable.put(cls, unschedulable.kept(cls, _NOWHERE, charged=(), generation=made.generation))
        kept = there(unschedulable.get(cls))
        assert unschedulable.is_sure(cls, kept, made.generation + 1) is is_sure


def test_a_need_that_asks_something_else_was_refused_on_another_ground() -> None:
    memo = PreemptionMemo(1, ("now",), {key: Refused(("now",), 1, NoVictims()) for key in ("a", "b")})
    found = memo.without_answers_to(["b", "unknown"])
    assert {key: refused.stamp for key, refused in found.refused.items()} == {"a": ("now",), "b": ()}
    assert found.stamp == ()


def test_nothing_is_copied_where_none_does() -> None:
    memo = PreemptionMemo(1, ("now",))
    assert memo.without_answers_to(()) is memo


def test_what_is_due_is_taken_once_the_earliest_first() -> None:
    timers = Timers()
    for at_ns, item in ((30, "c"), (10, "a"), (20, ("ns", "gang")), (20, "b")):
        timers.put(at_ns, item)
    assert list(timers.due(20)) == ["a", ("ns", "gang"), "b"]
    assert list(timers.due(20)) == []
    assert timers.next_ns == 30


def test_of_several_times_of_one_the_earliest_counts() -> None:
    timers = Timers()
    timers.put(20, "a")
    timers.put(30, "a")
    assert timers.next_ns == 20
    timers.put(10, "a")
    assert list(timers.due(40)) == ["a"]
    assert timers.next_ns is None


def test_who_was_due_may_ask_for_another_time() -> None:
    timers = Timers()
    timers.put(10, "a")
    assert list(timers.due(10)) == ["a"]
    timers.put(30, "a")
    assert timers.next_ns == 30
    assert list(timers.due(29)) == []
    assert list(timers.due(30)) == ["a"]


# What waits for the same comes in the order of ranks, each once.


def _rank(uid: str, *, priority: int = 0, created: str = "") -> Rank:
    return Rank(-priority, 0, created, uid)


def _ranked(*ranks: Rank) -> Ranked:
    made = Ranked()
    for rank in ranks:
        made.put_rank(rank)
    return made


def _taken(of: Ranked) -> list[str]:
    found, turns = [], Turns(of)
    while turns.first() is not None:
        found.append(turns.take())
    return [rank.uid for rank in found]


def test_the_highest_priority_comes_first_then_the_oldest_then_the_uid() -> None:
    of = _ranked(_rank("d", created="2"), _rank("b", created="1"), _rank("a", created="1"), _rank("c", priority=1))
    assert _taken(of) == ["c", "a", "b", "d"]


def test_the_turns_of_one_decision_leave_the_others_as_they_were() -> None:
    of = _ranked(_rank("a"), _rank("b"))
    assert _taken(of) == _taken(of) == ["a", "b"]


def test_one_that_left_and_came_back_has_one_turn() -> None:
    of = _ranked(_rank("a"), _rank("b"))
    of.drop("a")
    of.put_rank(_rank("a"))
    assert _taken(of) == ["a", "b"]


def test_one_whose_rank_has_changed_has_its_new_turn_alone() -> None:
    of = _ranked(_rank("a"), _rank("b"))
    of.put_rank(_rank("b", priority=5))
    assert _taken(of) == ["b", "a"]


def test_ranks_of_what_has_left_do_not_pile_up() -> None:
    of = _ranked(_rank("a"))
    for priority in range(1_000):
        of.put_rank(_rank("b", priority=priority))
    assert len(of.in_order()) < 100
    of.drop("b")
    assert _taken(of) == ["a"]


def test_nobody_has_a_turn_who_has_none_to_come() -> None:
    turns = Turns(_ranked(_rank("a")))
    assert turns.take().uid == "a"
    with pytest.raises(LookupError, match="nobody is left"):
        turns.take()


def test_those_who_were_settled_before_have_no_turn_however_many_they_are() -> None:
    names = [f"p{number:03}" for number in range(200)]
    of = _ranked(*map(_rank, names))
    turns = Turns(of, set(names[:150]) | {"of another shape"})
    assert [turns.take().uid for _ in range(50)] == names[150:]
    assert turns.first() is None


def test_nobody_has_a_turn_after_the_end() -> None:
    of = _ranked(_rank("a"), _rank("b"))
    turns = Turns(of)
    turns.end()
    assert turns.first() is None
    assert _taken(of) == ["a", "b"]  # the next decision's turns


# Which standing nominations a decision looks at; test_preemption_machine.py holds that the others need no look.
_MANY = 20


def test_all_are_awake_until_they_were_looked_at_and_then_those_that_something_wakes() -> None:
    resting = Resting()
    resting.wake(["a"])
    assert _awake(resting) is None
    resting.looked(["a", "b"])
    resting.wake(["c", "a"])
    assert _awake(resting) == ["a", "b", "c"]
    resting.wake_all()
    assert _awake(resting) is None


def _awake(resting: Resting) -> list[str] | None:
    return None if resting.awake is None else list(resting.awake)


def _waiting(count: int = _MANY) -> Cluster:
    """A cluster in which a holder waits on each node for its victim."""
    made = preempting_cluster(*(node(f"n{at}", 2) for at in range(count)))
    for at in range(count):
        feed(
            made, bound(pod(f"v{at}", gpus=1), f"n{at}"), bound(pod(f"o{at}", gpus=1), f"n{at}"), pod(f"h{at}", gpus=1)
        )
        on = f"n{at}"
        made.commits.nominations.put(
            nomination(place(f"h{at}", node_name=on), victims=(f"v{at}",), id_=f"i{at}", node_name=on)
        )
    return made


def _looked_at(made: Cluster) -> set[str]:
    """Holders whose nominations the next decision looks at, and lets wait."""
    effects = decide(made.prepared(0), 0).effects
    return {uid.removeprefix("uid-") for note in effects if isinstance(note, Said) and note.lasts for uid in note.uids}


def _victim_is_deleted(made: Cluster) -> None:
    feed(made, bound(pod("v3", gpus=1, deleting=True), "n3"))


def _holder_changes(made: Cluster) -> None:
    feed(made, pod("h3", gpus=1, priority=7))


def _another_comes(made: Cluster) -> None:
    feed(made, bound(pod("foreign", cpu="1", scheduler="another"), "n3"))


def _node_changes(made: Cluster) -> None:
    feed(made, node("n3", 2, cpu="99"))


@pytest.mark.parametrize("happens", [_victim_is_deleted, _holder_changes, _another_comes, _node_changes])
def test_a_decision_looks_at_the_nomination_about_which_something_has_changed_and_at_no_other(
    happens: Callable[[Cluster], None],
) -> None:
    made = _waiting()
    assert len(_looked_at(made)) == _MANY
    made.decide(0)
    assert _looked_at(made) == set()
    happens(made)
    assert _looked_at(made) == {"h3"}


def test_a_nomination_of_a_gang_wakes_with_any_member_and_with_its_group() -> None:
    made = _waiting(1)
    feed(made, pod_group("g", 1), pod("m", gpus=1, group="g"))
    of_pod = nomination(place("m", node_name="n0"), victims=("o0",), id_="g", node_name="n0")
    made.commits.nominations.put(msgspec.structs.replace(of_pod, pod_group="g"))
    made.decide(0)
    assert _looked_at(made) == set()
    feed(made, pod("n", gpus=1, group="g", gated=True))
    assert _looked_at(made) == {"m"}
    made.decide(0)
    feed(made, pod_group("g", 1, queue="other"))
    assert _looked_at(made) == {"m"}


def test_a_holder_that_backs_off_is_looked_at_as_its_time_passes() -> None:
    made = _waiting(2)
    made.commits.failed("uid-h1", "", "no answer", now_ns=0)
    made.decide(0)
    assert "i1" in (made.scheduling_queue.resting.awake or ())
    assert "i0" not in (made.scheduling_queue.resting.awake or ())


# A shape ranks its pods as pods alone are ranked.
_CLS = PodClass()


def _pod(name: str, *, priority: int = 0, created: str = "") -> PodRecord:
    return PodRecord(uid=name, namespace="ns", name=name, rv="1", node="", cls=_CLS, priority=priority, created=created)


def test_pods_of_one_shape_come_in_the_order_of_decision() -> None:
    shape = Shape(ShapeKey("ns", _CLS))
    for each in (_pod("d", created="2"), _pod("b", created="1"), _pod("a", created="1"), _pod("c", priority=1)):
        shape.put(each)
    turns = Turns(shape)
    assert [turns.take().uid for _ in range(4)] == ["c", "a", "b", "d"]
