"""metav1.MicroTime: a time without its six-digit fraction is refused by the real server, so here, too."""

from __future__ import annotations

import re
from typing import Any

from kube.memory.refusals import bad_request
from kube.memory.types import EVENTS, LEASES, ResourceType

_MICRO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")


def check_micro_times(kind: ResourceType, obj: dict[str, Any]) -> None:
    """Refuse (400) a Lease or an Event with a malformed time."""
    times: list[Any] = []
    if kind is LEASES:
        spec = obj.get("spec") or {}
        times = [spec.get("acquireTime"), spec.get("renewTime")]
    elif kind is EVENTS:
        times = [obj.get("eventTime"), (obj.get("series") or {}).get("lastObservedTime")]
    for each in times:
        if each is not None and not (isinstance(each, str) and _MICRO.fullmatch(each)):
            raise bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f'parsing time "{each}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse'
            )
