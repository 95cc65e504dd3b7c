"""What queues cost decisions: ``python -m bench.queues``. Nothing here is a test. Times are CPU time of the process.

- ``division``: fair shares of 10, 100 and 1,000 queues in three levels, all resources, each requesting more than its
  quota, of which nothing is known from before.
- ``decision``: 1,000 full nodes of 8 GPUs, 20, 100 and 1,000 queues in three levels, and 10,000 waiting gangs of two
  pods of 20 shapes. ``freed_ms``: a pod ends, and a pod alone that was waiting has its GPU. ``arrived_ms``: a pod comes
  that fits nowhere. ``unrelated_ms``: a bound pod without GPUs comes and goes. Medians of 30 events.
- ``fill``: 4,000 pods of one GPU over 20 leaves on empty nodes, decided on at once; ``without_s``: the same without any
  Queue object.
- ``memory``: what rows, sums and groups take for 90,000 bound pods in gangs of 8, beside pods of another scheduler.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import time
import tracemalloc
from collections.abc import Sequence
from functools import partial

import msgspec

from bench.asleep import Deciding
from bench.core import cluster_of, pod
from bench.processes import divisor
from scheduler.core.cluster import Cluster
from scheduler.core.convert import pod_groups
from scheduler.core.model.quota import QueueRecord, Resources
from scheduler.core.queues.fair_share import fair_shares
from scheduler.core.queues.tree import Tree
from wire import names
from wire.core import Pod
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

_GPUS = 8
_EVENTS = 30
_SHAPES = 20
_LEAVES = 20


def _tree(count: int) -> list[str]:
    """Names of queues in three levels, above them first: a tenth at the top, two tenths below, the rest leaves."""
    return [f"q{number:05}" for number in range(count)]


def _parent(number: int, count: int) -> str:
    top, middle = max(1, count // 10), max(2, 3 * count // 10)
    if number < top:
        return ""
    return f"q{number % top:05}" if number < middle else f"q{top + number % (middle - top):05}"


def _leaves(count: int) -> list[str]:
    above = {_parent(number, count) for number in range(count)}
    return [name for name in _tree(count) if name not in above]


def _queue(name: str, parent: str) -> Queue:
    amounts = {"quota": 1, "limit": -1, "overQuotaWeight": 1}
    spec = {"parentQueue": parent, "resources": dict.fromkeys(("cpu", "memory", "gpu"), amounts)}
    return msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": spec}, Queue, strict=False)


def _with_queues(cluster: Cluster, count: int) -> None:
    for number, name in enumerate(_tree(count)):
        cluster.queues.records.put(pod_groups.queue_record(_queue(name, _parent(number, count))))


def _in_queue(made: Pod, queue: str) -> Pod:
    meta = msgspec.structs.replace(made.metadata, labels={names.QUEUE_LABEL: queue})
    return msgspec.structs.replace(made, metadata=meta)


def _foreign(made: Pod) -> Pod:
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, scheduler_name="another"))


def _division(count: int) -> dict[str, object]:
    rng = random.Random(count)
    records = [
        QueueRecord(
            name=name,
            parent=_parent(number, count),
            quota=Resources(*(rng.randrange(10**9) for _ in range(3))),
            weight=Resources(*(rng.randrange(1, 10**7) for _ in range(3))),
        )
        for number, name in enumerate(_tree(count))
    ]
    tree = Tree(records)
    asked = [Resources(*(rng.randrange(10**12) for _ in range(3))) for _ in records]
    total = Resources(10**13, 10**13, 10**13)
    taken: list[float] = []
    for _ in range(_EVENTS):
        began = time.process_time()
        fair_shares(tree, total, asked)
        taken.append(time.process_time() - began)
    return {"bench": f"division_{count}", "queues": count, "ms": round(statistics.median(taken) * 1e3, 2)}


def _full(nodes: int, leaves: Sequence[str]) -> Cluster:
    made = cluster_of(nodes)
    for number in range(nodes):
        for gpu in range(_GPUS):
            running = pod(f"r{number}-{gpu}", gpus=1, node=f"node-{number:05}")
            made.upsert_pod(_in_queue(running, leaves[(number * _GPUS + gpu) % len(leaves)]))
    made.refresh()
    return made


def _come_and_go(cluster: Cluster, number: int) -> None:
    cluster.upsert_pod(pod(f"x{number}", node=f"node-{number:05}"))
    cluster.remove_pod(f"x{number}", has_ended=True)


def _arrive(cluster: Cluster, number: int, leaf: str) -> None:
    cluster.upsert_pod(_in_queue(pod(f"n{number}", gpus=4, cpu=f"{number + 1}"), leaf))


def _gang(cluster: Cluster, name: str, queue: str, members: int, *, node: str = "", cpu: str = "1") -> None:
    group = {"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"minMember": members, "queue": queue}}
    cluster.upsert_pod_group(msgspec.convert(group, PodGroup))
    for member in range(members):
        cluster.upsert_pod(pod(f"{name}-{member}", gpus=1, cpu=cpu, group=name, node=node))


def _decision(nodes: int, count: int, gangs: int) -> dict[str, object]:
    leaves = _leaves(count)
    cluster = _full(nodes, leaves)
    _with_queues(cluster, count)
    for number in range(gangs):
        _gang(cluster, f"g{number:05}", leaves[number % len(leaves)], 2, cpu=f"{1 + number % _SHAPES}")
    for number in range(_EVENTS):
        cluster.upsert_pod(_in_queue(pod(f"w{number:03}", gpus=1), leaves[number % len(leaves)]))
    deciding = Deciding(cluster)
    gc.collect()
    began = time.process_time()
    deciding.decide()
    first_s = time.process_time() - began
    unrelated = deciding.median_ms([partial(_come_and_go, cluster, number) for number in range(_EVENTS)])
    arrived = deciding.median_ms([partial(_arrive, cluster, n, leaves[n % len(leaves)]) for n in range(_EVENTS)])
    freed = deciding.median_ms(
        [partial(cluster.remove_pod, f"r{number}-0", has_ended=True) for number in range(_EVENTS)]
    )
    return {
        "bench": f"decision_{count}_{gangs}",
        "nodes": nodes,
        "queues": count,
        "waiting_gangs": gangs,
        "first_s": round(first_s, 2),
        "freed_ms": freed,
        "arrived_ms": arrived,
        "unrelated_ms": unrelated,
    }


def _filled_s(nodes: int, pods: int, *, has_queues: bool) -> float:
    cluster = cluster_of(nodes)
    leaves = _leaves(_LEAVES * 10 // 7)
    if has_queues:
        _with_queues(cluster, _LEAVES * 10 // 7)
    for number in range(pods):
        cluster.upsert_pod(_in_queue(pod(f"p{number:05}", gpus=1), leaves[number % len(leaves)]))
    gc.collect()
    began = time.process_time()
    Deciding(cluster).decide()
    return time.process_time() - began


def _fill(nodes: int, pods: int) -> dict[str, object]:
    rounds = [(_filled_s(nodes, pods, has_queues=True), _filled_s(nodes, pods, has_queues=False)) for _ in range(3)]
    with_s, without_s = (statistics.median(each) for each in zip(*rounds, strict=True))
    return {
        "bench": "fill",
        "nodes": nodes,
        "pods": pods,
        "with_s": round(with_s, 3),
        "without_s": round(without_s, 3),
        "ratio": round(with_s / without_s, 2),
    }


def _bytes(nodes: int, pods: int, *, has_queues: bool) -> int:
    """What a cluster of these pods takes; without queues they are another scheduler's, and count in none."""
    tracemalloc.start()
    cluster = cluster_of(nodes)
    leaves = _leaves(100)
    if has_queues:
        _with_queues(cluster, 100)
    for number in range(pods // _GPUS):
        name = f"node-{number % nodes:05}"
        if has_queues:
            _gang(cluster, f"g{number:05}", leaves[number % len(leaves)], _GPUS, node=name)
        else:
            for member in range(_GPUS):
                cluster.upsert_pod(_foreign(pod(f"g{number:05}-{member}", gpus=1, node=name)))
    cluster.refresh()
    if has_queues:
        cluster.count_queues()
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken


def _memory(nodes: int, pods: int) -> dict[str, object]:
    more = _bytes(nodes, pods, has_queues=True) - _bytes(nodes, pods, has_queues=False)
    return {"bench": "memory", "pods": pods, "queues": 100, "mib": round(more / 2**20, 1)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one JSON line a figure."""
    scale = divisor("Measure what queues cost decisions.", arguments)
    for count in (10, 100, 1_000):
        print(json.dumps(_division(count)), flush=True)
    for count, gangs in ((20, 10_000), (100, 10_000), (1_000, 10_000)):
        print(json.dumps(_decision(1_000 // scale, count, gangs // scale)), flush=True)
    print(json.dumps(_fill(500 // scale, 4_000 // scale)), flush=True)
    print(json.dumps(_memory(1_000 // scale, 90_000 // scale)), flush=True)


if __name__ == "__main__":
    main()
