"""What of a look and of its deeds goes into one report, so that no report is longer than an agent reads.

A tenant chooses how many processes it starts and what they are called. So the largest processes are told one by one,
and the others of each pod together: sums of memory and use stay true. Deeds that do not fit wait for the next report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from nodeagent.core.messages import Done, size_of
from nodeagent.core.samples import Device, Process, Sample

#: Processes told one by one, and pods whose others are told together, on all devices: 400 bytes each at most.
MOST_TOLD: Final = 4_000
#: Victims of a deed that are told.
MOST_VICTIMS: Final = 20
#: Of the deeds in one report.
MOST_DEED_BYTES: Final = 1 << 20


def bounded(sample: Sample) -> Sample:
    """Return what is reported of a look. One with few processes is reported as it is."""
    if sum(len(device.processes) for device in sample.devices) <= MOST_TOLD:
        return sample
    most = max(MOST_TOLD // (2 * len(sample.devices)), 1)
    return replace(sample, devices=tuple(_bounded(device, most) for device in sample.devices))


def told(done: Done) -> Done:
    """Return what is kept of a deed: its largest victims, and how many more there were."""
    more = max(len(done.deed.victims) - MOST_VICTIMS, 0)
    deed = replace(done.deed, victims=done.deed.victims[:MOST_VICTIMS])
    return replace(done, deed=deed, outcomes=done.outcomes[:MOST_VICTIMS], more=done.more + more)


def fitting(done: Sequence[Done]) -> int:
    """Return how many of these, the first ones, go into one report; at least one."""
    left = MOST_DEED_BYTES
    for number, one in enumerate(done):
        left -= size_of(one)
        if left < 0:
            return max(number, 1)
    return len(done)


def _bounded(device: Device, most: int) -> Device:
    largest = sorted(device.processes, key=lambda one: -(one.used_bytes or 0))
    others: defaultdict[str, list[Process]] = defaultdict(list)
    for one in largest[most:]:
        others[one.pod_uid].append(one)
    # Of more pods than can be told the last belong to nobody: no tenant is said to use what another one does.
    pods = list(others)
    beyond = [one for pod in pods[most - 1 :] for one in others[pod]] if len(pods) > most else []
    kept = pods[: most - 1] if beyond else pods
    together = [_together(pod, others[pod]) for pod in kept]
    return replace(device, processes=(*largest[:most], *together, *([_together("", beyond)] if beyond else [])))


def _together(pod_uid: str, processes: Sequence[Process]) -> Process:
    return Process(
        0,
        0,
        _sum([one.used_bytes for one in processes]),
        _sum([one.sm_percent for one in processes]),
        pod_uid,
        count=sum(one.count for one in processes),
    )


def _sum(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value or 0 for value in values)
