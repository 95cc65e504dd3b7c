"""Faulty views of ResourceClaims (C): devices are given twice, pods bound too early, claims kept, pods forgotten."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from typing_extensions import override

from scheduler.core.claims.cel import compile_selector
from scheduler.core.cluster import Cluster
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.resource_claims import ResourceClaims
from tests.simulation.planted.wires import Rewriting


def having(claims: Callable[..., ResourceClaims]) -> type[Cluster]:
    """A cluster that sees claims in this way."""

    class Having(Cluster):
        def __init__(self, settings: Settings) -> None:
            super().__init__(settings)
            self.claims = claims(self._changed, self._touch, compiler=compile_selector, pod=self._pods.records.get)

    return Having


class TrustsItsOwnWrite(ResourceClaims):
    """What was written for a pod is its own, whoever has given the same device to another claim before."""

    @override
    def is_usable(self, pod: PodRecord) -> bool:
        return self._own.get(pod.uid) == pod.rv and pod.uid not in self._leaving


class ReservesNothingThatIsAllocated(ResourceClaims):
    """A claim that is allocated is had by all pods that name it."""

    @override
    def judged(self, pod: PodRecord) -> PodRecord:
        return msgspec.structs.replace(super().judged(pod), to_reserve=())


class GivesNothingBack(ResourceClaims):
    """A claim stays reserved for a pod that can't be bound by it."""

    @override
    def held_by_waiting(self) -> list[PodRecord]:
        return []


def wakes_nobody(_changed: Callable[..., None], _touched: Callable[[str], None], **rest: Any) -> ResourceClaims:
    """Pods that wait for devices sleep until something else changes."""
    return ResourceClaims(lambda *_: None, lambda _: None, **rest)


_MINIMUM = re.compile(rb'("minMember":)\d+')


@dataclass(slots=True)
class PreparesOneByOne(Rewriting):
    """Members of a gang are prepared and bound each on its own."""

    @override
    def rewritten(self, text: bytes) -> bytes:
        return _MINIMUM.sub(rb"\g<1>1", text)


_DRAWS = re.compile(rb'"consumesCounters":\[[^\]]*\],?')


@dataclass(slots=True)
class SeesNoCounters(Rewriting):
    """What devices take of counters of their pool is not read."""

    @override
    def rewritten(self, text: bytes) -> bytes:
        return _DRAWS.sub(b"", text).replace(b",}", b"}")
