"""Free GPUs that fit no pod, as a table: how many for which cause, and what that means. In one place for all views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cli.inspection.sheets import Cell, Sheet
from cli.inspection.values import UnusableView
from gpu.share import NANO_PER_DEVICE
from scheduler.core.report.fragmentation import Cause

#: A hundredth of a GPU.
_STEP: Final = NANO_PER_DEVICE // 100
CAUSE_WORDS: Final[Mapping[Cause, str]] = {
    Cause.NOT_READY: "the node is not ready",
    Cause.CORDONED: "the node is cordoned",
    Cause.CLOSED: "the shared GPU takes no further pod",
    Cause.PIECES: "too little is left of the GPU, or too few GPUs of the node",
    Cause.CPU: "CPU is short beside the GPU",
    Cause.MEMORY: "memory is short beside the GPU",
    Cause.POD_SLOTS: "the node's pod slots are used up",
    Cause.SEVERAL: "CPU, memory or pod slots are short, at least two of them",
}


def unusable_sheets(unusable: Iterable[UnusableView]) -> list[Sheet]:
    """A row for each cause; no table where every free GPU fits some pod."""
    rows = [
        (Cell(each.cause.value, "yellow"), Cell(gpus_down(each.nano)), Cell(CAUSE_WORDS[each.cause]))
        for each in unusable
    ]
    if not rows:
        return []
    title = "Free GPUs that no waiting or usual pod can take:"
    return [Sheet(title=title, columns=("CAUSE", "GPUS", "WHY"), rows=rows, prose=("WHY",))]


def gpus_down(nano: int) -> str:
    """A number of free GPUs with two decimals, rounded down."""
    hundredths = nano // _STEP
    return f"{hundredths // 100}.{hundredths % 100:02d}".rstrip("0").rstrip(".")
