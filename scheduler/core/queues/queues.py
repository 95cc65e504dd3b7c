"""All that is known of queues: their objects, what pods count for in them, and what nodes have to divide.

Pods that an event touched are counted again before the next decision, as nodes are (cluster.py): so the order, number
and lateness of events can't matter to the sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from gpu.grant import Charged
from scheduler.core.model.facts import Facts, copied
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.quota import NOTHING, QueueRecord, Resources
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord
from scheduler.core.model.settings import NodePool
from scheduler.core.nodes.node_usage import Charge
from scheduler.core.queues import use
from scheduler.core.queues.accounts import Account, Accounts, accounts
from scheduler.core.queues.fair_share import Divisions, Records
from scheduler.core.queues.sums import QueueSums, Row, Stage
from scheduler.core.queues.tree import Tree, TreeQueue
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime
from scheduler.core.queues.vanished import VanishedRows

#: What classes ask is kept for this many classes, and for twice as many as there are pods.
_FEW: Final = 16


class Queues:
    """Queues of a cluster. ``changed`` is called when a queue is new, different or gone.

    ``pool``: whose nodes they divide; None: all.
    """

    def __init__(self, changed: Callable[[], None], *, pool: NodePool | None = None) -> None:
        self._changed = changed
        self._pool = pool
        #: Queue objects by name.
        self.records: Facts[str, QueueRecord] = Facts(self._queue_changed, read_changed=self._forget_tree)
        self.sums = QueueSums()
        #: Pods that are gone and may still run.
        self.vanished = VanishedRows(self._vanished_changed)
        #: Pods (UIDs) to be counted again, in the order in which they were marked: PodGroups are reported in that
        #: order.
        self._marked: dict[str, None] = {}
        self._tree: Tree | None = None
        #: Another one whenever the tree is.
        self.tree_version = 0
        self._of_node: dict[str, Resources] = {}
        self._total = NOTHING
        #: Sizes of cards in MiB, and how many nodes have them.
        self._cards: Counter[int] = Counter()
        self._cards_of: dict[str, set[int]] = {}
        #: What classes ask, and the least that they come to use.
        self._amounts_of: dict[PodClass, tuple[Resources, Resources]] = {}
        #: Use over time, as far as it counts.
        self.used = NOT_COUNTED
        self._divisions = Divisions()
        #: Accounts as they were made last, and what of.
        self._made: tuple[tuple[Tree, int, Resources, UseOverTime], Accounts] | None = None

    @property
    def node_pool(self) -> str:
        """The name of the pool whose nodes they divide; "": the cluster is not divided."""
        return "" if self._pool is None else self._pool.name

    # --- objects -----------------------------------------------------------------------------------------------------
    @property
    def tree(self) -> Tree:
        """The tree of the queues that are known."""
        if self._tree is None:
            self._tree = Tree(self.records.all(), is_read=self.records.is_read)
        return self._tree

    def _queue_changed(self, _: QueueRecord) -> None:
        self._forget_tree()

    def _forget_tree(self) -> None:
        self._tree, self._divisions = None, Divisions()
        self.tree_version += 1
        self._changed()

    def copy(self) -> Queues:
        """Queues of their own that know the same; sums are shared until ``count_changed``."""
        made = copied(
            self,
            _changed=_tell_nobody,
            _of_node=dict(self._of_node),
            _cards=self._cards.copy(),
            _cards_of=dict(self._cards_of),
            _amounts_of=dict(self._amounts_of),
            _divisions=Divisions(dict(self._divisions.levels), dict(self._divisions.of)),
        )
        made.take_records(self.records)
        return made

    def take_records(self, records: Facts[str, QueueRecord]) -> None:
        """Know the same Queue objects as another, and hear of changes."""
        self.records = records.copy(self._queue_changed, read_changed=self._forget_tree)

    def count_changed(self, rows: Mapping[str, Row | None]) -> None:
        """Count pods (UIDs) with other rows, in a copy."""
        self.sums = self.sums.changed(rows)

    # --- nodes -------------------------------------------------------------------------------------------------------
    def count_node(self, node: NodeRecord, bound: Iterable[PodRecord]) -> bool:
        """Count what a node has for pods of ours; return whether sizes of cards have come or gone with that."""
        if self._pool is not None and not self._pool.takes(node.labels):
            return self.drop_node(node.name)
        has = use.allocatable(node)
        if has != NOTHING:
            for pod in bound:
                if pod.is_foreign:
                    has = has.minus(use.held(pod, node))
        return self._put_node(node.name, has, {node.smallest_card_mib, node.largest_card_mib} - {0})

    def drop_node(self, name: str) -> bool:
        """A node is gone; return as ``count_node``."""
        return self._put_node(name, NOTHING, set())

    def _put_node(self, name: str, has: Resources, cards: set[int]) -> bool:
        self._total = self._total.minus(self._of_node.pop(name, NOTHING)).plus(has)
        if has != NOTHING:
            self._of_node[name] = has
        before, known = self._cards_of.pop(name, set()), self.card_sizes
        if cards:
            self._cards_of[name] = cards
        self._cards.update(cards)
        self._cards.subtract(before)
        for size in before:
            if not self._cards[size]:
                del self._cards[size]
        if known == self.card_sizes:
            return False
        self._amounts_of.clear()
        return True

    @property
    def card_sizes(self) -> tuple[int, int]:
        """The smallest and the largest card of all nodes, in MiB; 0: none is known."""
        return min(self._cards, default=0), max(self._cards, default=0)

    def mark(self, uids: Iterable[str]) -> None:
        """Have pods (UIDs) counted again."""
        self._marked.update(dict.fromkeys(uids))

    def count(self, row_of: Callable[[str], Row | None]) -> None:
        """Count marked pods (UIDs) again; the sums then equal a recount."""
        self.count_some(row_of, len(self._marked))

    def count_some(self, row_of: Callable[[str], Row | None], most: int) -> bool:
        """Count up to ``most`` of the marked pods again, in the order of their marks; return whether there are more."""
        for uid in [*islice(self._marked, most)]:
            del self._marked[uid]
            self.sums.put(uid, row_of(uid))
        if len(self._amounts_of) > 2 * len(self.sums) + _FEW:
            self._amounts_of.clear()
        return bool(self._marked)

    def _vanished_changed(self, uid: str, row: Row | None) -> None:
        self.sums.put(uid, row)
        self._changed()

    # --- use over time -----------------------------------------------------------------------------------------------
    def note_use_over_time(self, used: UseOverTime) -> None:
        """Take what queues used of the cluster until now: it counts in their fair shares."""
        if used != self.used:
            self.used = used
            self._changed()

    def kept(self) -> dict[str, Resources]:
        """What the pods of each Queue object keep, by name."""
        return {name: each.kept for name, each in self.sums.sums.items() if self.records.get(name) is not None}

    @property
    def capacity(self) -> Resources:
        """What ready nodes have for pods of ours."""
        return self._total

    # --- what pods count for -----------------------------------------------------------------------------------------
    def row(
        self,
        pod: PodRecord,
        group: PodGroupRecord | None,
        charges: Collection[Charge],
        node: NodeRecord | None,
        *,
        is_victim: bool = False,
    ) -> Row | None:
        """What a pod counts for, and where; None: for nothing. ``charges``: where it is on its way to.

        ``is_victim``: it has to go for others, and counts as one that is terminating.

        One that is counted twice, as its hand-over and its plan both name it, counts with the most that one says. One
        on its way counts as it was decided on, also when its labels or its PodGroup change meanwhile.
        """
        charged = next((charge.charged for charge in charges if self._is_here(pod, charge.charged)), None)
        if charged is not None:
            queue, is_fixed = charged.queue, not charged.is_preemptible
        elif pod.queue:
            queue, is_fixed = use.queue_of(pod, group), use.is_fixed(pod, group)
        else:
            return None
        of_group = (pod.namespace, pod.pod_group) if pod.pod_group else None
        has_place = Stage.LEAVING if pod.deleting or is_victim else Stage.HELD
        if pod.node:
            return Row(queue, use.held(pod, node), has_place, is_fixed, of_group)
        planned = [use.planned(pod.cls.demand, charge.devices, claimed_nano=_claimed(charge)) for charge in charges]
        if planned:
            return Row(queue, max(planned), has_place, is_fixed, of_group)
        if pod.deleting or pod.gated or pod.blocker is not None:
            return None
        return Row(queue, self.asked(pod.cls), Stage.WAITING, is_fixed, of_group)

    def _is_here(self, pod: PodRecord, charged: Charged | None) -> bool:
        """Whether a placement is of these queues, and not of another node pool's."""
        if charged is None or self._pool is None or charged.pool is None:
            return charged is not None and bool(pod.queue)
        return charged.pool == self._pool.value

    def asked(self, cls: PodClass) -> Resources:
        """What a class asks: a part of the smallest card that there is, if it asks for memory of one."""
        return self._amounts(cls)[0]

    def least(self, cls: PodClass) -> Resources:
        """The least that a class may come to use: a part of the largest card that there is."""
        return self._amounts(cls)[1]

    def _amounts(self, cls: PodClass) -> tuple[Resources, Resources]:
        found = self._amounts_of.get(cls)
        if found is None:
            smallest, largest = self.card_sizes
            found = self._amounts_of[cls] = use.asked(cls, smallest), use.least(cls, largest)
        return found

    # --- what others read ---------------------------------------------------------------------------------------------
    def account_of(self, name: str) -> tuple[TreeQueue, Account] | None:
        """A queue that can be used, and its account as it is counted, to be read only."""
        made = self._accounts()
        queue = made.tree.find(name)
        return None if queue is None else (queue, made.of[queue.number])

    # --- what decisions read -----------------------------------------------------------------------------------------
    def accounts(self) -> Accounts:
        """Accounts of all queues as they are counted, to be charged by one decision."""
        made = self._accounts()
        return Accounts(made.tree, made.total, [replace(account) for account in made.of])

    def recorded_accounts(self, records: Records) -> Accounts:
        """The same, made again with each step of the division on record: for people who ask how it comes about."""
        return accounts(self.tree, self.sums.sums, self._total, used=self.used, records=records)

    def _accounts(self) -> Accounts:
        made_of = self.tree, self.sums.version, self._total, self.used
        if self._made is None or self._made[0] != made_of:
            self._made = (
                made_of,
                accounts(self.tree, self.sums.sums, self._total, used=self.used, known=self._divisions),
            )
        return self._made[1]


def _tell_nobody() -> None:
    return


def _claimed(charge: Charge) -> int:
    return 0 if charge.demand is None else charge.demand.claimed_nano
