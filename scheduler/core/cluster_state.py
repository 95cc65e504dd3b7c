"""What is known of a cluster, kept from events and from our own commits. One writer: the shell's cache.

Records are stored as they come, and nodes and pods that an event touches are marked. Two rules keep a charge from
being lost:

- What is in flight is charged until the API shows its end, or it is withdrawn for sure (assumed.py).
- An event that is older than what is known is ignored (seen_pods.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence, Set

import msgspec

from gpu.reservation import Reservation
from scheduler.core.assumed.bind_requests import Key
from scheduler.core.cluster_marks import ClusterMarks
from scheduler.core.convert import bounds
from scheduler.core.convert.alike import AlikePods
from scheduler.core.convert.bind_requests import bind_request_record
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pods import seen_pod
from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.model.facts import Facts
from scheduler.core.model.numa import NumaReport
from scheduler.core.model.pod_kind import kind_of
from scheduler.core.model.records import BindRequestRecord, NodeRecord, PodGroupRecord, PodRecord, SeenPod
from scheduler.core.model.seen_pods import News
from scheduler.core.model.settings import Settings
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.versions import is_older


class ClusterState(ClusterMarks):
    """Takes events: nodes, pods, PodGroups and hand-overs as they are now."""

    def __init__(self, settings: Settings, filters: Filters = FILTERS) -> None:
        super().__init__(settings, filters)
        #: What NodeResourceTopology objects say of nodes.
        self.numa: Facts[str, NumaReport] = Facts(self._numa_changed, read_changed=self._changed)

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
        for key in [key for key in self.backlog.gangs() if all(pod.node for pod in self.members(*key))]:
            self.backlog.drop_gang(key)

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
