"""Which group gets the next berth: the one that has waited longest of the first ones of each queue without a berth.

A group that can have no berth keeps none from those behind it: it is passed over, and tried again when something has
changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.berth_choice import asks_gpus, needed
from scheduler.core.decide.berth_holders import lacks_nodes, rank_of
from scheduler.core.decide.held_back import HeldBackItems
from scheduler.core.decide.looks import Looks
from scheduler.core.decide.needs import Needing, needs_left
from scheduler.core.model.plan import Entry
from scheduler.core.model.priority_order import Rank
from scheduler.core.queues import reserved_nodes as rules
from scheduler.core.queues.reserved_nodes import Berths, Refused
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.room.need import Need
from wire import rfc3339

_S: Final = 1_000_000_000
#: A look for more berths is made at this interval, and tries one group.
EVERY_NS: Final = 1 * _S
#: A group that found no nodes is tried again after this time.
AGAIN_NS: Final = 10 * _S
#: The most groups of a queue that are looked at, where the first ones wait for something else than room.
_HEADS: Final = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """A group that has waited too long."""

    need: Need
    queue: TreeQueue
    since_s: int
    rank: Rank


@dataclass(slots=True)
class Candidates:
    """Those of one look. ``entries``: what the decision has done; ``before``: berths as they were.

    ``stamp``: what answers depend on. ``refused``: groups (UIDs) that found no berth. ``times``: when to look next.
    """

    attempts: Attempts
    entries: list[Entry]
    before: Berths
    stamp: tuple[object, ...]
    refused: dict[str, Refused] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)
    _heads: dict[str, list[Needing]] = field(default_factory=dict)

    @property
    def has_several(self) -> bool:
        """Whether groups of several queues may have waited too long."""
        return len(self._heads) > 1

    def first(self, queues_with_one: AbstractSet[str]) -> Candidate | None:
        """The group that has waited longest, and was not refused on the same ground or just now."""
        self._heads = self._found_heads(queues_with_one)
        found = [each for each in map(self._first_in, self._heads.values()) if each is not None]
        for each in sorted(found, key=lambda each: (each.since_s, each.rank.uid)):
            refused = self.before.refused.get(each.rank.uid)
            if refused is None or self._is_tried_again(refused):
                return each
        return None

    def refuse(self, candidate: Candidate, *, is_passed: bool) -> None:
        """Note that a group found no berth. ``is_passed``: nor would it have, had nobody else one."""
        self.refused[candidate.rank.uid] = Refused(self.attempts.now_ns, self.stamp, is_passed)

    def look_again(self) -> None:
        """Have the next look as soon as one may be."""
        self.times.append(self.attempts.now_ns + EVERY_NS)

    def _found_heads(self, queues_with_one: AbstractSet[str]) -> dict[str, list[Needing]]:
        """Of each other queue the first groups whose patience may have ended, by rank; those tried again come last."""
        tree = self.attempts.accounts.tree
        heads: dict[str, list[Needing]] = {}
        held = HeldBackItems.of(self.attempts, Looks.of(self.attempts.snapshot.backlog.room))
        for needing in needs_left(self.attempts, self.entries, held):
            queue, rank = tree.leaf(needing.queue), needing.rank
            if rank is None or not isinstance(queue, TreeQueue) or queue.name in queues_with_one:
                continue
            if not self._is_over(_seconds(rank.created), queue):
                continue
            if (refused := self.before.refused.get(rank.uid)) is not None:
                self.refused[rank.uid] = refused
            if refused is None or not refused.is_passed or self._is_tried_again(refused):
                heads.setdefault(queue.name, []).append(needing)
        return {name: sorted(found, key=self._order)[:_HEADS] for name, found in heads.items()}

    def _order(self, needing: Needing) -> tuple[int, Rank]:
        """Who was passed over comes behind all others, those first that were so longest ago."""
        rank = _first_rank(needing)
        refused = self.refused.get(rank.uid)
        return (refused.at_ns if refused is not None and refused.is_passed else -1), rank

    def _is_tried_again(self, refused: Refused) -> bool:
        """Whether a group that found no berth is tried now: something has changed, and that is a while ago."""
        if refused.stamp == self.stamp:
            return False
        again_ns = refused.at_ns + AGAIN_NS
        if again_ns > self.attempts.now_ns:
            self.times.append(again_ns)
        return again_ns <= self.attempts.now_ns

    def _is_over(self, since_s: int | None, queue: TreeQueue) -> bool:
        """Whether somebody has waited longer than a queue's patience; else it is looked at again when that is so."""
        default_ns = self.attempts.snapshot.settings.patience_ns
        patience_ns = rules.patience_ns(self.attempts.accounts.tree, queue, default_ns)
        if since_s is None or patience_ns < 0:
            return False
        left_s = rules.ends_of_patience_s(since_s, patience_ns) - self.attempts.wall_s
        if left_s > 0:
            self.times.append(self.attempts.now_ns + left_s * _S)
        return left_s <= 0

    def _first_in(self, heads: Sequence[Needing]) -> Candidate | None:
        """The first group of a queue that lacks nothing but room, asks GPUs, and has waited too long.

        Where there may be others behind these, who lacks something else makes way for them.
        """
        tree = self.attempts.accounts.tree
        for needing in heads:
            queue, need = tree.leaf(needing.queue), needing.need()
            is_able = need is not None and any(asks_gpus(pod.cls) for pod in need.pods)
            is_able = is_able and need is not None and lacks_nodes(need, self.attempts)
            if not is_able and len(heads) >= _HEADS:
                self.refused[_first_rank(needing).uid] = Refused(self.attempts.now_ns, self.stamp, is_passed=True)
                self.look_again()
            if need is None or not is_able or not isinstance(queue, TreeQueue):
                continue
            since_s = max((_seconds(pod.created) or 0 for pod in needed(need)), default=0)
            since_s = max(since_s, _seconds(need.created) or 0)
            if self._is_over(since_s, queue):
                return Candidate(need, queue, since_s, rank_of(need))
        return None


def _first_rank(needing: Needing) -> Rank:
    rank = needing.rank
    if rank is None:
        raise LookupError("a need without a rank is no need")
    return rank


def _seconds(created: str) -> int | None:
    found = rfc3339.parse_ns(created)
    return None if found is None else found // _S
