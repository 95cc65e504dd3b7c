"""What the status of PodGroups and Queues should say, and what of it has to be written (kai-contract 2.1, 2.2, 4.10).

Why a PodGroup waits is one condition, ``UnschedulableOnNodePool`` of the scheduler's own node pool. A Queue's
``Orphan`` and ``OverQuota`` are KAI's; ``moorage.dev/Closed`` says that the queue takes no pods, and why. Conditions of
other types and other pools are kept. Numbers in texts are those of when they were written; amounts are exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from scheduler.conditions import messages
from scheduler.core.model.quota import NOTHING, UNLIMITED, Resources
from scheduler.core.model.verdict import OF_NODES, Code, Verdict
from scheduler.core.queues.accounts import Account
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.report.state import GroupState, QueueState
from wire import names
from wire.crds.definition import ResourceList
from wire.crds.podgroup import (
    DEFAULT_NODE_POOL,
    UNSCHEDULABLE_ON_NODE_POOL,
    PodGroupStatus,
    QueueDetails,
    ReasonDetails,
    ResourcesStatus,
    SchedulingCondition,
    SchedulingReason,
)
from wire.crds.queue import QueueCondition, QueueStatus
from wire.quantity import NANO_PER_MILLI, binary_text, decimal_text

_NAMES: Final = (names.CPU_RESOURCE, names.MEMORY_RESOURCE, names.GPU_RESOURCE)
_WITHOUT_END: Final = "-1"

#: The part of a merge patch that makes a list of amounts what it should be.
Patch = dict[str, str | None]


def amounts(resources: Resources) -> dict[str, str]:
    """All three, zeros included: a reader need not know what is left out. -1 is without end, as in a spec."""
    texts = (
        decimal_text(resources.cpu_milli * NANO_PER_MILLI),
        binary_text(resources.mem_bytes),
        decimal_text(resources.gpu_nano),
    )
    return {
        name: _WITHOUT_END if amount >= UNLIMITED else text
        for name, amount, text in zip(_NAMES, resources, texts, strict=True)
    }


def changes(wanted: Resources, shown: ResourceList | None) -> Patch:
    """What differs; empty if nothing does. Resources that are not counted are taken out."""
    now, before = amounts(wanted), shown or {}
    differing: Patch = {name: text for name, text in now.items() if before.get(name) != text}
    return differing | {name: None for name in before if name not in now}


#: KAI's reasons for programs; all others are GENERIC.
_REASONS: Final[Mapping[Code, str]] = {
    Code.OVER_LIMIT: "OverLimit",
    Code.OVER_QUOTA: "NonPreemptibleOverQuota",
    Code.QUEUE_NOT_FOUND: "QueueDoesNotExist",
    Code.QUEUE_PARENT_NOT_FOUND: "QueueDoesNotExist",
}
GENERIC: Final = "PodSchedulingErrors"
_WITH_NUMBERS: Final = frozenset({Code.OVER_LIMIT, Code.OVER_QUOTA})
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
#: What comes and goes in a message while its reasons stay (Verdict.reasons), numbers taken out.
_PASSING: Final = re.compile(
    "|".join(
        [r"The best node lacks [^.]*\.", *(re.escape(f"# {messages.KIND_WORDS[kind]}.") for kind in sorted(OF_NODES))]
    )
)

#: A queue and its account, by name.
AccountOf = Callable[[str], tuple[TreeQueue, Account] | None]


def resources_patch(state: GroupState, shown: ResourcesStatus | None) -> dict[str, Any]:
    """What differs in the sums; of a group that never had pods nothing is written."""
    if shown is None and not state.has_pods:
        return {}
    before = shown or ResourcesStatus()
    wanted = {
        "allocated": changes(state.held, before.allocated),
        "allocatedNonPreemptible": changes(state.fixed, before.allocated_non_preemptible),
        "requested": changes(state.asked, before.requested),
    }
    return {field: patch for field, patch in wanted.items() if patch}


def shown_condition(status: PodGroupStatus, pool: str) -> SchedulingCondition | None:
    """What a PodGroup says of why it waits in a node pool, which is given by name."""
    return next((each for each in status.scheduling_conditions or () if _is_of(each, pool)), None)


def condition(
    state: GroupState,
    status: PodGroupStatus,
    account_of: AccountOf,
    *,
    namespace: str,
    pool: str,
    is_fixed: bool,
    now: str,
) -> SchedulingCondition:
    """What a PodGroup of a namespace should say. ``pool``: the node pool's name.

    ``is_fixed``: its pods can't be preempted.
    """
    said = [_reason(each, namespace, state, account_of, is_fixed=is_fixed) for each in state.verdicts or ()]
    before = shown_condition(status, pool)
    return SchedulingCondition(
        type=UNSCHEDULABLE_ON_NODE_POOL,
        node_pool=pool,
        reason=said[0].reason if said else "",
        message="\n".join(each.message for each in said),
        reasons=said,
        status="True",
        transition_id=_next_id(status.scheduling_conditions or ()),
        last_transition_time=now if before is None else before.last_transition_time or now,
    )


def with_condition(status: PodGroupStatus, wanted: SchedulingCondition | None, pool: str) -> list[dict[str, Any]]:
    """All conditions of a PodGroup, with this one in the place of that of a node pool."""
    kept = [each for each in status.scheduling_conditions or () if not _is_of(each, pool)]
    made: list[dict[str, Any]] = msgspec.to_builtins([*kept, *([] if wanted is None else [wanted])])
    return made


def is_alike(one: SchedulingCondition, other: SchedulingCondition) -> bool:
    """Whether two give the same reasons, with any numbers; what is listed is sorted by the numbers as well."""
    return _gist(one) == _gist(other)


def codes(one: SchedulingCondition) -> list[str]:
    """The reasons that a condition names for programs."""
    return [each.reason for each in one.reasons or ()]


def _gist(one: SchedulingCondition) -> list[tuple[str, str, list[str]]]:
    found = []
    for each in one.reasons or ():
        details = each.details.queue_details if each.details is not None else None
        queue = details.name if details is not None else ""
        found.append((each.reason, queue, sorted(_PASSING.sub("", _NUMBER.sub("#", each.message)).split())))
    return found


def _is_of(each: SchedulingCondition, pool: str) -> bool:
    return each.type == UNSCHEDULABLE_ON_NODE_POOL and (each.node_pool or DEFAULT_NODE_POOL) == pool


def _next_id(conditions: Sequence[SchedulingCondition]) -> str:
    """KAI counts transitions in decimal; what is no number counts as none."""
    ids = (each.transition_id for each in conditions)
    return str(1 + max((int(each) for each in ids if each.isascii() and each.isdigit() and len(each) < 16), default=0))


def _reason(
    verdict: Verdict, namespace: str, state: GroupState, account_of: AccountOf, *, is_fixed: bool
) -> SchedulingReason:
    details = None
    if verdict.code in _WITH_NUMBERS and verdict.queue is not None:
        found = account_of(verdict.queue.at)
        if found is not None:
            details = ReasonDetails(queue_details=_details(*found, state, is_fixed=is_fixed))
    message = messages.told(verdict, reader=namespace).message
    return SchedulingReason(reason=_REASONS.get(verdict.code, GENERIC), message=message, details=details)


def _details(queue: TreeQueue, account: Account, state: GroupState, *, is_fixed: bool) -> QueueDetails:
    return QueueDetails(
        name=queue.name,
        queue_requested_resources={**amounts(account.asked)},
        queue_deserved_resources={**amounts(queue.record.quota)},
        queue_allocated_resources={**amounts(account.held)},
        queue_allocated_non_preemptible_resources={**amounts(account.fixed)},
        queue_resource_limits={**amounts(queue.record.limit)},
        pod_group_requested_resources={**amounts(state.asked)},
        pod_group_requested_non_preemptible_resources={**amounts(state.asked if is_fixed else NOTHING)},
    )


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
    return _Said(names.CONDITION_QUEUE_CLOSED, "True", state.broken.code.value, messages.told(state.broken).message)


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
