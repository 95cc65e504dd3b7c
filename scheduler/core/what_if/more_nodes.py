"""Family 7: there are more nodes like one that is there. The number is the least that helps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from typing import Final

import msgspec

from scheduler.core.claims import copied_slices
from scheduler.core.decide.changes import AnotherNode, Change, LastInTurn
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.records import NodeRecord
from scheduler.core.what_if.asking import Finding, Question, about
from scheduler.core.what_if.edit import Family, NotPossible, smallest
from scheduler.core.what_if.endings import no_node
from scheduler.core.what_if.node_kinds import kinds, opened
from scheduler.core.what_if.subject import Subject
from scheduler.core.what_if.trying import Trying
from wire import names

#: More nodes than that are not tried.
MOST_NODES: Final = 64


class MoreNodes(msgspec.Struct, frozen=True):
    """``count`` further nodes like this one, empty, ready and open, with copies of devices that it alone reaches."""

    count: int
    like: str

    @property
    def family(self) -> Family:
        """Family 7."""
        return Family.MORE_NODES

    @property
    def is_own(self) -> bool:
        """Others may take them."""
        return False

    def spelled(self) -> str:
        """``node +2 like n17``."""
        return f"node +{self.count} like {self.like}"

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Put the nodes. Raises NotPossible if the one that they are like is not there, or there are too many."""
        del subject
        row = snapshot.ledger.row_of.get(self.like)
        like = None if row is None else snapshot.ledger.nodes[row]
        if like is None:
            raise NotPossible(f"{self.spelled()}: {no_node(snapshot)}")
        if not 0 < self.count <= MOST_NODES:
            raise NotPossible(f"{self.spelled()}: allowed are 1 to {MOST_NODES} nodes")
        there = snapshot.ledger.row_of
        free = (name for number in itertools.count(1) if (name := f"{like.name}-more-{number}") not in there)
        slices = snapshot.published_for(like.name)
        return tuple(
            AnotherNode(_copy(like, name), copied_slices.like(slices, like.name, name))
            for name in itertools.islice(free, self.count)
        )


def candidates(trying: Trying) -> Finding:
    """Find edits that help, one for each kind of node that the group may use (node_kinds.py)."""
    for like in kinds(trying):
        count = yield from _fewest(trying, like)
        if count is not None:
            yield MoreNodes(count, like)


def _fewest(trying: Trying, like: str) -> Generator[Question, bool, int | None]:
    """Return the least number of these nodes that helps; None if as many as are tried don't.

    Of several enough has to be left after all others: nodes come one by one, small pods fit on the first, and with each
    that is placed another queue may be due.
    """
    if (yield about(trying, MoreNodes(1, like))):
        return 1
    search = smallest(2, MOST_NODES, lambda count: MoreNodes(count, like))
    helps: bool | None = None
    while True:
        try:
            edit = next(search) if helps is None else search.send(helps)
        except StopIteration as done:
            count: int | None = done.value
            return count
        helps = (yield about(trying, edit)) and (yield _is_left(trying, edit))


def _is_left(trying: Trying, edit: MoreNodes) -> Question:
    last = LastInTurn(tuple(sorted(trying.subject.uids)))
    return Question((*edit.changes(trying.snapshot, trying.subject), last))


def fewest(question: Callable[[int], Question]) -> Generator[Question, bool, int | None]:
    """Return the least number of nodes that helps; None if as many as are tried don't."""
    if (yield question(1)):
        return 1
    return (yield from smallest(2, MOST_NODES, question))


def _copy(like: NodeRecord, name: str) -> NodeRecord:
    labels = {**like.labels, names.HOSTNAME_LABEL: name}
    return msgspec.structs.replace(opened(like), name=name, uid=f"uid:{name}", labels=labels, uuids=())
