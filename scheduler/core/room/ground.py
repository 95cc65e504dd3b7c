"""What one need has to go on: who may be taken for it by each action, or what proves that nobody helps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from scheduler.core.model.preemption import Action, Bound, NoRoom
from scheduler.core.model.quota import Resources
from scheduler.core.model.verdict import Verdict
from scheduler.core.nodes.table import Bools
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.room import bounds
from scheduler.core.room.answers import no_room
from scheduler.core.room.budgets import Budgets
from scheduler.core.room.need import Need
from scheduler.core.room.rules import Rules
from scheduler.core.room.sifting import Sieve, Sifted
from scheduler.core.room.tenants import Tenants
from scheduler.core.room.trial import Trial


class Allowed(NamedTuple):
    """Nothing proves that nobody helps: ``rules`` of the action, and who may be taken by them."""

    rules: Rules
    sifted: Sifted


@dataclass(slots=True)
class Ground:
    """One need's, or that of several equal ones together. ``wanted``: the least that they take."""

    need: Need
    trial: Trial
    leaf: TreeQueue
    wanted: bounds.Least
    budgets: Budgets = field(init=False)
    _tenants: Tenants | None = None
    #: Whether nodes would hold it if all were gone that may be preempted at all; None: not counted yet.
    _nodes_reach: bool | None = None

    def __post_init__(self) -> None:
        trial = self.trial
        self.budgets = trial.counted
        taken = map(trial.pods.records.get, trial.taken) if trial.budgets else ()
        self.budgets.spend(pod for pod in taken if pod is not None and not pod.deleting)

    def of_first(self, count: int) -> Ground:
        """That of the first of several equal needs."""
        need = self.need.first(count)
        return Ground(need, self.trial, self.leaf, bounds.least(need, self.trial), self._tenants)

    @property
    def tenants(self) -> Tenants:
        """Shared devices, read when they are first asked for."""
        if self._tenants is None:
            self._tenants = self.trial.tenants_read.of(self.trial, self.trial.residents)
        return self._tenants

    def rules(self, action: Action, claim: Resources) -> Rules:
        """Those of one action, for what the need claims."""
        use = Use(self.need.queue, claim, self.need.is_fixed)
        return Rules(action, self.trial.accounts, self.leaf, use, self.need.priority, self.trial.settings)

    def allowed(self, action: Action) -> Allowed | NoRoom:
        """Who may be taken, or what proves that no evictions that are permitted help."""
        rules = self.rules(action, self.wanted.claim)
        if not rules.is_entitled():
            return NoRoom(bound=Bound.QUEUE)
        own = self.need.pods[0].namespace if self.need.own_until_s else None
        sifted = Sieve(self.trial, rules, self.budgets, self.trial.residents, own).sift()
        refused = self._bounded(sifted)
        return Allowed(rules, sifted) if refused is None else refused

    def largest(self, action: Action) -> tuple[Ground, Allowed] | None:
        """The most of several equal needs that no bound speaks against together; None if that is no more than one."""
        found, least, most = None, 1, len(self.need.all) + 1
        while most - least > 1:
            # All of them first: mostly that is it.
            middle = len(self.need.all) if most > len(self.need.all) else (most + least) // 2
            ground = self.of_first(middle)
            allowed = ground.allowed(action)
            if isinstance(allowed, Allowed):
                found, least = (ground, allowed), middle
            else:
                most = middle
        return found

    def _bounded(self, sifted: Sifted) -> NoRoom | None:
        verdict = self._refusal_without(sifted)
        if verdict is not None:
            return no_room(sifted, Bound.QUEUE, verdict.code)
        if self._nodes_reach is not False and self._reaches_without(sifted.able):
            return None
        if self._nodes_reach is None:
            self._nodes_reach = self._reaches_without(self.trial.residents.is_filled())
        return no_room(sifted, Bound.CANDIDATES if self._nodes_reach else Bound.NODES)

    def _reaches_without(self, gone: Bools) -> bool:
        return bounds.reaches_without(self.trial, self.wanted, gone, self.tenants)

    def _refusal_without(self, sifted: Sifted) -> Verdict | None:
        """What the taker's queue says if all that may be taken were gone."""
        trial, of = self.trial, self.trial.residents.units.of
        claim = Use(self.need.queue, self.wanted.claim, self.need.is_fixed)
        if trial.accounts.refusal(claim) is None:
            return None
        mark, leaves = trial.accounts.checkpoint(), of["leaf"]
        for number in np.unique(leaves[sifted.able]).tolist():
            mine = sifted.able & (leaves == number)
            amounts = Resources(*(int(of[name][mine].sum()) for name in ("cpu", "mem", "gpu")))
            trial.accounts.release(Use(trial.accounts.tree.queues[number].name, amounts))
        verdict = trial.accounts.refusal(claim)
        trial.accounts.rollback(mark)
        return verdict
