"""PodDisruptionBudgets, read into values."""

from __future__ import annotations

from typing import Final

from scheduler.core.convert.selectors import requirements
from scheduler.core.model.budget_record import BudgetRecord
from wire.policy import PodDisruptionBudget

#: Expressions and values of a selector. Nobody means more.
_MOST_WORDS: Final = 1_000


def budget_record(budget: PodDisruptionBudget) -> BudgetRecord:
    """Read a budget. While its controller has not counted its newest generation, it lets nobody go.

    One with a longer selector than is kept lets nobody of its namespace go.
    """
    meta, status = budget.metadata, budget.status
    is_counted = status.observed_generation >= meta.generation
    selector = requirements(budget.spec.selector)
    is_too_long = sum(1 + len(each.values) for each in selector or ()) > _MOST_WORDS
    return BudgetRecord(
        namespace=meta.namespace,
        name=meta.name,
        selector=() if is_too_long else selector,
        allowed=max(0, status.disruptions_allowed) if is_counted and not is_too_long else 0,
    )
