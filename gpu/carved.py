"""MIG slices that are being made of a GPU, or could not be, as a GpuNode shows it (docs/mig.md). For what people read.

What the agent and users write there is bounded: texts are cut.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from gpu.miglayout import MOST_MEMORY_SLICES
from wire.crds.gpunode import MOST_CARDS, CardStatus, GpuNode, MigLayout

_UNDER_WAY: Final = "underway"
_FAILED: Final = "failed"
#: Of a text that others wrote, in characters.
_LONGEST: Final = 120


class Stage(enum.Enum):
    """How far an attempt has come."""

    #: The agent has not taken it up.
    ASKED = "asked"
    UNDER_WAY = "under way"
    FAILED = "failed"


class Carved(msgspec.Struct, frozen=True):
    """An attempt that has not ended, or has failed. ``index`` -1: the GPU is not shown.

    ``layout``: all slices that the GPU is to have. ``why``: the driver's words.
    """

    uuid: str
    index: int
    stage: Stage
    layout: tuple[str, ...]
    why: str = ""


def carvings(report: GpuNode) -> tuple[Carved, ...]:
    """Return what is asked of a node's GPUs and has not come about, by index."""
    cards = {card.uuid: card for card in (report.status.cards or ())[:MOST_CARDS]}
    found = (_carved(asked, cards.get(asked.uuid)) for asked in (report.spec.mig or ())[:MOST_CARDS])
    return tuple(sorted((one for one in found if one is not None), key=lambda one: (one.index, one.uuid)))


def _carved(asked: MigLayout, card: CardStatus | None) -> Carved | None:
    told = None if card is None else card.carving
    stage, why = Stage.ASKED, ""
    if told is not None and told.attempt == asked.attempt:
        if told.state not in {_UNDER_WAY, _FAILED}:
            return None
        stage = Stage.UNDER_WAY if told.state == _UNDER_WAY else Stage.FAILED
        why = told.why[:_LONGEST]
    places = sorted((each.start, each.profile) for each in asked.layout[:MOST_MEMORY_SLICES])
    layout = tuple(f"{profile[:_LONGEST]} at {start}" for start, profile in places)
    return Carved(asked.uuid[:_LONGEST], -1 if card is None else card.index, stage, layout, why)
