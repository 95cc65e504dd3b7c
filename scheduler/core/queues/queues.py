"""Queues: their objects, what pods count for in them, and the resources that nodes have to divide.

Pods that an event touched are counted again before the next decision, as nodes are (cluster.py): so the order, number
and lateness of events can't matter to the sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

import msgspec

from gpu.grant import Charged
from scheduler.core.model.facts import Facts, copied
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.quota import NOTHING, QueueElsewhere, QueueRecord, Resources
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord
from scheduler.core.model.settings import NodePool
from scheduler.core.nodes.node_usage import Charge
from scheduler.core.queues import use
from scheduler.core.queues.accounts import Account, Accounts, accounts
from scheduler.core.queues.fair_share import Divisions, Records
from scheduler.core.queues.tree import QueueSums, Row, Stage, Tree, TreeQueue
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime
from sharing.entries import vanished_until_ns, vanished_wait_s

#: Pods of a namespace that are counted each for itself. Of further ones those of a node and queue are one row.
_MOST_OF_NAMESPACE: Final = 1000


class _Vanished(msgspec.Struct):
    """What one pod, or several of a node and queue, counts for. ``gone_ns``: when it was judged first; None: not yet.

    ``row``: all that it had, ``by_claim``: what of that claims gave. ``counted``: what of it counts; None: nothing.
    """

    namespace: str
    node: str
    row: Row
    by_claim: Resources
    wait_s: int
    counted: Row | None
    gone_ns: int | None = None

    def count(self, left: Resources) -> Resources:
        """Count as no more than is left on the node; return what is left then. What claims gave counts always."""
        own = self.row.amounts.minus(self.by_claim)
        part = Resources(*(max(0, min(pair)) for pair in zip(own, left, strict=True)))
        amounts = part.plus(self.by_claim)
        self.counted = None if amounts == NOTHING else msgspec.structs.replace(self.row, amounts=amounts)
        return left.minus(part)


class VanishedRows:
    """What pods count for that were deleted by force: the API has lost them, while their containers may run.

    Containers may run for the pod's whole grace period. If it counted for nothing, its owner could place another one
    beside it, again and again, above any limit. So it counts for as long as a share or a claim of it is kept
    (sharing/entries.py, nodes/vanished_users.py): until its kubelet must have learned of the deletion, and for its
    grace period. The wait begins again when its node has not been ready. It ends with the Node: pods of a machine that
    an autoscaler removed would fill the limits of their queues for an hour. Together such pods count as no more than
    their node has beyond its live pods; those that vanished last count first. A restart forgets them.

    Rows are by UID, or by what stands for several. ``put`` takes a row that has changed, None: it has ended. ``most``:
    pods of a namespace that have a row each.
    """

    def __init__(self, put: Callable[[str, Row | None], None], *, most: int = _MOST_OF_NAMESPACE) -> None:
        self._put = put
        self._most = most
        self._rows: dict[str, _Vanished] = {}
        self._at: dict[str, dict[str, None]] = {}
        self._count: dict[str, int] = {}
        #: By node: when one of its pods may have ended, since when it is ready (None: it is not), and what it has
        #: beyond its live pods.
        self._due_ns: dict[str, int] = {}
        self._heard_ns: dict[str, int | None] = {}
        self._left: dict[str, Resources] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, uid: str) -> Row | None:
        """What a pod that vanished counts for; None: for nothing, or as one of several."""
        found = self._rows.get(uid)
        return None if found is None else found.counted

    def rows(self) -> dict[str, Row]:
        """All rows that count."""
        return {uid: each.counted for uid, each in self._rows.items() if each.counted is not None}

    # --- what is seen ------------------------------------------------------------------------------------------------
    def see(self, pod: PodRecord, row: Row | None) -> None:
        """A pod is gone that was bound, and that nobody saw end. ``row``: what it counted for."""
        if row is None or row.amounts == NOTHING:
            return
        wait_s, by_claim = vanished_wait_s(pod.grace_s), use.by_claim(pod.cls.demand)
        uid, row = pod.uid, msgspec.structs.replace(row, stage=Stage.LEAVING, group=None)
        if self._count.get(pod.namespace, 0) >= self._most:
            uid = f"{pod.namespace}/{row.queue}/{row.is_fixed}/{pod.node}"
            known = self._rows.get(uid)
            if known is not None:
                row = msgspec.structs.replace(row, amounts=row.amounts.plus(known.row.amounts))
                by_claim, wait_s = by_claim.plus(known.by_claim), max(wait_s, known.wait_s)
        if uid not in self._rows:
            self._count[pod.namespace] = self._count.get(pod.namespace, 0) + 1
        self._rows[uid] = _Vanished(pod.namespace, pod.node, row, by_claim, wait_s, row)
        at = self._at.setdefault(pod.node, {})
        at.pop(uid, None)
        at[uid] = None
        self._due_ns[pod.node] = 0
        self._put(uid, row)

    def count_node(self, node: NodeRecord, bound: Iterable[PodRecord]) -> None:
        """Count again what vanished from a node, beside the pods that are bound to it."""
        if node.name in self._at:
            self._left[node.name] = use.beyond(node, bound)
            self._count_again(node.name)

    def _count_again(self, name: str) -> None:
        left = self._left.get(name)
        if left is None:
            return
        for uid in reversed(self._at[name]):
            each = self._rows[uid]
            before = each.counted
            left = each.count(left)
            if each.counted != before:
                self._put(uid, each.counted)

    def ended(self, uid: str) -> None:
        """It counts for nothing any more."""
        gone = self._rows.pop(uid, None)
        if gone is None:
            return
        self._count[gone.namespace] -= 1
        if not self._count[gone.namespace]:
            del self._count[gone.namespace]
        del self._at[gone.node][uid]
        if not self._at[gone.node]:
            del self._at[gone.node], self._due_ns[gone.node]
            self._heard_ns.pop(gone.node, None)
            self._left.pop(gone.node, None)
        self._put(uid, None)

    # --- time --------------------------------------------------------------------------------------------------------
    def expire(self, now_ns: int, node: Callable[[str], NodeRecord | None]) -> None:
        """Free what nobody can use any more. ``node``: finds one by its name."""
        for name in [*self._at]:
            known = node(name)
            if known is None:
                self._end([*self._at[name]])
                continue
            heard_ns = self._heard_ns.get(name)
            if not known.is_ready or heard_ns is None:
                self._heard_ns[name] = now_ns if known.is_ready else None
            if now_ns >= self._due_ns[name] or self._heard_ns[name] != heard_ns:
                self._expire_at(name, now_ns)

    def _expire_at(self, name: str, now_ns: int) -> None:
        heard_ns, over, due_ns = self._heard_ns[name], list[str](), list[int]()
        for uid in self._at[name]:
            each = self._rows[uid]
            each.gone_ns = now_ns if each.gone_ns is None else each.gone_ns
            until_ns = vanished_until_ns(each.gone_ns, heard_ns, each.wait_s)
            if now_ns >= until_ns:
                over.append(uid)
            else:
                due_ns.append(until_ns)
        self._end(over)
        if due_ns:
            self._due_ns[name] = min(due_ns)
            if over:
                self._count_again(name)

    def _end(self, uids: list[str]) -> None:
        for uid in uids:
            self.ended(uid)

    @property
    def next_ns(self) -> int | None:
        """When ``expire`` may free something, if nothing else happens; None: never."""
        return min(self._due_ns.values(), default=None)


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
        #: Those of other node pools, by name.
        self.elsewhere: Facts[str, QueueElsewhere] = Facts(self._elsewhere_changed, read_changed=_tell_nobody)
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
            self._tree = Tree(
                self.records.all(),
                is_read=self.records.is_read,
                elsewhere={each.name: each.pool for each in self.elsewhere.all()},
                here=self.node_pool,
            )
        return self._tree

    def _queue_changed(self, _: QueueRecord) -> None:
        self._forget_tree()

    def _elsewhere_changed(self, _: QueueElsewhere) -> None:
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
