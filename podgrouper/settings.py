"""What an administrator may set about grouping, and its times."""

from __future__ import annotations

import msgspec

from kube.client.retry import BackoffRange
from wire import names


class WorkloadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds of the event loop's clock.

    ``queue``: that of workloads and pods that name none. ``at_once``: workloads that are grouped side by side.
    ``marks_at_once``: pods that are written side by side. ``reread_s``: an owner that was read is used for so long, if
    it was not edited and none of its pods went. ``backoff``: after
    a failure, until its workload is tried again.
    """

    queue: str = names.DEFAULT_QUEUE
    at_once: int = 16
    marks_at_once: int = 32
    reread_s: float = 60.0
    backoff: BackoffRange = BackoffRange(first_s=0.5, most_s=60.0)
