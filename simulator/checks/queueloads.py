"""What each queue has: pods that are bound and pods that wait, and what both amount to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from simulator.checks import queueuse
from simulator.checks.queuetree import AMOUNTS, PER, QueueTree
from simulator.checks.queueuse import NOTHING, Amounts
from simulator.facts import PodFacts


class Load(NamedTuple):
    """A queue with what it and those below it have.

    ``closed``: why it can't be used, "" if it can. ``most``: by ``quota`` and ``limit`` what it allows (None: all).
    """

    name: str
    parent: str
    closed: str
    placed: int
    waiting: int
    used: Amounts
    waits_for: Amounts
    most: Mapping[str, Mapping[str, Fraction | None]]


def loads(
    tree: QueueTree, own: Mapping[str, Sequence[PodFacts]], card_mib: Callable[[PodFacts], int]
) -> Iterator[Load]:
    """Yield all queues of a tree, each behind its parent, then those that pods name and that nobody made.

    ``own``: pods by the queue that they count in. A queue that can't be used stands for itself.
    """
    for name in sorted(tree.specs, key=lambda name: tree.path(name)[0][::-1] or [name]):
        below = [name] if tree.path(name)[1] else tree.below(name)
        most = {field: {each: tree.most(name, field, each) for each in PER} for field in AMOUNTS}
        pods = [pod for each in below for pod in own.get(each, ())]
        yield _load(pods, card_mib, name=name, parent=tree.parent(name), closed=tree.path(name)[1], most=most)
    for name in sorted(own.keys() - tree.specs.keys() if tree.specs else ()):
        most = dict.fromkeys(AMOUNTS, dict.fromkeys(PER, Fraction(0)))
        yield _load(own[name], card_mib, name=name, parent="", closed=tree.path(name)[1], most=most)


def _load(
    pods: Sequence[PodFacts],
    card_mib: Callable[[PodFacts], int],
    *,
    name: str,
    parent: str,
    closed: str,
    most: Mapping[str, Mapping[str, Fraction | None]],
) -> Load:
    used = waits_for = NOTHING
    for pod in pods:
        used = queueuse.plus(used, queueuse.used(pod, card_mib(pod)))
        if not pod.node:
            waits_for = queueuse.plus(waits_for, queueuse.asked(pod, card_mib(pod)))
    placed = sum(bool(pod.node) for pod in pods)
    return Load(name, parent, closed, placed, len(pods) - placed, used, waits_for, most)
