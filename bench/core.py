"""How long decisions take: ``python -m bench.core`` prints one JSON line per measurement. Nothing here is a test.

Times are CPU time of the process, so that a busy machine doesn't count; decisions do nothing but compute.

- ``batch``: 10,000 pending pods of 20 classes on 10,000 nodes x 8 GPUs: all ``decisions`` until each has its place,
  what one decides charged before the next.
- ``nothing_fits``: as many pods, of which none fits: what a full cluster costs when something changes.
- ``fraction``: one share on N nodes in mixed use. ``mean_us`` is a decision within a plan (rank, choose, charge) while
  12 classes are live; ``first_us`` the first of a class (a look over all nodes); ``decide_us`` a whole ``decide`` for
  one new pod, the copy of the ledger included.
- ``gang``: 256 pods of one GPU on 100 nodes x 8, one ``decide``; the same with halves.
- ``crowd``: 10,000 different pods of one namespace that fit nowhere, on 1,000 nodes; then a pod of another namespace
  that fits, and a pod that ends. ``first_s``: until all of the crowd were decided on; ``longest_ms``: the longest of
  these decisions; ``other_ms``: from the other pod's event until its place stands in a plan by so many
  ``decisions``.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from bench.processes import divisor, ms, report, seconds, us
from scheduler.core.cluster import Cluster
from scheduler.core.convert.nodes import node_record
from scheduler.core.decide.placer import Placer
from scheduler.core.model.plan import Alone, Gang, Placement, Plan
from scheduler.core.model.settings import Settings
from wire import names
from wire.core import Node, Pod
from wire.crds.podgroup import PodGroup

_NOW_NS = 1
_GANGS_FOR_S = 5.0
_SETTINGS = Settings()


def node(number: int) -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": f"node-{number:05}", "uid": f"n{number}", "labels": {names.NODE_GPU_MEMORY: "81920"}},
            "status": {
                "allocatable": {"cpu": "128", "memory": "1024Gi", "pods": "110", names.GPU_RESOURCE: "8"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        Node,
    )


def pod(
    name: str,
    *,
    fraction: str = "",
    gpus: int = 0,
    cpu: str = "1",
    node: str = "",
    group: str = "",
    namespace: str = "ns",
) -> Pod:
    path = f"metadata.annotations['{names.VISIBLE_DEVICES_PREFIX}c0']"
    env = [{"name": names.ENV_VISIBLE_DEVICES, "valueFrom": {"fieldRef": {"fieldPath": path}}}]
    requests = {"cpu": cpu, "memory": "4Gi", **({names.GPU_RESOURCE: str(gpus)} if gpus else {})}
    annotations = {names.GPU_FRACTION: fraction, names.POD_GROUP_NAME: group}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": name,
                "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {key: value for key, value in annotations.items() if value},
            },
            "spec": {
                "schedulerName": names.SCHEDULER_NAME,
                "nodeName": node,
                "containers": [{"name": "main", "env": env, "resources": {"requests": requests}}],
            },
        },
        Pod,
    )


def _reservation(node: str, device: int, book: dict[str, Any]) -> Pod:
    group = f"{node}-{device}"
    annotations = {names.TENANTS: json.dumps(book), names.RESERVE_FOR_GPU_INDEX: f"GPU-{group}"}
    made = pod(f"r-{group}", gpus=1, cpu="0", node=node)
    meta = msgspec.structs.replace(
        made.metadata,
        namespace=names.RESERVATION_NAMESPACE,
        labels={names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: group},
        annotations=annotations,
    )
    return msgspec.structs.replace(made, metadata=meta)


def _entry(nano: int) -> dict[str, Any]:
    return {"nano": nano, "attempt": "a", "rv": "1", "since": 0, "pod": "ns/p"}


def cluster_of(nodes: int, settings: Settings = _SETTINGS) -> Cluster:
    made = Cluster(settings)
    made.replace_nodes([node_record(node(number)) for number in range(nodes)])
    made.refresh()
    return made


def used(nodes: int, rng: random.Random) -> Cluster:
    """Nodes in mixed use: some devices whole, some shared with room, some free."""
    made = cluster_of(nodes)
    for number in range(nodes):
        name = f"node-{number:05}"
        made.upsert_pod(pod(f"w-{name}", gpus=rng.randrange(4), node=name))
        for device in range(rng.randrange(5)):
            book = {f"t{name}{device}": _entry(rng.randrange(100, 900) * 1_000_000)}
            made.upsert_pod(_reservation(name, device, book))
    made.refresh()
    return made


def _timed(work: Callable[[], object], repeat: int) -> list[float]:
    """Seconds of each run."""
    gc.collect()
    return [seconds(work) for _ in range(repeat)]


def placements(plan: Plan) -> Iterator[Placement]:
    for entry in plan.entries:
        if isinstance(entry, Gang):
            yield from entry.placements
        elif isinstance(entry, Alone):
            yield entry.placement


def _placed(plan: Plan) -> int:
    return sum(1 for _ in placements(plan))


def bench_batch(nodes: int, pods: int) -> None:
    made = cluster_of(nodes)
    shapes: list[dict[str, Any]] = [{"fraction": f"0.{tenth}"} for tenth in range(1, 10)]
    shapes += [{"gpus": count} for count in (1, 2, 4, 8)]
    classes: list[dict[str, Any]] = [
        {**shape, "cpu": str(1 + number % 2)} for number, shape in enumerate(shapes + shapes[:7])
    ]
    for number in range(pods):
        made.upsert_pod(pod(f"p{number:05}", **classes[number % len(classes)]))
    taken: list[float] = []
    placed = 0
    while True:
        start = time.process_time()
        plan = made.decide(_NOW_NS)
        taken.append(time.process_time() - start)
        placed += _placed(plan)
        for placement in placements(plan):
            made.commits.assume(placement)
        if plan.wake_at_ns != _NOW_NS:
            break
    again = min(_timed(lambda: made.decide(_NOW_NS), 5))
    report(
        "core.batch",
        nodes=nodes,
        pods=pods,
        classes=len(classes),
        placed=placed,
        decisions=len(taken),
        seconds=round(sum(taken), 3),
        longest_ms=round(max(taken) * 1e3, 1),
        us_per_pod=us(sum(taken) / pods),
        unchanged_us=us(again),
    )


def bench_full(nodes: int, pods: int) -> None:
    """Nothing fits: how long it takes to say so for everybody."""
    made = cluster_of(nodes)
    for number in range(pods):
        made.upsert_pod(pod(f"p{number:05}", gpus=9 + number % 20))
    taken = _timed(lambda: made.decide(_NOW_NS), 1)[0]
    report("core.nothing_fits", nodes=nodes, pods=pods, classes=20, seconds=round(taken, 3))


def bench_fraction(nodes: int, decisions: int) -> None:
    made = used(nodes, random.Random(nodes))
    shares = [f"0.{number:02}" for number in range(5, 65, 5)]
    pods = [pod(f"p{number:05}", fraction=shares[number % len(shares)]) for number in range(decisions)]
    for each in pods:
        made.upsert_pod(each)
    records = [record for each in pods if (record := made.pod(each.metadata.uid)) is not None]
    placer = Placer(made.snapshot())
    waiting = iter(records)

    def place() -> None:
        placer.place(next(waiting))

    first = _timed(place, len(shares))
    steady = _timed(place, decisions - len(shares))
    for each in pods[1:]:
        made.remove_pod(each.metadata.uid, has_ended=True)

    def whole() -> None:
        made.generation += 1
        made.decide(_NOW_NS)

    one = _timed(whole, 30)
    report(
        "core.fraction",
        nodes=nodes,
        mean_us=us(statistics.fmean(steady)),
        p99_us=us(statistics.quantiles(steady, n=100)[98]),
        first_us=us(statistics.median(first)),
        decide_us=us(statistics.median(one)),
    )


def bench_gang(nodes: int, members: int) -> None:
    shapes: list[dict[str, Any]] = [{"gpus": 1}, {"fraction": "0.5"}]
    for shape in shapes:
        made = cluster_of(nodes)
        group = {"metadata": {"name": "g", "namespace": "ns", "uid": "g"}, "spec": {"minMember": members}}
        made.upsert_pod_group(msgspec.convert(group, PodGroup))
        for number in range(members):
            made.upsert_pod(pod(f"m{number:03}", group="g", **shape))

        def whole(made: Cluster = made) -> None:
            made.generation += 1
            made.decide(_NOW_NS)

        taken = statistics.median(_timed(whole, 20))
        placed = _placed(made.decide(_NOW_NS))
        report("core.gang", nodes=nodes, members=members, asks=shape, placed=placed, ms=ms(taken))


def _until(made: Cluster, uid: str) -> tuple[int, float]:
    """Decide until a pod has its place: how many decisions, and seconds."""
    start = time.process_time()
    for count in range(1, 10_000):
        plan = made.decide(_NOW_NS)
        if any(isinstance(entry, Alone) and entry.placement.pod_uid == uid for entry in plan.entries):
            return count, time.process_time() - start
    raise LookupError(f"pod {uid} is placed by none of the decisions")


def _settle(made: Cluster) -> list[float]:
    """Decide until nothing is put off: seconds of each decision."""
    taken: list[float] = []
    while True:
        start = time.process_time()
        plan = made.decide(_NOW_NS)
        taken.append(time.process_time() - start)
        if plan.wake_at_ns != _NOW_NS:
            return taken


def bench_crowd(nodes: int, pods: int, **shape: Any) -> None:
    made = cluster_of(nodes)
    running = pod("running", cpu="100", node="node-00000", namespace="other")
    made.upsert_pod(running)
    for number in range(pods):
        made.upsert_pod(pod(f"p{number:05}", cpu=f"{200_000 + number}m", **shape))
    first = _settle(made)
    made.upsert_pod(pod("x", cpu="1", namespace="other"))
    rounds, other_s = _until(made, "x")
    settled = _settle(made)
    made.remove_pod("running", has_ended=True)
    ended = _settle(made)
    report(
        "core.crowd",
        nodes=nodes,
        pods=pods,
        asks=shape,
        first_s=round(sum(first), 2),
        longest_ms=round(max(first) * 1e3, 1),
        other_ms=round(other_s * 1e3, 1),
        decisions=rounds,
        beside_ms=round(statistics.median(settled) * 1e3, 1),
        ended_ms=round(sum(ended) * 1e3, 1),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    scale = divisor("Measure decisions of the scheduler core.", arguments)
    bench_batch(10_000 // scale, 10_000 // scale)
    bench_full(10_000 // scale, 10_000 // scale)
    for nodes in (1_000, 5_000, 10_000):
        bench_fraction(nodes // scale, 2_012)
    bench_gang(100, 256)
    bench_crowd(1_000 // scale, 10_000 // scale)
    bench_crowd(1_000 // scale, 10_000 // scale, fraction="0.5")


if __name__ == "__main__":
    main()
