"""Settings of ``moorage workloads``."""

from __future__ import annotations

from typing import Annotated

from podgrouper.settings import WorkloadSettings
from runtime.settings import kinds
from runtime.settings.common import Replica
from runtime.settings.declaration import Setting


class WorkloadsOptions(Replica, frozen=True, kw_only=True):
    """What an administrator may choose about grouping."""

    default_queue: Annotated[str, Setting(help="queue of workloads and pods that name none", kind=kinds.OBJECT)] = (
        WorkloadSettings().queue
    )
