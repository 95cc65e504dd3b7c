"""Everything that a decision reads, kept from events and from our own commits. One writer: the shell's cache.

Records are stored as they come, nodes that an event touches are marked, and marked nodes are counted anew before the
next decision (node_usage.py). So the order, number and lateness of events can't matter to the sums: only what is known
in the end does. Three rules keep a charge from being lost:

- What is in flight is charged until the API shows its end, or it is withdrawn for sure (assumed.py).
- An event that is older than what is known is ignored (seen_pods.py).
- A pod is charged once per node and once per device, with the largest that anybody says.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from gpu.reservation import Reservation
from scheduler.core.assumed.assumed import Commits
from scheduler.core.assumed.backoff import Setback
from scheduler.core.assumed.bind_requests import Key
from scheduler.core.assumed.slow_nodes import Doubt
from scheduler.core.backlog import recounts
from scheduler.core.backlog.backlog import Backlog
from scheduler.core.convert import objects
from scheduler.core.convert.job_owners import Owners
from scheduler.core.decide.allowance import LIMITS, Limits
from scheduler.core.decide.decide import Decision, decide
from scheduler.core.decide.filing import file_touched
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.groups.quorum import Quorum, quorum
from scheduler.core.groups.succeeded import Succeeded
from scheduler.core.model.plan import Explain, Plan, placements
from scheduler.core.model.records import BindRequestRecord, NodeRecord, PodGroupRecord, PodRecord, SeenPod
from scheduler.core.model.seen_pods import News, Pods
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.anti_affinity import OthersTerms
from scheduler.core.nodes.claims import Storage
from scheduler.core.nodes.device_sightings import Sightings
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.node_usage import Occupancy, occupancy
from scheduler.core.recount import differences
from scheduler.core.report.node_view import Known, NodeView, node_view
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.versions import is_older


@dataclass(slots=True)
class _Memo:
    """The last plan, good as long as nothing changes and the time has not come."""

    generation: int
    plan: Plan
    placed: frozenset[str]


class Cluster:
    """Nodes, pods, PodGroups, hand-overs and our commits under way, and the ledger counted from them."""

    def __init__(self, settings: Settings, filters: Filters = FILTERS) -> None:
        self.settings = settings
        self.ledger = Ledger(filters)
        #: Grows with everything that can change a decision.
        self.generation = 0
        self._nodes: dict[str, NodeRecord] = {}
        self._pods = Pods()
        self._pod_groups: dict[Key, PodGroupRecord] = {}
        #: What is under way: the shell notes it here.
        self.commits = Commits(self._pods, settings=settings, changed=self._changed, touched=self._way_changed)
        #: Claims of pods, and the volumes behind them.
        self.storage = Storage(self._changed, self._touch)
        #: Jobs of pods, and what they say about starting together.
        self.owners = Owners(self._changed, self._touch)
        #: Members of gangs that have done their work.
        self._succeeded = Succeeded()
        #: What anti-affinity of pods that have a node keeps others off.
        self.others = OthersTerms(self._nodes.get, self._terms_changed)
        self._have_terms_changed = False
        #: Which devices were seen where.
        self.sightings = Sightings()
        self._marked: set[str] = set()
        #: Pods and gangs that wait, and what they wait for; ``prepared`` brings it up to date.
        self.backlog = Backlog(self.ledger)
        self._doubts: Mapping[str, Doubt] = {}
        self._memo: _Memo | None = None

    # --- nodes ---------------------------------------------------------------------------------------------------
    def replace_nodes(self, nodes: Sequence[NodeRecord]) -> list[str]:
        """Take the whole truth as of a list, read by objects.py; return who has come back."""
        listed = {node.name for node in nodes}
        for name in [name for name in self._nodes if name not in listed]:
            self.remove_node(name)
        return [node.name for node in sorted(nodes, key=lambda n: n.name) if self._put_node(node)]

    def upsert_node(self, node: Node) -> bool:
        """Take a node as it is now; return whether it has come back, that is, is ready after it was not.

        A heartbeat that changes nothing of interest costs nothing.
        """
        return self._put_node(objects.node_record(node))

    def _put_node(self, record: NodeRecord) -> bool:
        known = self._nodes.get(record.name)
        if known == record:
            return False
        self._nodes[record.name] = record
        is_back = known is not None and record.is_ready and not known.is_ready
        if is_back:
            self.commits.probation.forget_node(record.name)
        self.ledger.put(record)
        if known is None or known.labels != record.labels:
            self.others.nodes_changed()
        self._changed(record.name)
        return is_back

    def remove_node(self, name: str) -> None:
        """Forget a node; what is known to be on it stays known."""
        if self._nodes.pop(name, None) is not None:
            self.ledger.drop(name)
            self.others.nodes_changed()
            self.commits.probation.forget_node(name)
            self.sightings.forget_node(name)
            self._changed(name)

    # --- pods ----------------------------------------------------------------------------------------------------
    def pods_beside(self, listed: Container[str]) -> list[str]:
        """UIDs of pods that are known and not listed."""
        return [*self._pods.beside(listed), *(uid for uid in self._succeeded if uid not in listed)]

    def has_seen(self, uid: str, rv: str) -> bool:
        """Whether exactly this version of a pod is known."""
        return bool(rv) and self._pods.known_rv(uid) == rv

    def read_pod(self, pod: Pod) -> SeenPod:
        """Read a pod without taking it."""
        seen = objects.seen_pod(pod, self.settings, self.ledger.filters)
        if seen.record is None:
            return seen
        record = msgspec.structs.replace(seen.record, cls=self._pods.intern(seen.record.cls))
        return msgspec.structs.replace(seen, record=record)

    def upsert_pod(self, pod: Pod) -> None:
        """Take a pod as it is now."""
        self.take_pod(self.read_pod(pod))

    def take_pod(self, seen: SeenPod) -> None:
        """Take a pod that was read; one that is older than what is known is ignored."""
        uid = seen.uid
        if self._pods.is_past(uid, seen.rv):
            return
        if seen.reservation is not None:
            self._put_reservation(seen.reservation)
        if seen.succeeded is not None and self._succeeded.put(seen.succeeded):
            self._touch_gang(seen.succeeded.namespace, seen.succeeded.pod_group)
        if not seen.has_ended:
            self._put_pod(seen.record)
        elif uid in self._pods.reservations:
            self._drop_pod(uid)
        else:
            self._end_pod(uid)

    def _put_reservation(self, found: Reservation) -> None:
        known = self._pods.reservations.get(found.uid)
        if known != found:
            self.sightings.see(found)
            self._changed(*self._pods.put_reservation(found))
            self.commits.reservation_seen(found, known)

    def _put_pod(self, record: PodRecord | None) -> None:
        if record is None:
            return
        before = self._pods.records.get(record.uid)
        match self._pods.put(record):
            case News.CONTENT:
                self._changed(record.node)
                self._touch(record.uid, before)
                self._succeeded.note_running(record)
                self.storage.put_pod(self._pods.records[record.uid])
                self.others.put_pod(self._pods.records[record.uid])
                self.owners.put_pod(self._pods.records[record.uid])
                self.commits.pod_seen(record.uid, is_bound=bool(record.node))
            case News.VERSION:
                self._note_version(record)
            case News.NOTHING:
                pass

    def _note_version(self, record: PodRecord) -> None:
        """Nothing but the version changed. It matters if a hand-over names it or the last plan would place the pod."""
        self.commits.version_seen(record.uid)
        if self._memo is not None and record.uid in self._memo.placed:
            self.generation += 1

    def remove_pod(self, uid: str) -> None:
        """A pod is gone."""
        gone = self._succeeded.drop(uid)
        if gone is not None:
            self._touch_gang(gone.namespace, gone.pod_group)
        self._end_pod(uid)

    def _end_pod(self, uid: str) -> None:
        """A pod is gone, or has ended and holds nothing any more."""
        if self._pods.is_known(uid) or self.commits.hand_overs.is_named(uid):
            self._pods.gone.put(uid, None)  # of others nobody asked, so no answer can come late
        self._drop_pod(uid)
        if node := self._pods.drop_reservation(uid):
            self._changed(node)
        self.commits.pod_gone(uid)

    def forget_gone(self) -> None:
        """A period is over: forget what nobody can speak of any more, and gangs of which no pod waits."""
        self._pods.forget_gone()
        for key in [key for key in self.backlog.gangs() if all(pod.node for pod in self.members(*key))]:
            self.backlog.drop_gang(key)

    def _drop_pod(self, uid: str) -> None:
        if self.commits.is_spoken_for(uid):
            self.storage.holder_changed(uid)
        record = self._pods.drop(uid)
        self.storage.drop_pod(uid)
        self.others.drop_pod(uid)
        self.owners.drop_pod(uid)
        self._succeeded.forget_running(uid)
        self._touch(uid, record)
        if record is not None:
            self._changed(record.node)

    # --- PodGroups -----------------------------------------------------------------------------------------------
    def replace_pod_groups(self, groups: Sequence[PodGroup]) -> None:
        """Take the whole truth as of a list."""
        listed = {(g.metadata.namespace, g.metadata.name) for g in groups}
        for key in [key for key in self._pod_groups if key not in listed]:
            self.remove_pod_group(*key)
        for group in groups:
            self.upsert_pod_group(group)

    def upsert_pod_group(self, group: PodGroup) -> None:
        """Take a PodGroup as it is now."""
        record = objects.pod_group_record(group)
        key = (record.namespace, record.name)
        known = self._pod_groups.get(key)
        if known == record or (known and known.uid == record.uid and is_older(record.rv, known.rv)):
            return
        self._pod_groups[key] = record
        if record.planned != (known.planned if known else {}):
            self.commits.promises.put(record)
        self._touch_gang(*key)

    def remove_pod_group(self, namespace: str, name: str) -> None:
        """A PodGroup is gone; its pods wait for it."""
        if self._pod_groups.pop((namespace, name), None) is not None:
            self.commits.promises.drop(namespace, name)
            self._touch_gang(namespace, name)

    # --- hand-overs ----------------------------------------------------------------------------------------------
    def replace_bind_requests(self, requests: Sequence[BindRequest]) -> None:
        """Take the whole truth as of a list."""
        listed = {(r.metadata.namespace, r.metadata.name) for r in requests}
        for key in [key for key in self.commits.hand_overs.names() if key not in listed]:
            self.remove_bind_request(*key)
        for request in requests:
            self.upsert_bind_request(request)

    def upsert_bind_request(self, request: BindRequest) -> None:
        """Take a hand-over as it is now; it is in flight whoever made it. One without a readable charge is nobody's."""
        key = (request.metadata.namespace, request.metadata.name)
        record = objects.bind_request_record(request)
        if record is None:
            self.remove_bind_request(*key)
        else:
            self.commits.hand_overs.put(record)

    def remove_bind_request(self, namespace: str, name: str) -> None:
        """A hand-over is gone. What it may still lead to stays charged (bind_requests.py)."""
        self.commits.hand_overs.drop((namespace, name))

    def hand_over(self, namespace: str, name: str) -> BindRequestRecord | None:
        """The BindRequest of this name, as far as is seen."""
        return self.commits.hand_overs.get((namespace, name))

    # --- what decisions read -------------------------------------------------------------------------------------
    def refresh(self) -> Ledger:
        """Count marked nodes anew and return the ledger, which then equals a recount."""
        self.refresh_some(len(self._marked))
        return self.ledger

    def refresh_some(self, most: int) -> bool:
        """Count up to ``most`` of the marked nodes anew; return whether there are more."""
        for _ in range(min(most, len(self._marked))):
            name = self._marked.pop()
            node = self._nodes.get(name)
            if node is not None:
                used = self._count(name)
                self.ledger.write(name, used)
                self.sightings.count(node, used, self._pods.bound_to(name))
        return bool(self._marked)

    def snapshot(self) -> Snapshot:
        """All that a decision reads, as it is now. Good until the next event."""
        self.refresh()
        if self.others.has_unbound:
            self.others.put_on_their_way({charge.pod_uid: charge.node for charge in self.commits.all_charges()})
        holders = self.storage.holders(self.commits.is_spoken_for)
        return Snapshot(
            generation=self.generation,
            now_at=lambda: self.generation,
            settings=self.settings,
            ledger=self.ledger,
            sightings=self.sightings,
            pods=self._pods,
            pod_groups=self._pod_groups,
            commits=self.commits,
            storage=self.storage,
            owners=self.owners,
            succeeded=self._succeeded,
            judge=lambda pod: self.others.judged(self.storage.judged(pod, holders)),
            doubts=self.doubts(),
            backlog=self.backlog,
        )

    def waiting(self) -> list[PodRecord]:
        """Pods of ours that name no node, have no placement under way and none in a gang's plan, in no order."""
        return self.snapshot().waiting(map(self._pods.records.__getitem__, self._pods.unbound))

    def doubts(self) -> dict[str, Doubt]:
        """Nodes that come last when a device has to be opened (slow_nodes.py)."""
        return self.commits.probation.doubts(self.commits.owes)

    # --- deciding ------------------------------------------------------------------------------------------------
    def decide(self, now_ns: int, limits: Limits = LIMITS) -> Plan:
        """Say what is to be done now, and keep what was learned by that.

        Explains are for pods that have not been told yet (``told``). Deciding again when nothing changed and
        ``wake_at_ns`` has not come costs nothing.
        """
        known = self._remembered(now_ns)
        if known is not None:
            return known
        decision = decide(self.prepared(now_ns, limits), now_ns, limits)
        plan = self.learn(decision, now_ns, limits)
        self._memo = _Memo(self.generation, plan, frozenset(placed.pod_uid for placed in placements(plan.entries)))
        return plan

    def prepared(self, now_ns: int, limits: Limits = LIMITS) -> Snapshot:
        """What the next decision reads: the backlog is brought up to date before."""
        snapshot = self.snapshot()
        self._touch_concerned(snapshot.doubts)
        file_touched(snapshot, now_ns)
        self.backlog.forget_others(now_ns)
        return replace(snapshot, recounts=recounts.due(self.backlog, now_ns, limits.retold))

    def learn(self, decision: Decision, now_ns: int, limits: Limits = LIMITS) -> Plan:
        """Keep what the last decision learned; return its plan, with what pods have to be told."""
        for note in decision.notes:
            note.take(self.backlog)
        placed = {placement.pod_uid for placement in placements(decision.entries)}
        news = self.backlog.said.news(placed)
        times = (self.backlog.next_ns, recounts.next_ns(self.backlog, now_ns, limits.retold))
        wake_at_ns = now_ns if decision.has_put_off else min((at for at in times if at is not None), default=None)
        return Plan(entries=(*decision.entries, *news), wake_at_ns=wake_at_ns)

    def told(self, explained: Sequence[Explain]) -> None:
        """These pods were told why they wait; they are told again when the reason changes."""
        self.backlog.said.told(explained)

    def forget_verdicts(self) -> None:
        """Judge everything again at the next decision."""
        self.backlog = Backlog(self.ledger)
        self.backlog.touched.update(self._pods.unbound)
        for pod in map(self._pods.records.__getitem__, self._pods.unbound):
            if pod.pod_group:
                self.backlog.touch_gang(pod.namespace, pod.pod_group, waits=True)
        self._changed()

    def _touch_concerned(self, doubts: Mapping[str, Doubt]) -> None:
        """Touch what nobody said of one by one that something about it has changed."""
        for name in sorted(doubts.keys() | self._doubts.keys()):
            if doubts.get(name) is not self._doubts.get(name):
                self.ledger.touch(name)
        self._doubts = doubts
        self.storage.touch_all()
        if self._have_terms_changed:
            self._have_terms_changed = False
            self.backlog.touch_avoiding()

    def _remembered(self, now_ns: int) -> Plan | None:
        """The last plan, if it would come out the same again."""
        memo = self._memo
        if memo is None or memo.generation != self.generation:
            return None
        wake_at_ns = memo.plan.wake_at_ns
        return memo.plan if wake_at_ns is None or now_ns < wake_at_ns else None

    # --- what others ask -----------------------------------------------------------------------------------------
    def is_in_flight(self, uid: str) -> bool:
        """Whether a placement of this pod is under way, by us or by the binder."""
        return self.commits.is_in_flight(uid)

    def setback(self, uid: str) -> Setback | None:
        """What went wrong with this pod so far."""
        return self.commits.setback(uid)

    def next_number(self, uid: str) -> int:
        """Number of the pod's next attempt."""
        return self.commits.next_number(uid)

    def pod(self, uid: str) -> PodRecord | None:
        """The record of a pod that has not ended."""
        return self._pods.records.get(uid)

    def node(self, name: str) -> NodeRecord | None:
        """The record of a node."""
        return self._nodes.get(name)

    def node_names(self) -> list[str]:
        """Names of all nodes, sorted."""
        return sorted(self._nodes)

    def view(self, name: str) -> NodeView | None:
        """Show a node as it is counted; None if there is none of that name."""
        node = self._nodes.get(name)
        if node is None:
            return None
        pods, charges = self._pods.bound_to(name), self.commits.charges_at(name)
        return node_view(node, self._count(name), pods=pods, charges=charges, known=Known(self._pods.records))

    def pod_group(self, namespace: str, name: str) -> PodGroupRecord | None:
        """The record of a PodGroup."""
        return self._pod_groups.get((namespace, name))

    def open_plans(self) -> list[tuple[str, str]]:
        """PodGroups whose plan has a member that was not seen bound; in their order."""
        return sorted(self.commits.promises.groups())

    def broken_gangs(self) -> list[PodGroupRecord]:
        """Gangs of which some pods are bound, and fewer than the minimum, or than that of a subgroup (S4).

        Not those with a structure that nobody counts yet: they would be judged by a minimum that is not theirs.
        """
        return [group for group in self._pod_groups.values() if self._is_broken(group)]

    def pod_groups(self) -> Iterable[PodGroupRecord]:
        """All PodGroups, in no order."""
        return self._pod_groups.values()

    def is_broken_gang(self, namespace: str, name: str) -> bool:
        """Whether this gang is one of ``broken_gangs``."""
        group = self._pod_groups.get((namespace, name))
        return group is not None and self._is_broken(group)

    def _is_broken(self, group: PodGroupRecord) -> bool:
        if group.unsupported or (group.minimum <= 1 and not group.subgroups):
            return False
        return self.quorum(group).is_broken

    def quorum(self, group: PodGroupRecord) -> Quorum:
        """How far a gang is from its minimum."""
        members = self.members(group.namespace, group.name)
        return quorum(group, members, self.is_in_flight, self._succeeded.of(group, members))

    def is_gang_in_flight(self, namespace: str, name: str) -> bool:
        """Whether a pod of this gang is on its way to be bound."""
        return any(self.is_in_flight(pod.uid) for pod in self.members(namespace, name))

    def members(self, namespace: str, pod_group: str) -> list[PodRecord]:
        """Pods that name this PodGroup and have not ended, in no order."""
        return self._pods.members(namespace, pod_group)

    def is_verified(self, reservation_uid: str, uuid: str) -> bool:
        """Whether a bound pod's grant named this reservation and device: the binder looked, and it was right."""
        return self._pods.is_verified(reservation_uid, uuid)

    # --- counting ------------------------------------------------------------------------------------------------
    def _changed(self, *nodes: str) -> None:
        self.generation += 1
        self._marked.update(node for node in nodes if node)

    def _touch(self, uid: str, before: PodRecord | None = None) -> None:
        """Something about a pod has changed. ``before``: what it was, if it may have been of another gang."""
        known = self._pods.records.get(uid)
        if known is None or known.node:
            self.backlog.drop(uid)  # at once: a replica that does not lead never comes to file it
        else:
            self.backlog.touch(uid)
        for pod in (before, known):
            if pod is not None and pod.pod_group:
                self.backlog.touch_gang(pod.namespace, pod.pod_group, waits=pod is known and not pod.node)

    def _touch_gang(self, namespace: str, pod_group: str) -> None:
        self.backlog.touch_gang(namespace, pod_group)
        self._changed()

    def _way_changed(self, uid: str) -> None:
        """A pod is on its way to a node now, or is not any more."""
        self._touch(uid)
        self.storage.holder_changed(uid)

    def _terms_changed(self) -> None:
        self._have_terms_changed = True
        self._changed()

    def _count(self, name: str) -> Occupancy:
        return occupancy(
            self._nodes.get(name),
            pods=self._pods.bound_to(name),
            reservations=self._pods.reserved_on(name),
            charges=self.commits.charges_at(name),
            settings=self.settings,
        )

    def differences(self, name: str) -> list[str]:
        """Count one node anew from what is known of it; say where the ledger differs. A marked node is not judged yet.

        The same as ``validate`` does for one node, by the indexes that it does without: so cheap that it can be done
        all the time (some tens of microseconds).
        """
        if name not in self._nodes or name in self._marked:
            return []
        return self.ledger.differences(name, self._count(name))

    def count_again(self, name: str) -> None:
        """Have a node counted anew before the next decision."""
        self._changed(name)

    def validate(self) -> list[str]:
        """Recount every node from all records, without the indexes; say where the ledger differs (invariant S12)."""
        ledger = self.refresh()
        return differences(ledger, self._nodes, pods=self._pods, commits=self.commits, settings=self.settings)
