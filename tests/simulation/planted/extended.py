"""Faulty views of claims that the scheduler made for extended resources and shares (E)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from typing_extensions import override

from scheduler.core.model.devices import ResourceClaimRecord
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.resource_claims import ResourceClaims
from tests.simulation.planted.wires import Rewriting


class KeepsWhatItMade(ResourceClaims):
    """Only reservations are given back, and no claim that was made and is not reserved yet."""

    @override
    def held(self, pod: PodRecord) -> list[ResourceClaimRecord]:
        return self.reserved_for(pod)


class ForgetsWhatItMade(ResourceClaims):
    """Devices of claims that were made for extended resources are not counted as taken."""

    @override
    def _claim_changed(self, record: ResourceClaimRecord) -> None:
        super()._claim_changed(record)
        now = self.claims.get(record.key)
        if now is not None and now.is_extended:
            self.taken.drop(now.uid)


_PART = re.compile(rb'("consumedCapacity":\{"memory":)"[^"]*"')


@dataclass(slots=True)
class SeesNoParts(Rewriting):
    """What a share takes of the memory of a device is read as one byte."""

    @override
    def rewritten(self, text: bytes) -> bytes:
        return _PART.sub(rb'\g<1>"1"', text)
