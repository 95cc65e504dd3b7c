"""How a PodGroup stands: what its pods hold and ask for, and why it waits while none of them has a place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from scheduler.core.model.quota import NOTHING, Resources
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Reasons, Verdict
from scheduler.core.queues.sums import Sum

#: The most different verdicts that are shown of one group; its pods say the rest.
MOST_VERDICTS: Final = 8


class GroupState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One PodGroup. ``has_pods``: whether any pod of it counts. ``held``, ``fixed`` and ``asked`` as in ``Account``.

    ``verdicts``: why its pods wait, one for each set of reasons; none while one of them has a place. None: pods wait,
    and nothing was decided yet.
    """

    has_pods: bool = False
    held: Resources = NOTHING
    fixed: Resources = NOTHING
    asked: Resources = NOTHING
    verdicts: tuple[Verdict, ...] | None = ()


def group_state(
    total: Sum | None,
    members: Iterable[PodRecord],
    verdict_of: Callable[[str], Verdict | None],
    is_in_flight: Callable[[str], bool],
) -> GroupState:
    """Say how a group stands. ``total``: the sum of its pods. ``verdict_of``: why a pod (UID) waits, if known."""
    verdicts = _verdicts(members, verdict_of, is_in_flight)
    if total is None:
        return GroupState(verdicts=verdicts)
    return GroupState(has_pods=True, held=total.held, fixed=total.fixed, asked=total.asked, verdicts=verdicts)


def _verdicts(
    members: Iterable[PodRecord], verdict_of: Callable[[str], Verdict | None], is_in_flight: Callable[[str], bool]
) -> tuple[Verdict, ...] | None:
    found: dict[Reasons, Verdict] = {}
    waits = False
    for pod in members:
        if pod.node or is_in_flight(pod.uid):
            return ()
        if pod.deleting:
            continue
        waits = True
        verdict = verdict_of(pod.uid)
        if verdict is not None:
            found.setdefault(verdict.reasons, verdict)
    if waits and not found:
        return None
    return tuple(found[reasons] for reasons in sorted(found, key=_place)[:MOST_VERDICTS])


def _place(reasons: Reasons) -> tuple[str, str, tuple[str, str], int, list[tuple[str, str]]]:
    return reasons.code.value, reasons.detail, reasons.queue or ("", ""), reasons.required, sorted(reasons.kinds)
