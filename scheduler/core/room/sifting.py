"""Who may be taken for a need at all, and what keeps each of the others (docs/design/room.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scheduler.core.model.preemption import Action, Kept, KeptPods
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.room import protection
from scheduler.core.room.budgets import Budgets
from scheduler.core.room.columns import EMPTY
from scheduler.core.room.rules import Rules
from scheduler.core.room.table import ResidentTable
from scheduler.core.room.trial import Trial

_S: Final = 1_000_000_000
_OfLeaf = Callable[[TreeQueue], int]


@dataclass(slots=True)
class Sifted:
    """``able``: rows of units that may be taken first of all. ``kept``: pods by what keeps them."""

    able: Bools
    kept: dict[Kept, KeptPods] = field(default_factory=dict)

    def keep(self, why: Kept, *, pods: int, nano: int, until_s: int = 0) -> None:
        """Count pods that something keeps; ``until_s``: the first time at which that ends without an event."""
        if not pods:
            return
        known = self.kept.get(why, KeptPods(why, 0, 0))
        times = [at for at in (known.until_s, until_s) if at]
        self.kept[why] = KeptPods(why, known.pods + pods, known.nano_gpu + nano, min(times, default=0))


@dataclass(slots=True)
class Sieve:
    """Of one need and action. ``own``: the namespace that it takes from alone; None: from all."""

    trial: Trial
    rules: Rules
    budgets: Budgets
    table: ResidentTable
    own: str | None = None

    def sift(self) -> Sifted:
        """Look at all units and pods."""
        leaves = self.rules.accounts.tree.queues
        asked_of = np.array([not leaf.children and self.rules.may_ask(leaf) for leaf in leaves], np.bool_)
        sifted = Sifted(self.table.is_filled() & asked_of[self.table.units.of["leaf"]])
        for key, pods in self.table.kept.items():
            if asked_of[key.leaf]:
                sifted.keep(key.why, pods=pods, nano=self.table.kept_nano[key])
        self._by_rules(sifted)
        self._by_time(sifted, asked_of)
        self._by_evictions(sifted)
        self._by_namespace(sifted)
        self._by_budgets(sifted)
        return sifted

    def _out(self, sifted: Sifted, why: Kept, which: Bools, until_s: Int64s | None = None) -> None:
        """Take units out that something keeps; a core of which surplus stays does, too."""
        out = sifted.able & which
        if not out.any():
            return
        sifted.able &= ~out
        cores = self.table.units.of["core"][out]
        held = np.zeros_like(out)
        held[cores[cores != EMPTY]] = True
        held &= sifted.able
        sifted.able &= ~held
        out |= held
        first = 0 if until_s is None else int(until_s[out].min())
        gpus = self.table.units.of["gpu"]
        pods = np.count_nonzero(out[self.table.pods.of["unit"]] & (self.table.pods.of["unit"] != EMPTY))
        sifted.keep(why, pods=int(pods), nano=int(gpus[out].sum()), until_s=first)

    def _by_rules(self, sifted: Sifted) -> None:
        rules, units = self.rules, self.table.units.of
        if rules.action is Action.PREEMPT:
            self._out(sifted, Kept.PRIORITY, units["priority"] >= rules.priority)
            return
        gives = self._of_leaves(lambda leaf: rules.gives(leaf, {}))
        self._out(sifted, Kept.IN_SHARE, gives[units["leaf"]] == 0)

    def _by_time(self, sifted: Sifted, asked_of: Bools) -> None:
        """Cores that have not run for their minimum time."""
        rules, units, wall_s = self.rules, self.table.units.of, self.trial.wall_s
        tree, settings = rules.accounts.tree, self.trial.settings
        least_s = self._of_leaves(
            lambda leaf: -(-protection.minimum_ns(tree, rules.action, settings, taker=rules.taker, victim=leaf) // _S)
        )
        if not (least_s[asked_of] > 0).any():
            return
        since_s = np.minimum(np.where(units["started_s"] > 0, units["started_s"], wall_s), wall_s)
        mine_s = least_s[units["leaf"]]
        until_s = since_s + mine_s
        self._out(sifted, Kept.MIN_RUNTIME, (units["is_core"] == 1) & (mine_s > 0) & (until_s > wall_s), until_s)

    def _of_leaves(self, value: _OfLeaf) -> Int64s:
        """A number for each leaf that may be asked, by number."""
        leaves = self.rules.accounts.tree.queues
        may = self.rules.may_ask
        return np.array([value(leaf) if not leaf.children and may(leaf) else 0 for leaf in leaves], np.int64)

    def _by_evictions(self, sifted: Sifted) -> None:
        """Groups that were evicted not long ago."""
        trial, started_s = self.trial, self.table.units.of["started_s"]
        until_s = np.zeros(len(started_s), np.int64)
        for row in self.table.owned_by(trial.evicted.keys()):
            unit = self.table.residents[row]
            evicted = trial.evicted.get(unit.owner) if unit is not None else None
            until_s[row] = protection.protected_until_s(evicted, int(started_s[row]), trial.wall_s)
        self._out(sifted, Kept.PROTECTED, until_s > 0, until_s)

    def _by_namespace(self, sifted: Sifted) -> None:
        """Leave out others, of a namespace that takes from itself alone: of a group all or none are its own."""
        for row in np.flatnonzero(sifted.able).tolist() if self.own is not None else ():
            unit = self.table.residents[row]
            sifted.able[row] = unit is not None and unit.pods[0].namespace == self.own

    def _by_budgets(self, sifted: Sifted) -> None:
        if not self.budgets.forbid_nothing:
            which = np.zeros(len(sifted.able), np.bool_)
            for row in np.flatnonzero(sifted.able).tolist():
                unit = self.table.residents[row]
                if unit is not None and not self.rules.outgrows_budgets(unit, {}):
                    which[row] = self.budgets.takes(unit.pods) is None
            self._out(sifted, Kept.BUDGET, which)
