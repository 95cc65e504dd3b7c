"""A cluster that decides: what is known (cluster_state.py), its count, and the plan that follows from it.

Nodes that an event touched are counted again before the next decision (node_usage.py). So the order, number and
lateness of events can't matter to the sums: only what is known in the end does. A pod is charged once per node and once
per device, with the largest that anybody says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from scheduler.core.assumed.backoff import Setback
from scheduler.core.assumed.slow_nodes import Doubt
from scheduler.core.backlog import recounts
from scheduler.core.backlog.backlog import Backlog
from scheduler.core.backlog.unsearched import Unsearched
from scheduler.core.cluster_state import ClusterState
from scheduler.core.decide.allowance import LIMITS, Limits
from scheduler.core.decide.decide import Decision, decide
from scheduler.core.decide.filing import file_touched
from scheduler.core.decide.snapshot import FindRoom, Snapshot
from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.groups.quorum import Quorum, quorum
from scheduler.core.model.plan import Explain, Plan, placements
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord
from scheduler.core.model.resources import Resources
from scheduler.core.model.room import Intent, RoomFacts
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.model.stale import Stale
from scheduler.core.model.verdict import Verdict
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.node_usage import Occupancy
from scheduler.core.queues.berths import is_starved
from scheduler.core.recount import differences
from scheduler.core.report.counted_kinds import counted_kinds, waiting_kinds
from scheduler.core.report.fragmentation import Cause
from scheduler.core.report.fragmented_pools import fragmented_pools
from scheduler.core.report.node_view import Known, NodeView, node_view
from scheduler.core.report.pool_use import Pool
from scheduler.core.room.fitting import will_fit
from scheduler.core.room.search import finding_room
from scheduler.core.scores.priced import score_by
from scheduler.core.scores.prices import Prices
from scheduler.core.scores.registry import SCORES
from scheduler.core.scores.score import Scores
from scheduler.core.scores.typical import ARRIVAL
from scheduler.core.snapshot.counting import count_node
from scheduler.core.snapshot.supposed import AS_IT_IS, Supposed
from wire import names


@dataclass(slots=True)
class _Memo:
    """The last plan, good as long as nothing changes and the time has not come."""

    generation: int
    plan: Plan


class Cluster(ClusterState):
    """The ledger counted from what is known, decisions on it, and what others ask of both."""

    def __init__(
        self,
        settings: Settings,
        filters: Filters = FILTERS,
        scores: Scores = SCORES,
        *,
        find_room: FindRoom = finding_room,
    ) -> None:
        super().__init__(settings, filters)
        self._scores = scores
        self._prices: Prices | None = None
        self._find_room = find_room
        self._room_facts = RoomFacts(settings=settings.room)
        self._doubts: Mapping[str, Doubt] = {}
        self._memo: _Memo | None = None
        #: How many decisions were made, those that were remembered left out: their number stands still at rest (L5).
        self.decisions = 0
        self._unsearched = Unsearched()

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
            judge=lambda pod: self._drawing.judged(
                self.others.judged(self.claims.judged(self.storage.judged(pod, holders)))
            ),
            doubts=self.doubts(),
            backlog=self.backlog,
            scores=self._scores,
            queues=self.queues,
            find_room=self._find_room,
            room_facts=self._room_facts,
            residents=self.residents,
            counted=self._counted,
            stale=self.stale,
        )

    def note_room_facts(self, facts: RoomFacts) -> None:
        """Take what the shell knows of who may be evicted (budgets, answers of the API server, recent evictions)."""
        if facts != self._room_facts:
            self._room_facts = facts
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
        """Nodes that come last when a device has to be opened (slow_nodes.py)."""
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
        """What the next decision reads: the backlog is brought up to date before.

        Where searches for devices go on, what depends on them is not sure any more, as after any event. Until then it
        is: a decision that follows at once has time for the others of the namespace.
        """
        self.expire_vanished(now_ns)
        search_on_ns = self.backlog.search_on_ns
        if search_on_ns is not None and search_on_ns <= now_ns:
            self.backlog.search_on_ns = None
            self._changed()
        snapshot = self.snapshot()
        self._touch_concerned(snapshot.doubts)
        file_touched(snapshot, now_ns)
        queues = self.queues
        self.backlog.wake_for_quota(queues.tree, queues.card_sizes, queues.accounts, version=queues.sums.version)
        self.backlog.wake_kept_off(self._is_starved)
        self.backlog.forget_others(now_ns)
        return replace(snapshot, recounts=recounts.due(self.backlog, now_ns, limits.retold))

    def learn(self, decision: Decision, now_ns: int, limits: Limits = LIMITS) -> Plan:
        """Keep what the last decision learned; return its plan, with what pods have to be told."""
        for note in decision.notes:
            note.take(self.backlog)
        placed = {placement.pod_uid for placement in placements(decision.entries)}
        if self.settings.makes_room:
            placed |= self._unsearched.held(self.backlog, now_ns)
        news = self.backlog.said.news(placed)
        berths_ns = self.backlog.berths.next_ns
        times = (
            self.backlog.next_ns,
            self.backlog.search_on_ns,
            self.backlog.room.next_ns,
            berths_ns,
            recounts.next_ns(self.backlog, now_ns, limits.retold),
            decision.stale_next_ns,
            self.claims.vanished.next_ns,
            self.queues.vanished.next_ns,
        )
        has_more = decision.has_put_off or self.backlog.quota_sleepers.have_more
        wake_at_ns = now_ns if has_more else min((at for at in times if at is not None), default=None)
        return Plan(entries=(*decision.entries, *news), wake_at_ns=wake_at_ns)

    def told(self, explained: Sequence[Explain]) -> None:
        """These pods were told why they wait; they are told again when the reason changes."""
        self.backlog.said.told(explained)

    def forget_verdicts(self) -> None:
        """Judge everything again at the next decision."""
        berths = self.backlog.berths
        self.backlog = Backlog(self.ledger, self.counted_places)
        self.backlog.berths = berths
        self.backlog.touched.update(self._pods.unbound)
        for pod in map(self._pods.records.__getitem__, self._pods.unbound):
            if pod.pod_group:
                self.backlog.touch_gang(pod.namespace, pod.pod_group, waits=True)
        self._changed()

    def _is_starved(self, queue: str, use: Resources) -> bool:
        found = self.queues.account_of(queue)
        return found is not None and is_starved(found[1], found[0], use)

    def _touch_concerned(self, doubts: Mapping[str, Doubt]) -> None:
        """Touch what nobody said of one by one that something about it has changed."""
        for name in sorted(doubts.keys() | self._doubts.keys()):
            if doubts.get(name) is not self._doubts.get(name):
                self.ledger.touch(name)
                self.backlog.resting.wake(self.commits.intents.ids_at(name))
        self._doubts = doubts
        self.storage.touch_all()
        self.claims.touch_all()
        if self._have_terms_changed:
            self._have_terms_changed = False
            self.backlog.touch_avoiding()
            self.backlog.resting.wake_all()

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
        self.backlog.said.say(uids, verdict, pod_group, lasts=True)
        self._changed()

    def say_no_more(self, uids: Iterable[str]) -> None:
        """Have pods say again what decisions say of them."""
        for uid in uids:
            self.backlog.said.release(uid)
            self.backlog.touch(uid)
            pod = self._pods.records.get(uid)
            if pod is not None and pod.pod_group:
                self.backlog.touch_gang(pod.namespace, pod.pod_group)
        self._changed()

    def will_fit(self, intent: Intent) -> bool:
        """Whether a standing intent's holders that wait fit at their places once all its victims are gone."""
        commits = self.commits
        return will_fit(intent, intents=commits.intents, pods=self._pods, ledger=self.ledger, count=self._count)

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
