"""A large group that others overtake, in virtual time: minute by minute pods end, new ones come, and all is decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from scheduler.conditions.messages import told
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Explain, placements
from scheduler.core.model.preemption import Kept
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, Verdict
from tests.quick import few_rows
from tests.scheduler.core.filters.beside import HOST, affinity, running, term
from tests.scheduler.core.objects import bound, changed, feed, node, pod, pod_group, queue, topology
from tests.scheduler.core.stories.test_preemption import Shell
from wire import names
from wire.core import Pod
from wire.crds.queue import Queue

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
S = 1_000_000_000
PATIENCE = 10


def at(minute: float) -> str:
    """A time so many minutes after noon, as the API server writes it."""
    return (NOON + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Day:
    """A cluster whose time is passed in, in minutes after noon; its pods run as long as they say."""

    cluster: Cluster
    minute: int = 0
    runs: dict[str, int] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    #: When each pod began, by name, and where.
    began: dict[str, int] = field(default_factory=dict)
    node_of: dict[str, str] = field(default_factory=dict)
    said: dict[str, Verdict] = field(default_factory=dict)

    def submit(self, name: str, *, minutes: int, gpus: int = 1, team: str = "a", **more: Any) -> None:
        """A pod comes that will run so long."""
        labels = {names.QUEUE_LABEL: team}
        made = pod(name, gpus=gpus, created=at(self.minute), labels=labels, **more)
        self.pods[name], self.runs[name] = made, minutes
        feed(self.cluster, made)

    def gang(self, name: str, members: int, *, minutes: int, gpus: int, team: str = "a", **spec: Any) -> None:
        """A gang comes."""
        group = pod_group(name, members, queue=team, **spec)
        created = msgspec.structs.replace(group.metadata, creation_timestamp=at(self.minute))
        feed(self.cluster, msgspec.structs.replace(group, metadata=created))
        for number in range(members):
            self.submit(f"{name}-{number}", minutes=minutes, gpus=gpus, team=team, group=name)

    def until(self, minute: int) -> None:
        """Let time pass: pods end, and all decisions of each minute are carried out."""
        while True:
            self._end_pods()
            self._decide()
            if self.minute >= minute:
                return
            self.minute += 1

    def _end_pods(self) -> None:
        for name, began in list(self.began.items()):
            if name in self.pods and began + self.runs[name] <= self.minute:
                del self.pods[name]
                self.cluster.remove_pod(f"uid-{name}")

    def _decide(self) -> None:
        for _ in range(100):
            now_ns = self.minute * 60 * S
            plan = self.cluster.decide(now_ns, wall_s=int(NOON.timestamp()) + self.minute * 60)
            told_of = [entry for entry in plan.entries if isinstance(entry, Explain)]
            self.cluster.told(told_of)
            self.said |= {uid.removeprefix("uid-"): entry.verdict for entry in told_of for uid in entry.pods}
            placed = list(placements(plan.entries))
            for placement in placed:
                self.cluster.commits.assume(placement)
                self._bind(placement.name, placement.node)
            if not placed and plan.wake_at_ns != now_ns:
                assert self.cluster.validate() == []
                return
        raise AssertionError("decisions go on and on")

    def _bind(self, name: str, where: str) -> None:
        was = changed(self.pods[name])
        spec = msgspec.structs.replace(was.spec, node_name=where)
        status = msgspec.structs.replace(was.status, phase="Running", start_time=at(self.minute))
        self.pods[name] = msgspec.structs.replace(was, spec=spec, status=status)
        feed(self.cluster, self.pods[name])
        self.began[name], self.node_of[name] = self.minute, where

    def words(self, name: str) -> str:
        """What a pod was told last."""
        return told(self.said[name], reader="ns").message


def day(*queues: Queue, nodes: int = 2, **settings: Any) -> Day:
    """Nodes of four GPUs that are full, their pods ending one after the other, four minutes apart."""
    percent = 50 if nodes > 1 else 100
    made = Day(Cluster(Settings(**{"reserved_nodes_percent": percent, **settings})))
    feed(made.cluster, *queues, *(node(f"n{number}", 4) for number in range(1, nodes + 1)))
    for number in range(4 * nodes):
        made.submit(f"old{number}", minutes=4 * (number + 1), team="a")
    made.until(0)
    assert len(made.began) == 4 * nodes
    return made


def stream(made: Day, until: int, *, minutes: int = 30, team: str = "a", **more: Any) -> None:
    """Each minute another small pod comes, for ever, if nothing stops them."""
    while made.minute < until:
        made.submit(f"{team}-small{made.minute}", minutes=minutes, team=team, **more)
        made.until(made.minute + 1)


@pytest.mark.thorough
def test_without_a_reserve_small_pods_overtake_a_large_one_for_ever() -> None:
    made = day(reserved_nodes_percent=0)
    made.submit("large", minutes=60, gpus=4)
    stream(made, 180)
    assert "large" not in made.began


def test_a_pod_that_fitted_nowhere_and_then_on_a_kept_node_only_is_decided_on_once() -> None:
    """Its class keeps no verdict whose counts nobody renews: the scheduler decided once a second for ever."""
    made = day()
    made.submit("large", minutes=60, gpus=4)
    stream(made, PATIENCE + 1, minutes=60)
    made.submit("late", minutes=60)
    made.until(PATIENCE + 1)
    assert "2 node(s) didn't have enough resources: GPUs" in made.words("late")
    made.until(PATIENCE + 2)
    assert "1 node(s) are kept for ns/large" in made.words("late")
    before, now_ns = made.cluster.decisions, made.minute * 60 * S
    for second in range(60):
        made.cluster.decide(now_ns + second * S, wall_s=int(NOON.timestamp()) + made.minute * 60 + second)
    assert made.cluster.decisions - before <= 2


@pytest.mark.parametrize("minutes", [5, 30, 47])
def test_a_large_pod_starts_when_what_ran_on_its_nodes_has_ended(minutes: int) -> None:
    """The bound: within the patience and the longest rest of what runs there then, and one decision."""
    made = day()
    made.submit("large", minutes=60, gpus=4)
    longest = max(minutes, 4 * 8)
    stream(made, PATIENCE + longest + 1, minutes=minutes)
    assert made.began["large"] <= PATIENCE + longest


def test_a_gang_gets_as_many_nodes_as_it_needs() -> None:
    made = day(nodes=4)
    made.gang("big", 2, minutes=60, gpus=4)
    stream(made, PATIENCE + 30 + 64 + 1)
    assert made.began["big-0"] == made.began["big-1"] <= PATIENCE + 64
    assert made.node_of["big-0"] != made.node_of["big-1"]


def test_a_gang_that_needs_one_rack_gets_the_nodes_of_one() -> None:
    """A node reserve may have two nodes; by use alone these would be of two racks, as all are full."""
    made = Day(Cluster(Settings(reserved_nodes_percent=50)))
    feed(made.cluster, topology("t", "rack"), queue("a"))
    feed(made.cluster, *(node(f"n{number}", 4, labels={"rack": f"r{number % 2}"}) for number in range(4)))
    for number in range(16):
        made.submit(f"old{number}", minutes=4 * (number + 1), team="a")
    made.until(0)
    made.gang("big", 2, minutes=60, gpus=4, topologyConstraint={"topology": "t", "requiredTopologyLevel": "rack"})
    stream(made, PATIENCE + 64 + 1)
    assert "big-0" in made.began
    assert len({int(made.node_of[f"big-{number}"][1]) % 2 for number in range(2)}) == 1


def test_a_reserve_is_chosen_again_when_its_gang_requires_one_rack_since() -> None:
    made = Day(Cluster(Settings(reserved_nodes_percent=50)))
    feed(made.cluster, topology("t", "rack"), queue("a"))
    feed(made.cluster, *(node(f"n{number}", 4, labels={"rack": f"r{number % 2}"}) for number in range(4)))
    for number in range(16):
        made.submit(f"old{number}", minutes=4 * (number + 1), team="a")
    made.until(0)
    made.gang("big", 2, minutes=60, gpus=4)
    stream(made, PATIENCE + 3)
    [reserve] = made.cluster.scheduling_queue.reserves.of
    assert reserve.nodes == ("n0", "n1")
    group = pod_group("big", 2, queue="a", topologyConstraint={"topology": "t", "requiredTopologyLevel": "rack"})
    created = msgspec.structs.replace(group.metadata, creation_timestamp=at(0))
    feed(made.cluster, msgspec.structs.replace(group, metadata=created))
    stream(made, PATIENCE + 64 + 5)
    assert "big-0" in made.began


def test_both_sides_are_told() -> None:
    made = day()
    made.submit("large", minutes=60, gpus=4)
    stream(made, 25)
    large, (kept, *_) = made.words("large"), [name for name in made.pods if name not in made.began and name != "large"]
    (where,) = [each.nodes for each in made.cluster.scheduling_queue.reserves.of]
    assert large == (
        f"ns/large has waited since 2026-01-01T12:00:00Z, so its place is being freed on {where[0]}. "
        "It starts when enough of the pods there have ended"
    )
    assert made.said["large"].code is Code.WAITS_FOR_RESERVED_NODES
    assert "1 node(s) are kept for ns/large, which has waited since 2026-01-01T12:00:00Z" in made.words(kept)
    assert made.said[kept].code is Code.NO_NODE_FITS


def test_what_is_kept_for_one_is_told_once_and_not_each_minute() -> None:
    made = day()
    made.submit("large", minutes=60, gpus=4)
    stream(made, 20)
    made.said.clear()
    made.until(23)
    assert "large" not in made.said


@pytest.mark.parametrize(
    ("quota", "overtakes"), [(0, False), (8, True)], ids=["has its quota", "is short of its quota"]
)
def test_another_queue_is_let_in_only_while_it_is_short_of_its_quota(quota: int, overtakes: bool) -> None:
    made = day(queue("a", gpu=(0, 1, -1)), queue("b", gpu=(quota, 1, -1)))
    made.submit("large", minutes=60, gpus=4)
    made.until(PATIENCE)
    (where,) = [each.nodes for each in made.cluster.scheduling_queue.reserves.of]
    stream(made, PATIENCE + 12, team="b", minutes=300)
    in_reserve = [name for name, there in made.node_of.items() if name.startswith("b-") and there in where]
    assert bool(in_reserve) is overtakes


@pytest.mark.parametrize(
    ("asks", "team", "enters"),
    [
        ({"spec": {"activeDeadlineSeconds": 60}}, "a", True),
        ({"spec": {"activeDeadlineSeconds": 60}}, "b", True),
        ({"spec": {"activeDeadlineSeconds": 36_000}}, "a", False),
        ({"annotations": {names.MAX_RUNTIME: "1m"}}, "a", True),
        ({"annotations": {names.MAX_RUNTIME: "1m"}}, "b", False),
        ({"annotations": {names.MAX_RUNTIME: "soon"}}, "a", False),
        ({}, "a", False),
    ],
    ids=["ends", "ends, other queue", "too late", "says so", "says so, other queue", "unreadable", "unknown"],
)
def test_a_pod_is_let_in_if_it_ends_before_the_nodes_are_free(asks: dict[str, Any], team: str, enters: bool) -> None:
    made = Day(Cluster(Settings(reserved_nodes_percent=100)))
    feed(made.cluster, queue("a", gpu=(0, 1, -1)), queue("b", gpu=(0, 1, -1)), node("n1", 4))
    for number, minutes in enumerate((11, 60, 60, 60)):
        made.submit(f"old{number}", minutes=minutes, spec={"activeDeadlineSeconds": 60 * minutes})
    made.until(0)
    made.submit("large", minutes=60, gpus=4)
    made.until(PATIENCE + 5)
    made.submit("fresh", minutes=1, team=team, **asks)
    made.until(PATIENCE + 6)
    assert ("fresh" in made.began) is enters


def test_nobody_is_let_in_where_the_end_of_what_runs_there_is_not_known() -> None:
    made = day(nodes=1)
    made.submit("large", minutes=60, gpus=4)
    made.until(PATIENCE)
    made.submit("fresh", minutes=1, spec={"activeDeadlineSeconds": 60})
    made.until(PATIENCE + 3)
    assert "fresh" not in made.began


def test_who_comes_first_by_priority_is_not_kept_off() -> None:
    made = day(nodes=1)
    made.submit("large", minutes=60, gpus=4)
    made.until(PATIENCE)
    made.submit("urgent", minutes=60, priority=50)
    made.until(PATIENCE + 3)
    assert "urgent" in made.began


@pytest.mark.parametrize(
    ("said", "above", "starts"),
    [("1m", None, 1), ("-1s", None, None), (None, "2m", 2), ("3m", "-1s", 3), ("0s", None, 0), ("long", None, 10)],
    ids=["own", "never", "of the department", "own before the department's", "at once", "unreadable"],
)
def test_a_queue_says_how_long_its_groups_wait(said: str | None, above: str | None, starts: int | None) -> None:
    teams = [queue("dept", gpu=(-1, 1, -1)), queue("a", "dept", gpu=(0, 1, -1))]
    made = day(*(_annotated(each, text) for each, text in zip(teams, (above, said), strict=True)), nodes=1)
    made.submit("large", minutes=60, gpus=4)
    for minute in range(15):
        made.until(minute)
        has_one = bool(made.cluster.scheduling_queue.reserves.of)
        assert has_one is (starts is not None and starts <= minute)


def _annotated(made: Queue, text: str | None) -> Queue:
    annotations = {} if text is None else {names.PATIENCE: text}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=annotations))


def test_a_reserve_that_loses_a_node_is_chosen_again() -> None:
    made = day(nodes=2)
    made.submit("large", minutes=60, gpus=4)
    made.until(PATIENCE)
    (before,) = [each.nodes for each in made.cluster.scheduling_queue.reserves.of]
    feed(made.cluster, node(before[0], 4, cordoned=True))
    made.until(PATIENCE + 1)
    (now,) = [each.nodes for each in made.cluster.scheduling_queue.reserves.of]
    assert now
    assert set(now).isdisjoint(before)


def test_a_nominee_that_goes_leaves_its_nodes_to_others() -> None:
    made = day(nodes=1)
    made.submit("large", minutes=60, gpus=4)
    made.until(PATIENCE)
    made.submit("small", minutes=60)
    made.until(PATIENCE + 5)
    assert "small" not in made.began
    del made.pods["large"]
    made.cluster.remove_pod("uid-large")
    made.until(PATIENCE + 6)
    assert made.began["small"] == PATIENCE + 6 or made.began["small"] == PATIENCE + 5
    assert made.cluster.scheduling_queue.reserves.of == ()


def test_one_that_sleeps_beside_a_reserve_is_placed_when_another_node_helps() -> None:
    made = day(nodes=1)
    made.submit("large", minutes=60, gpus=4)
    made.until(PATIENCE)
    made.gang("pair", 2, minutes=60, gpus=1)
    made.submit("small", minutes=60)
    made.until(PATIENCE + 5)
    feed(made.cluster, node("n9", 3))
    made.until(PATIENCE + 5)
    assert {made.node_of[name] for name in ("small", "pair-0", "pair-1")} == {"n9"}


def test_who_is_kept_off_counts_nodes_as_they_are() -> None:
    made = day(nodes=1)
    feed(made.cluster, node("n9", 3))
    made.submit("long", minutes=600, gpus=3)
    made.submit("large", minutes=60, gpus=4)
    made.until(PATIENCE)
    made.submit("small", minutes=60)
    made.gang("pair", 2, minutes=60, gpus=1)
    made.until(PATIENCE + 4)
    kept_off = ("small", "pair-0")
    before = [counted(made, name) for name in kept_off]
    feed(made.cluster, node("n9", 3, cordoned=True))
    made.until(PATIENCE + 5)
    assert before == [{("reserve", 1), ("insufficient", 1)}] * 2
    assert [counted(made, name) for name in kept_off] == [{("reserve", 1), ("cordoned", 1)}] * 2


def counted(made: Day, name: str) -> set[tuple[str, int]]:
    """The reasons that a pod was told last, each with its nodes."""
    return {(reason.kind, reason.nodes) for reason in made.said[name].node_reasons}


@pytest.mark.parametrize(
    ("asks", "count"),
    few_rows(
        [
            pytest.param({"spec": {"nodeSelector": {"zone": "none"}}}, 1, id="no node takes it"),
            pytest.param({"gpus": 8}, 1, id="larger than any node"),
            pytest.param({"gpus": 0, "spec": {"nodeSelector": {"zone": "none"}}}, 12, id="many that ask no GPUs"),
        ],
        3,
    ),
)
def test_who_can_have_no_reserve_keeps_none_from_those_behind_it(asks: dict[str, Any], count: int) -> None:
    made = day()
    for number in range(count):
        made.submit(f"before{number}", minutes=60, **asks, cpu=f"{number + 1}m")
    made.submit("large", minutes=60, gpus=4)
    stream(made, PATIENCE + 4 * 8 + 3)
    assert made.began["large"] <= PATIENCE + 4 * 8 + 2


def test_each_queue_has_one_reserve_and_all_together_a_part_of_the_cluster() -> None:
    teams = "abcdef"
    made = Day(Cluster(Settings(reserved_nodes_percent=50)))
    feed(made.cluster, *(queue(team, gpu=(0, 1, -1)) for team in teams), *(node(f"n{at}", 4) for at in range(6)))
    for number in range(24):
        made.submit(f"old{number}", minutes=600, team=teams[number % 6])
    made.until(0)
    for team in teams:
        for number in range(2):
            made.submit(f"{team}-large{number}", minutes=60, gpus=4, team=team)
    made.until(PATIENCE + 20)
    reserves = made.cluster.scheduling_queue.reserves.of
    assert [each.queue for each in reserves] == ["a", "b", "c"]
    assert len({name for each in reserves for name in each.nodes}) == 3


@pytest.mark.parametrize(("teams", "in_ns"), [("a", 3600 * S), ("ab", S), ("abc", S)])
def test_a_look_is_for_one_group_and_the_next_one_comes_a_second_later_while_other_queues_wait(
    teams: str, in_ns: int
) -> None:
    made = Day(Cluster(Settings(reserved_nodes_percent=100)))
    feed(made.cluster, *(queue(team, gpu=(0, 1, -1)) for team in "abc"), *(node(f"n{at}", 4) for at in range(3)))
    for number in range(12):
        made.submit(f"old{number}", minutes=600, team="abc"[number % 3])
    made.until(0)
    for team in teams:
        made.submit(f"{team}-large", minutes=60, gpus=4, team=team)
    made.until(PATIENCE)
    reserves, now_ns = made.cluster.scheduling_queue.reserves, PATIENCE * 60 * S
    assert ([each.queue for each in reserves.of], reserves.looked_ns) == (["a"], now_ns)
    assert reserves.next_ns == now_ns + in_ns
    # A pod that goes meanwhile changes nothing of that.
    made.cluster.remove_pod("uid-old0")
    made.cluster.decide(now_ns + S // 2, wall_s=int(NOON.timestamp()) + 60 * PATIENCE)
    assert (made.cluster.scheduling_queue.reserves.looked_ns, made.cluster.scheduling_queue.reserves.next_ns) == (
        now_ns,
        now_ns + S,
    )


@pytest.mark.parametrize(("count", "in_ns"), [(7, None), (8, S)])
def test_where_the_first_groups_of_a_queue_can_have_no_nodes_those_behind_them_are_looked_at_next(
    count: int, in_ns: int | None
) -> None:
    made = day(nodes=1)
    for number in range(count):
        made.submit(
            f"before{number}", minutes=60, gpus=0, spec={"nodeSelector": {"zone": "none"}}, cpu=f"{number + 1}m"
        )
    made.until(PATIENCE)
    now_ns = PATIENCE * 60 * S
    assert made.cluster.scheduling_queue.reserves.next_ns == (None if in_ns is None else now_ns + in_ns)


def test_a_queue_above_its_share_gets_none_but_for_what_has_overtaken_its_group() -> None:
    """Six of its eight GPUs came before the large one: with it the queue would be above its share of eight."""
    made = Day(Cluster(Settings(reserved_nodes_percent=50)))
    feed(made.cluster, queue("a", gpu=(4, 1, -1)), queue("b", gpu=(4, 1, -1)), node("n1", 4), node("n2", 4))
    for number in range(4):
        made.submit(f"first{number}", minutes=600)
    made.until(0)
    made.submit("large", minutes=60, gpus=4)
    for number in range(5):
        made.submit(f"b{number}", minutes=600, team="b")
    made.until(PATIENCE + 2)
    assert [each.queue for each in made.cluster.scheduling_queue.reserves.of] == []


def test_a_pod_without_gpus_gets_no_reserve() -> None:
    made = Day(Cluster(Settings(reserved_nodes_percent=50)))
    feed(made.cluster, node("n1", 4, cpu="8"))
    made.submit("old", minutes=600, gpus=0, cpu="5")
    made.until(0)
    made.submit("large", minutes=60, gpus=0, cpu="8")
    made.until(PATIENCE + 2)
    assert made.cluster.scheduling_queue.reserves.of == ()


def test_a_second_leader_chooses_the_same_nodes() -> None:
    made = day(nodes=4)
    made.submit("large", minutes=60, gpus=4)
    made.until(PATIENCE + 2)
    before = made.cluster.scheduling_queue.reserves.of
    other = Cluster(made.cluster.settings)
    feed(other, *(node(f"n{number}", 4) for number in range(1, 5)), *made.pods.values())
    for second in range(3):
        other.decide(second * S, wall_s=int(NOON.timestamp()) + 60 * (PATIENCE + 2) + second)
    assert [(each.uid, each.nodes) for each in other.scheduling_queue.reserves.of] == [
        (each.uid, each.nodes) for each in before
    ]


def test_work_beside_a_reserve_does_not_grow_with_what_is_kept_off() -> None:
    """A look at each kind of what sleeps, and not at each pod: what is decided again is nothing."""
    made = day(nodes=1)
    made.submit("large", minutes=600, gpus=4)
    made.until(PATIENCE)
    for number in range(200):
        made.submit(f"small{number:03}", minutes=60)
    made.until(PATIENCE + 5)
    assert len(made.cluster.scheduling_queue.kept_off) == 1
    assert made.cluster.scheduling_queue.awake() == []


def test_nothing_is_looked_at_again_once_nobody_waits() -> None:
    made = day(nodes=1)
    made.submit("large", minutes=60, gpus=4)
    made.until(PATIENCE)
    assert made.cluster.scheduling_queue.reserves.next_ns is not None or made.cluster.scheduling_queue.reserves.of
    made.until(PATIENCE + 20)
    assert "large" in made.began
    made.until(PATIENCE + 25)
    later_ns = (PATIENCE + 25) * 60 * S
    assert made.cluster.decide(later_ns, wall_s=int(NOON.timestamp()) + (PATIENCE + 25) * 60).wake_at_ns is None


def test_somebody_who_was_to_be_looked_at_later_and_is_gone_wakes_nobody() -> None:
    made = day(nodes=1)
    made.submit("large", minutes=60, gpus=4)
    made.until(1)
    assert made.cluster.scheduling_queue.reserves.next_ns is not None
    made.cluster.remove_pod("uid-large")
    del made.pods["large"]
    made.until(2)
    assert made.cluster.scheduling_queue.reserves.next_ns is None


# Nodes are kept for a group that waits, and rules about other pods keep somebody off all other nodes.

_BESIDE_A = {"spec": affinity(term(HOST))}


def _day() -> tuple[Day, str]:
    """A node that is kept for a large pod, and another one that has room; return the latter."""
    made = Day(Cluster(Settings(reserved_nodes_percent=50)))
    feed(made.cluster, node("n1", 4), node("n2", 4))
    feed(
        made.cluster,
        pod("l1", bound_to="n1", gpus=1),
        pod("l2", bound_to="n2", gpus=1),
        pod("l3", bound_to="n2", gpus=1),
    )
    made.submit("large", minutes=60, gpus=4)
    made.until(PATIENCE)
    (reserve,) = made.cluster.scheduling_queue.reserves.of
    feed(made.cluster, running("a1", reserve.nodes[0]))
    return made, "n2" if reserve.nodes == ("n1",) else "n1"


@pytest.mark.parametrize(
    "asks",
    [(_BESIDE_A,), (_BESIDE_A, _BESIDE_A), (_BESIDE_A, {**_BESIDE_A, "cpu": "2"})],
    ids=["a pod", "a gang", "a gang of two classes"],
)
def test_one_that_sleeps_beside_a_reserve_is_placed_when_a_rule_opens_another_node(
    asks: tuple[dict[str, Any], ...],
) -> None:
    made, elsewhere = _day()
    if len(asks) > 1:
        group = pod_group("g", len(asks), queue="a")
        created = msgspec.structs.replace(group.metadata, creation_timestamp=at(made.minute))
        feed(made.cluster, msgspec.structs.replace(group, metadata=created))
    for number, ask in enumerate(asks):
        made.submit(f"m{number}", minutes=60, group="g" if len(asks) > 1 else "", **ask)
    made.until(PATIENCE + 1)
    assert "m0" not in made.began
    assert len(made.cluster.scheduling_queue.kept_off) == 1
    feed(made.cluster, running("a2", elsewhere))
    made.until(PATIENCE + 2)
    assert {made.node_of.get(f"m{number}") for number in range(len(asks))} == {elsewhere}


WAITS_LONG = "1970-01-01T00:00:01Z"


def full_reserve(*low: Pod) -> Shell:
    """Two nodes of two GPUs: n1, on which pods ``low`` of queue a run, is reserved for a pod of queue b."""
    queues = queue("a", gpu=(0, 1, -1)), queue("b", gpu=(0, 1, -1))
    shell = Shell(now_ns=1_000 * S).feed(*queues, node("n1", 2), node("n2", 2), *low)
    shell.feed(*(of_queue("a", f"old{number}", "n2", priority=100) for number in range(2)))
    never = {"preemptionPolicy": "Never"}
    shell.feed(pod("large", gpus=2, labels={names.QUEUE_LABEL: "b"}, created=WAITS_LONG, spec=never)).run()
    (reserve,) = shell.cluster.scheduling_queue.reserves.of
    assert (reserve.name, reserve.nodes) == ("large", ("n1",))
    return shell


def of_queue(team: str, name: str, on: str, *, gpus: int = 1, **more: Any) -> Pod:
    asked = pod(name, gpus=gpus, labels={names.QUEUE_LABEL: team}, **more)
    status = msgspec.structs.replace(asked.status, phase="Running", start_time="1970-01-01T00:10:00Z")
    return bound(msgspec.structs.replace(asked, status=status), on)


ENDS: dict[str, Any] = {"spec": {"activeDeadlineSeconds": 3600}}


@pytest.mark.parametrize(
    ("low", "asks", "evicted"),
    [
        ([{}, {}], {"gpus": 1}, ["low1"]),
        ([{}, {}], {"gpus": 2}, ["low0", "low1"]),
        ([{}], {"gpus": 2}, []),
        ([ENDS, {}], {"gpus": 2}, []),
        ([ENDS, ENDS], {"gpus": 1, "spec": {"activeDeadlineSeconds": 36_000}}, []),
    ],
    ids=[
        "one for one",
        "two for two",
        "it takes more than its victim leaves",
        "a victim would end sooner",
        "all victims would end sooner",
    ],
)
def test_on_reserved_nodes_a_pod_is_evicted_for_one_that_delays_nobody(
    low: Sequence[dict[str, Any]], asks: dict[str, Any], evicted: list[str]
) -> None:
    pods = [of_queue("a", f"low{number}", "n1", priority=25, **more) for number, more in enumerate(low)]
    shell = full_reserve(*pods)
    shell.feed(pod("urgent", labels={names.QUEUE_LABEL: "a"}, priority=75, **asks)).run(5)
    assert sorted(shell.asked) == evicted
    assert shell.placed.get("urgent", "") == ("n1" if evicted else "")
    assert [reserve.name for reserve in shell.cluster.scheduling_queue.reserves.of] == ["large"]
    refused = shell.cluster.scheduling_queue.preemption_refused("uid-urgent", None)
    kept = [] if refused is None else [each for each in refused.kept if each.why is Kept.RESERVED]
    assert [each.pods for each in kept] == ([] if evicted else [min(len(low), asks["gpus"])])


def test_a_cluster_of_one_node_reserves_none() -> None:
    made = day(nodes=1, reserved_nodes_percent=10)
    made.submit("large", minutes=60, gpus=4)
    made.until(PATIENCE + 1)
    assert not made.cluster.scheduling_queue.reserves.of


HOUR = 60


def reserved(made: Day) -> list[tuple[str, ...]]:
    return [reserve.nodes for reserve in made.cluster.scheduling_queue.reserves.of]


def test_nodes_whose_end_nobody_knows_are_reserved_for_an_hour_and_then_others() -> None:
    made = day()
    made.runs = dict.fromkeys(made.runs, 100_000)
    made.submit("large", minutes=60, gpus=4)
    made.until(PATIENCE)
    (first,) = reserved(made)
    made.until(PATIENCE + HOUR - 1)
    assert reserved(made) == [first]
    made.until(PATIENCE + HOUR)
    (second,) = reserved(made)
    assert {*first, *second} == {"n1", "n2"}
    made.until(PATIENCE + 2 * HOUR)
    assert reserved(made) == [first]


def test_where_no_other_nodes_help_they_are_given_up_for_an_hour() -> None:
    made = day()
    made.runs = dict.fromkeys(made.runs, 100_000)
    made.submit("large", minutes=60, gpus=4, spec={"nodeSelector": {HOST: "n1"}})
    made.until(PATIENCE + HOUR - 1)
    assert reserved(made) == [("n1",)]
    made.until(PATIENCE + HOUR)
    made.submit("small", minutes=10)
    made.until(PATIENCE + 2 * HOUR - 1)
    assert reserved(made) == []
    made.until(PATIENCE + 2 * HOUR)
    assert reserved(made) == [("n1",)]


def test_a_pod_that_could_only_start_where_a_pod_leaves_reserved_nodes_names_no_victims_there() -> None:
    """It would fit without any eviction, so no pod that could be evicted is on reserved nodes."""
    shell = full_reserve(*(of_queue("a", f"low{number}", "n1", priority=25) for number in range(2)))
    leaving = of_queue("a", "low0", "n1", priority=25)
    metadata = msgspec.structs.replace(leaving.metadata, deletion_timestamp="1970-01-01T00:16:40Z")
    shell.feed(msgspec.structs.replace(leaving, metadata=metadata))
    shell.feed(pod("late", gpus=1, priority=0, labels={names.QUEUE_LABEL: "a"})).run(1)
    refused = shell.cluster.scheduling_queue.preemption_refused("uid-late", None)
    assert refused is not None
    assert Kept.RESERVED not in {each.why for each in refused.kept}


def test_a_pod_waits_beside_reserved_nodes_of_which_one_was_deleted_with_a_victim_on_it() -> None:
    shell = Shell(now_ns=1_000 * S, cluster=Cluster(Settings(reserved_nodes_percent=70)))
    shell.feed(queue("a", gpu=(0, 1, -1)), queue("b", gpu=(8, 1, -1)), pod_group("low", 2, queue="a"))
    shell.feed(*(node(f"n{number}", 4) for number in (1, 2, 3)))
    shell.feed(*(of_queue("a", f"low{at}", f"n{at}", gpus=3, priority=25, group="low", **ENDS) for at in (1, 2)))
    shell.feed(*(of_queue("a", f"old{number}", "n3", priority=100) for number in range(4)))
    group = pod_group("large", 2, queue="b")
    created = msgspec.structs.replace(group.metadata, creation_timestamp=WAITS_LONG)
    shell.feed(msgspec.structs.replace(group, metadata=created))
    never: dict[str, Any] = {"group": "large", "gpus": 4, "spec": {"preemptionPolicy": "Never"}}
    shell.feed(*(pod(f"l{at}", labels={names.QUEUE_LABEL: "b"}, created=WAITS_LONG, **never) for at in (1, 2))).run()
    (reserve,) = shell.cluster.scheduling_queue.reserves.of
    assert reserve.nodes == ("n1", "n2")
    shell.cluster.remove_node("n1")
    shell.feed(pod("urgent", gpus=2, priority=75, labels={names.QUEUE_LABEL: "a"})).run(1)
    assert "urgent" not in shell.placed


def test_nodes_stay_reserved_while_a_pod_that_ends_in_time_is_bound_there_and_has_not_started() -> None:
    """Nobody knows its end for a moment, hours after the nodes were reserved."""
    made = Day(Cluster(Settings(reserved_nodes_percent=50)))
    feed(made.cluster, queue("a"), node("n1", 4), node("n2", 4))
    for number in range(8):
        ends = {"activeDeadlineSeconds": 300 * 60}
        made.submit(f"old{number}", minutes=70 if number == 0 else 300, spec=ends)
    made.until(0)
    made.submit("large", minutes=60, gpus=4)
    made.until(PATIENCE + HOUR + 5)
    assert reserved(made) == [("n1",)]
    fresh = pod("fresh", gpus=1, created=at(made.minute), labels={names.QUEUE_LABEL: "a"}, **ENDS)
    feed(made.cluster, fresh)
    now_ns, wall_s = made.minute * 60 * S, int(NOON.timestamp()) + made.minute * 60
    (placement,) = placements(made.cluster.decide(now_ns, wall_s=wall_s).entries)
    assert placement.node == "n1"
    made.cluster.commits.assume(placement)
    feed(made.cluster, bound(fresh, "n1"))
    made.cluster.decide(now_ns + 2 * S, wall_s=wall_s + 2)
    assert reserved(made) == [("n1",)]


def test_a_pod_that_runs_for_longer_than_it_says_keeps_nodes_reserved_for_an_hour_at_most() -> None:
    made = Day(Cluster(Settings(reserved_nodes_percent=50)))
    feed(made.cluster, queue("a"), node("n1", 4), node("n2", 4))
    for number in range(8):
        made.submit(f"old{number}", minutes=100_000, annotations={names.MAX_RUNTIME: "20m"})
    made.until(0)
    made.submit("large", minutes=60, gpus=4)
    made.until(PATIENCE + 1)
    (first,) = reserved(made)
    made.until(20 + HOUR)
    assert reserved(made) == [first]
    made.until(20 + HOUR + 1)
    assert reserved(made) not in ([], [first])


def test_a_group_that_gave_its_nodes_up_waits_for_the_hour_though_another_one_of_its_queue_had_some() -> None:
    made = day()
    made.runs = dict.fromkeys(made.runs, 100_000)
    for name, where in (("large", {"nodeSelector": {HOST: "n1"}}), ("late", {})):
        made.submit(name, minutes=60, gpus=4, spec=where)
    made.until(PATIENCE + HOUR)
    assert [each.name for each in made.cluster.scheduling_queue.reserves.of] == ["late"]
    feed(made.cluster, node("n9", 0))
    made.until(PATIENCE + HOUR + 1)
    del made.pods["late"]
    made.cluster.remove_pod("uid-late")
    made.until(PATIENCE + HOUR + 2)
    assert reserved(made) == []


@pytest.mark.parametrize("is_gang", [False, True], ids=["a pod", "a gang"])
def test_a_group_whose_nodes_are_reserved_no_more_says_so(is_gang: bool) -> None:
    made = day()
    made.runs = dict.fromkeys(made.runs, 100_000)
    if is_gang:
        group = pod_group("g", 1, queue="a")
        created = msgspec.structs.replace(group.metadata, creation_timestamp=at(0))
        feed(made.cluster, msgspec.structs.replace(group, metadata=created))
    where = {"nodeSelector": {HOST: "n1"}}
    made.submit("large", minutes=60, gpus=4, spec=where, group="g" if is_gang else "")
    made.until(PATIENCE + HOUR - 1)
    assert made.said["large"].code is Code.WAITS_FOR_RESERVED_NODES
    made.until(PATIENCE + HOUR)
    assert made.said["large"].code is not Code.WAITS_FOR_RESERVED_NODES
