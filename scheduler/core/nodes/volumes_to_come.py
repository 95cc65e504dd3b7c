"""Volumes of claims that are not bound yet, as they count against the limits of CSI drivers.

As at kube-scheduler's NodeVolumeLimits: each claim is a volume of the driver that its class provisions with. What is
left out is as there: volumes of a class that provisions nothing. A volume is often used on one node only, so a claim
that was bound for a node whose limit is reached would keep its pod waiting for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scheduler.core.convert.volumes import ClaimKey
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.volume_limits import Attached, LimitedDriver

#: Begins no handle of a volume that is there: what a driver gives is not empty.
_TO_COME: Final = "\0"


def of_claim(key: ClaimKey) -> str:
    """What stands for the handle of a claim's volume until the claim is bound."""
    return f"{_TO_COME}{key[0]}/{key[1]}"


def of_class(cls: PodClass, driver_of: LimitedDriver) -> tuple[Attached, ...]:
    """Volumes of a class that nodes limit: those that are there, and those that any pod of the class is to get."""
    return (*cls.attached, *_to_come(cls, driver_of))


def _to_come(cls: PodClass, driver_of: LimitedDriver) -> Iterator[Attached]:
    for number, need in enumerate(cls.unbound):
        if driver := driver_of(need.storage_class):
            yield driver, f"{_TO_COME}{number}" if need.claim is None else of_claim(need.claim)


def of_pod(pod: PodRecord, driver_of: LimitedDriver) -> tuple[Attached, ...]:
    """The same of one pod, each by its claim."""
    if not pod.cls.unbound:
        return pod.cls.attached
    claims = zip(pod.cls.unbound, pod.unbound_claims, strict=True)
    to_come = ((driver_of(need.storage_class), name) for need, (name, _) in claims)
    return (*pod.cls.attached, *((driver, of_claim((pod.namespace, name))) for driver, name in to_come if driver))
