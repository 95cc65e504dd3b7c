"""Why a pod that waits may not be placed, by what it says itself."""

from __future__ import annotations

from scheduler.core.convert import bounds, constraints, gang_kinds
from scheduler.core.filters.registry import Filters
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.verdict import Code, Verdict
from wire import names
from wire.core import Pod


def blocker(
    pod: Pod, cls: PodClass, filters: Filters, *, problem: str, admitted: bool, are_grouped: bool
) -> Verdict | None:
    """Why a pod is not placed; None if it may be.

    ``problem``: what of its asks can't be read. ``admitted``: it came by the webhooks, and will see its devices.
    """
    if problem:
        return Verdict(code=Code.INVALID_REQUEST, detail=problem)
    if constraint := constraints.unsupported(pod) or bounds.excess(pod) or constraints.excessive(cls, filters):
        return Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail=constraint)
    return without_group(pod, are_grouped=are_grouped) or (None if admitted else Verdict(code=Code.NOT_ADMITTED))


def without_group(pod: Pod, *, are_grouped: bool = False) -> Verdict | None:
    """Why a pod that names no PodGroup is not started alone, by what it says itself; None where it may be.

    ``are_grouped``: Moorage groups pods of owners, and of gangs in the words of other schedulers.
    """
    if (pod.metadata.annotations or {}).get(names.POD_GROUP_NAME):
        return None
    if kind := gang_kinds.gang_kind(pod):
        is_coming = are_grouped and pod.metadata.owner_references
        return Verdict(code=Code.NOT_GROUPED if is_coming else Code.NO_POD_GROUP, detail=kind)
    if asked := gang_kinds.asked_elsewhere(pod):
        if are_grouped and gang_kinds.is_translated(pod):
            return Verdict(code=Code.NOT_GROUPED, detail=f"gang ({asked})")
        return Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail=gang_kinds.not_carried_out(asked))
    return None
