"""A gang below its minimum in words: what it lacks, and when the rest of it is evicted."""

from __future__ import annotations

from scheduler.core.what_if.below_minimum import BelowMinimum
from scheduler.status.suggestion_texts import time_text


def below_minimum_text(gang: BelowMinimum) -> str:
    """Return sentences for people who ask about the gang."""
    lacks = f"{gang.bound} have a node, required are {gang.minimum}"
    if gang.short is not None:
        what, has = ("sub-groups", "are complete") if gang.short.is_of_subgroups else ("pods", "have a node")
        where = f" in sub-group {gang.short.name}" if gang.short.name else ""
        lacks = f"of its {what}{where} {gang.short.present} {has}, required are {gang.short.required}"
    return f"It has been below its minimum since {time_text(gang.since_s)}: {lacks}. {_what_follows(gang)}"


def _what_follows(gang: BelowMinimum) -> str:
    if gang.is_going:
        return "Its pods are being evicted."
    if gang.until_s is None:
        return "Its PodGroup lets it run so without an end."
    assumed = f" (by the default grace period, {gang.assumed_grace_s} s)" if gang.assumed_grace_s else ""
    if gang.left_s:
        until = time_text(gang.until_s)
        return f"{gang.left_s} s are left: its pods are evicted at {until}{assumed} unless it is complete by then."
    return f"Its time is over{assumed}: its pods are evicted, unless waiting pods can complete it."
