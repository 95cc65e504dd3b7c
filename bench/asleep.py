"""What a backlog costs while something else happens: ``python -m bench.asleep``. Nothing here is a test.

1,000 full nodes of 8 GPUs, and pods of so many shapes that wait for a GPU. Each figure is CPU time of the process,
from the event until its decision was made and passed on; the median of many events.

- ``first_s``: until all that wait were decided on for the first time.
- ``unrelated_ms``: a pod of somebody else comes and goes on a full node.
- ``freed_ms``: a pod ends, and one of those that wait has its GPU; ``told``: how many others had to be told something.
- ``cordon_ms``, ``cordon_told``: a node is cordoned.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from bench.core import cluster_of, node, pod
from bench.processes import divisor
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Bind, Explain, Plan
from wire.core import Node

_NODES = 1_000
_GPUS = 8
_EVENTS = 30


class Deciding:
    """Decides as the shell does: what was decided is charged, and who waits is told."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.now_ns = 1
        self.told = 0

    def decide(self) -> Plan:
        """Make one decision and pass it on; all of it if it takes several."""
        while True:
            plan = self.cluster.decide(self.now_ns)
            explained = [entry for entry in plan.entries if isinstance(entry, Explain)]
            self.cluster.told(explained)
            self.told += sum(len(entry.pods) for entry in explained)
            for entry in plan.entries:
                if isinstance(entry, Bind):
                    self.cluster.commits.assume(entry.placement)
            if plan.wake_at_ns is None or plan.wake_at_ns > self.now_ns:
                return plan

    def median_ms(self, events: Sequence[Callable[[], None]]) -> float:
        """CPU time from each event until its decision is made, the median."""
        taken: list[float] = []
        for event in events:
            began = time.process_time()
            event()
            self.decide()
            taken.append((time.process_time() - began) * 1e3)
        return round(statistics.median(taken), 3)


def _full() -> Cluster:
    made = cluster_of(_NODES)
    for number in range(_NODES):
        for gpu in range(_GPUS):
            made.upsert_pod(pod(f"r{number}-{gpu}", gpus=1, node=f"node-{number:05}"))
    made.refresh()
    return made


def _cordoned(number: int) -> Node:
    made = node(number)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, unschedulable=True))


def _cordon(cluster: Cluster, number: int) -> None:
    cluster.upsert_node(_cordoned(number))


def _come_and_go(cluster: Cluster, number: int) -> None:
    cluster.upsert_pod(pod(f"x{number}", gpus=0, node=f"node-{number:05}"))
    cluster.remove_pod(f"x{number}", has_ended=True)


def measure(waiting: int, shapes: int) -> dict[str, object]:
    """All figures for so many pods of so many shapes."""
    cluster = _full()
    for number in range(waiting):
        cluster.upsert_pod(pod(f"w{number:06}", gpus=1, cpu=f"{1000 + number % shapes}m"))
    scheduler = Deciding(cluster)
    gc.collect()
    began = time.process_time()
    scheduler.decide()
    found: dict[str, object] = {
        "bench": f"{waiting}_waiting_{shapes}_shapes",
        "waiting": waiting,
        "shapes": shapes,
        "first_s": round(time.process_time() - began, 2),
    }

    found["unrelated_ms"] = scheduler.median_ms([partial(_come_and_go, cluster, number) for number in range(_EVENTS)])
    scheduler.told = 0
    ends = [partial(cluster.remove_pod, f"r{number}-0", has_ended=True) for number in range(_EVENTS)]
    found["freed_ms"], found["told"] = scheduler.median_ms(ends), scheduler.told
    scheduler.told = 0
    cordons = [partial(_cordon, cluster, number) for number in range(100, 100 + _EVENTS)]
    found["cordon_ms"], found["cordon_told"] = scheduler.median_ms(cordons), scheduler.told
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one JSON line per size."""
    scale = divisor("Measure what a backlog costs while something else happens.", arguments)
    for waiting, shapes in ((1_000, 20), (10_000, 20), (10_000, 500), (50_000, 20), (50_000, 500)):
        print(json.dumps(measure(waiting // scale, shapes)), flush=True)


if __name__ == "__main__":
    main()
