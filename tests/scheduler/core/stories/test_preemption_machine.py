"""Any order of events while room is made: the books agree, nobody is taken twice, and what is kept stays kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster
from scheduler.core.decide.decide import Decision, decide
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.plan import Nominate, Plan
from scheduler.core.model.preemption import Nomination
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.table import Int64s
from scheduler.core.scheduling_queue.effects import Said
from scheduler.core.scheduling_queue.queue import Resting
from tests.scheduler.core.objects import bound, changed, feed, node, pod, pod_group, queue
from tests.scheduler.core.stories.test_preemption import S, Shell, of, running
from tests.whole import examples
from wire import names
from wire.core import Pod

_NODES = ("n1", "n2", "n3")
_QUEUES = ("a", "b", "c")


def _new_pod(shell: Shell, number: int) -> None:
    name = shell.new_name("w")
    shell.feed(pod(name, gpus=1 + number % 3, labels=of(_QUEUES[number % 3]), priority=number % 4 * 10))


def _new_share(shell: Shell, number: int) -> None:
    name = shell.new_name("s")
    shell.feed(pod(name, fraction=("0.5", "0.3")[number % 2], labels=of(_QUEUES[number % 3]), priority=number % 2))


def _too_large(shell: Shell, number: int) -> None:
    """More than a node has, until one with more comes."""
    asked: dict[str, Any] = ({"gpus": 5}, {"gpus": 6}, {"fraction": "0.6", "devices": 5})[number % 3]
    shell.feed(pod(shell.new_name("l"), **asked, labels=of(_QUEUES[number % 3]), priority=number % 4 * 10))


def _large_node(shell: Shell, number: int) -> None:
    shell.feed(node("n4", 5 + number % 2))


def _new_gang(shell: Shell, number: int) -> None:
    name, team = shell.new_name("g"), _QUEUES[number % 3]
    members = (pod(f"{name}-{at}", gpus=1 + number % 2, group=name, labels=of(team)) for at in range(2 + number % 2))
    shell.feed(pod_group(name, 2, queue=team), *members)


def _victim_goes(shell: Shell, number: int) -> None:
    there = sorted({name for name in shell.asked if f"uid-{name}" in shell.objects})
    if there:
        shell.gone(there[number % len(there)])


def _pods(shell: Shell, *, are_bound: bool) -> list[Pod]:
    pods = (each for each in shell.objects.values() if isinstance(each, Pod) and each.metadata.namespace == "ns")
    return [each for each in pods if bool(each.spec.node_name) is are_bound]


def _somebody_ends(shell: Shell, number: int) -> None:
    if pods := _pods(shell, are_bound=True):
        shell.gone(pods[number % len(pods)].metadata.name)


def _nominee_goes(shell: Shell, number: int) -> None:
    held = sorted(place.pod_uid for nomination in shell.record.values() for place in nomination.places)
    waiting = [each for each in _pods(shell, are_bound=False) if each.metadata.uid in held]
    if waiting:
        shell.gone(waiting[number % len(waiting)].metadata.name)


def _is_gated(shell: Shell, number: int) -> None:
    if waiting := _pods(shell, are_bound=False):
        was = waiting[number % len(waiting)]
        shell.feed(changed(pod(was.metadata.name, gpus=1, labels=dict(was.metadata.labels or {}), gated=True)))


def _cordon(shell: Shell, number: int) -> None:
    shell.feed(node(_NODES[number % 3], 4, cordoned=bool(number % 2)))


def _foreign(shell: Shell, number: int) -> None:
    name = shell.new_name("f")
    shell.feed(bound(pod(name, gpus=1, cpu="1", scheduler="another"), _NODES[number % 3]))


def _restart(shell: Shell, _: int) -> None:
    shell.restart()


_STEPS: dict[str, Callable[[Shell, int], None]] = {
    "pod": _new_pod,
    "share": _new_share,
    "too large": _too_large,
    "large node": _large_node,
    "gang": _new_gang,
    "victim goes": _victim_goes,
    "somebody ends": _somebody_ends,
    "nominated pod goes": _nominee_goes,
    "gated": _is_gated,
    "cordon": _cordon,
    "foreign": _foreign,
    "restart": _restart,
}


class Careful(Shell):
    """Looks at what is left of each node before and after a plan is carried out."""

    def decided(self) -> None:
        """Decide once. Whatever a plan places is beside what is kept: it leaves no node with less than nothing."""
        self.now_ns += S
        before, standing = self._free(), list(self.record.values())
        short = self.short(standing)
        snapshot, wall_s = self.cluster.prepared(self.now_ns), self.now_ns // S
        decision = decide(snapshot, self.now_ns, wall_s=wall_s)
        assert decide(snapshot, self.now_ns, wall_s=wall_s) == decision
        of_all = self._looking_at_all(snapshot, wall_s)
        assert of_all.entries == decision.entries
        plan = self.cluster.decide(self.now_ns, wall_s=wall_s)
        for note in of_all.effects:
            if isinstance(note, Said) and note.lasts:
                assert {self.cluster.scheduling_queue.said.verdict(uid) for uid in note.uids} == {note.verdict}
        self._carry_out_all(plan)
        assert self.cluster.validate() == []
        after = self._free()
        assert self.short(each for each in standing if self.record.get(each.id) == each) <= short
        if not any(isinstance(entry, Nominate) for entry in plan.entries):
            for name, free in after.items():
                assert bool((free >= before[name].clip(max=0)).all())
        anew = _listed_anew(self)
        assert {name: free.tolist() for name, free in anew.items()} == {n: free.tolist() for n, free in after.items()}

    def _looking_at_all(self, snapshot: Snapshot, wall_s: int) -> Decision:
        """The same decision, had no nomination rested, no need been too large, and no node been counted before."""
        scheduling_queue = self.cluster.scheduling_queue
        resting, scheduling_queue.resting, room = scheduling_queue.resting, Resting(), scheduling_queue.preemption
        asked_anew = {key: each for key, each in room.refused.items() if key not in room.too_large}
        scheduling_queue.preemption = msgspec.structs.replace(room, too_large=frozenset(), refused=asked_anew)
        decision = decide(replace(snapshot, counted={}), self.now_ns, wall_s=wall_s)
        scheduling_queue.resting, scheduling_queue.preemption = resting, room
        return decision

    def short(self, standing: Iterable[Nomination]) -> set[str]:
        """Nodes that have fewer GPUs left than these nominations keep there, by a count of its own."""
        nominations = list(standing)
        return {name for name in _NODES if _left(self, name) < sum(_kept(self, each, name) for each in nominations)}

    def _carry_out_all(self, plan: Plan) -> None:
        for entry in plan.entries:
            self._carry_out(entry)

    def _free(self) -> dict[str, Int64s]:
        return _free(self.cluster)


def _gpus(obj: Pod) -> int:
    return sum(
        int((of_container.resources.limits or {}).get(names.GPU_RESOURCE, 0)) for of_container in obj.spec.containers
    )


def _left(shell: Shell, name: str) -> int:
    there = (each for each in shell.objects.values() if isinstance(each, Pod) and each.spec.node_name == name)
    return 4 - sum(map(_gpus, there))


def _kept(shell: Shell, nomination: Nomination, name: str) -> int:
    """What the places of a nomination need beyond what its victims have, and beyond devices that are still shared."""
    objects, needed = shell.objects, 0
    for place in nomination.places:
        nominee = objects.get(place.pod_uid)
        if place.node == name and isinstance(nominee, Pod) and not nominee.spec.node_name:
            opened = {device.group for device in place.devices if f"r-{device.group}" not in objects}
            needed += _gpus(nominee) + len(opened) - sum(f"r-{group}" in objects for group in place.emptied)
    victims = (objects.get(victim.pod_uid) for victim in nomination.victims if victim.node == name)
    return max(0, needed - sum(_gpus(victim) for victim in victims if isinstance(victim, Pod)))


def _free(made: Cluster) -> dict[str, Int64s]:
    ledger = made.refresh()
    return {name: ledger.table.free[:, row].copy() for name, row in sorted(ledger.row_of.items())}


def _listed_anew(shell: Shell) -> dict[str, Int64s]:
    """The same as it comes out for one who lists everything, and has the record."""
    made = Cluster(Settings())
    feed(made, *shell.objects.values())
    for nomination in shell.record.values():
        made.commits.nominations.put(nomination)
    return _free(made)


def _began() -> Careful:
    teams = (queue("a", gpu=(6, 1, -1)), queue("b", gpu=(3, 1, 10)), queue("c", gpu=(0, 1, -1)))
    shell = Careful(late=True)
    shell.feed(*(node(name, 4) for name in _NODES), *teams)
    shell.feed(*(running(f"b{at}", "b", 2, on=_NODES[at]) for at in range(3)))
    shell.feed(*(running(f"c{at}", "c", 1, on=_NODES[at % 3]) for at in range(5)))
    return shell


@settings(max_examples=examples(8), deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*_STEPS, "victim goes", "pod"]), st.integers(0, 11)), max_size=14))
def test_whatever_happens_the_books_agree_and_what_is_kept_is_nobody_elses(steps: list[tuple[str, int]]) -> None:
    shell = _began()
    for step, number in steps:
        _STEPS[step](shell, number)
        shell.decided()
    for _ in range(12):
        while any(f"uid-{name}" in shell.objects for name in shell.asked):
            _victim_goes(shell, 0)
        shell.decided()
    assert shell.record == {}
    assert len(shell.asked) == len(set(shell.asked))
