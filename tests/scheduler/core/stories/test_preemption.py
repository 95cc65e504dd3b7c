"""Stories of preemption, with the real search and a shell of a few lines: victims go when asked, late, or never."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import (
    Attempt,
    Bind,
    Entry,
    Explain,
    Gang,
    GiveUp,
    Hold,
    Join,
    Nominate,
    Placement,
    Plan,
    Retire,
)
from scheduler.core.model.preemption import Budget, Ended, Nomination, PreemptionFacts, PreemptionSettings
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.table import GPUS
from scheduler.core.preemption.search import MOST_PLACED
from tests.scheduler.core.objects import NANO, Fed, bound, changed, feed, node, pod, pod_group, queue, reservation
from tests.values import of_kind
from wire import names
from wire.core import Node, Pod
from wire.crds.queue import Queue

S = 1_000_000_000
HALF = NANO // 2


@dataclass
class Shell:
    """Carries out plans on a cluster of pods, nodes, and a record. ``late``: victims are only asked to go."""

    late: bool = False
    objects: dict[str, Fed] = field(default_factory=dict)
    books: dict[str, dict[str, int]] = field(default_factory=dict)
    device_on: dict[str, str] = field(default_factory=dict)
    made: int = 0
    record: dict[str, Nomination] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    ended: list[GiveUp] = field(default_factory=list)
    placed: dict[str, str] = field(default_factory=dict)
    now_ns: int = 0
    cluster: Cluster = field(default_factory=lambda: Cluster(Settings()))

    def feed(self, *objects: Fed) -> Self:
        """See these objects."""
        for obj in objects:
            kind = type(obj).__name__
            key = obj.metadata.uid if isinstance(obj, Pod) else f"{kind} {obj.metadata.name}"
            self.objects[key] = obj
        feed(self.cluster, *objects)
        return self

    def new_name(self, kind: str) -> str:
        """A name that nobody had before."""
        self.made += 1
        return f"{kind}{self.made}"

    def gone(self, *pods: str) -> None:
        """These pods have ended, and their entries are withdrawn."""
        for name in pods:
            del self.objects[f"uid-{name}"]
            for group, book in self.books.items():
                if book.pop(f"uid-{name}", None) is not None:
                    self._write_book(group)
            self.cluster.remove_pod(f"uid-{name}", has_ended=True)

    def share(self, name: str, nano: int, group: str, queue_name: str) -> None:
        """A share runs on the device of a group on n1."""
        self.books.setdefault(group, {})[f"uid-{name}"] = nano
        self.device_on[group] = "n1"
        self._write_book(group)
        asking = pod(name, fraction=str(nano / NANO), labels=of(queue_name))
        self.feed(bound(asking, "n1", (group, nano), reservation=f"r-{group}", uuid=f"GPU-{group}"))

    def _write_book(self, group: str) -> None:
        self.feed(reservation(group, self.device_on[group], book=self.books[group], uuid=f"GPU-{group}"))

    def restart(self) -> None:
        """Another one takes over: it has the record, and lists everything else in another order."""
        self.cluster = Cluster(Settings())
        for nomination in self.record.values():
            self.cluster.commits.nominations.put(nomination)
        feed(self.cluster, *reversed(self.objects.values()))

    def run(self, decisions: int = 3) -> Self:
        """Decide so often, a second after each other, and carry out what is decided."""
        for _ in range(decisions):
            self.now_ns += S
            entries = self.cluster.decide(self.now_ns, wall_s=self.now_ns // S).entries
            self.cluster.told([entry for entry in entries if isinstance(entry, Explain)])
            for entry in entries:
                self._carry_out(entry)
            assert self.cluster.validate() == []
            assert _is_sound(self)
        return self

    def carry_out(self, plan: Plan) -> None:
        """Do what was decided."""
        for entry in plan.entries:
            self._carry_out(entry)

    def _carry_out(self, entry: Entry) -> None:
        match entry:
            case Bind(placement) | Join(placement) | Attempt(placement) | Hold(placement):
                self._bind([placement])
            case Gang(placements=placements):
                self._bind(placements)
            case Retire(reservation_uid=uid):
                self.cluster.remove_pod(uid)
                self.objects.pop(uid)
                del self.books[uid.removeprefix("r-")]
            case Nominate(nomination=nomination):
                taken = {
                    victim.pod_uid
                    for each in self.record.values()
                    if each.id != nomination.id
                    for victim in each.victims
                }
                assert taken.isdisjoint(victim.pod_uid for victim in nomination.victims)
                self.cluster.commits.nominations.put(nomination)
                self.record[nomination.id] = nomination
                self._evict(nomination)
            case GiveUp(nomination_id=nomination_id):
                self.cluster.commits.nominations.drop(nomination_id)
                self.record.pop(nomination_id)
                self.ended.append(entry)
            case _:
                pass

    def _evict(self, nomination: Nomination) -> None:
        for victim in nomination.victims:
            was = of_kind(Pod, self.objects[victim.pod_uid])
            if was.metadata.deletion_timestamp is not None:
                continue
            self.asked.append(victim.name)
            if not self.late:
                self.gone(victim.name)
            else:
                self.feed(changed(was, deletion_timestamp="2026-01-02T00:00:00Z"))

    def _bind(self, placements: Sequence[Placement]) -> None:
        for each in placements:
            self.cluster.commits.assume(each)
        for each in placements:
            was = of_kind(Pod, self.objects[each.pod_uid])
            for device in each.devices:
                self.books.setdefault(device.group, {})[each.pod_uid] = device.nano
                self.device_on[device.group] = each.node
                self._write_book(device.group)
            parts = [(device.group, device.nano) for device in each.devices]
            group = each.devices[0].group if each.devices else ""
            stored = bound(was, each.node, *parts, reservation=f"r-{group}", uuid=f"GPU-{group}", charged=each.charged)
            self.feed(stored)
            self.placed[each.name] = each.node


def _is_sound(shell: Shell) -> bool:
    """Whether no node has more than it can hold by what stands there alone, whatever nominations keep."""
    alone = Cluster(Settings())
    feed(alone, *shell.objects.values())
    table = alone.refresh().table
    return bool((table.free[GPUS] >= 0).all())


def of(name: str) -> dict[str, str]:
    return {names.QUEUE_LABEL: name}


def running(name: str, queue_name: str, gpus: int = 1, on: str = "n1", **asked: Any) -> Pod:
    return bound(pod(name, gpus=gpus, labels=of(queue_name), **asked), on)


def waiting(name: str, queue_name: str, gpus: int = 1, **asked: Any) -> Pod:
    return pod(name, gpus=gpus, labels=of(queue_name), **asked)


_GRACE = "termination_grace_period_seconds"


def two_teams(gpus: int = 8) -> list[Node | Queue]:
    return [node(gpus=gpus), queue("a", gpu=(gpus // 2, 1, -1)), queue("b", gpu=(gpus // 2, 1, -1))]


# --- stories -----------------------------------------------------------------------------------------------------
def test_a_namespace_that_gave_up_starts_its_urgent_pods_in_place_of_its_own() -> None:
    """Nobody else goes for them before its wait is over."""
    shell = Shell().feed(node(gpus=3), queue("a"), running("own", "a", priority=10))
    shell.feed(*(running(f"other{at}", "a", priority=10, namespace="others") for at in range(2)))
    shell.cluster.note_preemption_facts(PreemptionFacts(version=1, takers_wait={"ns": 60}))
    shell.feed(*(waiting(f"high{at}", "a", priority=50) for at in range(2))).run(10)
    assert (shell.asked, set(shell.placed)) == (["own"], {"high0"})
    shell.now_ns = 60 * S
    shell.run(5)
    assert len(shell.asked) == 2
    assert set(shell.placed) == {"high0", "high1"}


def test_a_team_gets_its_own_back_and_then_all_is_quiet() -> None:
    shell = Shell().feed(*two_teams(), *(running(f"b{at}", "b") for at in range(8)))
    shell.feed(*(waiting(f"a{at}", "a") for at in range(6))).run(10)
    assert (len(shell.asked), len(shell.placed)) == (4, 4)
    assert {ended.because for ended in shell.ended} == {Ended.BOUND}
    assert shell.record == {}
    assert shell.cluster.decide(shell.now_ns + 3600 * S, wall_s=4000).entries == ()


def test_nobody_else_gets_what_was_freed_however_urgent() -> None:
    shell = Shell(late=True).feed(*two_teams(), *(running(f"b{at}", "b", 2) for at in range(4)))
    shell.feed(waiting("mine", "a", 4)).run(1)
    assert len(shell.asked) == 2
    shell.feed(waiting("urgent", "b", 1, priority=90), waiting("other", "a", 1, priority=80)).run(2)
    shell.gone(shell.asked[0])
    shell.run(2)
    assert shell.placed == {}
    shell.gone(shell.asked[1])
    shell.run(2)
    assert shell.placed == {"mine": "n1"}


@pytest.mark.parametrize(("longest_s", "is_over"), [(600, False), (30, True)])
def test_a_victim_that_asks_for_a_year_keeps_nobody_waiting_longer_than_is_set(longest_s: int, is_over: bool) -> None:
    settings = Settings(preemption_settings=PreemptionSettings(longest_victim_grace_s=longest_s))
    shell = Shell(cluster=Cluster(settings), late=True).feed(*two_teams(4))
    for at in range(4):
        victim = running(f"b{at}", "b")
        shell.feed(msgspec.structs.replace(victim, spec=msgspec.structs.replace(victim.spec, **{_GRACE: 31_536_000})))
    shell.feed(waiting("mine", "a", 2)).run(2)
    shell.gone(shell.asked[0])
    shell.run(95)
    assert [ended.because for ended in shell.ended] == ([Ended.VICTIM_STAYS] if is_over else [])


@pytest.mark.parametrize("late", [False, True])
def test_another_scheduler_goes_on_with_the_record(late: bool) -> None:
    shell = Shell(late=late).feed(*two_teams(), *(running(f"b{at}", "b", 2) for at in range(4)))
    shell.feed(waiting("mine", "a", 4), waiting("other", "b", 2)).run(1)
    for name in shell.asked if late else []:
        shell.restart()
        shell.run(2)
        assert shell.placed == {}
        shell.gone(name)
    shell.restart()
    shell.run(3)
    assert (shell.placed, len(shell.asked)) == ({"mine": "n1"}, 2)
    assert [ended.because for ended in shell.ended] == [Ended.BOUND]


def test_who_counts_on_a_pod_that_never_ends_gets_another_ones_place_though_nothing_happens() -> None:
    shell = Shell().feed(node(gpus=4), queue("a", gpu=(2, 1, -1)), queue("b", gpu=(2, 1, -1)))
    shell.feed(*(running(f"b{at}", "b") for at in range(3)))
    shell.feed(bound(pod("stays", gpus=1, labels=of("b"), deleting=True), "n1"), waiting("mine", "a"))
    at_ns, decisions = S, 0
    while "mine" not in shell.placed and decisions < 10:
        plan = shell.cluster.decide(at_ns)
        shell.carry_out(plan)
        shell.cluster.told([entry for entry in plan.entries if isinstance(entry, Explain)])
        assert plan.wake_at_ns is not None or shell.asked
        at_ns, decisions = max(at_ns + 1, plan.wake_at_ns or 0), decisions + 1
    assert shell.placed == {"mine": "n1"}
    assert 121 * S <= at_ns < 130 * S


def test_a_nominee_that_is_bound_before_the_rest_of_its_gang_is_nobodys_victim_while_its_nomination_stands() -> None:
    shell = Shell(late=True).feed(node("n1", 2), node("n2", 2), queue("a", gpu=(4, 1, -1)), queue("b"))
    shell.feed(*(running(f"b{at}", "b", 2, on=f"n{at}") for at in (1, 2)), pod_group("g", 2, queue="a"))
    members = [pod(f"m{at}", gpus=2, group="g", labels=of("a")) for at in (1, 2)]
    shell.feed(*members).run(1)
    (nomination,) = shell.record.values()
    where = {place.pod_uid: place.node for place in nomination.places}["uid-m1"]
    shell.gone(f"b{where[1]}")
    shell.feed(bound(members[0], where), waiting("urgent", "a", 2, priority=90)).run(3)
    assert shell.record == {nomination.id: nomination}
    assert "m1" not in shell.asked


def test_a_device_that_came_back_does_not_keep_a_nomination_whose_place_somebody_else_took() -> None:
    shell = Shell(late=True).feed(node(gpus=2), queue("a", gpu=(2, 1, -1)), queue("b"))
    for name in ("b0", "b1"):
        shell.share(name, HALF, "g", "b")
    shell.feed(running("b2", "b"), waiting("mine", "a", 2)).run(1)
    assert len(shell.asked) == 3
    shell.gone("b0", "b1", "b2")
    shell.feed(bound(pod("foreign", gpus=1, scheduler="another"), "n1"))
    for at_ns in range(10 * S, 20 * S, S):
        shell.carry_out(shell.cluster.decide(at_ns))
    assert shell.record == {}


@pytest.mark.parametrize("at_once", [True, False])
def test_what_one_need_takes_of_a_budget_the_next_one_does_not_take_again(at_once: bool) -> None:
    shell = Shell(late=True).feed(*two_teams(4), *(running(f"b{at}", "b") for at in range(4)))
    budget = Budget(namespace="ns", name="pdb", selector=(), allowed=1)
    facts = PreemptionFacts(version=1, budgets=(budget,), labels={f"uid-b{at}": {} for at in range(4)})
    shell.cluster.note_preemption_facts(facts)
    mine = [waiting(f"mine{at}", "a") for at in range(2)]
    shell.feed(*mine[: 2 if at_once else 1])
    plan = shell.cluster.decide(S)
    for entry in plan.entries:  # decided, and not evicted yet
        if isinstance(entry, Nominate):
            shell.cluster.commits.nominations.put(entry.nomination)
    shell.feed(*mine)
    again = shell.cluster.decide(3 * S).entries
    made = [entry.nomination for entry in (*plan.entries, *again) if isinstance(entry, Nominate)]
    assert sum(len(nomination.victims) for nomination in made) == 1


def test_a_gang_for_which_nobody_was_evicted_is_searched_for_again_once_it_asks_less() -> None:
    """Nothing else changes meanwhile, neither on nodes nor in queues."""
    shell = Shell().feed(queue("a", gpu=(3, 1, -1)), queue("b", gpu=(1, 1, -1)), node("n1", gpus=4))
    shell.feed(*(running(f"b{number}", "b") for number in range(4)), pod_group("g", 5, queue="a"))
    shell.feed(*(waiting(f"m{number}", "a", group="g") for number in range(5))).run(6)
    assert (shell.asked, shell.placed) == ([], {})
    shell.feed(pod_group("g", 3, queue="a")).run(6)
    assert len(shell.placed) == 3


# Room is made beside pods that ask for more than numbers of 64 bits count: nobody checks a pod that names its node.

_ABSURD: tuple[dict[str, Any], ...] = (
    {"memory": "7Ei"},
    {"memory": "1000Ei"},
    {"cpu": "9P"},
    {"cpu": "9E"},
    {"gpus": 5 * 10**9},
    {"gpus": 9 * 10**17},
    {"extended": {"nvidia.com/mig-7g.80gb": "9000000000"}},
    {"extended": {"ephemeral-storage": "9E"}},
    {"extended": {"example.com/thing": "9E"}},
)


@pytest.mark.parametrize("asked", _ABSURD, ids=str)
@pytest.mark.filterwarnings("error")
def test_whatever_pods_ask_that_name_their_node_decisions_are_made(asked: dict[str, Any]) -> None:
    shell = Shell(late=True).feed(node("n1", 4), node("n2", 4))
    shell.feed(queue("a", gpu=(4, 1, -1)), queue("b", gpu=(1, 1, -1)), queue("c", gpu=(1, 1, -1)))
    shell.feed(pod_group("g", 1, queue="b"), pod_group("k", 2, queue="c"), pod_group("mine", 2, queue="a"))
    for at, of_queue in enumerate("bcbcbc"):
        shell.feed(running(f"{of_queue}{at}", of_queue, on=f"n{1 + at % 2}"))
        group = {"b": "g", "c": "k"}[of_queue]
        shell.feed(bound(pod(f"m{at}", group=group, labels=of(of_queue), **asked), f"n{1 + at % 2}"))
        shell.feed(bound(pod(f"alone{at}", labels=of(of_queue), **asked), f"n{1 + at % 2}"))
    shell.feed(waiting("a0", "a", 2), pod("part", fraction="0.5", labels=of("a")))
    shell.feed(*(pod(f"mine{at}", gpus=1 + at, group="mine", labels=of("a")) for at in range(2)))
    shell.feed(pod("odd", labels=of("a"), **asked), pod("high", labels=of("b"), priority=90, gpus=1))
    for at in range(1, 6):
        for entry in shell.cluster.decide(2 * at * S, wall_s=1_800_000_000 + at).entries:
            shell._carry_out(entry)
    for name in set(shell.asked):
        shell.gone(name)
    shell.cluster.decide(20 * S, wall_s=1_800_000_020)
    assert shell.cluster.validate() == []


_MEMBERS = 160


@pytest.mark.thorough
def test_a_gang_whose_members_all_ask_differently_does_not_hold_up_decisions() -> None:
    shell = Shell().feed(*(node(f"n{at}") for at in range(40)), queue("a", gpu=(200, 1, -1)), queue("b"))
    shell.feed(*(running(f"b{at}", "b", on=f"n{at // 8}") for at in range(320)), pod_group("g", _MEMBERS, queue="a"))
    asking = (pod(f"m{at}", gpus=1, cpu=f"{100 + at}m", group="g", labels=of("a")) for at in range(_MEMBERS))
    shell.feed(*asking)
    shell.cluster.decide(S)
    (refused,) = shell.cluster.scheduling_queue.preemption.refused.values()
    assert MOST_PLACED < refused.answer.placed <= MOST_PLACED + _MEMBERS
    for at in range(2, 60):
        shell.gone(f"b{at}")
        shell.cluster.decide(at * S)
    assert [each.at_ns for each in shell.cluster.scheduling_queue.preemption.refused.values()] == [S]
