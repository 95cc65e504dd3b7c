"""How long a pod runs at most: as its kubelet enforces it, and as it says of itself."""

from __future__ import annotations

from typing import Final

from wire import goduration, names
from wire.core import Pod

_S: Final = 1_000_000_000
#: Kubernetes' own bound. A time beyond the year 9999 could not be shown.
_LONGEST_S: Final = (1 << 31) - 1


def deadline_s(pod: Pod) -> int:
    """``activeDeadlineSeconds``, counted from the pod's start; 0 without one, and for one that no API server stores."""
    seconds = pod.spec.active_deadline_seconds or 0
    return seconds if 0 < seconds <= _LONGEST_S else 0


def max_runtime_s(pod: Pod) -> int:
    """What the annotation says, in seconds, rounded up; 0 if it says nothing that can be read and is above zero."""
    written = (pod.metadata.annotations or {}).get(names.MAX_RUNTIME)
    if written is None:
        return 0
    try:
        return max(0, -(-goduration.parse_ns(written) // _S))
    except goduration.MalformedDuration:
        return 0
