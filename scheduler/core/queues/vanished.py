"""Pods that vanished before their end was seen: they count in their queues for a while.

A pod that is deleted by force is gone from the API at once, while its containers may run for its whole grace period. If
it counted for nothing then, its owner could place another one beside it, again and again, above any limit. So it counts
for as long as a share or a claim of it is kept (sharing/entries.py, nodes/vanished_users.py): until its kubelet must
have learned of the deletion, and for its grace period. The wait begins again when its node has not been ready, and it
ends with the Node. Only this process knows of it; a restart forgets it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.model.resources import NOTHING
from scheduler.core.queues.sums import Row, Stage
from sharing.entries import LEARNS_S, LONGEST_SILENCE_S, VANISHED_MARGIN_S

_NS: Final = 1_000_000_000
_SILENCE_NS: Final = LONGEST_SILENCE_S * _NS
#: Pods of a namespace that are counted each for itself. Of further ones those of a node and queue are one row.
_MOST_OF_NAMESPACE: Final = 1000


class _Vanished(msgspec.Struct):
    """What one pod, or several of a node and queue, counts for. ``until_ns`` None: it is not judged yet."""

    namespace: str
    node: str
    row: Row
    wait_ns: int
    until_ns: int | None = None


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
        #: By node: when one of its pods may have ended, and since when it is not ready.
        self._due_ns: dict[str, int] = {}
        self._silent_ns: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, uid: str) -> Row | None:
        """What a pod that vanished counts for; None: for nothing, or as one of several."""
        found = self._rows.get(uid)
        return None if found is None else found.row

    def rows(self) -> dict[str, Row]:
        """All rows."""
        return {uid: each.row for uid, each in self._rows.items()}

    def see(self, pod: PodRecord, row: Row | None) -> None:
        """A pod is gone that was bound, and that nobody saw end. ``row``: what it counted for."""
        if row is None or row.amounts == NOTHING:
            return
        wait_ns = (LEARNS_S + pod.grace_s + VANISHED_MARGIN_S) * _NS
        uid, row = pod.uid, msgspec.structs.replace(row, stage=Stage.LEAVING, group=None)
        if self._count.get(pod.namespace, 0) >= self._most:
            uid = f"{pod.namespace}/{row.queue}/{row.is_fixed}/{pod.node}"
            known = self._rows.get(uid)
            if known is not None:
                row = msgspec.structs.replace(row, amounts=row.amounts.plus(known.row.amounts))
                wait_ns = max(wait_ns, known.wait_ns)
        if uid not in self._rows:
            self._count[pod.namespace] = self._count.get(pod.namespace, 0) + 1
        self._rows[uid] = _Vanished(pod.namespace, pod.node, row, wait_ns)
        self._at.setdefault(pod.node, {})[uid] = None
        self._due_ns[pod.node] = 0
        self._put(uid, row)

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
            self._silent_ns.pop(gone.node, None)
        self._put(uid, None)

    def expire(self, now_ns: int, node: Callable[[str], NodeRecord | None]) -> None:
        """Free what nobody can use any more. ``node``: finds one by its name."""
        for name in [*self._at]:
            known = node(name)
            if known is None:
                self._end([*self._at[name]])
            elif not known.is_ready:
                if now_ns >= self._silent_ns.setdefault(name, now_ns) + _SILENCE_NS:
                    self._end([*self._at[name]])
            else:
                self._expire_at(name, now_ns, is_back=self._silent_ns.pop(name, None) is not None)

    def _expire_at(self, name: str, now_ns: int, *, is_back: bool) -> None:
        if now_ns < self._due_ns[name] and not is_back:
            return
        over = []
        for uid in self._at[name]:
            each = self._rows[uid]
            if each.until_ns is None or is_back:
                each.until_ns = now_ns + each.wait_ns
            elif now_ns >= each.until_ns:
                over.append(uid)
        self._end(over)
        if name in self._at:
            self._due_ns[name] = min(self._rows[uid].until_ns or 0 for uid in self._at[name])

    def _end(self, uids: list[str]) -> None:
        for uid in uids:
            self.ended(uid)

    @property
    def next_ns(self) -> int | None:
        """When ``expire`` may free something, if nothing else happens; None: never."""
        silent = {name: at + _SILENCE_NS for name, at in self._silent_ns.items()}
        return min((silent.get(name, at) for name, at in self._due_ns.items()), default=None)
