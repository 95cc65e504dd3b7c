"""Pods that vanished before their end was seen: they count in their queues for a while.

A pod that is deleted by force is gone from the API at once, while its containers may run for its whole grace period. If
it counted for nothing then, its owner could place another one beside it, again and again, above any limit. So it counts
for as long as a share or a claim of it is kept (sharing/entries.py, nodes/vanished_users.py): until its kubelet must
have learned of the deletion, and for its grace period. The wait begins again when its node has not been ready. It ends
with the Node: pods of a machine that an autoscaler gave back would fill the limits of their queues for an hour.

Together they count as no more than their node has beyond its live pods, for no more of them can run; those that
vanished last count first. Only this process knows of it; a restart forgets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from scheduler.core.model.quota import NOTHING, Resources
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.queues import use
from scheduler.core.queues.sums import Row, Stage
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
    """Rows by UID, or by what stands for several. ``put`` takes a row that has changed, None: it has ended.

    ``most``: pods of a namespace that have a row each.
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
