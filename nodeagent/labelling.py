"""Writes the labels of GPU feature discovery on the agent's own Node, where it does not run (core/labels.py)."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from typing import Final

import anyio

from kube.client.api import Api
from kube.client.backoff import Backoff, BackoffRange
from kube.client.errors import ApiError
from kube.client.resources import NODES
from kube.watch.signal import Signal
from nodeagent.core.labels import changes
from wire.core import Node

_log: Final = logging.getLogger(__name__)
#: Between two looks at the Node. Labels that were taken away come back then; two writers that differ don't race.
_EVERY_S: Final = 30.0
_AGAIN: Final = BackoffRange(first_s=2.0, most_s=120.0)


class Labelling:
    """``seen`` is the Node as it was seen last, None before. Nothing is written before ``want``."""

    def __init__(self, api: Api, *, node: str, seen: Callable[[], Node | None], rng: random.Random) -> None:
        self._api = api
        self._name = node
        self._seen = seen
        self._backoff = Backoff(_AGAIN, rng)
        self._wanted: Mapping[str, str] | None = None
        self._changed = Signal()

    def want(self, labels: Mapping[str, str]) -> None:
        """Take all labels that the Node is to have."""
        if labels != self._wanted:
            self._wanted = dict(labels)
            self._changed.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            wait_s = await self._write()
            with anyio.move_on_after(wait_s):
                await self._changed.wait()

    async def _write(self) -> float:
        """Write what differs. Returns for how long to rest."""
        node = self._seen()
        if node is None or self._wanted is None:
            return 1.0
        found = changes(node.metadata.labels or {}, self._wanted)
        if not found:
            return _EVERY_S
        try:
            await self._api.patch(NODES, self._name, {"metadata": {"labels": found}})
        except ApiError as error:
            wait_s = self._backoff.fail()
            _log.warning("node %s could not be labelled: %s; again in %.1f s", self._name, error, wait_s)
            return wait_s
        self._backoff.succeed()
        return _EVERY_S
