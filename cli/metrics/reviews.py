"""Reviews of the webhooks, counted by webhook and answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from typing_extensions import override

from admission.observing import Answered, Observer
from cli.metrics.declared import REVIEW_SECONDS
from cli.metrics.registry import Registry
from cli.metrics.watches import count_watches
from kube.watch.reflector import Reflector

WEBHOOKS: Final = ("adopt", "mutate", "validate", "queue", "podgroup")


class ReviewsCounted(Observer):
    """Counts what admission tells."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._seconds = registry.histogram(REVIEW_SECONDS)
        # Shown as 0 from the start: a series that begins with its first failure has no increase to alert of.
        for webhook in WEBHOOKS:
            for answered in (Answered.FAILED, Answered.MALFORMED):
                self._seconds.labels(webhook, answered.value)

    @override
    def watches(self, reflectors: Sequence[Reflector[Any]]) -> None:
        """Show them."""
        count_watches(self._registry, reflectors)

    @override
    def reviewed(self, webhook: str, answered: Answered, took_s: float) -> None:
        """Count it."""
        self._seconds.labels(webhook, answered.value).observe(took_s)
