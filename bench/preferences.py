"""What preferences cost a decision: ``python -m bench.preferences`` prints one JSON line per measurement.

Times are CPU time of the process. Nodes are in four zones; three pods run on each, of the template of those that wait.

- ``plain``: pods that prefer nothing.
- ``preferring``: soft spread over zones, and preferred anti-affinity on hosts, as web charts have it: the pod's own
  term, and the same term of the pods that run.
- ``first_us``: the first pod of its class in a decision, the look over all nodes and pods included. ``again_us``: the
  first of a later decision, in which one pod has come. ``mean_us``: each further pod of a decision. ``undo_us``: each
  pod of a gang that is taken back.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from bench.processes import divisor, report, seconds, us
from scheduler.core.cluster import Cluster
from scheduler.core.convert.nodes import node_record
from scheduler.core.decide.placer import Placer
from scheduler.core.model.settings import Settings
from wire import names
from wire.core import Node, Pod

_ZONES = 4
_APP = {"matchLabels": {"app": "web"}}
_PREFERRING: dict[str, Any] = {
    "topologySpreadConstraints": [
        {"topologyKey": names.ZONE_LABEL, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": _APP}
    ],
    "affinity": {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "podAffinityTerm": {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": _APP}}
            ]
        }
    },
}


def _node(number: int) -> Node:
    labels = {names.HOSTNAME_LABEL: f"node-{number:05}", names.ZONE_LABEL: f"z{number % _ZONES}"}
    return msgspec.convert(
        {
            "metadata": {"name": f"node-{number:05}", "uid": f"n{number}", "labels": labels},
            "status": {
                "allocatable": {"cpu": "128", "memory": "1024Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        Node,
    )


def _pod(name: str, spec: dict[str, Any], node: str = "") -> Pod:
    container = {"name": "main", "resources": {"requests": {"cpu": "1", "memory": "4Gi"}}}
    meta = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "labels": {"app": "web"}}
    made = {"schedulerName": names.SCHEDULER_NAME, "nodeName": node, "containers": [container], **spec}
    return msgspec.convert({"metadata": meta, "spec": made}, Pod)


def measure(nodes: int, pods: int, spec: dict[str, Any]) -> dict[str, float]:
    """Microseconds of CPU for pods of this spec."""
    made = Cluster(Settings())
    made.replace_nodes([node_record(_node(number)) for number in range(nodes)])
    for number in range(3 * nodes):
        made.upsert_pod(_pod(f"r{number}", spec, f"node-{number % nodes:05}"))
    for number in range(pods):
        made.upsert_pod(_pod(f"w{number}", spec))
    made.refresh()
    first = _placing(made, pods)
    made.upsert_pod(_pod("one-more", spec, "node-00000"))
    again = _placing(made, pods)
    return {
        "first_us": first[0],
        "again_us": again[0],
        "mean_us": round(statistics.fmean(again[1:-1]), 1),
        "undo_us": round(again[-1] / pods, 1),
    }


def _placing(made: Cluster, pods: int) -> list[float]:
    """Place all in one decision, then take all back; how long each took."""
    snapshot = made.snapshot()
    placer = Placer(snapshot)
    known = (snapshot.pod(f"w{number}") for number in range(pods))
    records = [snapshot.judged(record, 0) for record in known if record is not None]
    mark, cls = placer.statement.checkpoint(), records[0].cls
    taken = [us(seconds(partial(placer.place, record))) for record in records]

    def undo() -> None:
        placer.statement.rollback(mark)
        placer.ranking(cls).best()

    return [*taken, us(seconds(undo))]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both at two sizes."""
    scale = divisor("Measure what preferences cost decisions.", arguments)
    for nodes in (1_000, 10_000):
        for name, spec in (("plain", {}), ("preferring", _PREFERRING)):
            report(f"preferences.{name}", nodes=nodes // scale, **measure(nodes // scale, 512 // scale, spec))


if __name__ == "__main__":
    main()
