"""What is known of a cluster, kept from events and from our own commits. One writer: the shell's cache.

Records are stored as they come, and nodes and pods that an event touches are marked. Two rules keep a charge from
being lost:

- What is in flight is charged until the API shows its end, or it is withdrawn for sure (assumed.py).
- An event that is older than what is known is ignored (seen_pods.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

import msgspec

from gpu.reservation import Reservation
from scheduler.core.assumed.assumed import Commits
from scheduler.core.assumed.bind_requests import Key
from scheduler.core.backlog.backlog import Backlog
from scheduler.core.claims.cel import compile_selector
from scheduler.core.convert.alike import AlikePods
from scheduler.core.convert.bind_requests import bind_request_record
from scheduler.core.convert.job_owners import Owners
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pods import seen_pod
from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.groups.succeeded import Succeeded
from scheduler.core.model.elsewhere import Elsewhere
from scheduler.core.model.facts import Facts
from scheduler.core.model.numa import NumaReport
from scheduler.core.model.pod_kind import kind_of
from scheduler.core.model.records import BindRequestRecord, NodeRecord, PodGroupRecord, PodRecord, SeenPod
from scheduler.core.model.seen_pods import News, Pods
from scheduler.core.model.settings import Settings
from scheduler.core.model.stale import StaleFacts
from scheduler.core.nodes.anti_affinity import OthersTerms
from scheduler.core.nodes.device_sightings import Sightings
from scheduler.core.nodes.drawing_terms import DrawingTerms
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.node_usage import Occupancy
from scheduler.core.nodes.pod_places import PodPlaces
from scheduler.core.nodes.resource_claims import ResourceClaims
from scheduler.core.nodes.slice_caps import SliceCaps
from scheduler.core.nodes.storage import Storage
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.sums import Row
from scheduler.core.room.table import ResidentTable
from scheduler.core.scores.typical import Arrivals
from scheduler.core.snapshot.supposed import Supposed
from scheduler.core.topology.topologies import Topologies
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.versions import is_older


class ClusterState:
    """Nodes, pods, PodGroups, hand-overs and our commits under way, and what is marked since the last count."""

    def __init__(self, settings: Settings, filters: Filters = FILTERS) -> None:
        self.settings = settings
        self.ledger = Ledger(filters.enforcing(settings.enforced_affinity).of_pool(settings.pool))
        #: Grows with everything that can change a decision.
        self.generation = 0
        self._nodes: dict[str, NodeRecord] = {}
        self._pods = Pods()
        self._pod_groups: dict[Key, PodGroupRecord] = {}
        #: Pods that other schedulers decide on; nodes that came from them a moment ago, and at which generation.
        self._elsewhere = Elsewhere(settings.pool, self._pod_groups)
        self.joining: dict[str, int] = {}
        #: What is under way: the shell notes it here.
        self.commits = Commits(self._pods, settings=settings, changed=self._changed, touched=self._way_changed)
        #: Claims of pods, and the volumes behind them.
        self.storage = Storage(self._changed, self._touch)
        #: ResourceClaims of pods, and the devices that there are for them.
        self.claims = ResourceClaims(self._changed, self._touch, compiler=compile_selector, pod=self._pods.records.get)
        #: Jobs of pods, and what they say about starting together.
        self.owners = Owners(self._changed, self._touch, are_grouped=settings.are_grouped)
        #: Members of gangs that have done their work.
        self._succeeded = Succeeded()
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
        #: What NodeResourceTopology objects say of nodes.
        self.numa: Facts[str, NumaReport] = Facts(self._numa_changed, read_changed=self._changed)
        #: Nodes as decisions have counted them (decide/snapshot.py).
        self._counted: dict[str, tuple[Supposed, Occupancy]] = {}
        #: Pods and gangs that wait, and what they wait for; ``prepared`` brings it up to date.
        self.backlog = Backlog(self.ledger, self.counted_places)
        #: Pods that the last plan places, by UID: for them a new version matters.
        self._placed: frozenset[str] = frozenset()

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
        """Return a pod that was read with the classes that this cluster has already."""
        record = seen.record
        if record is None:
            return seen
        cls = self._pods.intern(record.cls)
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
            self._put_pod(None if seen.record is None else self._elsewhere.seen(seen.record))
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

    def remove_pod(self, uid: str) -> None:
        """A pod is gone."""
        gone = self._succeeded.drop(uid)
        if gone is not None:
            self._touch_gang(gone.namespace, gone.pod_group)
        record = self._pods.records.get(uid)
        if record is not None and record.node:
            self.claims.vanished.vanished(record)
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
        for key in [key for key in self.backlog.gangs() if all(pod.node for pod in self.members(*key))]:
            self.backlog.drop_gang(key)

    def expire_vanished(self, now_ns: int) -> None:
        """Free devices of pods that vanished and must have ended by now. Each decision does so; a standby has none."""
        self.claims.vanished.expire(now_ns, self._nodes.get)

    def _drop_pod(self, uid: str) -> None:
        if self.commits.is_spoken_for(uid):
            self.storage.holder_changed(uid)
        record = self._pods.drop(uid)
        self._elsewhere.forget(uid)
        self.storage.drop_pod(uid)
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
        listed = {(g.metadata.namespace, g.metadata.name) for g in groups}
        for key in [key for key in self._pod_groups if key not in listed]:
            self.remove_pod_group(*key)
        for group in groups:
            self.upsert_pod_group(group)

    def upsert_pod_group(self, group: PodGroup) -> None:
        """Take a PodGroup as it is now."""
        record = pod_group_record(group, self.settings.pool)
        key = (record.namespace, record.name)
        known = self._pod_groups.get(key)
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
        self._divide(key)
        self._touch_gang(*key)

    def _note_group_version(self, key: Key) -> None:
        """Nothing but the version changed, as by a write of its status. It matters if the last plan names it."""
        if any(pod.uid in self._placed for pod in self.members(*key)):
            self.generation += 1

    def remove_pod_group(self, namespace: str, name: str) -> None:
        """A PodGroup is gone; its pods wait for it."""
        if self._pod_groups.pop((namespace, name), None) is not None:
            self.commits.promises.drop(namespace, name)
            self._mark_members((namespace, name))
            self._divide((namespace, name))
            self._touch_gang(namespace, name)

    def _divide(self, key: Key) -> None:
        """Take the pods of a PodGroup again: they may be another scheduler's now, or ours."""
        if self.settings.pool is None:
            return
        for pod in self.members(*key):
            self._put_pod(self._elsewhere.seen_again(pod))
        if all(pod.is_elsewhere for pod in self.members(*key)):
            self.backlog.drop_gang(key)

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
        """A hand-over is gone. What it may still lead to stays charged (bind_requests.py)."""
        self.commits.hand_overs.drop((namespace, name))

    def hand_over(self, namespace: str, name: str) -> BindRequestRecord | None:
        """The BindRequest of this name, as far as is seen."""
        return self.commits.hand_overs.get((namespace, name))

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
        return None if pod is None else self._row(pod)

    def _row(self, pod: PodRecord) -> Row | None:
        group = self._pod_groups.get((pod.namespace, pod.pod_group)) if pod.pod_group else None
        charges = () if pod.node else self.commits.charges_of(pod.uid)
        is_victim = pod.uid in self.commits.intents.victims
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
            self.backlog.resting.wake(self.commits.intents.ids_at(node))

    def _touch(self, uid: str, before: PodRecord | None = None) -> None:
        """Something about a pod has changed. ``before``: what it was, if it may have been of another gang."""
        self.queues.mark((uid,))
        known = self._pods.records.get(uid)
        self._note_place(uid, known)
        if known is None or known.node or known.is_elsewhere:
            self.backlog.drop(uid)  # at once: a replica that does not lead never comes to file it
        else:
            self.backlog.touch(uid)
        for pod in (before, known):
            if pod is not None:
                self.residents.changed(pod)
            if pod is not None and pod.pod_group:
                self.backlog.touch_gang(
                    pod.namespace, pod.pod_group, waits=pod is known and pod.uid in self._pods.unbound
                )
                self.backlog.resting.wake(self.commits.intents.ids_of_gang(pod.namespace, pod.pod_group))

    def _touch_gang(self, namespace: str, pod_group: str) -> None:
        self.backlog.touch_gang(namespace, pod_group)
        self.backlog.resting.wake(self.commits.intents.ids_of_gang(namespace, pod_group))
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
