"""Rows about pods that are not bound yet, orders of KAI's, and pods that could not be placed a second time."""

from __future__ import annotations

from collections.abc import Iterator

from cli.migration.found import Found
from cli.migration.rows import Code, Row, row
from gpu import grant, order
from scheduler.conditions.messages import told
from scheduler.core.convert import constraints
from scheduler.core.convert.pods import pod_record
from scheduler.core.model.settings import Settings
from wire import names
from wire.core import Pod

_DONE = "Succeeded"


def waiting_rows(found: Found) -> Iterator[Row]:
    """Each pod that waits, each order, and what running pods ask that is not served."""
    groups = {(group.metadata.namespace, group.metadata.name) for group in found.groups}
    for pod in found.pods:
        if pod.spec.scheduler_name != names.SCHEDULER_NAME:
            continue
        about = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
        if pod.spec.node_name:
            if why := constraints.unsupported(pod):
                yield row(Code.UNSUPPORTED, about, why=why)
        elif grant.labelled_groups(pod.metadata.labels):
            yield row(Code.HALF_BOUND, about)
        elif why := _why_it_waits(pod, groups):
            yield row(Code.WAITS, about, why=why)
    yield from _orders(found)


def _why_it_waits(pod: Pod, groups: set[tuple[str, str]]) -> str:
    """Why the scheduler would not place it on any node; "" where it is placed like others."""
    record = pod_record(pod, Settings())
    if record is None or record.gated:
        return ""
    if record.blocker is not None:
        return told(record.blocker).message
    if record.pod_group and (record.namespace, record.pod_group) not in groups:
        return f"PodGroup {record.pod_group} is not there"
    return ""


def _orders(found: Found) -> Iterator[Row]:
    for request in found.requests:
        is_ours = isinstance(order.read(request), order.Order)
        if not is_ours and request.status.phase != _DONE:
            yield row(Code.BIND_REQUEST, f"BindRequest {request.metadata.namespace}/{request.metadata.name}")
