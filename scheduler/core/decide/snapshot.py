"""What a decision reads: all of it, and nothing else. A decision changes none of it (scheduling_queue/effects.py).

It is a view, not a copy, since a copy of a cluster with 50,000 pods would cost more than the decision: good until the
cluster takes the next event. A caller that keeps it longer is refused (``StaleSnapshot``). One that is changed is a
copy of what differs (changes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, TypeAlias

import msgspec

from scheduler.core.assumed.attempts import Doubt, Setback
from scheduler.core.assumed.commits import Commits
from scheduler.core.claims.inventory import InventoryView
from scheduler.core.convert.owners import Owners
from scheduler.core.decide.changes import Change, Draft
from scheduler.core.groups.quorum import Quorum, Succeeded, quorum
from scheduler.core.model.devices import ClaimChoice, SliceRecord
from scheduler.core.model.plan import Placement
from scheduler.core.model.pod_class import VolumeChoice
from scheduler.core.model.preemption import Action, Bound, Found, NoVictims, PreemptionFacts
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord
from scheduler.core.model.seen_pods import Pods
from scheduler.core.model.settings import Settings
from scheduler.core.model.stale import StaleFacts
from scheduler.core.model.steps import Steps, ended
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.nodes.claim_statement import ClaimStatement
from scheduler.core.nodes.device_sightings import Sightings
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.node_usage import Occupancy
from scheduler.core.nodes.numa_statement import NumaStatement
from scheduler.core.nodes.pod_places import PodPlaces
from scheduler.core.nodes.resource_claims import ResourceClaims
from scheduler.core.nodes.storage import Storage
from scheduler.core.nodes.table import Int64s
from scheduler.core.nodes.volume_limits import AttachStatement
from scheduler.core.nodes.volume_statement import VolumeStatement
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_table import ResidentTable
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.reserved_nodes import NodeReserves
from scheduler.core.scheduling_queue.queue import NO_RECOUNTS, Recounts, SchedulingQueue
from scheduler.core.scheduling_queue.verdicts import Key
from scheduler.core.scores.score import Scores
from scheduler.core.snapshot.node_count import Supposed, count_node
from scheduler.core.snapshot.pod_counts import PodCounts
from scheduler.core.snapshot.statement import Copies
from scheduler.core.topology.topologies import Topologies

#: By node: what was supposed, and what is used then.
Counted: TypeAlias = dict[str, tuple[Supposed, Occupancy]]
#: Finds the victims for a need, by one of these actions; leaves statement and accounts as they were
#: (preemption/search.py).
FindRoom: TypeAlias = Callable[[Need, Trial, Sequence[Action]], Steps[Found | NoVictims]]


class StaleSnapshot(Exception):
    """Raised when a decision is to be made on what the cluster was before its last event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A cluster between two events. ``ledger`` has every node counted.

    ``generation``: the cluster's when this was made, ``now_at`` tells the one that it has. ``judge_without`` is
    ``judge`` for terms of all pods but those that are gone (UIDs). ``doubts``: nodes that come last
    when a device has to be opened (attempts.py). ``find_victims``: says which pods go for a need, by what the shell
    knows (``preemption_facts``). ``residents``: who may be evicted, read when that is asked. ``counted``: nodes as they
    were counted last without pods that go, until something about them changes: a decision need not count them again.
    ``stale``: gangs below their minimum, as the shell knows.

    Of a changed snapshot: ``gone``: pods (UIDs) that are not there, though books and charges may name them. ``only``:
    who is decided on; None: all. ``last``: pods alone and PodGroups (UIDs) that have their turn after all others.
    ``has_no_doubts``: nothing that went wrong counts. ``supposes_nodes``: as in NodesAsAsked. ``published``: slices of
    further nodes, by name of the node; ``supposed_devices``: what nodes reach with these, and what further nodes and
    those with other labels reach. None: as it is known. ``bound``: pods that waited and run there now: what was chosen
    for their claims is taken.
    """

    generation: int
    now_at: Callable[[], int]
    settings: Settings
    ledger: Ledger
    sightings: Sightings
    pods: Pods
    pod_groups: Mapping[Key, PodGroupRecord]
    commits: Commits
    storage: Storage
    claims: ResourceClaims
    places: PodPlaces
    owners: Owners
    succeeded: Succeeded
    topologies: Topologies
    judge_without: Callable[[PodRecord, frozenset[str]], PodRecord]
    doubts: Mapping[str, Doubt]
    scheduling_queue: SchedulingQueue
    scores: Scores
    queues: Queues
    find_victims: FindRoom
    preemption_facts: PreemptionFacts
    residents: ResidentTable
    stale: StaleFacts
    recounts: Recounts = NO_RECOUNTS
    counted: Counted = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    only: frozenset[str] | None = None
    last: frozenset[str] = frozenset()
    has_no_doubts: bool = False
    supposes_nodes: bool = False
    published: Mapping[str, tuple[SliceRecord, ...]] = field(default_factory=dict)
    supposed_devices: InventoryView | None = None
    bound: tuple[Placement, ...] = ()

    def check(self) -> None:
        """Raise StaleSnapshot if the cluster has changed since."""
        if self.now_at() != self.generation:
            raise StaleSnapshot(f"made at generation {self.generation}, the cluster is at {self.now_at()}")

    def with_(self, *changes: Change) -> Snapshot:
        """The same with these changes, made one after the other. Nobody in it was judged yet: all who wait are awake.

        To be filed before it is decided on (``decide_as_if``). Raises UnknownObject if a change names nothing known.
        """
        self.check()
        draft = Draft(
            settings=self.settings,
            ledger=self.ledger,
            pods=self.pods,
            pod_groups=self.pod_groups,
            commits=self.commits,
            queues=self.queues,
            residents=self.residents,
            gone=self.gone,
            only=self.only,
            last=self.last,
            has_no_doubts=self.has_no_doubts,
            supposes_nodes=self.supposes_nodes,
            published=self.published,
            bound=self.bound,
        )
        for change in changes:
            change.apply(draft)
        draft.count()
        return replace(
            self,
            settings=draft.settings,
            ledger=draft.ledger,
            pods=draft.pods,
            pod_groups=draft.pod_groups,
            queues=draft.queues,
            residents=draft.residents,
            gone=draft.gone,
            only=draft.only,
            last=draft.last,
            doubts={} if draft.has_no_doubts else self.doubts,
            has_no_doubts=draft.has_no_doubts,
            supposes_nodes=draft.supposes_nodes,
            published=draft.published,
            supposed_devices=self._devices_with(draft),
            bound=draft.bound,
            scheduling_queue=_all_awake(draft, self.scheduling_queue.reserves),
            recounts=NO_RECOUNTS,
            counted={},
        )

    def _devices_with(self, draft: Draft) -> InventoryView | None:
        """What nodes reach with the slices that changes have published, and what nodes that they changed reach.

        What is remembered of such a node must not stay in the inventory of the cluster.
        """
        if draft.published is self.published and not draft.has_other_nodes:
            return self.supposed_devices
        return self.claims.inventory.view_with(chain.from_iterable(draft.published.values()))

    # --- pods ----------------------------------------------------------------------------------------------------
    def pod(self, uid: str) -> PodRecord | None:
        """The record of a pod that has not ended."""
        return self.pods.records.get(uid)

    def is_spoken_for(self, uid: str) -> bool:
        """Whether this pod has its place: under way to it, or kept for it by a gang's plan."""
        return self.commits.is_spoken_for(uid)

    def waiting(self, unbound: Iterable[PodRecord]) -> list[PodRecord]:
        """Those of these pods without a node that have no placement under way and none in a gang's plan, judged."""
        return [self.judge(pod) for pod in self._unplaced(unbound)]

    def _unplaced(self, unbound: Iterable[PodRecord]) -> Iterator[PodRecord]:
        there = (
            pod for pod in unbound if not (pod.deleting or pod.is_elsewhere or self.commits.is_spoken_for(pod.uid))
        )
        return there if self.only is None else (pod for pod in there if pod.uid in self.only)

    def setback(self, uid: str) -> Setback | None:
        """What went wrong with a pod so far. To be read only."""
        return None if self.has_no_doubts else self.commits.setback(uid)

    def without(self, uid: str, now_ns: int) -> frozenset[str]:
        """Nodes that are out for a pod."""
        setback = self.setback(uid)
        return frozenset(setback.excluded_at(now_ns)) if setback else frozenset()

    def stuck(self) -> list[Placement]:
        """Shares alone whose device's time to become known is over, and that may be moved once more, by pod UID."""
        return self.commits.stuck()

    def judge(self, pod: PodRecord) -> PodRecord:
        """A pod that waits, with what its claims and others' terms ask of nodes, or why they keep it waiting."""
        return self.judge_without(pod, self.gone)

    def judged(self, pod: PodRecord, now_ns: int) -> PodRecord:
        """A pod that waits, with all that its place depends on: what ``judge`` adds, and the nodes out for it now."""
        judged, excluded = self.judge(pod), self.without(pod.uid, now_ns)
        if not excluded:
            return judged
        return msgspec.structs.replace(judged, cls=msgspec.structs.replace(judged.cls, excluded=excluded))

    # --- gangs ---------------------------------------------------------------------------------------------------
    def pod_group(self, namespace: str, name: str) -> PodGroupRecord | None:
        """The record of a PodGroup."""
        return self.pod_groups.get((namespace, name))

    def waiting_members(self, namespace: str, pod_group: str, now_ns: int) -> list[PodRecord]:
        """Members of a gang that wait, judged, in no order."""
        members = (pod for pod in self.pods.members(namespace, pod_group) if not pod.node)
        return [self.judged(pod, now_ns) for pod in self._unplaced(members)]

    def quorum(self, group: PodGroupRecord) -> Quorum:
        """How far a gang is from its minimum."""
        members = self.pods.members(group.namespace, group.name)
        return quorum(group, members, self.commits.is_in_flight, self.succeeded.of(group, members))

    # --- nodes ---------------------------------------------------------------------------------------------------
    def used(self, node: NodeRecord, supposed: Supposed) -> Occupancy:
        """Count a node as if that had happened."""
        if self.gone:
            supposed = msgspec.structs.replace(supposed, evicted=self.gone | supposed.evicted)
        known = self.counted.get(node.name)
        if known is not None and known[0] == supposed:
            return known[1]
        used = count_node(
            node, node.name, pods=self.pods, commits=self.commits, settings=self.settings, supposed=supposed
        )
        if supposed.only_evicts:
            self.counted[node.name] = supposed, used
        return used

    # --- room ----------------------------------------------------------------------------------------------------
    def victims_for(self, need: Need, trial: Trial, *actions: Action) -> Found | NoVictims:
        """The pods that have to go for a need. Where there are no nodes nobody can help."""
        return ended(self.finding_victims(need, trial, *actions))

    def finding_victims(self, need: Need, trial: Trial, *actions: Action) -> Steps[Found | NoVictims]:
        """Find them in steps."""
        if not self.ledger.row_of:
            return NoVictims(bound=Bound.NODES)
        return (yield from self.find_victims(need, trial, actions))

    # --- rules about other pods ----------------------------------------------------------------------------------
    def counting(self, ledger: Ledger, order: Int64s | slice, position_of: Mapping[str, int]) -> PodCounts:
        """A working copy of how many pods are where."""
        counts = PodCounts(self.places, ledger, order, position_of)
        for uid in sorted(self.gone):
            for pod, name in self.places.of(uid):
                if name in position_of:
                    counts.move(pod, position_of[name], -1)
        return counts

    # --- volumes and devices -------------------------------------------------------------------------------------
    def copies(self, nodes: Sequence[NodeRecord], position_of: Mapping[str, int]) -> Copies:
        """Working copies of what is attached, and of what there is for claims that are not bound or allocated yet."""
        storage, commits = self.storage, self.commits
        return Copies(
            AttachStatement(
                storage.attachments,
                position_of,
                lambda: storage.in_flight(commits.all_charges()),
                limited_driver=storage.limited_driver,
            ),
            VolumeStatement(storage.offers, nodes, position_of, self._volumes_in_flight),
            ClaimStatement(self.claims, nodes, self._claims_in_flight, self._reserved, supposed=self.supposed_devices),
            # Without pods of which a snapshot supposes that they are gone, nodes are counted apart.
            NumaStatement(nodes, self._on_node, {} if self.gone else self.ledger.numa_free),
        )

    def _volumes_in_flight(self) -> list[tuple[str, tuple[VolumeChoice, ...]]]:
        supposed = [(each.namespace, each.volumes) for each in self.bound if each.volumes]
        return self.commits.volumes_in_flight() + supposed

    def _claims_in_flight(self) -> list[ClaimChoice]:
        return self.commits.claims_in_flight() + [choice for each in self.bound for choice in each.claims]

    @property
    def devices(self) -> InventoryView:
        """Which devices nodes reach."""
        return self.supposed_devices or self.claims.inventory.view()

    def published_for(self, node: str) -> tuple[SliceRecord, ...]:
        """The slices of pools that this node alone reaches."""
        known = self.published.get(node)
        return self.claims.inventory.published_for(node) if known is None else known

    def _reserved(self, node: str) -> list[str]:
        """UUIDs of the devices that reservations on a node hold."""
        return [held.uuid for held in self.pods.reserved_on(node) if held.uuid and not held.is_terminal]

    def _on_node(self, name: str) -> tuple[list[PodRecord], list[PodRecord]]:
        """Pods that are bound to a node, and those on their way to it."""
        bound = [pod for pod in self.pods.bound_to(name) if pod.uid not in self.gone]
        on_their_way = (self.pods.records.get(charge.pod_uid) for charge in self.commits.charges_at(name))
        return bound, [pod for pod in on_their_way if pod is not None and not pod.node]


def _all_awake(draft: Draft, reserves: NodeReserves) -> SchedulingQueue:
    """A scheduling queue that knows nothing of those who wait but that they do, and which nodes are ``reserves``."""
    made, pods = SchedulingQueue(draft.ledger), draft.pods
    made.reserves = reserves
    waiting = [*pods.unbound] if draft.only is None else sorted(draft.only & pods.unbound.keys())
    made.touched.update(waiting)
    for pod in map(pods.records.__getitem__, waiting):
        if pod.pod_group:
            made.touch_gang(pod.namespace, pod.pod_group, waits=True)
    return made


#: Pods that are filed in one step; and what one costs, in operations.
_AT_ONCE: Final = 64
_FILING: Final = 8


def file_touched(snapshot: Snapshot, now_ns: int) -> None:
    """Take everything into account that has happened since the last decision, time included.

    Each pod that something has touched is filed where it belongs: to a signature, a gang, or nowhere.
    """
    ended(filing_touched(snapshot, now_ns))


def filing_touched(snapshot: Snapshot, now_ns: int) -> Steps[None]:
    """Do so in steps, in a snapshot of which nobody else has the scheduling queue."""
    scheduling_queue = snapshot.scheduling_queue
    scheduling_queue.touch_due(now_ns)
    touched, scheduling_queue.touched = scheduling_queue.touched, set()
    for number, uid in enumerate(sorted(touched), 1):
        if number % _AT_ONCE == 0:
            yield _AT_ONCE * _FILING
        _file(snapshot, uid, now_ns)
        if (nomination := snapshot.commits.nominations.nominees.get(uid)) is not None:
            scheduling_queue.resting.wake((nomination.id,))  # it says again what the pod waits for
    scheduling_queue.wake(snapshot.generation)


def _file(snapshot: Snapshot, uid: str, now_ns: int) -> None:
    pod, scheduling_queue = snapshot.pod(uid), snapshot.scheduling_queue
    scheduling_queue.said.release(uid)
    if pod is None or pod.node or pod.deleting or snapshot.is_spoken_for(uid):
        scheduling_queue.drop(uid)
    elif pod.pod_group:
        scheduling_queue.take_out(uid)  # what it says is said by its gang
    elif pod.gated:
        scheduling_queue.drop(uid)
    else:
        _file_alone(snapshot, snapshot.judged(pod, now_ns), now_ns)


def _file_alone(snapshot: Snapshot, judged: PodRecord, now_ns: int) -> None:
    scheduling_queue = snapshot.scheduling_queue
    verdict, next_ns = obstacle(snapshot, judged, now_ns)
    if next_ns is not None:
        scheduling_queue.wake_at(next_ns, judged.uid)
    if verdict is not None:
        scheduling_queue.hold(judged.uid, verdict)
    else:
        scheduling_queue.file(judged, is_apart=bool(judged.alone))


def obstacle(snapshot: Snapshot, pod: PodRecord, now_ns: int) -> tuple[Verdict | None, int | None]:
    """Why a pod may not be placed now on any node; and when time alone changes something about that."""
    if pod.blocker is not None:
        return pod.blocker, None
    if (by_owner := snapshot.owners.verdict(pod, now_ns)) is not None:
        not_seen = by_owner.code is Code.OWNER_NOT_SEEN
        return by_owner, snapshot.owners.next_change_ns(pod) if not_seen else None
    setback = snapshot.setback(pod.uid)
    if setback is None:
        return None, None
    is_backing_off = now_ns < setback.until_ns
    verdict = Verdict(code=Code.BACKING_OFF, detail=setback.reason) if is_backing_off else None
    return verdict, setback.next_change_ns(now_ns)
