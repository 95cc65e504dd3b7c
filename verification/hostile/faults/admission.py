"""Admission that is away, slow, or asked twice about one pod.

Under all of these everything is promised: a pod that could not be asked about is not there, and its maker gets the
error; a change of a pod that was not let through is made again. Queues and PodGroups are stored unchecked meanwhile. A
user without GPU pods is never kept waiting (BYSTANDER).
"""

from __future__ import annotations

import random

import anyio
from typing_extensions import override

from simulator.apiserver.faults import ReviewFault
from verification.hostile.faults.ground import Ground
from verification.hostile.faults.timed import Timed

#: Our webhooks, as simulator/components.py names them. The API server's own policies can't be away.
_OURS = ("mutate.moorage.dev", "validate.moorage.dev", "queues.moorage.dev", "podgroups.moorage.dev")


class _Reviews(Timed, frozen=True, kw_only=True):
    """Of a thousand questions to our webhooks ``per_mille`` are struck."""

    per_mille: int = 1000
    seed: int = 0

    @override
    async def _happen(self, ground: Ground) -> None:
        dice = ground.dice(self.kind, self.seed)

        def rule(webhook: str) -> ReviewFault | None:
            is_struck = webhook in _OURS and dice.randrange(1000) < self.per_mille
            return self._fault(dice) if is_struck else None

        with ground.reviews(rule):
            await anyio.sleep(self.for_s)

    def _fault(self, dice: random.Random) -> ReviewFault:
        """Make the fault of one question."""
        raise NotImplementedError


class AdmissionDown(_Reviews, frozen=True, kw_only=True, tag="admission-down"):
    """Nobody listens: the API server refuses our pods with 500, and changes of them by anybody."""

    @override
    def _fault(self, dice: random.Random) -> ReviewFault:
        return ReviewFault(down=True)


class AdmissionSlow(_Reviews, frozen=True, kw_only=True, tag="admission-slow"):
    """Answers take up to ``slow_s``; the API server gives up after the time that our configuration allows (5 s)."""

    slow_s: float

    @override
    def _fault(self, dice: random.Random) -> ReviewFault:
        return ReviewFault(delay_s=dice.uniform(0.0, self.slow_s))


class AdmissionTwice(_Reviews, frozen=True, kw_only=True, tag="admission-twice"):
    """The mutating webhook is asked again with what it made of a pod, as if another one had changed it since."""

    @override
    def _fault(self, dice: random.Random) -> ReviewFault:
        return ReviewFault(twice=True)
