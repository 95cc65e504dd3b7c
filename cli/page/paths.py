"""From the objects of one pod to its path: its stages and their times, what it was given, where its trace is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from cli.inspection.surveying import Found, survey
from cli.page.drawing import SETTINGS, pod_line
from cli.page.values import EventLine, Part, PodPath, Stage
from cli.settings import kinds
from wire import names, traceparent
from wire.core import Condition, Node, Pod
from wire.crds.bindrequest import BindRequest


def draw_path(
    pod: Pod,
    *,
    node: Node | None,
    beside: Sequence[Pod],
    requests: Sequence[BindRequest],
    events: Sequence[EventLine],
) -> PodPath:
    """Draw all of one pod; ``beside``: the others of its node, among them the reservations that it has parts of."""
    found = Found(
        nodes=[node] if node else [],
        pods=[pod, *(other for other in beside if other.metadata.uid != pod.metadata.uid)],
        requests=requests,
        asked_for=frozenset({pod.metadata.name}),
    )
    view = next(v for v in survey(found, settings=SETTINGS).pods if v.uid == pod.metadata.uid)
    mine = next((request for request in requests if request.spec.pod_name == pod.metadata.name), None)
    return PodPath(
        pod=pod_line(view, pod, asks=view.asks),
        trace=_trace(pod),
        dialect=view.dialect,
        refused=view.refused,
        not_enforced=view.not_enforced,
        whole_gpus=view.whole_gpus,
        given=tuple(
            Part(
                index=part.index,
                uuid=part.uuid,
                group=part.group,
                reservation=part.reservation,
                device=part.device,
                nano=part.nano,
                mem_mib=part.mem_mib,
            )
            for part in view.given
        ),
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
