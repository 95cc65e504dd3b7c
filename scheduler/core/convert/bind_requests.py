"""The door of the core for BindRequests: hand-overs that the binder is carrying out."""

from __future__ import annotations

from gpu import order
from gpu.order import Foreign
from scheduler.core.model.records import BindRequestRecord
from wire.crds.bindrequest import BindRequest


def bind_request_record(request: BindRequest) -> BindRequestRecord | None:
    """Read a hand-over; None if it is not one that our binder would carry out."""
    ordered = order.read(request)
    if isinstance(ordered, Foreign):
        return None
    meta = request.metadata
    return BindRequestRecord(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        pod_uid=ordered.pod_uid,
        node=request.spec.selected_node,
        rv=ordered.handover.rv,
        devices=ordered.handover.devices,
        charged=ordered.handover.charged,
    )
