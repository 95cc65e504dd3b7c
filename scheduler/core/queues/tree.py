"""The tree of queues, made of their records whenever one changes. It never changes in place.

Queues that can't be used stand beside it, each with the link that is broken: their pods wait, and what runs goes on
(docs/design/queues.md). Without any Queue object there is one queue that takes all pods and limits nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from scheduler.core.model.quota import WITHOUT_END, BadField, QueueRecord
from scheduler.core.model.verdict import Code, QueueCause, Verdict

#: A chain of parents longer than this is refused: the work for each pod that is placed grows with it.
DEEPEST: Final = 32
#: What a verdict names while Queues can't be read.
_KIND: Final = "queues.scheduling.run.ai"
#: Number of the virtual queue above all others.
_TOP: Final = -1

#: The queue of all pods where there is no Queue object. Objects can't have this name.
_ONLY: Final = QueueRecord(name="", quota=WITHOUT_END)


@dataclass(frozen=True, slots=True)
class TreeQueue:
    """A queue in its place. ``path``: its number and those of all queues above it, itself first.

    ``parent`` is -1 at the top. ``children``: numbers, in the order of names.
    """

    record: QueueRecord
    number: int
    parent: int
    path: tuple[int, ...]
    children: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name of the object."""
        return self.record.name


class Tree:
    """All queues that can be used, numbered so that parents come before their children.

    ``top``: numbers of queues without a parent. ``is_implied``: there is no Queue object at all. ``is_read``: Queue
    objects can be read; as long as they never were, nobody knows what they limit, and all pods wait.
    """

    __slots__ = ("_number_of", "_unread", "broken", "is_implied", "queues", "top")

    def __init__(self, records: Iterable[QueueRecord] = (), *, is_read: bool = True) -> None:
        self._unread = None if is_read else Verdict(code=Code.NOT_READ, detail=_KIND)
        by_name = {record.name: record for record in sorted(records, key=lambda record: record.name)}
        self.is_implied = not by_name
        if not by_name:
            by_name = {_ONLY.name: _ONLY}
        chains = {name: _chain(name, by_name) for name in by_name}
        #: Queues that can't be used, by name, and why.
        self.broken = {name: chain for name, chain in chains.items() if isinstance(chain, Verdict)}
        sound = sorted((len(chain), name) for name, chain in chains.items() if not isinstance(chain, Verdict))
        self._number_of = {name: number for number, (_, name) in enumerate(sound)}
        below: dict[int, list[int]] = {}
        for name, number in self._number_of.items():
            below.setdefault(self._parent_of(by_name[name]), []).append(number)
        queues: list[TreeQueue] = []
        for name, number in self._number_of.items():
            parent = self._parent_of(by_name[name])
            path = (number, *(queues[parent].path if parent != _TOP else ()))
            queues.append(TreeQueue(by_name[name], number, parent, path, tuple(below.get(number, ()))))
        self.queues = tuple(queues)
        self.top = tuple(below.get(_TOP, ()))

    @property
    def limits_nothing(self) -> bool:
        """Whether there are no queues, so that all pods may use everything."""
        return self.is_implied and self._unread is None

    def _parent_of(self, record: QueueRecord) -> int:
        return self._number_of[record.parent] if record.parent else _TOP

    def find(self, name: str) -> TreeQueue | None:
        """The queue of this name, if it can be used; any name means the one queue where there are no objects."""
        number = 0 if self.is_implied else self._number_of.get(name)
        return None if number is None else self.queues[number]

    def leaf(self, name: str) -> TreeQueue | Verdict:
        """The queue in which pods of this queue wait, or why they can't be placed in it."""
        if self._unread is not None:
            return self._unread
        found = self.find(name)
        if found is None:
            return self.broken.get(name) or Verdict(code=Code.QUEUE_NOT_FOUND, detail=name)
        if found.children:
            return Verdict(code=Code.QUEUE_NOT_LEAF, detail=name)
        return found


def _chain(name: str, by_name: dict[str, QueueRecord]) -> tuple[str, ...] | Verdict:
    """Names from a queue up to the top, or what is wrong on the way."""
    seen: dict[str, None] = {}
    at = name
    while True:
        record = by_name.get(at)
        if record is None:
            return Verdict(code=Code.QUEUE_PARENT_NOT_FOUND, detail=name, queue=QueueCause(at=at))
        if record.bad is not None:
            return Verdict(code=Code.QUEUE_CLOSED, detail=name, queue=_closed(at, record.bad))
        if at in seen:
            return Verdict(code=Code.QUEUE_CYCLE, detail=name, queue=QueueCause(at=at))
        seen[at] = None
        if len(seen) > DEEPEST:
            return Verdict(code=Code.QUEUE_TOO_DEEP, detail=name, required=DEEPEST)
        if not record.parent:
            return tuple(seen)
        at = record.parent


def _closed(name: str, bad: BadField) -> QueueCause:
    return QueueCause(at=name, field=bad.field, value=bad.value)
