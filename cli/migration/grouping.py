"""Rows about Queues and PodGroups: what of them Moorage reads differently, or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import yaml

from admission.objects.findings import Refused
from admission.objects.others import Others
from admission.objects.queue import judge_written
from admission.objects.texts import told
from cli.migration.found import Found
from cli.migration.rows import Code, Row, row
from scheduler.conditions import messages
from scheduler.core.convert.gang_kinds import is_gang_kind
from scheduler.core.convert.pod_groups import pod_group_record
from wire import names
from wire.crds.podgroup import PodGroup


def queue_rows(found: Found) -> Iterator[Row]:
    """Queues that admission would refuse, and queues that pods name and nobody made."""
    queues = Others(found.queues)
    for queue in found.queues:
        judgement = judge_written(queue, old=None, others=queues)
        if isinstance(judgement, Refused):
            for finding in judgement.findings:
                yield row(Code.QUEUE_REFUSED, f"Queue {queue.metadata.name}", why=told(finding))
    known = {queue.metadata.name for queue in found.queues}
    named = {(pod.metadata.labels or {}).get(names.QUEUE_LABEL, "") for pod in found.pods}
    for name in sorted(named - known - {""}):
        yield row(Code.QUEUE_MISSING, f"Queue {name}")


def group_rows(groups: Sequence[PodGroup]) -> Iterator[Row]:
    """What PodGroups ask that is not served, and who made them."""
    for group in groups:
        about = f"PodGroup {group.metadata.namespace}/{group.metadata.name}"
        record = pod_group_record(group)
        if record.unsupported:
            yield row(Code.GROUP_UNSUPPORTED, about, value=record.unsupported)
        if record.contradiction is not None and record.blocker is not None:
            yield row(Code.GROUP_CONTRADICTS, about, why=messages.told(record.blocker).message)
        if group.spec.scheduling_backoff:
            yield row(Code.GROUP_FIELD, about, value="schedulingBackoff")
        if group.spec.mark_unschedulable is False:
            yield row(Code.GROUP_FIELD, about, value="markUnschedulable")
        if owner := (group.metadata.annotations or {}).get(names.TOP_OWNER_METADATA):
            api_group, kind = _owner(owner)
            is_gang = is_gang_kind(api_group, kind)
            yield row(Code.GROUPS_OF_GANGS if is_gang else Code.GROUPS_ALONE, about, kind=kind)


def _owner(text: str) -> tuple[str, str]:
    """API group and kind of the owner; what can't be read is of no group."""
    try:
        said = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):
        said = None
    if not isinstance(said, dict):
        return "", "workload"
    return str(said.get("group") or ""), str(said.get("kind") or "workload")
