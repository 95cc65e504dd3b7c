"""Settings of ``moorage binder``."""

from __future__ import annotations

from typing import Annotated

from binder.core.reservation_pod import ReservationTemplate
from binder.settings import BinderSettings
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
            help="priority class of reservation pods: moorage-reservation, where reservation/priorityclass.yaml is "
            "applied",
            kind=kinds.OBJECT,
        ),
    ] = ""
    idle_s: Annotated[float, Setting(help="keep an idle reservation so long", kind=kinds.seconds())] = (
        BinderSettings().idle_s
    )
    contended_s: Annotated[
        float,
        Setting(
            help="tenants of a GPU that is unhealthy, or somebody else's, are evicted when that was seen for so long",
            kind=kinds.seconds(),
        ),
    ] = BinderSettings().contended_s
    memory_caps: WrittenCaps = BinderSettings().memory_caps
