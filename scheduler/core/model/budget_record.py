"""What the core keeps of a PodDisruptionBudget."""

from __future__ import annotations

from scheduler.core.model.room import Budget


class BudgetRecord(Budget, frozen=True, gc=False):
    """A budget that is known by its namespace and name."""

    @property
    def key(self) -> tuple[str, str]:
        """What it is known by."""
        return self.namespace, self.name
