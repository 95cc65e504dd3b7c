"""Whether a pod, as the API server shows it, has come to rest: it runs, has ended, or says why it waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wire import names


def waits(pod: Mapping[str, Any]) -> bool:
    """Whether the scheduler may still try to place a pod."""
    return not pod["spec"].get("nodeName") and pod["spec"].get("schedulerName") == names.SCHEDULER_NAME


def is_settled(pod: Mapping[str, Any]) -> bool:
    """Whether a pod runs, has ended, says why it waits, or is not ours to place."""
    spec, status = pod["spec"], pod.get("status") or {}
    if not spec.get("nodeName") and spec.get("schedulerName") != names.SCHEDULER_NAME:
        return True
    if status.get("phase") in {names.RUNNING, names.SUCCEEDED, names.FAILED}:
        return True
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    if any(map(_cannot_start, containers)):
        return True
    conditions = status.get("conditions") or ()
    return any(c["type"] == names.CONDITION_POD_SCHEDULED and c["status"] == "False" for c in conditions)


def _cannot_start(status: Mapping[str, Any]) -> bool:
    """Whether a container waits for a ConfigMap, for its image, or for its next try as its runtime refuses to start it.

    The first for ever, where somebody went past us with an ask for a share; the last while its device is not there.
    """
    waiting = (status.get("state") or {}).get("waiting") or {}
    return waiting.get("reason") in {"CreateContainerConfigError", "CrashLoopBackOff", "ImagePullBackOff"}
