"""What a search for victims costs: ``python -m bench.preemption``. Times are CPU time of the process.

Full nodes of 8 GPUs, 20 queues without quotas, and one with a tenth of the cluster as its quota that has nothing yet.
``singles``: a pod a GPU, of which a twentieth can't be preempted; ``fixed``: a half of them; ``mixed``: gangs of whole
nodes and pods of 1, 2 and 4 GPUs, a fifth of which can't be; ``shares``: two tenants on each GPU.

- ``reclaim``: a gang of pods of 8 GPUs for a twentieth of the nodes; ``hopeless``: the same where too few nodes can be
  had whole. ``one``: a pod of one GPU; ``part``: one of half a GPU; ``parts``: a gang of them. ``ms``: median of six
  searches. ``units_ms``: what it takes to read all units, once in the life of a scheduler and whenever a Queue comes,
  goes or moves.
- ``equal``: 4,000 pods of one GPU whose queue is owed all of them, on 1,000 such nodes: CPU of all decisions until each
  has its nomination, what goes on beside searches included; ``longest_ms`` of one, ``median_ms`` of them.
- ``taken``: a team takes back a whole cluster, pod by pod, until each pod has its place.
- ``units``: what the table of units takes at 90,000 pods alone.
- ``loss``: what victims cost beside the cheapest set of their rank, on random clusters of up to 8 units. ``missed``:
  answers of a higher rank or priority than another set has. ``worst_seed``: of the cluster with the largest ratio.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from bench.core import cluster_of, pod
from gpu import book as books
from gpu.book import Book, Entry
from gpu.grant import DeviceGrant, Grant
from gpu.share import NANO_PER_DEVICE
from scheduler.core.cluster import Cluster
from scheduler.core.convert import pod_groups
from scheduler.core.decide.allowance import LIMITS, Allowance
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.charging import preemption_trial
from scheduler.core.model.plan import Bind, Explain, GiveUp, Nominate, Plan
from scheduler.core.model.preemption import Action, Found
from scheduler.core.model.priority_order import order_members
from scheduler.core.model.settings import Settings
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.search import find_victims
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_units import Pricing
from scheduler.core.scheduling_queue.effects import Effects
from tests.scheduler.core.preemption.reference import Reference
from tests.scheduler.core.preemption.scenes import Scene, need_of, trial_of
from wire import names
from wire.core import Pod
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue
from wire.units import SECOND_NS

_STEP_NS = 20_000_000
_EVICTED_A_STEP = 6
#: Steps in which nothing happens that end it: more than lie between two looks for room.
_QUIET_STEPS = 60


class _Taking:
    """The shell, without an API server."""

    def __init__(self, cluster: Cluster, waiting: list[Pod]) -> None:
        self.cluster = cluster
        self.waiting = {each.metadata.uid: each for each in waiting}
        self.victims: deque[tuple[str, str]] = deque()
        self.bound = 0

    def evict(self) -> None:
        """Some victims of nominations that stand go."""
        left = _EVICTED_A_STEP
        while left and self.victims:
            uid, nomination_id = self.victims.popleft()
            if self.cluster.commits.nominations.get(nomination_id) is not None:
                self.cluster.remove_pod(uid, has_ended=True)
                left -= 1

    def carry_out(self, plan: Plan) -> bool:
        """Do what was decided; return whether that was anything."""
        nominations, done = self.cluster.commits.nominations, 0
        for entry in plan.entries:
            match entry:
                case Nominate(nomination=nomination):
                    nominations.put(nomination)
                    self.victims.extend((victim.pod_uid, nomination.id) for victim in nomination.victims)
                case GiveUp(nomination_id=nomination_id):
                    nominations.drop(nomination_id)
                case Bind(placement=placement):
                    self.cluster.commits.assume(placement)
                    self._bind(placement.pod_uid, placement.node)
                case _:
                    continue
            done += 1
        self.cluster.told([entry for entry in plan.entries if isinstance(entry, Explain)])
        return bool(done)

    def _bind(self, uid: str, node: str) -> None:
        was = self.waiting[uid]
        meta = msgspec.structs.replace(was.metadata, resource_version="2")
        spec = msgspec.structs.replace(was.spec, node_name=node)
        self.cluster.upsert_pod(msgspec.structs.replace(was, metadata=meta, spec=spec))
        self.bound += 1


def taken(nodes: int, filled: Callable[[int], Cluster], queue: str, wall_s: int) -> dict[str, object]:
    """Measure what it costs decisions when a team takes back a whole cluster of one size, pod by pod.

    A node has 8 GPUs, each with a pod of other teams, of which a twentieth can't be preempted; as many pods of one GPU
    wait whose queue is owed all of them. Every 20 ms of virtual time six victims go, as evictions have a rate, and what
    is decided is carried out at once. So hundreds of decisions are made while nominations are on record. ``filled``:
    makes the full cluster, in which ``queue`` is owed all GPUs.
    """
    cluster, waiting = filled(nodes), [_waiting(number, queue) for number in range(nodes * 8)]
    for each in waiting:
        cluster.upsert_pod(each)
    taking, cpu_s, quiet, now_ns = _Taking(cluster, waiting), list[float](), 0, 0
    while quiet < _QUIET_STEPS:
        now_ns += _STEP_NS
        taking.evict()
        began = time.process_time()
        plan = cluster.decide(now_ns, wall_s=wall_s + now_ns // SECOND_NS)
        cpu_s.append(time.process_time() - began)
        quiet = 0 if taking.carry_out(plan) or taking.victims else quiet + 1
    return {
        "bench": f"preemption_taken_{nodes}",
        "pods": len(waiting),
        "bound": taking.bound,
        "decisions": len(cpu_s),
        "cpu_s": round(sum(cpu_s), 2),
        "us_a_pod": round(sum(cpu_s) / max(1, taking.bound) * 1e6),
        "longest_ms": round(max(cpu_s) * 1e3),
    }


def _waiting(number: int, queue: str) -> Pod:
    made = pod(f"taken-{number:05}", gpus=1)
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, labels={names.QUEUE_LABEL: queue})
    )


_GPUS = 8
_QUEUES = 20
_NOW_S = 1_767_268_800
_EVENTS = 7
#: So often room is looked for.
_EVERY_NS = 200_000_000
MINE = "mine"


def _queue(name: str, quota: int) -> Queue:
    amounts = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    free = {**amounts, "quota": -1}
    resources = {"cpu": free, "memory": free, "gpu": {**amounts, "quota": quota}}
    spec = {"parentQueue": "", "resources": resources}
    return msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": spec}, Queue, strict=False)


def _group(name: str, queue: str, members: int) -> PodGroup:
    group = {"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"minMember": members, "queue": queue}}
    return msgspec.convert(group, PodGroup)


def _reservation(group: str, node: str, tenants: list[str], nano: int) -> Pod:
    """The pod that holds a shared device, with its book."""
    made = pod(f"gpu-reservation-{group}", node=node, namespace=names.RESERVATION_NAMESPACE, gpus=1)
    entries = {name: Entry(nano, "attempt", "1", 0, f"ns/{name}") for name in tenants}
    annotations = {names.RESERVE_FOR_GPU_INDEX: f"GPU-{group}", names.TENANTS: books.render(Book(entries))}
    labels = {names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: group}
    meta = msgspec.structs.replace(made.metadata, uid=f"r-{group}", annotations=annotations, labels=labels)
    spec = msgspec.structs.replace(made.spec, scheduler_name="default-scheduler")
    status = msgspec.structs.replace(made.status, phase="Running")
    return msgspec.structs.replace(made, metadata=meta, spec=spec, status=status)


class Filling:
    """A full cluster."""

    def __init__(self, nodes: int, kind: str, *, preemption: bool = False, quota: int | None = None) -> None:
        self.rng, self.nodes = random.Random(1), nodes
        self.cluster = cluster_of(nodes, Settings(preemption=preemption))
        for number in range(_QUEUES):
            self.cluster.queues.records.put(pod_groups.queue_record(_queue(f"q{number:02}", 0)))
        self.cluster.queues.records.put(
            pod_groups.queue_record(_queue(MINE, nodes * _GPUS // 10 if quota is None else quota))
        )
        getattr(self, kind)()
        self.cluster.refresh()

    def _run(
        self, name: str, node: int, *, queue: str, priority: int, age_s: int, grant: Grant | None = None, **asked: Any
    ) -> None:
        made = pod(name, node=f"node-{node:05}", **asked)
        granted = {names.GRANT: msgspec.json.encode(grant).decode()} if grant else {}
        meta = msgspec.structs.replace(
            made.metadata,
            labels={names.QUEUE_LABEL: queue},
            annotations={**(made.metadata.annotations or {}), **granted},
        )
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_NOW_S - age_s))
        status = msgspec.structs.replace(made.status, start_time=started)
        spec = msgspec.structs.replace(made.spec, priority=priority)
        self.cluster.upsert_pod(msgspec.structs.replace(made, metadata=meta, status=status, spec=spec))

    def _asked(self) -> dict[str, Any]:
        priority = 100 if self.rng.random() < 0.2 else 50
        queue = f"q{self.rng.randrange(_QUEUES):02}"
        return {"queue": queue, "priority": priority, "age_s": self.rng.randrange(86_400)}

    def singles(self) -> None:
        """A pod a GPU, on a twentieth of which nobody may be preempted."""
        for node in range(self.nodes):
            for gpu in range(_GPUS):
                asked = self._asked() | {"priority": 100 if self.rng.random() < 0.05 else 50}
                self._run(f"r{node}-{gpu}", node, gpus=1, **asked)

    def fixed(self) -> None:
        """A pod a GPU, on half of which nobody may be preempted."""
        for node in range(self.nodes):
            for gpu in range(_GPUS):
                asked = self._asked() | {"priority": 100 if self.rng.random() < 0.5 else 50}
                self._run(f"r{node}-{gpu}", node, gpus=1, **asked)

    def shares(self) -> None:
        """Two tenants on each GPU."""
        half = NANO_PER_DEVICE // 2
        for node in range(self.nodes):
            for gpu in range(_GPUS):
                group, where = f"d{node}-{gpu}", f"node-{node:05}"
                tenants = [f"s{node}-{gpu}-{number}" for number in range(2)]
                self.cluster.upsert_pod(_reservation(group, where, tenants, half))
                for name in tenants:
                    given = (DeviceGrant(group, f"r-{group}", f"GPU-{group}", half, names.GPU_RESOURCE, 0),)
                    self._run(name, node, grant=Grant("attempt", given), fraction="0.5", **self._asked())

    def mixed(self) -> None:
        """Gangs of whole nodes, and nodes of smaller pods."""
        order, at = self.rng.sample(range(self.nodes), self.nodes), 0
        while at < self.nodes:
            size = min(self.rng.choice([2, 4, 8, 16, 32]), self.nodes - at)
            if self.rng.random() < 0.35:
                asked = self._asked()
                self.cluster.upsert_pod_group(_group(f"g{at}", asked["queue"], size))
                for node in order[at : at + size]:
                    self._run(f"g{at}-{node}", node, gpus=_GPUS, group=f"g{at}", **asked)
                at += size
                continue
            left = _GPUS
            while left:
                gpus = min(left, self.rng.choice([1, 1, 1, 2, 4]))
                left -= gpus
                self._run(f"s{at}-{left}", order[at], gpus=gpus, **self._asked())
            at += 1


def trial(cluster: Cluster) -> Trial:
    """A search's world."""
    snapshot = cluster.snapshot()
    allowance = Allowance(namespaces=1, most=LIMITS.most)
    return preemption_trial(Attempts(snapshot, 0, LIMITS, allowance, Effects(snapshot.scheduling_queue)), wall_s=_NOW_S)


def gang(cluster: Cluster, name: str, members: int, **asked: Any) -> Callable[[Trial], Need]:
    """A gang of one class that waits."""
    cluster.upsert_pod_group(_group(name, MINE, members))
    for number in range(members):
        cluster.upsert_pod(pod(f"{name}-{number:05}", group=name, **asked))

    def need(of: Trial) -> Need:
        group = of.pod_groups["ns", name]
        pods = order_members(each for each in of.pods.members("ns", name) if not each.node)
        return Need(pods=tuple(pods), group=group, quorum=of.quorum(group), queue=MINE, priority=50)

    return need


def _measured(cluster: Cluster, need_of: Callable[[Trial], Need]) -> dict[str, object]:
    of = trial(cluster)
    need, taken, found = need_of(of), list[float](), "nobody"
    for _ in range(_EVENTS):
        began = time.process_time()
        answer = find_victims(need, of)
        taken.append((time.process_time() - began) * 1e3)
        if isinstance(answer, Found):
            found = f"{sum(len(unit.pods) for unit in answer.units)} pods go"
        else:
            found = f"{answer.bound}"
    return {"ms": round(statistics.median(taken[1:]), 2), "found": found}


def _read_ms(cluster: Cluster) -> float:
    """What it takes to read all units once."""
    of = trial(cluster)
    began = time.process_time()
    of.residents.refresh(of)
    return round((time.process_time() - began) * 1e3, 1)


def figures(nodes: int, kind: str) -> Iterator[dict[str, object]]:
    """Measure one cluster."""
    cluster = Filling(nodes, kind).cluster
    units_ms = _read_ms(cluster)
    for case, (members, asked) in _cases(nodes)[kind].items():
        need = gang(cluster, case, members, **asked)
        yield {
            "bench": f"preemption_{case}_{kind}_{nodes}",
            "nodes": nodes,
            "units_ms": units_ms,
            **_measured(cluster, need),
        }
        for number in range(members):
            cluster.remove_pod(f"{case}-{number:05}", has_ended=True)


def _cases(nodes: int) -> dict[str, dict[str, tuple[int, dict[str, Any]]]]:
    """By kind: cases, with members of the gang and what each asks."""
    whole: tuple[int, dict[str, Any]] = (nodes // 20, {"gpus": _GPUS})
    one: tuple[int, dict[str, Any]] = (1, {"gpus": 1})
    return {
        "mixed": {"reclaim": whole, "one": one},
        "singles": {"reclaim": whole, "one": one},
        "fixed": {"hopeless": whole},
        "shares": {"part": (1, {"fraction": "0.5"}), "parts": (nodes // 20, {"fraction": "0.5"}), "one": one},
    }


def equal(nodes: int, pods: int) -> dict[str, object]:
    """Decide until each of many equal pods has its nomination; nobody of those who are asked to go has gone by then."""
    filling = Filling(nodes, "singles", preemption=True, quota=nodes * _GPUS)
    for number in range(pods):
        made = pod(f"equal-{number:05}", gpus=1)
        meta = msgspec.structs.replace(made.metadata, labels={names.QUEUE_LABEL: MINE})
        filling.cluster.upsert_pod(msgspec.structs.replace(made, metadata=meta))
    taken, nominations, new = list[float](), 0, -1
    while new:
        began = time.process_time()
        plan = filling.cluster.decide(len(taken) * _EVERY_NS, wall_s=_NOW_S)
        taken.append(time.process_time() - began)
        found = [entry.nomination for entry in plan.entries if isinstance(entry, Nominate)]
        for nomination in found:
            filling.cluster.commits.nominations.put(nomination)
        new = len(found)
        nominations += new
    return {
        "bench": f"preemption_equal_singles_{nodes}",
        "pods": pods,
        "nominations": nominations,
        "decisions": len(taken),
        "cpu_s": round(sum(taken), 2),
        "median_ms": round(statistics.median(taken) * 1e3),
        "longest_ms": round(max(taken) * 1e3),
    }


def _owed(nodes: int) -> Cluster:
    return Filling(nodes, "singles", preemption=True, quota=nodes * _GPUS).cluster


def units(pods: int) -> dict[str, object]:
    """What the table of units takes."""
    of = trial(Filling(pods // _GPUS, "singles").cluster)
    tracemalloc.start()
    of.residents.refresh(of)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"bench": "preemption_units", "pods": pods, "mib": round(held / 2**20, 1)}


def loss_ratios(seed: int, units: int) -> Iterator[Fraction | None]:
    """The cost of what is found beside that of the cheapest set of the lowest rank, by either action.

    Only where one finds somebody. All sets of victims are tried, one by one, by the reference of the tests. None:
    another set would have had to go, of a lower rank or priority.
    """
    of = trial_of(Scene(seed, most_units=units).cluster())
    pricing = Pricing(of.accounts.total, of.wall_s)
    for action in (Action.RECLAIM, Action.PREEMPT):
        reference = Reference(of, need_of(of, MINE), action)
        answer = find_victims(reference.need, of, (action,))
        if isinstance(answer, Found) and answer.units:
            found = frozenset(at for at, unit in enumerate(reference.units) if unit.unit in answer.units)
            yield reference.ratio(found, pricing)


def loss(units: int, clusters: int) -> dict[str, object]:
    """The losses of this number of clusters."""
    answers = [(ratio, seed) for seed in range(clusters) for ratio in loss_ratios(seed, units)]
    found = sorted((ratio, seed) for ratio, seed in answers if ratio is not None)
    worst, seed = found[-1]
    return {
        "bench": f"preemption_loss_{units}_units",
        "clusters": clusters,
        "found": len(answers),
        "missed": len(answers) - len(found),
        "mean": round(float(sum(ratio for ratio, _ in found) / len(found)), 4),
        "p95": round(float(found[len(found) * 95 // 100][0]), 3),
        "worst": round(float(worst), 3),
        "worst_seed": seed,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one JSON object a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 500, 1_000])
    parser.add_argument("--kind", nargs="+", default=["fixed", "singles", "mixed", "shares"])
    parser.add_argument("--quick", action="store_true", help="small clusters, to see that it runs")
    told = parser.parse_args(arguments)
    scale = 10 if told.quick else 1
    for nodes in [20] if told.quick else told.nodes:
        for kind in told.kind:
            for each in figures(nodes, kind):
                print(json.dumps(each), flush=True)
    for nodes in [20] if told.quick else [100, 200, 500]:
        print(json.dumps(taken(nodes, _owed, MINE, _NOW_S)), flush=True)
    for each in (equal(1_000 // scale, 4_000 // scale), units(90_000 // scale), loss(8, 1_500 // scale)):
        print(json.dumps(each), flush=True)


if __name__ == "__main__":
    main()
