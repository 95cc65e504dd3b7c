"""A cluster that decides: what is known from events and own commits, its count, and the plan that follows.

One writer: the shell's cache. Records are stored as they come, and nodes and pods that an event touches are marked,
with what depends on them: queues, gangs, places of pods, and pods that may be evicted for others. Marked nodes are
counted again before the next decision (node_usage.py). So the order, number and lateness of events can't matter to the
sums: only what is known in the end does. A pod is charged once per node and once per device, with the largest that
anybody says.

Two rules keep a charge from being lost:

- What is in flight is charged until the API shows its end, or it is withdrawn for sure (assumed/commits.py).
- An event that is older than what is known is ignored (model/seen_pods.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import msgspec

from gpu.reservation import Reservation
from scheduler.core.assumed.attempts import Doubt, Setback
from scheduler.core.assumed.bind_requests import Key
from scheduler.core.assumed.commits import Commits
from scheduler.core.claims.cel import compile_selector
from scheduler.core.convert import bounds
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.owners import Owners
from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pod_lists import AlikePods
from scheduler.core.convert.pods import bind_request_record, seen_pod
from scheduler.core.decide.allowance import LIMITS, Limits
from scheduler.core.decide.decide import Decision, decide
from scheduler.core.decide.preemption import DelayedConditions
from scheduler.core.decide.snapshot import FindRoom, Snapshot, file_touched
from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.groups.priority import GroupPriorities
from scheduler.core.groups.quorum import Quorum, RaisedMinimums, Succeeded, quorum
from scheduler.core.model.facts import Facts
from scheduler.core.model.numa import NumaReport
from scheduler.core.model.plan import Explain, Plan, placements
from scheduler.core.model.pod_kind import kind_of
from scheduler.core.model.preemption import Nomination, PreemptionFacts
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import (
    BindRequestRecord,
    NodeRecord,
    PodGroupRecord,
    PodRecord,
    SeenPod,
)
from scheduler.core.model.seen_pods import Elsewhere, News, Pods
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.model.stale import Stale, StaleFacts
from scheduler.core.model.verdict import Verdict
from scheduler.core.nodes.config_maps import ConfigMaps
from scheduler.core.nodes.device_sightings import Sightings
from scheduler.core.nodes.inter_pod_affinity import DrawingTerms, OthersTerms
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.node_usage import Occupancy
from scheduler.core.nodes.pod_places import PodPlaces
from scheduler.core.nodes.resource_claims import ResourceClaims
from scheduler.core.nodes.slice_caps import SliceCaps
from scheduler.core.nodes.storage import Storage
from scheduler.core.preemption.nomination_record import will_fit
from scheduler.core.preemption.search import finding_victims
from scheduler.core.preemption.victim_table import ResidentTable
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.reserved_nodes import is_starved
from scheduler.core.queues.tree import Row
from scheduler.core.report.fragmentation import Cause, counted_kinds, waiting_kinds
from scheduler.core.report.node_view import Known, NodeView, node_view
from scheduler.core.report.pool_use import Pool, fragmented_pools
from scheduler.core.scheduling_queue.queue import SchedulingQueue, due_recounts, next_recount_ns
from scheduler.core.scores.priced import score_by
from scheduler.core.scores.prices import ARRIVAL, Arrivals, Prices
from scheduler.core.scores.registry import SCORES
from scheduler.core.scores.score import Scores
from scheduler.core.snapshot.node_count import AS_IT_IS, Supposed, count_node, differences
from scheduler.core.topology.topologies import Topologies
from wire import names
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.tombstones import is_older


@dataclass(slots=True)
class _Memo:
    """The last plan, good as long as nothing changes and the time has not come."""

    generation: int
    plan: Plan


class Cluster:
    """What is known of nodes, pods, PodGroups and hand-overs, decisions on it, and what others ask of both."""

    def __init__(
        self,
        settings: Settings,
        filters: Filters = FILTERS,
        scores: Scores = SCORES,
        *,
        find_victims: FindRoom = finding_victims,
    ) -> None:
        self.settings = settings
        self.ledger = Ledger(filters.enforcing(settings.enforced_node_affinity).of_pool(settings.pool))
        #: Grows with everything that can change a decision.
        self.generation = 0
        self._nodes: dict[str, NodeRecord] = {}
        self._pods = Pods()
        self._pod_groups: dict[Key, PodGroupRecord] = {}
        #: The priorities of pods in PodGroups.
        self.priorities = GroupPriorities(self._pod_groups, self._priority_changed)
        #: Pods that other schedulers decide on; nodes that came from them a moment ago, and at which generation.
        self._elsewhere = Elsewhere(settings.pool, self._pod_groups)
        self.joining: dict[str, int] = {}
        #: What is under way: the shell notes it here.
        self.commits = Commits(self._pods, settings=settings, changed=self._changed, touched=self._way_changed)
        #: Claims of pods, and the volumes behind them.
        self.storage = Storage(self._changed, self._touch)
        #: ConfigMaps that pods name.
        self.config_maps = ConfigMaps(self._changed, self._touch)
        #: ResourceClaims of pods, and the devices that there are for them.
        self.claims = ResourceClaims(self._changed, self._touch, compiler=compile_selector, pod=self._pods.records.get)
        #: Jobs of pods, and what they say about starting together.
        self.owners = Owners(self._changed, self._touch, workloads_are_grouped=settings.workloads_are_grouped)
        #: Members of gangs that have done their work.
        self._succeeded = Succeeded()
        #: Minimums that rose while their gangs ran.
        self._raised = RaisedMinimums(self.members, self.is_in_flight, self._succeeded)
        #: Gangs below their minimum.
        self.stale = StaleFacts()
        #: Queues, and what pods count for in them.
        self.queues = Queues(self._changed, pool=settings.pool)
        #: Bound pods by what may go together, if somebody has to.
        self.residents = ResidentTable()
        #: What anti-affinity of pods that have a node keeps others off.
        self.others = OthersTerms(self._nodes.get, self._terms_changed)
        self._have_terms_changed = False
        #: Which levels of node labels Topologies name.
        self.topologies = Topologies(self._topologies_changed)
        #: Terms by which pods are scored beside others.
        self._drawing = DrawingTerms(self.others.labels_of, ignores_others=settings.weights.ignores_others)
        #: Which pods are where, for rules about other pods; and those without a node that may be on their way now.
        self._places = PodPlaces(self.others.labels_of)
        self._moved: dict[str, None] = {}
        #: What pods that came to nodes asked.
        self.arrivals = Arrivals()
        #: Which devices were seen where.
        self.sightings = Sightings()
        #: Nodes to be counted again.
        self._marked: dict[str, None] = {}
        self.slice_caps = SliceCaps()
        #: Nodes as decisions have counted them (decide/snapshot.py).
        self._counted: dict[str, tuple[Supposed, Occupancy]] = {}
        #: Pods and gangs that wait, and what they wait for; ``prepared`` brings it up to date.
        self.scheduling_queue = SchedulingQueue(self.ledger, self.counted_places)
        #: Pods that the last plan places, by UID: for them a new version matters.
        self._placed: frozenset[str] = frozenset()
        #: What NodeResourceTopology objects say of nodes.
        self.numa: Facts[str, NumaReport] = Facts(self._numa_changed, read_changed=self._changed)
        self._scores = scores
        self._prices: Prices | None = None
        self._find_room = find_victims
        self._preemption_facts = PreemptionFacts(settings=settings.preemption_settings)
        self._doubts: Mapping[str, Doubt] = {}
        self._memo: _Memo | None = None
        #: How many decisions were made, those that were remembered left out: their number stands still at rest (L5).
        self.decisions = 0
        self._unsearched = DelayedConditions()

    # --- gangs ---------------------------------------------------------------------------------------------------
    def members(self, namespace: str, pod_group: str) -> list[PodRecord]:
        """Pods that name this PodGroup and have not ended, in the order in which they were seen."""
        return self._pods.members(namespace, pod_group)

    # --- queues ------------------------------------------------------------------------------------------------------
    def count_queues(self) -> None:
        """Count marked pods again in their queues."""
        self.queues.count(self._row_of)

    def _row_of(self, uid: str) -> Row | None:
        pod = self._pods.records.get(uid)
        return self.queues.vanished.row(uid) if pod is None else self._row(pod)

    def _row(self, pod: PodRecord) -> Row | None:
        group = self._pod_groups.get((pod.namespace, pod.pod_group)) if pod.pod_group else None
        charges = () if pod.node else self.commits.charges_of(pod.uid)
        is_victim = pod.uid in self.commits.nominations.victims
        return self.queues.row(pod, group, charges, self._nodes.get(pod.node), is_victim=is_victim)

    def _mark_members(self, group: Key) -> None:
        """The queue of a gang may be another one."""
        self.residents.mark_group((*group, ""))
        self.queues.mark(pod.uid for pod in self.members(*group))

    def _mark_bound(self, node: str) -> None:
        """What pods without a grant count for depends on the cards of their node."""
        bound = [*self._pods.bound_to(node)]
        self.queues.mark(pod.uid for pod in bound)
        for pod in bound:
            self.residents.mark(pod)

    def _cards_changed(self) -> None:
        """What memory of a GPU counts for is another part of a card."""
        self.queues.mark(self._pods.unbound)

    # --- what has changed ---------------------------------------------------------------------------------------------
    def _changed(self, *nodes: str) -> None:
        self.generation += 1
        for node in filter(None, nodes):
            self._marked[node] = None
            self._counted.pop(node, None)
            self.scheduling_queue.resting.wake(self.commits.nominations.ids_at(node))

    def _touch(self, uid: str, before: PodRecord | None = None) -> None:
        """Something about a pod has changed. ``before``: what it was, if it may have been of another gang."""
        self.queues.mark((uid,))
        known = self._pods.records.get(uid)
        self._note_place(uid, known)
        if known is None or known.node or known.is_elsewhere:
            self.scheduling_queue.drop(uid)  # at once: a replica that does not lead never comes to file it
        else:
            self.scheduling_queue.touch(uid)
        for pod in (before, known):
            if pod is not None:
                self.residents.changed(pod)
            if pod is not None and pod.pod_group:
                self._note_member(pod, known)
                self.scheduling_queue.touch_gang(
                    pod.namespace, pod.pod_group, waits=pod is known and pod.uid in self._pods.unbound
                )
                self.scheduling_queue.resting.wake(self.commits.nominations.ids_of_gang(pod.namespace, pod.pod_group))

    def _touch_gang(self, namespace: str, pod_group: str) -> None:
        self.scheduling_queue.touch_gang(namespace, pod_group)
        self.scheduling_queue.resting.wake(self.commits.nominations.ids_of_gang(namespace, pod_group))
        self.residents.group_changed((namespace, pod_group, ""))
        self._changed()

    def _way_changed(self, uid: str) -> None:
        """A pod is on its way to a node now, or is not any more."""
        self._touch(uid)
        self.storage.holder_changed(uid)

    # --- rules about other pods --------------------------------------------------------------------------------------
    def counted_places(self) -> PodPlaces:
        """Which pods are where, those counted again that may have moved."""
        if self.others.have_namespaces_changed:
            self.others.have_namespaces_changed = False
            self._places.forget_counts()
            self._drawing.forget_namespaces()
        for uid in self._moved:
            found = self._place_of(uid)
            if found is None:
                self._places.drop(uid)
            else:
                self._places.put(*found)
        self._moved.clear()
        return self._places

    def _note_place(self, uid: str, known: PodRecord | None) -> None:
        """Pods that are gone or have a node are counted at once: a replica that does not lead never asks."""
        if known is not None and not known.node:
            self._moved[uid] = None
            return
        self._moved.pop(uid, None)
        if known is None:
            self._places.drop(uid)
        else:
            self._places.put(known, (known.node,))

    def _place_of(self, uid: str) -> tuple[PodRecord, tuple[str, ...]] | None:
        pod = self._pods.records.get(uid)
        if pod is None:
            return None
        nodes = (pod.node,) if pod.node else self.nodes_under_way(uid)
        return (pod, nodes) if nodes else None

    def nodes_under_way(self, uid: str) -> tuple[str, ...]:
        """Nodes that a pod is on its way to; several where nobody knows what became of an attempt."""
        return tuple(dict.fromkeys(each.node for each in self.commits.under_way(uid)))

    def pod_places(self) -> dict[str, tuple[PodRecord, tuple[str, ...]]]:
        """The same of all pods, without the indexes."""
        found = ((uid, self._place_of(uid)) for uid in self._pods.records)
        return {uid: place for uid, place in found if place is not None}

    def _touch_gangs_on(self, node: str) -> None:
        """The domains may be others in which pods run that hold their gangs there."""
        for key in dict.fromkeys((pod.namespace, pod.pod_group) for pod in self._pods.bound_to(node) if pod.pod_group):
            if key in self._pod_groups and self._pod_groups[key].levels:
                self._touch_gang(*key)

    # --- topologies --------------------------------------------------------------------------------------------------
    def _topologies_changed(self) -> None:
        """Gangs that ask for a place by a topology are decided on again."""
        for key, group in self._pod_groups.items():
            if group.levels:
                self._touch_gang(*key)

    def _terms_changed(self) -> None:
        self._have_terms_changed = True
        self._changed()

    # --- nodes ---------------------------------------------------------------------------------------------------
    def replace_nodes(self, nodes: Sequence[NodeRecord]) -> list[str]:
        """Take the whole truth as of a list, read by objects.py; return the nodes that are back."""
        listed = {node.name for node in nodes}
        for name in [name for name in self._nodes if name not in listed]:
            self.remove_node(name)
        return [node.name for node in sorted(nodes, key=lambda n: n.name) if self._put_node(node)]

    def upsert_node(self, node: Node) -> bool:
        """Take a node as it is now; return whether it has come back, that is, is ready after it was not.

        A heartbeat that changes nothing of interest costs nothing.
        """
        return self._put_node(self.read_node(node))

    def read_node(self, node: Node) -> NodeRecord:
        """Read a node without taking it."""
        return node_record(node, with_images=bool(self.settings.weights.images))

    def _put_node(self, record: NodeRecord) -> bool:
        return self._take_node(self._joining(self.slice_caps.capped(record)))

    def cap_slices(self, name: str, caps: Mapping[str, int]) -> None:
        """Cap what counts of a node's resources, also where its Node says more; empty: what that says counts."""
        known = self._nodes.get(name)
        if known is not None:
            self._take_node(self._joining(self.slice_caps.put(known, caps)))

    def _numa_changed(self, report: NumaReport) -> None:
        known = self._nodes.get(report.node)
        if known is not None:
            self._take_node(self._joining(known))

    def _joining(self, record: NodeRecord) -> NodeRecord:
        """A node as it was read, with its NUMA nodes, and marked if it has just come to this pool."""
        report = self.numa.get(record.name)
        if report is not None or record.numa is not None:
            record = msgspec.structs.replace(record, numa=None if report is None else report.record)
        pool, known = self.settings.pool, self._nodes.get(record.name)
        if pool is None or known is None or known.uid != record.uid or not pool.takes(record.labels):
            return record
        return msgspec.structs.replace(record, is_joining=known.is_joining or not pool.takes(known.labels))

    def settle_node(self, name: str) -> None:
        """No pod of another pool is on its way to this node any more."""
        known = self._nodes.get(name)
        if known is not None:
            self._take_node(msgspec.structs.replace(known, is_joining=False))

    def _take_node(self, record: NodeRecord) -> bool:
        known = self._nodes.get(record.name)
        if known == record:
            return False
        if known is not None and known.uid != record.uid:
            self.remove_node(record.name)  # its deletion fell into a gap of the watch: this is another machine
            known = None
        self._nodes[record.name] = record
        if record.is_joining:
            self.joining.setdefault(record.name, self.generation)
        else:
            self.joining.pop(record.name, None)
        is_back = known is not None and record.is_ready and not known.is_ready
        if is_back:
            self.commits.probation.forget_node(record.name)
        if self.ledger.put(record):
            self._changed(*self._nodes)
        if known is None or known.labels != record.labels:
            self.others.nodes_changed()
            self._touch_gangs_on(record.name)
        if known is None or known.smallest_card_mib != record.smallest_card_mib:
            self._mark_bound(record.name)
        self._changed(record.name)
        return is_back

    def remove_node(self, name: str) -> None:
        """Forget a node; what is known to be on it stays known."""
        if self._nodes.pop(name, None) is not None:
            self.ledger.drop(name)
            self.slice_caps.forget(name)
            self.joining.pop(name, None)
            self.others.nodes_changed()
            self.commits.probation.forget_node(name)
            self.sightings.forget_node(name)
            self.claims.inventory.forget_node(name)
            if self.queues.drop_node(name):
                self._cards_changed()
            self._mark_bound(name)
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
        return self.interned(seen_pod(pod, self.settings, self.ledger.filters))

    def list_reader(self) -> Callable[[Pod], SeenPod]:
        """Return what reads the pods of one list without taking them: each content once."""
        alike = AlikePods(self.settings, self.ledger.filters)
        return lambda pod: self.interned(alike.read(pod))

    def interned(self, seen: SeenPod) -> SeenPod:
        """Return a pod that was read as this cluster keeps it: with the classes that it has already.

        The names of resources that a placed pod may have are bounded by those that nodes offer: these are read first.
        """
        record = seen.record
        if record is None:
            return seen
        demand = bounds.resources_in_use(record.cls.demand, self.ledger.table.resources)
        is_kept = demand is record.cls.demand
        cls = self._pods.intern(record.cls if is_kept else msgspec.structs.replace(record.cls, demand=demand))
        moves_as = None if record.moves_as is None else self._pods.intern(record.moves_as)
        if cls is record.cls and moves_as is record.moves_as:
            return seen
        record = msgspec.structs.replace(record, cls=cls, moves_as=moves_as)
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
            self._put_pod(None if seen.record is None else self.priorities.counted(self._elsewhere.seen(seen.record)))
        elif uid in self._pods.reservations:
            self._drop_pod(uid)
        else:
            self.claims.vanished.ended(uid)
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
                self._note_arrival(record, before)
                self.storage.put_pod(self._pods.records[record.uid])
                self.config_maps.put_pod(self._pods.records[record.uid])
                self.claims.put_pod(self._pods.records[record.uid])
                self.others.put_pod(self._pods.records[record.uid])
                self._drawing.put_pod(self._pods.records[record.uid])
                self.owners.put_pod(self._pods.records[record.uid])
                self.commits.pod_seen(record.uid, is_bound=bool(record.node))
            case News.VERSION:
                self._note_version(record, before)
            case News.NOTHING:
                pass

    def _note_arrival(self, record: PodRecord, before: PodRecord | None) -> None:
        if record.node and not record.is_reservation and (before is None or not before.node):
            kind = kind_of(record)
            if kind is not None:
                self.arrivals.add(kind)

    def _note_version(self, record: PodRecord, before: PodRecord | None) -> None:
        """Nothing but the version changed. It matters if a hand-over names it or the last plan would place the pod.

        Its claims are reserved for one version of it (resource_claims.py).
        """
        if record.resource_claims:
            self.claims.put_pod(self._pods.records[record.uid])
            self._touch(record.uid)
        self.residents.mark(record)  # since when it runs is no news
        if record.aligned is not None and before is not None and record.started_s != before.started_s:
            self._note_taken_up(record.node)
        self.commits.version_seen(record.uid)
        if record.uid in self._placed:
            self.generation += 1

    def _note_taken_up(self, name: str) -> None:
        """A pod was taken up: what its node reports of NUMA nodes may have it in already (numa_statement.py)."""
        node = self._nodes.get(name)
        if node is not None and node.numa is not None:
            self.ledger.touch(name)
            self.generation += 1

    def remove_pod(self, uid: str, *, has_ended: bool = False) -> None:
        """A pod is gone. ``has_ended``: its containers have, though no version of it says so."""
        gone = self._succeeded.drop(uid)
        if gone is not None:
            self._touch_gang(gone.namespace, gone.pod_group)
        record = self._pods.records.get(uid)
        if record is not None and record.node and not has_ended:
            self.claims.vanished.vanished(record)
            self.queues.vanished.see(record, self._row(record))
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
        self._places.age()
        for key in [key for key in self.scheduling_queue.gangs() if all(pod.node for pod in self.members(*key))]:
            self.scheduling_queue.drop_gang(key)

    def expire_vanished(self, now_ns: int) -> None:
        """Free what pods that vanished and must have ended by now had. Each decision does so; a standby has none."""
        self.claims.vanished.expire(now_ns, self._nodes.get)
        self.queues.vanished.expire(now_ns, self._nodes.get)

    def _drop_pod(self, uid: str) -> None:
        if self.commits.is_spoken_for(uid):
            self.storage.holder_changed(uid)
        record = self._pods.drop(uid)
        self._elsewhere.forget(uid)
        self.storage.drop_pod(uid)
        self.config_maps.drop_pod(uid)
        self.claims.drop_pod(uid)
        self.others.drop_pod(uid)
        self._drawing.drop_pod(uid)
        self.owners.drop_pod(uid)
        self._touch(uid, record)
        if record is not None:
            self._changed(record.node)

    # --- PodGroups -----------------------------------------------------------------------------------------------
    def replace_pod_groups(self, groups: Sequence[PodGroup]) -> None:
        """Take the whole truth as of a list."""
        self.remove_pod_groups_but({(g.metadata.namespace, g.metadata.name) for g in groups})
        for group in groups:
            self.upsert_pod_group(group)

    def remove_pod_groups_but(self, listed: Set[tuple[str, str]]) -> None:
        """Those that are not in a list are gone."""
        for key in [key for key in self._pod_groups if key not in listed]:
            self.remove_pod_group(*key)

    def upsert_pod_group(self, group: PodGroup) -> None:
        """Take a PodGroup as it is now."""
        self.put_pod_group(pod_group_record(group, self.settings.pool))

    def put_pod_group(self, record: PodGroupRecord) -> None:
        """The same of one that was read."""
        key = (record.namespace, record.name)
        known = self._pod_groups.get(key)
        record = self.priorities.judged(self._raised.kept(record, known))
        if known == record or (known and known.uid == record.uid and is_older(record.rv, known.rv)):
            return
        self._pod_groups[key] = record
        if known is not None and msgspec.structs.replace(record, rv=known.rv) == known:
            self._note_group_version(key)
            return
        if record.planned != (known.planned if known else {}):
            self.commits.promises.put(record)
        if known is None or record.stale_ns != known.stale_ns:
            self.stale.version += 1
        if known is None or (record.queue, record.is_preemptible) != (known.queue, known.is_preemptible):
            self._mark_members(key)
        self._take_members_again(key, is_other_class=record.priority_class != (known.priority_class if known else ""))
        self._touch_gang(*key)

    def _priority_changed(self, group: PodGroupRecord) -> None:
        """Its class, or what is known of that, is another."""
        key = (group.namespace, group.name)
        self._pod_groups[key] = self.priorities.judged(group)
        self._take_members_again(key, is_other_class=True)
        self._touch_gang(*key)

    def _note_member(self, pod: PodRecord, now: PodRecord | None) -> None:
        """A member of a gang has changed; ``now``: what it is, None where it is gone."""
        group = self._pod_groups.get((pod.namespace, pod.pod_group))
        if pod.node and group is not None:
            self._pod_groups[pod.namespace, pod.pod_group] = self._raised.after(group, pod, now)

    def keep_placed_minimums(self) -> None:
        """Have gangs go by the minimums for which their pods were placed, where these rose while nobody saw it.

        Not one that is known to have lost members: it is stamped with the time, or kept minimums of its own.
        """
        for group in self.broken_gangs():
            if group.kept is None and not group.stale_since and (kept := self._raised.as_placed(group)) is not None:
                self._pod_groups[group.namespace, group.name] = msgspec.structs.replace(group, kept=kept)

    def _note_group_version(self, key: Key) -> None:
        """Nothing but the version changed, as by a write of its status. It matters if the last plan names it."""
        if any(pod.uid in self._placed for pod in self.members(*key)):
            self.generation += 1

    def remove_pod_group(self, namespace: str, name: str) -> None:
        """A PodGroup is gone; its pods wait for it."""
        gone = self._pod_groups.pop((namespace, name), None)
        if gone is not None:
            self.commits.promises.drop(namespace, name)
            self._mark_members((namespace, name))
            self._take_members_again((namespace, name), is_other_class=bool(gone.priority_class))
            self._touch_gang(namespace, name)

    def _take_members_again(self, key: Key, *, is_other_class: bool) -> None:
        """Take the pods of a PodGroup again: they may be another scheduler's now, or ours; with another priority."""
        if self.settings.pool is None and not is_other_class:
            return
        for pod in self.members(*key):
            self._put_pod(self.priorities.counted(self._elsewhere.seen_again(pod)))
        if self.settings.pool is not None and all(pod.is_elsewhere for pod in self.members(*key)):
            self.scheduling_queue.drop_gang(key)

    # --- hand-overs ----------------------------------------------------------------------------------------------
    def replace_bind_requests(self, requests: Sequence[BindRequest]) -> None:
        """Take the whole truth as of a list."""
        listed = {(r.metadata.namespace, r.metadata.name) for r in requests}
        for key in [key for key in self.commits.hand_overs.names() if key not in listed]:
            self.remove_bind_request(*key)
        for request in requests:
            self.upsert_bind_request(request)

    def upsert_bind_request(self, request: BindRequest) -> None:
        """Take a hand-over as it is now; it is in flight, from any scheduler, unless its charge can't be read."""
        key = (request.metadata.namespace, request.metadata.name)
        record = bind_request_record(request)
        if record is None:
            self.remove_bind_request(*key)
        else:
            self.commits.hand_overs.put(record)

    def remove_bind_request(self, namespace: str, name: str) -> None:
        """A hand-over is gone. What it may still lead to stays charged (assumed/bind_requests.py)."""
        self.commits.hand_overs.drop((namespace, name))

    def hand_over(self, namespace: str, name: str) -> BindRequestRecord | None:
        """The BindRequest of this name, as far as is seen."""
        return self.commits.hand_overs.get((namespace, name))

    # --- what decisions read -------------------------------------------------------------------------------------
    def refresh(self) -> Ledger:
        """Count marked nodes again and return the ledger, which then equals a recount."""
        self._refresh_nodes(len(self._marked))
        return self.ledger

    def refresh_some(self, most: int) -> bool:
        """Count up to ``most`` of the marked nodes again, then of pods in their queues; return whether there are more.

        What it leaves the next decision counts at once, and nothing else has a turn meanwhile.
        """
        self._refresh_nodes(most)
        return bool(self._marked) or self.queues.count_some(self._row_of, most)

    def _refresh_nodes(self, most: int) -> None:
        for _ in range(min(most, len(self._marked))):
            name, _ = self._marked.popitem()
            node = self._nodes.get(name)
            if node is not None:
                used = self._count(name)
                self.ledger.write(name, used)
                self.sightings.count(node, used, self._pods.bound_to(name))
                if self.queues.count_node(node, self._pods.bound_to(name)):
                    self._cards_changed()
                self.queues.vanished.count_node(node, self._pods.bound_to(name))

    def snapshot(self) -> Snapshot:
        """All that a decision reads, as it is now. Good until the next event."""
        self.refresh()
        self.count_queues()
        if self.others.has_unbound:
            self.others.put_on_their_way(self.nodes_under_way)
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
            claims=self.claims,
            places=self.counted_places(),
            owners=self.owners,
            succeeded=self._succeeded,
            topologies=self.topologies,
            judge_without=lambda pod, gone: self._drawing.judged(
                self.others.judged(self.claims.judged(self.storage.judged(self.config_maps.judged(pod), holders)), gone)
            ),
            doubts=self.doubts(),
            scheduling_queue=self.scheduling_queue,
            scores=self._scores,
            queues=self.queues,
            find_victims=self._find_room,
            preemption_facts=self._preemption_facts,
            residents=self.residents,
            counted=self._counted,
            stale=self.stale,
        )

    def note_preemption_facts(self, facts: PreemptionFacts) -> None:
        """Take what the shell knows of who may be evicted (budgets, answers of the API server, recent evictions)."""
        if facts != self._preemption_facts:
            self._preemption_facts = facts
            self._changed()

    def note_stale(self, key: tuple[str, str], gang: Stale | None) -> bool:
        """Take what the shell knows of a gang below its minimum, None: it is not; return whether that is news."""
        is_news = self.stale.note(key, gang)
        if is_news:
            self._changed()
        return is_news

    def note_prices(self, prices: Prices | None) -> None:
        """Take prices for decisions from here on (scores/priced.py); None: none yet. Pods that are placed stay."""
        if prices != self._prices:
            self._prices = prices
            self._scores = {**self._scores, Strategy.PRICED: score_by(prices)}
            self._changed()

    @property
    def prices(self) -> Prices | None:
        """The prices that decisions go by, if any are known."""
        return self._prices

    def waiting(self) -> list[PodRecord]:
        """Pods of ours that name no node, have no placement under way and none in a gang's plan."""
        return self.snapshot().waiting(map(self._pods.records.__getitem__, self._pods.unbound))

    def doubts(self) -> dict[str, Doubt]:
        """Nodes that come last when a device has to be opened (assumed/attempts.py)."""
        return self.commits.probation.doubts(self.commits.owes)

    # --- deciding ------------------------------------------------------------------------------------------------
    def decide(self, now_ns: int, limits: Limits = LIMITS, *, wall_s: int = 0) -> Plan:
        """Say what is to be done now, and keep what was learned by that.

        ``wall_s``: seconds since the epoch, by which ages of objects are told. ``now_ns``: of a clock that never jumps.

        Explains are for pods that have not been told yet (``told``). Deciding again when nothing changed and
        ``wake_at_ns`` has not come costs nothing.
        """
        known = self._remembered(now_ns)
        if known is not None:
            return known
        decision = decide(self.prepared(now_ns, limits), now_ns, limits, wall_s=wall_s)
        plan = self.learn(decision, now_ns, limits)
        self._memo = _Memo(self.generation, plan)
        self.decisions += 1
        self._placed = frozenset(placed.pod_uid for placed in placements(plan.entries))
        return plan

    def prepared(self, now_ns: int, limits: Limits = LIMITS) -> Snapshot:
        """What the next decision reads: the scheduling queue is brought up to date before.

        Where searches for devices go on, what depends on them is not sure any more, as after any event. Until then it
        is: a decision that follows at once has time for the others of the namespace.
        """
        self.expire_vanished(now_ns)
        search_on_ns = self.scheduling_queue.search_on_ns
        if search_on_ns is not None and search_on_ns <= now_ns:
            self.scheduling_queue.search_on_ns = None
            self._changed()
        snapshot = self.snapshot()
        self._touch_concerned(snapshot.doubts)
        file_touched(snapshot, now_ns)
        queues = self.queues
        self.scheduling_queue.wake_for_quota(
            queues.tree, queues.card_sizes, queues.accounts, version=queues.sums.version
        )
        self.scheduling_queue.wake_kept_off(self._is_starved)
        self.scheduling_queue.forget_others(now_ns)
        return replace(snapshot, recounts=due_recounts(self.scheduling_queue, now_ns, limits.retold))

    def learn(self, decision: Decision, now_ns: int, limits: Limits = LIMITS) -> Plan:
        """Keep what the last decision learned; return its plan, with what pods have to be told."""
        for note in decision.effects:
            note.take(self.scheduling_queue)
        placed = {placement.pod_uid for placement in placements(decision.entries)}
        if self.settings.preemption:
            placed |= self._unsearched.held(self.scheduling_queue, now_ns)
        news = self.scheduling_queue.said.news(placed)
        reserves_ns = self.scheduling_queue.reserves.next_ns
        times = (
            self.scheduling_queue.next_ns,
            self.scheduling_queue.search_on_ns,
            self.scheduling_queue.preemption.next_ns,
            reserves_ns,
            next_recount_ns(self.scheduling_queue, now_ns, limits.retold),
            decision.stale_next_ns,
            self.claims.vanished.next_ns,
            self.queues.vanished.next_ns,
        )
        has_more = decision.has_put_off or self.scheduling_queue.over_quota.have_more
        wake_at_ns = now_ns if has_more else min((at for at in times if at is not None), default=None)
        return Plan(entries=(*decision.entries, *news), wake_at_ns=wake_at_ns)

    def told(self, explained: Sequence[Explain]) -> None:
        """These pods were told why they wait; they are told again when the reason changes."""
        self.scheduling_queue.said.told(explained)

    def forget_verdicts(self) -> None:
        """Judge everything again at the next decision."""
        reserves = self.scheduling_queue.reserves
        self.scheduling_queue = SchedulingQueue(self.ledger, self.counted_places)
        self.scheduling_queue.reserves = reserves
        self.scheduling_queue.touched.update(self._pods.unbound)
        for pod in map(self._pods.records.__getitem__, self._pods.unbound):
            if pod.pod_group:
                self.scheduling_queue.touch_gang(pod.namespace, pod.pod_group, waits=True)
        self._changed()

    def _is_starved(self, queue: str, use: Resources) -> bool:
        found = self.queues.account_of(queue)
        return found is not None and is_starved(found[1], found[0], use)

    def _touch_concerned(self, doubts: Mapping[str, Doubt]) -> None:
        """Touch what nobody said of one by one that something about it has changed."""
        for name in sorted(doubts.keys() | self._doubts.keys()):
            if doubts.get(name) is not self._doubts.get(name):
                self.ledger.touch(name)
                self.scheduling_queue.resting.wake(self.commits.nominations.ids_at(name))
        self._doubts = doubts
        self.storage.touch_all()
        self.claims.touch_all()
        if self._have_terms_changed:
            self._have_terms_changed = False
            self.scheduling_queue.touch_avoiding()
            self.scheduling_queue.resting.wake_all()

    def is_decided(self, now_ns: int) -> bool:
        """Whether another decision would do nothing: nothing has changed since the last one, which placed nobody."""
        return self._remembered(now_ns) is not None and not self._placed

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

    def free_slices(self, name: str) -> dict[str, int]:
        """How many MIG slices of a node nobody has, by resource; below zero where more are used than are there."""
        node = self._nodes.get(name)
        if node is None:
            return {}
        used = self._count(name).extended
        there = {each for each, _ in node.capacity.extended} | used.keys()
        amounts = dict(node.capacity.extended)
        slices = (each for each in there if each.startswith(names.MIG_RESOURCE_PREFIX))
        return {each: amounts.get(each, 0) - used.get(each, 0) for each in slices}

    def say(self, uids: Sequence[str], verdict: Verdict, pod_group: tuple[str, str] | None) -> None:
        """Have pods say this as long as they wait, until ``say_no_more``."""
        self.scheduling_queue.said.say(uids, verdict, pod_group, lasts=True)
        self._changed()

    def say_no_more(self, uids: Iterable[str]) -> None:
        """Have pods say again what decisions say of them."""
        for uid in uids:
            self.scheduling_queue.said.release(uid)
            self.scheduling_queue.touch(uid)
            pod = self._pods.records.get(uid)
            if pod is not None and pod.pod_group:
                self.scheduling_queue.touch_gang(pod.namespace, pod.pod_group)
        self._changed()

    def will_fit(self, nomination: Nomination) -> bool:
        """Whether a standing nomination's holders that wait fit at their places once all its victims are gone."""
        commits = self.commits
        return will_fit(
            nomination, nominations=commits.nominations, pods=self._pods, ledger=self.ledger, count=self._count
        )

    def view(self, name: str) -> NodeView | None:
        """Show a node as it is counted; None if there is none of that name."""
        node = self._nodes.get(name)
        if node is None:
            return None
        pods, charges = self._pods.bound_to(name), self.commits.charges_at(name)
        return node_view(node, self._count(name), pods=pods, charges=charges, known=Known(self._pods.records))

    def fragmentation(self) -> dict[Pool, dict[Cause, int]]:
        """The nano-GPU of each pool that are free and that no pod that waits, or is usual, can take, by cause."""
        waiting = waiting_kinds(map(self._pods.records.__getitem__, self._pods.unbound))
        kinds = counted_kinds(self.arrivals.counts(), waiting, arrival=ARRIVAL)
        return fragmented_pools(self.refresh(), kinds, self.settings, self.settings.pool)

    def pod_group(self, namespace: str, name: str) -> PodGroupRecord | None:
        """The record of a PodGroup."""
        return self._pod_groups.get((namespace, name))

    def open_plans(self) -> list[tuple[str, str]]:
        """PodGroups of ours whose plan has a member that was not seen bound; in their order."""
        return sorted(key for key in self.commits.promises.groups() if not self._is_elsewhere(key))

    def _is_elsewhere(self, key: tuple[str, str]) -> bool:
        group = self._pod_groups.get(key)
        return group is not None and group.is_elsewhere

    def broken_gangs(self) -> list[PodGroupRecord]:
        """Gangs of which some pods are bound, and fewer than the minimum, or too few subgroups are whole (S4).

        Not those with a structure that nobody counts: they would be judged by a minimum that is not theirs.
        """
        return [group for group in self._pod_groups.values() if self._is_broken(group)]

    def pod_groups(self) -> Iterable[PodGroupRecord]:
        """All PodGroups that this scheduler decides on, in no order."""
        return (group for group in self._pod_groups.values() if not group.is_elsewhere)

    def is_broken_gang(self, namespace: str, name: str) -> bool:
        """Whether this gang is one of ``broken_gangs``."""
        group = self._pod_groups.get((namespace, name))
        return group is not None and self._is_broken(group)

    def _is_broken(self, group: PodGroupRecord) -> bool:
        is_alone = group.minimum <= 1 and len(group.tree.names) == 1 and not group.tree.least[0]
        if group.is_elsewhere or group.blocker is not None or is_alone:
            return False
        return self.quorum(group).is_broken

    def quorum(self, group: PodGroupRecord) -> Quorum:
        """How far a gang is from its minimum."""
        members = self.members(group.namespace, group.name)
        return quorum(group, members, self.is_in_flight, self._succeeded.of(group, members))

    def is_gang_in_flight(self, namespace: str, name: str) -> bool:
        """Whether a pod of this gang is on its way to be bound."""
        return any(self.is_in_flight(pod.uid) for pod in self.members(namespace, name))

    def is_verified(self, reservation_uid: str, uuid: str) -> bool:
        """Whether a bound pod's grant named this reservation and device: the binder looked, and it was right."""
        return self._pods.is_verified(reservation_uid, uuid)

    # --- counting ------------------------------------------------------------------------------------------------
    def _count(self, name: str, supposed: Supposed = AS_IT_IS) -> Occupancy:
        node, pods, settings = self._nodes.get(name), self._pods, self.settings
        return count_node(node, name, pods=pods, commits=self.commits, settings=settings, supposed=supposed)

    def differences(self, name: str) -> list[str]:
        """Count one node again from what is known of it; say where the ledger differs. A marked node is not judged yet.

        The same as ``validate`` does for one node, by the indexes that it does without: so cheap that it can be done
        all the time (some tens of microseconds).
        """
        if name not in self._nodes or name in self._marked:
            return []
        return self.ledger.differences(name, self._count(name))

    def count_again(self, name: str) -> None:
        """Have a node counted again before the next decision."""
        self._changed(name)

    def validate(self) -> list[str]:
        """Recount every node from all records, without the indexes; say where the ledger differs (invariant S12)."""
        ledger = self.refresh()
        self.count_queues()
        rows = {pod.uid: row for pod in self._pods.records.values() if (row := self._row(pod)) is not None}
        rows |= self.queues.vanished.rows()
        return [
            *differences(ledger, self._nodes, pods=self._pods, commits=self.commits, settings=self.settings),
            *self.queues.sums.differences(rows),
            *self.counted_places().differences(self.pod_places()),
            *self._drawing.differences(self._pods.records.values()),
        ]
