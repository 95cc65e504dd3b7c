"""PodDisruptionBudgets, read into values."""

from __future__ import annotations

from scheduler.core.convert.selectors import requirements
from scheduler.core.model.budget_record import BudgetRecord
from wire.policy import PodDisruptionBudget


def budget_record(budget: PodDisruptionBudget) -> BudgetRecord:
    """Read a budget. While its controller has not counted its newest generation, it lets nobody go."""
    meta, status = budget.metadata, budget.status
    is_counted = status.observed_generation >= meta.generation
    return BudgetRecord(
        namespace=meta.namespace,
        name=meta.name,
        selector=requirements(budget.spec.selector),
        allowed=max(0, status.disruptions_allowed) if is_counted else 0,
    )
