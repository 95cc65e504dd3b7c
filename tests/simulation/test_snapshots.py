"""A snapshot of a hostile run, written to a file and read again, gives the scheduler's next plan to the byte.

Plans are compared whenever the scheduler is in step with the API server and no attempt is under way or has failed: what
it knows then is in the API. That is so in a part of its decisions, which is counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from cli.snapshots import anonymous, file
from cli.snapshots.cluster import cluster_of
from cli.snapshots.fields import kept
from cli.snapshots.file import KIND, PLURALS, VERSION, Saved
from kube.client import resources
from scheduler.app import Scheduler
from scheduler.core.assumed.attempts import NONE_YET
from scheduler.core.cluster import Cluster
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pod_groups import queue_record
from scheduler.core.decide.allowance import LIMITS, Limits
from scheduler.core.decide.decide import Answer, answer_as_if
from scheduler.core.model.plan import Entry, Explain, Nominate, Plan, placements
from scheduler.core.model.settings import Settings
from scheduler.core.preemption import eviction_history, nomination_record
from scheduler.core.preemption.eviction_history import Hour, piece_names, waits_of
from scheduler.core.preemption.nomination_record import Record
from simulator.apiserver.types import ResourceType
from simulator.components import Parts
from simulator.world import World
from tests.whole import IS_WHOLE
from verification.hostile.run import run
from verification.hostile.scenario import scenario_of
from wire import names
from wire.rfc3339 import rfc3339

pytestmark = pytest.mark.thorough

#: Those of the first ones in which most is compared for their time; `make nightly` runs more.
SEEDS = range(1, 41) if IS_WHOLE else (1, 2, 7, 8, 20)
TYPES: dict[str, type] = {
    each.plural: each.type for each in vars(resources).values() if isinstance(each, resources.Resource)
}


class Stored:
    """What the API server has, by plural and UID, and the record of evictions. ``without``: what files lack."""

    def __init__(self, without: str = "") -> None:
        self.without = without
        self.objects: dict[str, dict[str, Any]] = defaultdict(dict)
        self._nominations: str | None = None
        self._evictions: dict[str, str] = {}

    def show(self, world: World) -> None:
        world.server.listen(self.take)

    def take(self, kind: ResourceType, raw: bytes, is_gone: bool) -> None:
        if kind.plural == "configmaps":
            found = msgspec.json.decode(raw)
            name = found["metadata"]["name"]
            if name == names.NOMINATIONS:
                self._nominations = None if is_gone else found["data"][nomination_record.KEY]
            elif name in piece_names(None):
                self._evictions[name] = "" if is_gone else found["data"][eviction_history.KEY]
        if kind.plural not in PLURALS:
            return
        found = msgspec.json.decode(raw, type=TYPES[kind.plural])
        if is_gone:
            self.objects[kind.plural].pop(found.metadata.uid, None)
        else:
            self.objects[kind.plural][found.metadata.uid] = found

    def record(self, wall_s: int) -> Record | None:
        """The record of evictions; None if there is none."""
        if self._nominations is None:
            return None
        hour, _ = Hour.of([self._evictions.get(name, "") for name in piece_names(None)])
        return Record(
            nomination_record.read(self._nominations).record.nominations, hour.evicted(wall_s), waits_of(hour, wall_s)
        )

    def all(self, plural: str) -> list[Any]:
        return sorted(self.objects[plural].values(), key=lambda each: (each.metadata.namespace, each.metadata.name))

    def saved(self, wall_s: int) -> Saved:
        lists: dict[str, Any] = {
            plural: [kept(each) for each in self.all(plural)] for plural in PLURALS if plural != self.without
        }
        record = self.record(wall_s)
        room = None if record is None else nomination_record.written(record)
        head = Saved(kind=KIND, version=VERSION, taken_at=rfc3339(wall_s * 10**9), nominations=room)
        return msgspec.structs.replace(head, **lists)


class Compared(Cluster):
    """A live cluster of which each plan is compared with that of a file. ``counts``: what was compared."""

    def __init__(self, settings: Settings, stored: Stored, counts: Counter[str], different: list[str]) -> None:
        super().__init__(settings)
        self.stored = stored
        self.counts = counts
        self.different = different

    @override
    def decide(self, now_ns: int, limits: Limits = LIMITS, *, wall_s: int = 0) -> Plan:
        is_known = self._remembered(now_ns) is not None
        compares = not is_known and self.has_no_past(wall_s) and self.is_in_step()
        found = self.stored.saved(wall_s) if compares else None
        if found is not None and not self.has_verified_more(self.of_file(found)):
            self.compare(found, now_ns, wall_s)
        else:
            found = None
        has_looked = self.scheduling_queue.reserves.next_ns is not None
        plan = super().decide(now_ns, limits, wall_s=wall_s)
        self.counts["decisions"] += not is_known
        if found is not None and not has_looked:
            self.compare_plan(plan, found, now_ns, wall_s)
        return plan

    # --- when ----------------------------------------------------------------------------------------------------
    def has_no_past(self, wall_s: int) -> bool:
        """Whether nothing is known here that the API does not show."""
        record = self.stored.record(wall_s) or Record()
        commits, facts = self.commits, self._preemption_facts
        reasons = {
            "pool": self.settings.pool is not None,
            "attempts": any(commits._attempts.of(uid) != NONE_YET for uid in self._pods.records),
            "departed": bool(commits.departed()),
            "nominations": commits.nominations.all() != record.nominations,
            "former nominations": any(map(commits.nominations.next_number, self._pods.unbound)),
            "waits": facts.takers_wait != record.waits,
            "refused": bool(facts.refused or facts.asked),
            "doubts": bool(self.joining or self._doubts or self.doubts()),
            "reserves": bool(self.scheduling_queue.reserves.of),
            "vanished": len(self.queues.vanished) > 0,
        }
        self.counts.update(f"not for {name}" for name, is_so in reasons.items() if is_so)
        return not any(reasons.values())

    def has_verified_more(self, other: Cluster) -> bool:
        """Whether it has seen pods, gone by now, that proved which device a reservation holds."""
        held = self._pods.reservations.values()
        return any(self.is_verified(one.uid, one.uuid) != other.is_verified(one.uid, one.uuid) for one in held)

    def is_in_step(self) -> bool:
        """Whether it has heard of every write."""
        stored, pods = self.stored, self._pods
        nodes = {node.metadata.name: node_record(node) for node in stored.all("nodes")}
        groups = {(each.metadata.namespace, each.metadata.name): each for each in stored.all("podgroups")}
        requests = {(each.metadata.namespace, each.metadata.name) for each in stored.all("bindrequests")}
        known = {*pods.records, *pods.reservations}
        is_behind = {
            "nodes": nodes != self._nodes,
            "podgroups": groups.keys() != self._pod_groups.keys()
            or any(self._pod_groups[key].rv != group.metadata.resource_version for key, group in groups.items()),
            "bindrequests": requests != set(self.commits.hand_overs.names()),
            "pods": not known <= stored.objects["pods"].keys() or not all(map(self.knows, stored.all("pods"))),
            "queues": sorted(map(queue_record, stored.all("queues")), key=lambda each: each.name)
            != sorted(self.queues.records.all(), key=lambda each: each.name),
        }
        self.counts.update(f"behind by {name}" for name, is_so in is_behind.items() if is_so)
        return not any(is_behind.values())

    def knows(self, pod: Any) -> bool:
        seen = self.read_pod(pod)
        uid = pod.metadata.uid
        is_kept = seen.record is not None or seen.reservation is not None
        return self._pods.known_rv(uid) == seen.rv if is_kept and not seen.has_ended else uid not in self._pods.records

    # --- what ----------------------------------------------------------------------------------------------------
    def compare(self, found: Saved, now_ns: int, wall_s: int) -> None:
        """Compare what each would do that remembers nothing, and what it would tell all that wait."""
        uids = sorted(self._pods.unbound)
        mine = answer_as_if(self.snapshot(), uids=uids, now_ns=now_ns, wall_s=wall_s)
        again = self.of_file(found)
        theirs = answer_as_if(again.snapshot(), uids=uids, now_ns=now_ns, wall_s=wall_s)
        self.check(mine.decision.entries, theirs.decision.entries)
        self.check(sorted(mine.verdicts.items()), sorted(theirs.verdicts.items()))
        hidden = self.of_file(anonymous.anonymized(found))
        renamed = answer_as_if(hidden.snapshot(), uids=uids, now_ns=now_ns, wall_s=wall_s)
        self.check(by_uid(mine.decision.entries, self), by_uid(renamed.decision.entries, hidden))
        self.check(codes(mine), codes(renamed))
        self.counts["compared"] += 1
        self.counts["placements"] += len([*placements(mine.decision.entries)])
        self.counts["room"] += sum(isinstance(each, Nominate) for each in mine.decision.entries)
        self.counts["waiting"] += len(mine.verdicts)

    def compare_plan(self, plan: Plan, found: Saved, now_ns: int, wall_s: int) -> None:
        """Compare the plan that is carried out with that of a scheduler that has just read the file."""
        again = self.of_file(found).decide(now_ns, wall_s=wall_s)
        self.check(done(plan.entries), done(again.entries))
        self.counts["plans"] += bool(done(plan.entries))

    def of_file(self, found: Saved) -> Cluster:
        return cluster_of(file.read(file.write(found)), self.settings)[0]

    def check(self, mine: Sequence[object], theirs: Sequence[object]) -> None:
        if encoded(mine) != encoded(theirs):
            self.different.append(f"{mine}\n  and from the file {theirs}")


def done(entries: Sequence[Entry]) -> list[Entry]:
    """All but what pods are told: that depends on what they were told before."""
    return [entry for entry in entries if not isinstance(entry, Explain)]


def encoded(entries: Sequence[object]) -> bytes:
    return msgspec.json.encode([[type(entry).__name__, entry] for entry in entries])


def codes(answer: Answer) -> list[tuple[str, str]]:
    return sorted((uid, verdict.code.value) for uid, verdict in answer.verdicts.items())


def by_uid(entries: Sequence[Entry], cluster: Cluster) -> list[object]:
    """The plan without names: placements, and nominations by nominated pods and victims."""
    return [*_by_uid(entries, {name: node.uid for name, node in cluster._nodes.items()})]


def _by_uid(entries: Sequence[Entry], uid_of: dict[str, str]) -> Iterator[object]:
    for placed in placements(entries):
        yield placed.pod_uid, uid_of[placed.node], placed.devices
    for entry in entries:
        if isinstance(entry, Nominate):
            nominees = [(place.pod_uid, uid_of[place.node], place.devices) for place in entry.nomination.places]
            yield entry.nomination.id, nominees, [victim.pod_uid for victim in entry.nomination.victims]


def compared(seed: int, counts: Counter[str], *, without: str = "") -> list[str]:
    stored, different = Stored(without), list[str]()

    def scheduler(api: Any, *, settings: Any, **rest: Any) -> Scheduler:
        return Scheduler(
            api, settings=settings, cluster=Compared(settings.decisions, stored, counts, different), **rest
        )

    run(scenario_of(seed), parts=Parts(scheduler=scheduler), show=stored.show, limit_cpu_s=120.0)
    return different


def test_a_snapshot_gives_the_next_plan_and_the_same_reasons() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        different = compared(seed, counts)
        assert not different, f"seed {seed}: {different[0]}"
    assert counts["compared"] > 120, counts
    assert counts["placements"] > 15, counts
    assert counts["room"] > 1, counts
    assert counts["waiting"] > 150, counts
    assert counts["plans"] > 8, counts


def test_a_kind_that_the_file_lacks_is_found() -> None:
    assert any(compared(seed, Counter(), without="podgroups") for seed in range(1, 9))
