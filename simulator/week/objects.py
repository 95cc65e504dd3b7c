"""Jobs and queues of a workload as the records that the scheduler keeps of their objects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from scheduler.core.convert.queues import queue_record
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.quota import QueueRecord
from scheduler.core.model.records import Held, PodRecord
from simulator.traces.records import pod_class
from simulator.traces.trace import MILLI_PER_GPU, Ask, TraceNode
from simulator.week.arrivals import Job
from simulator.week.workload import QueueLoad, Workload
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

#: Monday, 5 January 2026, 0:00 UTC: the wall clock of second 0.
MONDAY_S: Final = 1_767_571_200
GRACE_S: Final = 30
#: What a pod asks for each GPU, below what a node has for each of 8.
_CPU_MILLI: Final = 8_000
_MEM_MIB: Final = 65_536
_CREATED: Final = "2025-12-01T00:00:00Z"


def nodes(workload: Workload) -> list[TraceNode]:
    """Return the nodes."""
    return [
        TraceNode(name=each.name, cpu_milli=each.cpu_milli, mem_mib=each.mem_mib, gpus=len(each.cards_mib))
        for each in workload.shapes()
    ]


def queue(load: QueueLoad) -> QueueRecord:
    """Return a queue, without limits."""
    weight = load.quota if load.weight is None else load.weight
    unlimited = {"quota": -1, "overQuotaWeight": 1, "limit": -1}
    resources = {
        "gpu": {"quota": load.quota, "overQuotaWeight": weight, "limit": -1},
        "cpu": unlimited,
        "memory": unlimited,
    }
    written = {
        "metadata": {"name": load.name, "uid": f"q-{load.name}", "creationTimestamp": _CREATED},
        "spec": {"resources": resources},
    }
    return queue_record(msgspec.convert(written, Queue, strict=False))


def pod_group(job: Job) -> PodGroup:
    """Return the PodGroup of a job: all of its pods or none."""
    metadata = {
        "name": _name(job),
        "namespace": job.queue,
        "uid": f"g-{job.number}",
        "resourceVersion": "1",
        "creationTimestamp": created(job.at_s),
    }
    spec = {"minMember": job.pods, "queue": job.queue}
    return msgspec.convert({"metadata": metadata, "spec": spec}, PodGroup)


def pods(job: Job, *, start: int, at_s: int, rv: str) -> list[PodRecord]:
    """Return the pods of a job's ``start``-th start, which wait."""
    name, cls, now = _name(job), _class(job), created(at_s)
    return [
        PodRecord(
            uid=f"{name}-{start}-{member}",
            namespace=job.queue,
            name=f"{name}-{start}-{member}",
            rv=rv,
            node="",
            cls=cls,
            created=now,
            priority=job.priority,
            pod_group=name,
            queue=job.queue,
            controller=f"c-{job.number}",
            grace_s=GRACE_S,
        )
        for member in range(job.pods)
    ]


def bound(pod: PodRecord, node: str, held: tuple[Held, ...], *, at_s: int, rv: str) -> PodRecord:
    """Return a pod that runs on a node; another one of its controller may take its place elsewhere."""
    return msgspec.structs.replace(pod, node=node, held=held, started_s=wall_s(at_s), moves_as=pod.cls, rv=rv)


def terminating(pod: PodRecord, *, rv: str) -> PodRecord:
    """Return a pod that was evicted and is not gone yet."""
    return msgspec.structs.replace(pod, deleting=True, rv=rv)


def wall_s(at_s: int) -> int:
    """Return the wall clock."""
    return MONDAY_S + at_s


def created(at_s: int) -> str:
    """Return a time as the API server writes it."""
    return datetime.fromtimestamp(wall_s(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _name(job: Job) -> str:
    return f"j{job.number}"


def _class(job: Job) -> PodClass:
    gpus = max(1, job.gpu_milli // MILLI_PER_GPU)
    of_each = min(job.gpu_milli, MILLI_PER_GPU)
    return pod_class(
        Ask(
            cpu_milli=max(1, _CPU_MILLI * job.gpu_milli // MILLI_PER_GPU),
            mem_mib=max(1, _MEM_MIB * job.gpu_milli // MILLI_PER_GPU),
            gpus=gpus,
            gpu_milli=of_each,
        )
    )
