"""Labels of pods that a PodDisruptionBudget may select: kept where there is one, read once where the first appears.

Nobody else asks for labels of bound pods, so a cluster without budgets keeps none of them.
"""

from __future__ import annotations

from typing import Final

from kube.client.api import Api
from kube.client.patience import until_answered
from kube.client.resources import PODS
from kube.watch.signal import Signal
from scheduler.watch.cache import Cache
from wire.core import Pod

_BOUND: Final = "spec.nodeName!="


class BudgetLabels:
    """Reads pods of namespaces that have got a budget. What comes later the watch of pods shows."""

    def __init__(self, api: Api, cache: Cache) -> None:
        self._api = api
        self._cache = cache
        self._wanted: dict[str, None] = {}
        self._news = Signal()
        cache.room.on_namespace = self._note

    def _note(self, namespace: str) -> None:
        self._wanted[namespace] = None
        self._news.set()

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            while self._wanted:
                namespace = next(iter(self._wanted))
                del self._wanted[namespace]
                await until_answered(lambda: self._read(namespace))  # noqa: B023 - awaited right here
                self._cache.wake.set()
            await self._news.wait()

    async def _read(self, namespace: str) -> None:
        if not self._cache.room.has_budget(namespace):
            return
        listing = await self._api.digest(PODS, _seen, namespace=namespace, field_selector=_BOUND)
        for uid, rv, labels in listing.items:
            self._cache.note_labels(uid, namespace, rv, labels)


def _seen(pod: Pod) -> tuple[str, str, dict[str, str]]:
    return pod.metadata.uid, pod.metadata.resource_version, pod.metadata.labels or {}
