"""A gang that waits: what it says, what is kept of its last start, and what wakes it.

While what its start asks beside the nodes is the same, a verdict on it may still be true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import msgspec

from scheduler.core.decide.attempts import SEARCHED_ON_NS, Attempts
from scheduler.core.groups.quorum import Quorum
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.quota import NOTHING, Resources
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.queues.accounts import HeldBack
from scheduler.core.queues.use import is_fixed
from scheduler.core.scheduling_queue.gang_signatures import GangSignature, Lined, LineKey, Until
from scheduler.core.scheduling_queue.unschedulable import KeptGang
from scheduler.core.scheduling_queue.verdicts import Key


def asked_by_start(group: PodGroupRecord, state: Quorum, ready: Sequence[PodRecord], places: Hashable = ()) -> Hashable:
    """All that the start of a gang depends on beside the nodes. ``places``: the Topologies that it names."""
    members = tuple((pod.uid, pod.cls, pod.subgroup, pod.alone) for pod in ready)
    return *_needs(group, state), members, places


def speaks_of(kept: KeptGang, group: PodGroupRecord, state: Quorum, waiting: int) -> bool:
    """Whether a gang needs what it needed when it was told, and has no fewer members: then that is still true."""
    if not isinstance(kept.asked, tuple):
        return False
    return kept.asked[:5] == _needs(group, state) and waiting >= len(kept.asked[5])


def _needs(group: PodGroupRecord, state: Quorum) -> tuple[Hashable, ...]:
    return group.minimum, (group.tree, group.levels), tuple(state.lacks), state.bound, state.total


def alike_of(
    group: PodGroupRecord, state: Quorum, ready: Sequence[PodRecord], waiting: int, *, places: Hashable = ()
) -> GangSignature | None:
    """What the start depends on where that may be the same for others; else None. ``waiting``: how many members do."""
    is_fresh = not state.bound and not state.done and len(ready) == waiting
    if not is_fresh or any(pod.alone for pod in ready):
        return None
    runs = groupby((pod.cls, pod.subgroup) for pod in ready)
    members = tuple((cls, subgroup, sum(1 for _ in run)) for (cls, subgroup), run in runs)
    return GangSignature(
        group.minimum, state.total, group.tree, members, (group.levels, places) if group.levels else ()
    )


#: So much later members have their turn that were left over beside others that are kept off.
_SOON_NS: Final = 1_000_000_000
_OF_QUEUES: Final = frozenset({Code.OVER_LIMIT, Code.OVER_QUOTA})


@dataclass(slots=True)
class GangWaits:
    """One gang's in one decision. ``pods``: its members that wait, in their order."""

    key: Key
    group: PodGroupRecord
    pods: Sequence[PodRecord]
    state: Quorum
    attempts: Attempts
    #: Of the members that may be placed, each once.
    classes: tuple[PodClass, ...] = ()
    #: What its start depends on, if that is the same for others.
    alike: GangSignature | None = None
    #: Whether its queue takes no more, or nodes that are kept for others are all it fits on.
    is_held_back: bool = False
    is_kept_off: bool = False

    # --- saying --------------------------------------------------------------------------------------------------
    def explain(self, verdict: Verdict) -> None:
        """All members say why they wait."""
        uids = [pod.uid for pod in self.pods if not pod.gated]
        self.attempts.effects.say(uids, verdict, self.key)

    def explain_kept(self) -> None:
        """They say what they said after the last start."""
        if (kept := self.kept) is not None:
            self.explain(kept.verdict)

    def held_back_before(self, ready: Sequence[PodRecord]) -> Verdict | None:
        """Why its queue did not take it where it was to be placed last; None if that is not why it waits."""
        said = self.attempts.snapshot.scheduling_queue.said.verdict(ready[0].uid)
        return said if said is not None and said.code in _OF_QUEUES else None

    # --- sleeping ------------------------------------------------------------------------------------------------
    def sleep(self, until: Until, *, is_counted: bool = False) -> None:
        """Nothing is decided on it until then."""
        self.attempts.effects.sleep_gang(self.key, until, is_counted=is_counted)

    def wake_at(self, at_ns: int) -> None:
        """It is decided on again at that time."""
        self.attempts.effects.wake_at(at_ns, self.key)

    def for_room(self, verdict: Verdict, rank: Rank, *, is_counted: bool = False) -> None:
        """Sleep until it may start: behind those that ask the same, if others may."""
        if self.alike is None:
            self.explain(verdict)
            self.sleep(Until.MAY_START, is_counted=is_counted)
            return
        needed = self.state.needed(self.pods)
        are_fixed = all(is_fixed(pod, self.group) for pod in needed)
        line = LineKey(self.group.namespace, self.group.queue, are_fixed, self.alike)
        uids = tuple(pod.uid for pod in self.pods)
        lined = Lined(self.key, rank, line, tuple(Counter(pod.cls for pod in needed).items()), uids)
        self.attempts.effects.line_up(lined, is_counted=is_counted)

    def is_counted(self, charged: set[int]) -> bool:
        """Whether the counts in its verdict, and in those on its classes, are of the ledger as it is."""
        unschedulable, effects = self.attempts.snapshot.scheduling_queue.unschedulable, self.attempts.effects
        old = [cls for cls in self.classes if cls not in self.attempts.classes.judged]
        return not charged and all(unschedulable.is_counted(effects.kept(cls)) for cls in old)

    # --- for its queue, and for nodes that are kept for others ---------------------------------------------------
    def hold_back(self, held: HeldBack, rank: Rank) -> None:
        """Sleep until its queue takes what it would use."""
        self.is_held_back = True
        elsewhere = self._as_of_now(held.verdict, None, self.attempts.charged()) if held.is_there else None
        self.attempts.effects.gang_held_back(self.key, held.use, rank, elsewhere=elsewhere)

    def for_both(self, verdict: Verdict, held: HeldBack, rank: Rank) -> None:
        """Some of its subgroups find no room, others are too much for its queue: either may change that."""
        self.is_held_back = True
        self.explain(verdict)
        self.attempts.effects.gang_held_back(self.key, held.use, rank, elsewhere=None)
        self.sleep(Until.CLASS_FITS)

    def may_be_kept_off(self) -> bool:
        """Whether it may have room where nodes are kept for others, though no member alone was kept off them.

        Members of another class would leave room, or a domain has nodes there.
        """
        attempts = self.attempts
        may_differ = len(self.classes) > 1 or bool(self.group.levels)
        return bool(attempts.kept.off) and may_differ and attempts.kept.fit_any(attempts.placer, self.classes)

    def keep_off(self, verdict: Verdict, use: Resources) -> None:
        """It may have room where nodes are kept for others: it sleeps until it may go there, or elsewhere."""
        attempts, kept_nodes = self.attempts, self.attempts.kept
        if verdict.reserve is None:
            verdict = msgspec.structs.replace(verdict, reserve=kept_nodes.cause(kept_nodes.off[0]))
        self.is_kept_off = True
        self.explain(verdict)
        off = kept_nodes.off_of(self.group.queue, use, self.alike or self.key)
        kept = attempts.classes.as_of_now(self.classes[0], verdict) if len(self.classes) == 1 else None
        attempts.effects.gang_kept_off(self.key, off, kept=kept)
        if self.alike is not None:
            kept_nodes.kept_alike[off._replace(use=NOTHING)] = verdict

    def keep_off_later(self, use: Resources, *, are_put_off: bool) -> None:
        """Members beyond the minimum have said why they wait: they wake together, for any node that may help one.

        ``are_put_off``: some were left to the next decision, and have their turn soon.
        """
        if are_put_off:
            self.wake_at(self.attempts.now_ns + _SOON_NS)
        off = self.attempts.kept.off_of(self.group.queue, use, self.key)
        self.attempts.effects.gang_kept_off(self.key, off, kept=None)

    @property
    def kept_off_like(self) -> Verdict | None:
        """What a gang said that asks the same, and was kept off by the same node reserves in this decision."""
        kept = self.attempts.kept
        if self.alike is None or not kept.off:
            return None
        return kept.kept_alike.get(kept.off_of(self.group.queue, NOTHING, self.alike))

    # --- what is kept of its last start --------------------------------------------------------------------------
    @property
    def kept(self) -> KeptGang | None:
        """What is known of its last start, or of one that asked the same; None: nothing."""
        effects = self.attempts.effects
        return effects.kept_gang(self.key) if self.alike is None else effects.kept_alike(self.alike)

    def keep(self, verdict: Verdict, asked: Hashable, charged: set[int], *, lacks: int) -> None:
        """Keep the verdict on a start that failed; ``lacks``: how many members found no place."""
        kept = self._as_of_now(verdict, asked, charged, lacks=lacks)
        if self.alike is not None:
            self.attempts.effects.alike_failed(self.alike, kept, is_counted=self.is_counted(charged))
        else:
            self.attempts.effects.gang_failed(self.key, kept)

    def _as_of_now(self, verdict: Verdict, asked: Hashable, charged: set[int], *, lacks: int = 1) -> KeptGang:
        """A verdict on the gang, as it can be kept: it holds for what nodes have now."""
        snapshot = self.attempts.snapshot
        if any(map(self.attempts.classes.is_cut_short, self.classes)):
            self.attempts.effects.search_on(self.attempts.now_ns + SEARCHED_ON_NS)
        return snapshot.scheduling_queue.unschedulable.kept_gang(
            verdict, asked=asked, classes=self.classes, charged=charged, generation=snapshot.generation, lacks=lacks
        )

    def may_start(self, kept: KeptGang) -> bool:
        """Whether something has changed since its last start that may help it, so that it is tried again."""
        snapshot = self.attempts.snapshot
        unschedulable = snapshot.scheduling_queue.unschedulable
        if self.alike is not None and self.attempts.effects.has_failed(self.alike):
            return False
        if self.key in snapshot.recounts.gangs:
            return True
        if unschedulable.is_sure_gang(kept, snapshot.generation):
            return False
        still = unschedulable.still_out_gang(kept)
        if still is not None and self.alike is not None:
            self.attempts.effects.alike_failed(self.alike, still, is_counted=False)
        elif still is not None:
            self.attempts.effects.gang_failed(self.key, still)
        return still is None
