"""Who may be taken for a need at all, and what keeps each of the others (batch.md 5.2, 6.3, 6.4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduler.core.model.resources import Resources
from scheduler.core.model.room import Action, Kept, KeptPods
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.room import protection
from scheduler.core.room.budgets import Budgets
from scheduler.core.room.rules import Rules
from scheduler.core.room.trial import Trial
from scheduler.core.room.units import Resident, Residents


@dataclass(slots=True)
class Sifted:
    """``able``: units that may be taken first of all. ``kept``: pods by what keeps them."""

    able: list[Resident] = field(default_factory=list)
    kept: dict[Kept, KeptPods] = field(default_factory=dict)

    def keep(self, why: Kept, amounts: Resources, *, pods: int, until_s: int = 0) -> None:
        """Count pods that something keeps; ``until_s``: the first time at which that ends by itself."""
        known = self.kept.get(why, KeptPods(why, 0, 0))
        times = [at for at in (known.until_s, until_s) if at]
        self.kept[why] = KeptPods(why, known.pods + pods, known.nano_gpu + amounts.gpu_nano, min(times, default=0))


@dataclass(slots=True)
class Sieve:
    """Of one need and action."""

    trial: Trial
    rules: Rules
    budgets: Budgets
    #: Minimum runtimes by leaf.
    _minimum_ns: dict[int, int] = field(default_factory=dict)

    def sift(self, found: Residents) -> Sifted:
        """Look at all units and pods."""
        sifted, able = Sifted(), set[Resident]()
        for always, leaf, _, amounts in found.kept:
            if self.rules.may_ask(leaf):
                sifted.keep(always, amounts, pods=1)
        for unit in self._asked(found.units):
            why, until_s = self._kept(unit)
            if why is None and not able.issuperset(unit.chain):
                why = Kept.BUDGET  # one of its surplus can't go: what keeps only that is a budget
            if why is None:
                able.add(unit)
                sifted.able.append(unit)
            else:
                sifted.keep(why, unit.amounts, pods=len(unit.pods), until_s=until_s)
        return sifted

    def _asked(self, units: Iterable[Resident]) -> Iterable[Resident]:
        return (unit for unit in units if self.rules.may_ask(unit.leaf))

    def _kept(self, unit: Resident) -> tuple[Kept | None, int]:
        """What keeps a unit, looked at in this order; and until when, if time alone ends it."""
        trial = self.trial
        if not self.rules.may_take(unit, {}):
            return Kept.PRIORITY if self.rules.action is Action.PREEMPT else Kept.IN_SHARE, 0
        if unit.is_core and (
            until_s := protection.has_run_at_s(unit.started_s, self._minimum(unit.leaf), trial.wall_s)
        ):
            return Kept.MIN_RUNTIME, until_s
        evicted = trial.evicted.get(unit.owner)
        if until_s := protection.protected_until_s(evicted, unit.started_s, trial.wall_s):
            return Kept.PROTECTED, until_s
        return (None if self.budgets.takes(unit.pods) is not None else Kept.BUDGET), 0

    def _minimum(self, leaf: TreeQueue) -> int:
        known = self._minimum_ns.get(leaf.number)
        if known is None:
            rules = self.rules
            known = self._minimum_ns[leaf.number] = protection.minimum_ns(
                rules.accounts.tree, rules.action, self.trial.settings, taker=rules.taker, victim=leaf
            )
        return known
