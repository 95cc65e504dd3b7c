"""Moving for the needs of one look: what was found for one need holds for all that ask the same.

Queues differ, but what a need asks of nodes does not: many gangs of many queues wait for eight GPUs a pod. As long as
nothing is charged, one search says for all of them that no group can be moved.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from scheduler.core.model.preemption import Moves, NoMoves
from scheduler.core.model.quota import WITHOUT_END
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.tree import Tree
from scheduler.core.room.movers import Movers
from scheduler.core.room.moving import find_moves
from scheduler.core.room.need import Need
from scheduler.core.room.trial import Trial


@dataclass(slots=True)
class MovesOfLook:
    """``has_charged`` is called whenever something is charged."""

    _movers: Movers | None = None
    _none: set[Hashable] = field(default_factory=set)

    def has_charged(self) -> None:
        """Forget everything: nodes hold something else now."""
        self._movers = None
        self._none.clear()

    def is_known(self, need: Need, trial: Trial, off: frozenset[str]) -> bool:
        """Whether no group can be moved for a need that asks the same. ``off``: nodes that it is kept off."""
        return _asked(need, trial.accounts.tree, off) in self._none

    def find(self, need: Need, trial: Trial, off: frozenset[str]) -> Moves | NoMoves:
        """Search for one need."""
        if self._movers is None:
            self._movers = Movers(trial)
        found = find_moves(need, trial, movers=self._movers)
        if isinstance(found, NoMoves) and (asked := _asked(need, trial.accounts.tree, off)) is not None:
            self._none.add(asked)
        return found


def _asked(need: Need, tree: Tree, off: frozenset[str]) -> Hashable:
    """What an answer depends on, as long as nothing is charged; None where it depends on the pods themselves.

    Without a limit a queue takes every need that can be preempted, and one that can't has nobody moved for it.
    """
    if need.delay_ns > 0 or need.has_places:
        return None
    if any(pod.cls.rules is not None or pod.alone or pod.unbound_claims for pod in need.pods):
        return None
    leaf = tree.leaf(need.queue)
    if isinstance(leaf, Verdict):
        return None
    is_limited = any(tree.queues[number].record.limit != WITHOUT_END for number in leaf.path)
    _, priority, *form = need.form
    return need.queue if is_limited else "", priority, off, tuple(form)
