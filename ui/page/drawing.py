"""What the page shows of a node, a pod and a group, by their objects, counted by the scheduler's code. Pure.

A pod also has its path: its stages and their times, what it was given, where its trace is. A node is counted
from what is on it now and nothing else, so what is shown can't depend on the order of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from gpu import grant
from gpu.node_use import Key, NodeUse, TenantUse
from runtime.settings import kinds
from scheduler.core.report.fragmentation import Use
from scheduler.core.report.node_view import NodeView
from scheduler.core.report.queue_view import QueueView
from ui.inspect.survey import Count, Found, group_of, survey
from ui.inspect.tables import CAUSE_WORDS
from ui.inspect.use import partitioning
from ui.inspect.values import PodView, UnusableView
from ui.page.values import (
    Device,
    EventLine,
    GroupLine,
    NodeCard,
    Part,
    PodLine,
    PodPath,
    QueueLine,
    Stage,
    Tenant,
    UnusableLine,
)
from ui.queues.pools import pool_of
from wire import names, traceparent
from wire.api_groups import Event
from wire.core import Condition, Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue, QueueResource

_Line = TypeVar("_Line", EventLine, PodLine, QueueLine)

#: A waiting pod is on no node, so there is nothing to count; counting it costs more than all that is drawn of it.
_NOWHERE: Final = Count()
#: What users write is part of what everybody is sent, so it is cut, in characters: names, and all the rest.
_LONGEST_NAME: Final = 253
_LONGEST_TEXT: Final = 1024
_NAMES: Final = frozenset(
    {"namespace", "name", "pod", "uid", "node", "queue", "pod_group", "on_its_way_to", "at", "created", "type", "by"}
    | {"parent", "display_name", "owner"}
)
_MOST_ASKS: Final = 64


#: PodGroups by namespace and name.
Groups = Mapping[tuple[str, str], PodGroup]
_NO_GROUPS: Final[Groups] = {}


class Drawn(msgspec.Struct, frozen=True):
    """A node, and the pods that it knows by name."""

    card: NodeCard | None
    pods: tuple[PodLine, ...]


def draw_node(
    node: Node | None,
    pods: Sequence[Pod],
    requests: Sequence[BindRequest],
    reported: NodeUse | None = None,
    *,
    groups: Groups = _NO_GROUPS,
) -> Drawn:
    """Draw a node (None: there is none of that name) with its pods and those on their way to it.

    ``reported``: what its agent says of use; None: nothing. ``groups``: PodGroups, which say their pods' queues.
    """
    found = Found(nodes=[node] if node else [], pods=pods, requests=requests)
    count = Count(found)
    seen = survey(found, count=count)
    known = {pod.metadata.uid: pod for pod in pods}
    lines = tuple(pod_line(view, known[view.uid], groups=groups) for view in seen.pods)
    if node is None or not seen.nodes:
        return Drawn(None, lines)
    product = (node.metadata.labels or {}).get(names.NODE_GPU_PRODUCT, "")
    return Drawn(_card(seen.nodes[0], count.use(seen.nodes[0].name), product, reported), lines)


def draw_waiting(pod: Pod, groups: Groups = _NO_GROUPS) -> PodLine | None:
    """Draw a pod that no node has; None for one that has nothing to do with GPUs, or with us."""
    seen = survey(Found(pods=[pod]), count=_NOWHERE)
    return pod_line(seen.pods[0], pod, groups=groups) if seen.pods else None


def draw_group(group: PodGroup, members: Iterable[Pod]) -> GroupLine:
    """Draw a PodGroup with the pods that name it."""
    here = [pod for pod in members if pod.status.phase not in {names.SUCCEEDED, names.FAILED}]
    return GroupLine(
        namespace=group.metadata.namespace,
        name=group.metadata.name,
        queue=group.spec.queue,
        min_member=group.spec.min_member or 0,
        pods=len(here),
        bound=sum(bool(pod.spec.node_name) for pod in here),
        running=sum(pod.status.phase == names.RUNNING for pod in here),
    )


def draw_event(event: Event) -> EventLine | None:
    """Draw an event; None for one that is not of a pod."""
    about = event.regarding
    if about is None or about.kind != "Pod":
        return None
    series = event.series
    drawn = EventLine(
        key=f"{event.metadata.namespace}/{event.metadata.name}",
        namespace=about.namespace,
        pod=about.name,
        at=(series.last_observed_time if series else event.event_time) or event.metadata.creation_timestamp or "",
        type=event.type,
        reason=event.reason,
        note=event.note,
        by=event.reporting_controller,
        count=series.count if series else 1,
    )
    return _cut(drawn)


def draw_queue(queue: Queue, view: QueueView | None) -> QueueLine:
    """Draw a queue as it is written, and what is counted of it; ``view`` None: not all that counts is known."""
    spec = queue.spec
    gpu = (spec.resources.gpu if spec.resources else None) or QueueResource()
    return _cut(
        QueueLine(
            name=queue.metadata.name,
            node_pool=pool_of(queue.metadata.labels),
            display_name=spec.display_name,
            parent=spec.parent_queue,
            priority="" if spec.priority is None else str(spec.priority),
            gpu_quota=_written(gpu.quota),
            gpu_limit=_written(gpu.limit),
            gpu_weight=_written(gpu.over_quota_weight),
            **(_counted(view) if view is not None else {}),
        )
    )


def _counted(view: QueueView) -> dict[str, Any]:
    held, leaving = view.allocated.gpu_nano, view.terminating.gpu_nano
    return {
        "is_counted": True,
        "fair_nano": view.fair_share.gpu_nano,
        "used_nano": held,
        "leaving_nano": leaving,
        "waiting_nano": view.requested.gpu_nano - (held - leaving),
        "quota_nano": view.quota.gpu_nano,
        "limit_nano": view.limit.gpu_nano,
        "unusable": view.unusable.message if view.unusable is not None else "",
    }


def draw_unusable(view: UnusableView) -> UnusableLine:
    """Draw free GPUs that fit no pod, for one cause."""
    return UnusableLine(cause=view.cause.value, nano=view.nano, why=CAUSE_WORDS[view.cause])


def _written(amount: float | None) -> str:
    return "" if amount is None else f"{amount:.15g}"


def pod_line(view: PodView, pod: Pod, *, asks: tuple[str, ...] = (), groups: Groups = _NO_GROUPS) -> PodLine:
    """A pod in the lists. ``asks``: told of it in any case; in the lists, of pods that wait alone."""
    waits = view.waits
    drawn = PodLine(
        namespace=view.namespace,
        name=view.name,
        uid=view.uid,
        phase=view.phase or names.PENDING,
        node=view.node,
        queue=_queue(pod, groups),
        pod_group=view.pod_group,
        created=pod.metadata.creation_timestamp or "",
        owner=_owner(pod),
        asks=view.asks if waits else asks,
        waits=waits is not None,
        reason=("Refused" if view.refused else waits.reason) if waits else "",
        message=(view.refused or waits.message) if waits else "",
        on_its_way_to=waits.on_its_way_to if waits else "",
        last_failure=waits.last_failure if waits else "",
    )
    return _cut(drawn)


def _queue(pod: Pod, groups: Groups) -> str:
    """The queue that a pod was placed for, else that of its PodGroup, else the one that its label names."""
    placed_for = grant.read_charged(pod.metadata.annotations) if pod.spec.node_name else None
    if placed_for is not None:
        return placed_for.queue
    key = group_of(pod)
    group = groups.get(key) if key is not None else None
    if group is not None:
        return group.spec.queue or names.DEFAULT_QUEUE
    return (pod.metadata.labels or {}).get(names.QUEUE_LABEL, "")


def _owner(pod: Pod) -> str:
    controllers = (owner for owner in pod.metadata.owner_references or () if owner.controller)
    return next((f"{owner.kind}/{owner.name}" for owner in controllers), "")


def _cut(drawn: _Line) -> _Line:
    """The same with every text of it cut to what is sent of it."""
    cut: dict[str, object] = {}
    for field in drawn.__struct_fields__:
        value = getattr(drawn, field)
        most = _LONGEST_NAME if field in _NAMES else _LONGEST_TEXT
        if isinstance(value, str) and len(value) > most:
            cut[field] = value[:most]
        elif isinstance(value, tuple) and (len(value) > _MOST_ASKS or any(len(text) > most for text in value)):
            cut[field] = tuple(text[:most] for text in value[:_MOST_ASKS])
    return msgspec.structs.replace(drawn, **cut) if cut else drawn


def _card(view: NodeView, use: Use, product: str, reported: NodeUse | None) -> NodeCard:
    """The page's form of a node, whose fields are named as those of the view."""
    card = msgspec.structs.replace(
        msgspec.convert(view, NodeCard, from_attributes=True),
        product=product,
        is_not_ready=not view.is_ready,
        used_nano=use.used,
        idle_nano=use.free,
        pieces_nano=use.pieces,
        stranded_nano=use.stranded,
    )
    used = reported.tenants if reported is not None else {}
    card = msgspec.structs.replace(card, devices=tuple(_device(device, used) for device in card.devices))
    if reported is None:
        return card
    return msgspec.structs.replace(
        card,
        use=reported.state.value,
        use_since=reported.since,
        use_why=reported.why[:_LONGEST_TEXT],
        partitionings=tuple(partitioning(one)[:_LONGEST_TEXT] for one in reported.partitionings),
    )


def _device(device: Device, used: Mapping[Key, TenantUse]) -> Device:
    return msgspec.structs.replace(
        device,
        resource="" if device.resource == names.GPU_RESOURCE else device.resource,
        tenants=tuple(_tenant(tenant, used.get((tenant.uid, device.uuid))) for tenant in device.tenants),
    )


def _tenant(tenant: Tenant, used: TenantUse | None) -> Tenant:
    if used is None:
        return tenant
    return msgspec.structs.replace(
        tenant,
        memory_percent=used.memory_percent,
        sm_percent=used.sm_percent,
        idle_since=used.idle_since,
        enforced=used.enforced,
        strength=used.strength,
    )


def draw_path(
    pod: Pod,
    *,
    node: Node | None,
    beside: Sequence[Pod],
    requests: Sequence[BindRequest],
    events: Sequence[EventLine],
    groups: Groups = _NO_GROUPS,
) -> PodPath:
    """Draw all of one pod; ``beside``: the others of its node, among them the reservations that it has parts of."""
    found = Found(
        nodes=[node] if node else [],
        pods=[pod, *(other for other in beside if other.metadata.uid != pod.metadata.uid)],
        requests=requests,
        asked_for=frozenset({pod.metadata.name}),
    )
    view = next(v for v in survey(found).pods if v.uid == pod.metadata.uid)
    mine = next((request for request in requests if request.spec.pod_name == pod.metadata.name), None)
    return PodPath(
        pod=pod_line(view, pod, asks=view.asks, groups=groups),
        trace=_trace(pod),
        dialect=view.dialect,
        refused=view.refused,
        not_enforced=view.not_enforced,
        whole_gpus=view.whole_gpus,
        given=msgspec.convert(view.given, tuple[Part, ...], from_attributes=True),
        stages=tuple(stages(pod, mine)),
        events=tuple(events),
    )


def with_link(path: PodPath, trace_url: str) -> PodPath:
    """Say where the pod's trace is looked at: at ``trace_url``, with its id in it."""
    if not (path.trace and trace_url):
        return path
    return msgspec.structs.replace(path, trace_url=trace_url.replace(kinds.TRACE_ID, path.trace))


def stages(pod: Pod, request: BindRequest | None) -> Iterable[Stage]:
    """The steps of a pod's way, with the times that its own status keeps."""
    created = pod.metadata.creation_timestamp or ""
    yield Stage(name="created", is_reached=True, at=created)
    if names.GPU_RECORD in (pod.metadata.annotations or {}):
        yield Stage(name="admitted", is_reached=True, note="what it asks was read and written down")
    is_bound = bool(pod.spec.node_name)
    if request is not None and not is_bound:
        note = f"on its way to {request.spec.selected_node}"
        yield Stage(name="handed over", is_reached=True, at=request.metadata.creation_timestamp or "", note=note)
    scheduled = _met(pod, names.CONDITION_POD_SCHEDULED)
    yield Stage(
        name="bound",
        is_reached=is_bound,
        at=_since(scheduled),
        note=f"to {pod.spec.node_name}" if is_bound else "",
    )
    yield _condition(pod, "initialized", "Initialized", is_bound=is_bound)
    began = sorted(_began(pod))
    yield Stage(name="running", is_reached=bool(began), at=began[-1] if began else "")
    yield _condition(pod, "ready", "Ready", is_bound=is_bound)


def _trace(pod: Pod) -> str:
    told = traceparent.parse((pod.metadata.annotations or {}).get(names.TRACEPARENT, ""))
    return f"{told.trace_id:032x}" if told else ""


def _condition(pod: Pod, name: str, kind: str, *, is_bound: bool) -> Stage:
    met = _met(pod, kind) if is_bound else None
    return Stage(name=name, is_reached=met is not None, at=_since(met))


def _met(pod: Pod, kind: str) -> Condition | None:
    return next((c for c in pod.status.conditions or () if c.type == kind and c.status == "True"), None)


def _since(condition: Condition | None) -> str:
    return (condition.last_transition_time or "") if condition else ""


def _began(pod: Pod) -> Iterable[str]:
    for status in pod.status.container_statuses or ():
        if status.state is not None and status.state.running:
            yield str(status.state.running.get("startedAt") or "")
