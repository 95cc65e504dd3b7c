"""What devices of a claim have to report before pods are bound with them (KEP-5007), and what they report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.core.model.device_record import Awaited
from wire.resource import DeviceRequestAllocationResult, ResourceClaimStatus

#: Kubernetes' own limit (resource/v1), of conditions that have to be true and of those that tell a failure.
MOST_CONDITIONS: Final = 4
#: Conditions of one device that are read: its driver may write others.
_MOST_READ: Final = 64
_TRUE: Final = "True"


def awaited(conditions: Sequence[str] | None, failures: Sequence[str] | None) -> Awaited | None:
    """What is waited for; nothing where no condition has to be true, as kube-scheduler has it."""
    return Awaited(tuple(conditions), tuple(failures or ())) if conditions else None


def progress(status: ResourceClaimStatus) -> tuple[tuple[str, ...], str]:
    """Conditions that are not true yet, each with its device; and the failure that a device reports, "" for none."""
    results = (status.allocation.devices.results if status.allocation is not None else None) or ()
    waiting = [each for each in results if each.binding_conditions]
    if not waiting:
        return (), ""
    reported = {
        (each.driver, each.pool, each.device, each.share_id or ""): {
            found.type for found in (each.conditions or ())[:_MOST_READ] if found.status == _TRUE
        }
        for each in status.devices or ()
    }
    pending: list[str] = []
    for result in waiting:
        true = reported.get((result.driver, result.pool, result.device, result.share_id or ""), set[str]())
        failed = next((each for each in result.binding_failure_conditions or () if each in true), "")
        if failed:
            return (), _told(result, failed)
        pending += [_told(result, each) for each in result.binding_conditions or () if each not in true]
    return tuple(pending), ""


def _told(result: DeviceRequestAllocationResult, condition: str) -> str:
    return f"{condition} of device {result.driver}/{result.pool}/{result.device}"
