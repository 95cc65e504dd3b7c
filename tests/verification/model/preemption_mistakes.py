"""Mistakes that could be made in preemption: a rule left out each, where it shows, and what it breaks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from verification.model.preemption.state import BOTH, BUILT, CRASH, EITHER, GANG, ONE, TWO, Config, Left, Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """``rules`` with the mistake; ``violates``: how the counter-example begins that is expected."""

    what: str
    rules: Rules
    config: Config
    violates: str


def mistake(what: str, config: Config, violates: str, **choices: Any) -> Mistake:
    return Mistake(what=what, rules=replace(BUILT, **choices), config=config, violates=violates)


MISTAKES: tuple[Mistake, ...] = (
    mistake("the first eviction is asked before the nomination is written", ONE, "S7", record_first=False),
    mistake("what was freed is not charged", ONE, "S14", charges=False),
    mistake("what was freed is free before the end is on record", ONE, "S14", charges_until_written=False),
    mistake(
        "the record drops a nomination while its victims are being asked",
        replace(ONE, left=Left(goes=1)),
        "S7",
        waits_for_answers=False,
    ),
    mistake("a new leader decides before it has read the record", replace(ONE, left=CRASH), "S14", reads_first=False),
    mistake(
        "a new leader does not write before it acts, and a late write takes its nomination from the record",
        replace(EITHER, refused=(1,), left=CRASH),
        "S7",
        takes_over=False,
    ),
    mistake(
        "a leader only reads after a write without an answer",
        replace(ONE, left=Left(crashes=1, lates=1, lost_answers=1, refusals=1)),
        "S7",
        writes_after_doubt=False,
    ),
    mistake("a younger nomination is served first", TWO, "S14: what an older nomination freed", oldest_first=False),
    mistake("two leaders' writes both succeed", replace(BOTH, leaders=2), "S7", record_at_rv=False),
    mistake("a pod is taken that another nomination takes", TWO, "S13", spares_victims=False),
    mistake("room is made again for whom it is being made", EITHER, "S13", one_for_each=False),
    mistake(
        "a pod is evicted for one that is gone", replace(ONE, left=Left(goes=1)), "S13", looks_at_nominees=False
    ),
    mistake(
        "a pod is evicted though others have taken the place beside it",
        replace(GANG, left=Left(foreigners=1)),
        "S7",
        looks_at_room=False,
    ),
    mistake(
        "a pod is evicted by its name", replace(ONE, left=Left(finishes=1, recreates=1)), "S13", evicts_by_uid=False
    ),
)  # fmt: skip
