"""What a Queue's status should say, and what of it has to be written.

Conditions ``Orphan`` and ``OverQuota`` are KAI's (kai-contract 2.1); ``moorage.dev/Closed`` says that the queue takes
no pods, and why. Conditions of other types are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from scheduler.core.model.verdict import Code
from scheduler.core.report.queue_state import QueueState
from scheduler.status import reasons
from scheduler.status.amounts import changes
from wire import names
from wire.crds.queue import QueueCondition, QueueStatus


class _Said(NamedTuple):
    """One condition, without its times."""

    type: str
    status: str
    reason: str
    message: str


def differences(state: QueueState, shown: QueueStatus, *, now: str) -> dict[str, Any]:
    """The merge patch of the status that makes it say how the queue stands; empty if it says so."""
    patch: dict[str, Any] = {}
    for field, wanted, before in (
        ("allocated", state.held, shown.allocated),
        ("allocatedNonPreemptible", state.fixed, shown.allocated_non_preemptible),
        ("requested", state.asked, shown.requested),
    ):
        if differing := changes(wanted, before):
            patch[field] = differing
    if list(state.children) != (shown.child_queues or []):
        patch["childQueues"] = list(state.children) or None
    conditions = _conditions(_said(state), shown.conditions or [], now)
    if conditions is not None:
        patch["conditions"] = msgspec.to_builtins(conditions)
    return patch


def _said(state: QueueState) -> list[_Said]:
    return [_orphan(state), _over_quota(state), _closed(state)]


def _orphan(state: QueueState) -> _Said:
    parent, broken = state.record.parent, state.broken
    is_missing = broken is not None and broken.code is Code.QUEUE_PARENT_NOT_FOUND
    if is_missing and broken is not None and broken.queue is not None and broken.queue.at == parent:
        return _Said(
            names.CONDITION_QUEUE_ORPHAN,
            "True",
            "ParentDoesNotExist",
            f"spec.parentQueue names {parent}, which does not exist",
        )
    return _Said(names.CONDITION_QUEUE_ORPHAN, "False", "ParentExists" if parent else "NoParent", "")


def _over_quota(state: QueueState) -> _Said:
    above = state.above_quota
    if not above:
        return _Said(names.CONDITION_QUEUE_OVER_QUOTA, "False", "WithinQuota", "")
    return _Said(
        names.CONDITION_QUEUE_OVER_QUOTA, "True", "AboveQuota", f"allocated is above the quota: {', '.join(above)}"
    )


def _closed(state: QueueState) -> _Said:
    if state.broken is None:
        return _Said(names.CONDITION_QUEUE_CLOSED, "False", "Open", "")
    return _Said(names.CONDITION_QUEUE_CLOSED, "True", state.broken.code.value, reasons.told(state.broken).message)


def _conditions(said: Sequence[_Said], shown: Sequence[QueueCondition], now: str) -> list[QueueCondition] | None:
    """All conditions as they should be, those of other types included; None if they are so."""
    before = {each.type: each for each in shown}
    if all(_says(before.get(each.type), each) for each in said):
        return None
    ours = {each.type for each in said}
    return [each for each in shown if each.type not in ours] + [
        _made(each, before.get(each.type), now) for each in said
    ]


def _says(shown: QueueCondition | None, said: _Said) -> bool:
    return shown is not None and (shown.status, shown.reason, shown.message) == (said.status, said.reason, said.message)


def _made(said: _Said, before: QueueCondition | None, now: str) -> QueueCondition:
    is_same = before is not None and before.status == said.status
    return QueueCondition(
        type=said.type,
        status=said.status,
        reason=said.reason,
        message=said.message,
        last_transition_time=before.last_transition_time if before is not None and is_same else now,
    )
