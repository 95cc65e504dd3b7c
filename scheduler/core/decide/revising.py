"""Intents that don't come about as they are: searched for again, so that what was freed for their holders stays theirs.

A victim stays although its time is over, the node of a place is gone, or somebody else came. The intent then gets other
places and further victims, and keeps its age; those that stay are counted on no more. If nobody is found, or it was
revised three times already, it is given up. The work of one decision is bounded and divided between namespaces, as for
needs; those for which nothing is left are revised in the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.decide.allowance import Allowance
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.charging import Charging
from scheduler.core.decide.holders import Standing
from scheduler.core.decide.needed import gang_need, member_need, pod_need
from scheduler.core.decide.search_costs import cost_beside, cost_of_search
from scheduler.core.model.plan import GiveUp
from scheduler.core.model.preemption import Action, Ended, Found, Intent
from scheduler.core.room.need import Need
from scheduler.core.room.trial import Trial

#: An intent is revised so often at most.
MOST: Final = 3


@dataclass(slots=True)
class Revising:
    """One decision's. ``stuck``: victims (UIDs) that are counted on no more. ``revised``: how often, by id."""

    attempts: Attempts
    trial: Trial
    charging: Charging
    stuck: Set[str]
    revised: dict[str, int]
    is_put_off: bool = field(default=False)

    def revise(self, failing: Mapping[str, Ended]) -> None:
        """Search again for these intents, the oldest first."""
        intents = [each for each in self.attempts.snapshot.commits.intents.all() if each.id in failing]
        namespaces = len({intent.namespace for intent in intents})
        allowance = Allowance(namespaces=namespaces, most=self.attempts.limits.searching)
        for intent in intents:
            if not allowance.has_left(intent.namespace):
                self.is_put_off = True
            elif not self._is_revised(intent, allowance):
                self.revised.pop(intent.id, None)
                self.charging.entries.append(GiveUp(intent.id, failing[intent.id]))

    def _is_revised(self, intent: Intent, allowance: Allowance) -> bool:
        standing = Standing(intent, self.attempts)
        standing.lift()
        times = self.revised[intent.id] = self.revised.get(intent.id, 0) + 1
        need = self._need(standing)
        if need is None or times > MOST or intent.action is Action.MOVE:
            return False
        found = self.attempts.snapshot.room_for(need, self.trial, Action.RECLAIM, Action.PREEMPT)
        snapshot = self.attempts.snapshot
        allowance.spend(intent.namespace, cost_of_search(snapshot) + cost_beside(snapshot, found))
        records = self.attempts.snapshot.pods.records
        still = [each for each in intent.victims if each.pod_uid in records and each.pod_uid not in self.stuck]
        return isinstance(found, Found) and self.charging.take(need, found, standing=intent, still=still)

    def _need(self, standing: Standing) -> Need | None:
        intent = standing.intent
        group = standing.group if intent.pod_group else None
        if not standing.waiting or (intent.pod_group and group is None):
            return None
        _, pod = standing.waiting[0]
        if group is None:
            return pod_need(pod, self.attempts)
        if self.attempts.snapshot.quorum(group).is_met:
            return member_need(pod, group, self.attempts)
        return gang_need((intent.namespace, intent.pod_group), self.attempts)
