"""What the scheduler's core costs as a cluster grows: ``python -m bench.scale``. Nothing here is a test.

Ten bound pods on each node, in gangs of eight; no API server. Each size runs in a process of its own. Times are CPU
time of the process. Lists are decoded from pages of 500, as the API server writes them; making objects is not
measured.

- ``list_s``: nodes, PodGroups and pods decoded, read and counted, as at the scheduler's start. ``page_kib``: a page of
  pods.
- ``empty_mib``, ``resident_mib``: memory of the process before and after that.
- ``first_ms``: the first decision after the start. ``new_ms``: a new pod of one GPU is taken, decided on and charged;
  ``share_ms``: likewise half a GPU. ``ended_ms``: a pod ends, and a decision follows. Medians of 50.
- ``gang_ms``: likewise a new gang of 64 pods of one GPU, median of 10.
- ``event_us``: the labels of a bound pod change, and its node is counted again, mean of 5,000.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from bench import core
from bench.processes import memory_mib
from kube.client.decoding import Codec, Undecoded
from kube.client.listing import PAGE_SIZE
from kube.client.resources import NODES, POD_GROUPS, PODS, Resource
from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from wire.core import Pod
from wire.crds.podgroup import PodGroup

T = TypeVar("T", bound=msgspec.Struct)

SIZES: Final = (1_000, 5_000, 10_000, 30_000)
_PODS_PER_NODE: Final = 10
_GPU_PODS_PER_NODE: Final = 4
_GANG: Final = 8
_NEW_GANG: Final = 64
_EVENTS: Final = 5_000
_NOW_NS: Final = 1
_WITHIN_S: Final = 900.0
_CONDITIONS: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
_SINCE: Final = "2026-01-01T00:00:00Z"
_STATUS: Final = {
    "phase": "Running",
    "conditions": [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"} for kind in _CONDITIONS
    ],
    "hostIP": "10.0.0.1",
    "podIP": "10.1.0.1",
    "startTime": _SINCE,
    "containerStatuses": [{"name": "main", "ready": True, "imageID": f"sha256:{0:064}", "containerID": f"c://{1:064}"}],
}
#: The API server keeps in each object which client wrote which field. Nobody here reads it.
_FIELDS: Final[list[dict[str, Any]]] = [
    {"manager": name, "operation": "Update", "fieldsV1": {f"f:field-{n}": {} for n in range(40)}}
    for name in ("kube-controller-manager", "kubelet")
]


def _node_objects(nodes: int) -> Iterator[Any]:
    return (msgspec.to_builtins(core.node(number)) for number in range(nodes))


def _group_objects(nodes: int) -> Iterator[Any]:
    return (msgspec.to_builtins(_group(f"g{n:05}", _GANG)) for n in range(-(-nodes * _PODS_PER_NODE // _GANG)))


def _pod_objects(nodes: int) -> Iterator[Any]:
    for number in range(nodes * _PODS_PER_NODE):
        written = msgspec.to_builtins(_bound(number))
        written["metadata"]["managedFields"] = _FIELDS
        written["status"] = _STATUS
        yield written


def _bound(number: int) -> Pod:
    """One of ten pods of a node: four have a GPU."""
    node, place = divmod(number, _PODS_PER_NODE)
    gpus = 1 if place < _GPU_PODS_PER_NODE else 0
    group = f"g{number // _GANG:05}"
    return core.pod(f"p{number:06}", gpus=gpus, cpu=str(1 + number % 3), node=f"node-{node:05}", group=group)


def _group(name: str, minimum: int) -> PodGroup:
    made = {"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"minMember": minimum}}
    return msgspec.convert(made, PodGroup)


class _Start:
    """Takes lists as the scheduler does at its start. ``seconds`` leaves out how pages are made."""

    def __init__(self) -> None:
        self.cluster = Cluster(Settings())
        self.seconds = 0.0
        self.page_bytes = 0

    def list(self, resource: Resource[T], objects: Iterator[Any], keep: Callable[[T], Any]) -> list[Any]:
        """Decode pages of a list; what is kept of each object."""
        codec = Codec(resource)
        kept: list[Any] = []
        while items := list(islice(objects, PAGE_SIZE)):
            body = msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": items})
            self.page_bytes = max(self.page_bytes, len(body))
            with _Measured(self):
                kept.extend(keep(_decoded(codec, raw)) for raw in codec.page(body).items or ())
        return kept

    def run(self, nodes: int) -> None:
        """Nodes, PodGroups, pods, and what they add up to."""
        found = self.list(NODES, _node_objects(nodes), self.cluster.read_node)
        with _Measured(self):
            self.cluster.replace_nodes(found)
        found = self.list(POD_GROUPS, _group_objects(nodes), lambda group: group)
        with _Measured(self):
            self.cluster.replace_pod_groups(found)
        found = self.list(PODS, _pod_objects(nodes), self.cluster.list_reader())
        with _Measured(self):
            for seen in found:
                self.cluster.take_pod(seen)
            while self.cluster.refresh_some(len(found)):
                pass


class _Measured:
    """Adds the CPU time of its block to a start's."""

    def __init__(self, start: _Start) -> None:
        self._start = start
        self._since = 0.0

    def __enter__(self) -> None:
        self._since = time.process_time()

    def __exit__(self, *error: object) -> None:
        self._start.seconds += time.process_time() - self._since


def _decoded(codec: Codec[T], raw: msgspec.Raw) -> T:
    obj = codec.one(raw)
    if isinstance(obj, Undecoded):
        raise TypeError(f"{obj.key}: {obj.error}")
    return obj


def _median_ms(works: Sequence[Callable[[], object]]) -> float:
    taken: list[float] = []
    for work in works:
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return round(statistics.median(taken) * 1e3, 2)


def _decide(made: Cluster, placed: int) -> None:
    """Decide until nothing is put off, and charge what is placed. Raises LookupError unless as many pods are placed."""
    found = 0
    while True:
        plan = made.decide(_NOW_NS)
        for placement in core.placements(plan):
            made.commits.assume(placement)
            found += 1
        if plan.wake_at_ns != _NOW_NS:
            break
    if found != placed:
        raise LookupError(f"{found} pods are placed, not {placed}")


def _new(made: Cluster, pods: Sequence[Pod], group: PodGroup | None = None) -> None:
    if group is not None:
        made.upsert_pod_group(group)
    for pod in pods:
        made.upsert_pod(pod)
    _decide(made, len(pods))


def _gang(name: str) -> tuple[list[Pod], PodGroup]:
    members = [core.pod(f"{name}-{member}", gpus=1, group=name) for member in range(_NEW_GANG)]
    return members, _group(name, _NEW_GANG)


def _ended(made: Cluster, number: int) -> None:
    made.remove_pod(f"p{number * _PODS_PER_NODE:06}", has_ended=True)
    _decide(made, 0)


def _event_us(made: Cluster, nodes: int) -> float:
    """Events of GPU pods, spread over the nodes."""
    numbers = [50 * _PODS_PER_NODE + 7 * n % ((nodes - 50) * _PODS_PER_NODE) for n in range(_EVENTS)]
    events = [_changed(_bound(number), str(at)) for at, number in enumerate(numbers)]
    start = time.process_time()
    for event in events:
        made.upsert_pod(event)
        made.refresh()
    return round((time.process_time() - start) / len(events) * 1e6, 1)


def _changed(pod: Pod, version: str) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, labels={"step": version}, resource_version=f"9{version}")
    return msgspec.structs.replace(pod, metadata=meta)


def _measure(nodes: int) -> dict[str, Any]:
    empty = memory_mib()["resident_mib"]
    start = _Start()
    start.run(nodes)
    made = start.cluster
    gc.collect()
    return {
        "bench": "scale.nodes",
        "nodes": nodes,
        "pods": nodes * _PODS_PER_NODE,
        "list_s": round(start.seconds, 2),
        "page_kib": round(start.page_bytes / 1024),
        "empty_mib": empty,
        "resident_mib": memory_mib()["resident_mib"],
        "first_ms": _median_ms([lambda: made.decide(_NOW_NS)]),
        "new_ms": _median_ms([partial(_new, made, [core.pod(f"x{n}", gpus=1)]) for n in range(50)]),
        "share_ms": _median_ms([partial(_new, made, [core.pod(f"s{n}", fraction="0.5")]) for n in range(50)]),
        "ended_ms": _median_ms([partial(_ended, made, n) for n in range(50)]),
        "gang_ms": _median_ms([partial(_new, made, *_gang(f"new-{n}")) for n in range(10)]),
        "event_us": _event_us(made, nodes),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--nodes", type=int, help="measure this size in this process")
    told = parser.parse_args()
    if told.nodes:
        sys.stdout.write(json.dumps(_measure(told.nodes)) + "\n")
        return
    for nodes in SIZES:
        command = [sys.executable, "-m", "bench.scale", "--nodes", str(nodes)]
        subprocess.run(command, check=True, timeout=_WITHIN_S)


if __name__ == "__main__":
    main()
