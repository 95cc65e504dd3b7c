"""What is known of a cluster, and what of it is marked since it was counted last. cluster_state.py feeds it.

Nodes and pods that an event touches are marked here, with what depends on them: queues, gangs, places of pods, and
pods that may be evicted for others.
"""

from __future__ import annotations

from scheduler.core.assumed.assumed import Commits
from scheduler.core.assumed.bind_requests import Key
from scheduler.core.backlog.backlog import Backlog
from scheduler.core.claims.cel import compile_selector
from scheduler.core.convert.job_owners import Owners
from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.groups.succeeded import Succeeded
from scheduler.core.model.elsewhere import Elsewhere
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord
from scheduler.core.model.seen_pods import Pods
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


class ClusterMarks:
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
        #: Nodes as decisions have counted them (decide/snapshot.py).
        self._counted: dict[str, tuple[Supposed, Occupancy]] = {}
        #: Pods and gangs that wait, and what they wait for; ``prepared`` brings it up to date.
        self.backlog = Backlog(self.ledger, self.counted_places)
        #: Pods that the last plan places, by UID: for them a new version matters.
        self._placed: frozenset[str] = frozenset()

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
