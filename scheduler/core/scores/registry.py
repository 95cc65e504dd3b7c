"""The scores that settings may name: one line each."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.scores.packing import BINPACK, SPREAD
from scheduler.core.scores.priced import score_by
from scheduler.core.scores.score import Score, Scores, Wanted

SCORES: Final[Scores] = MappingProxyType(
    {Strategy.BINPACK: BINPACK, Strategy.SPREAD: SPREAD, Strategy.PRICED: score_by(None)}
)


def score_of(cls: PodClass, wanted: Wanted, settings: Settings, scores: Scores) -> Score:
    """The score of a class. One that excludes devices is packed, since it may open none for that.

    Raises LookupError for a name that is no score's.
    """
    if wanted is Wanted.CPU:
        return scores[settings.cpu_strategy]
    return BINPACK if cls.not_uuids else scores[cls.strategy or settings.gpu_strategy]
