"""Settings of ``moorage binder`` and ``moorage podgrouper``."""

from __future__ import annotations

from typing import Annotated

from binder.core.reservation_pod import ReservationTemplate
from binder.settings import BinderSettings
from podgrouper.settings import WorkloadSettings
from runtime.settings import kinds
from runtime.settings.common import Replica, WrittenCaps
from runtime.settings.declaration import Setting


class BinderOptions(Replica, frozen=True, kw_only=True):
    """What an administrator may choose about the binder."""

    reservation_image: Annotated[str, Setting(help="image of reservation pods", kind=kinds.IMAGE)] = (
        ReservationTemplate().image
    )
    reservation_runtime_class: Annotated[
        str, Setting(help="runtime class of reservation pods", kind=kinds.OBJECT, default="none: the node's default")
    ] = ""
    reservation_priority_class: Annotated[
        str,
        Setting(
            help="priority class of reservation pods: moorage-reservation",
            kind=kinds.OBJECT,
        ),
    ] = ""
    idle_s: Annotated[float, Setting(help="keep an idle reservation this long", kind=kinds.seconds())] = (
        BinderSettings().idle_s
    )
    contended_s: Annotated[
        float,
        Setting(
            help="tenants of an unhealthy or foreign GPU stay this long",
            kind=kinds.seconds(),
        ),
    ] = BinderSettings().contended_s
    memory_caps: WrittenCaps = BinderSettings().memory_caps


class PodgrouperOptions(Replica, frozen=True, kw_only=True):
    """What an administrator may choose about grouping."""

    default_queue: Annotated[str, Setting(help="queue of workloads and pods that name none", kind=kinds.OBJECT)] = (
        WorkloadSettings().queue
    )
