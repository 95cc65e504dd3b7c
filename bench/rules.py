"""What rules about other pods cost a decision: ``python -m bench.rules`` prints one JSON line per measurement.

Times are CPU time of the process, the least of several runs where there are several. Nodes are in racks of 20 and
ten zones of racks; three pods run on each.

- ``classes``: pods of 20 classes wait, of which five have rules: spread over zones and racks, affinity in the zone,
  anti-affinity on hosts, and all of them. ``first_ms``: the first pod of each, counts of running pods included.
  ``again_ms``: the same in a later decision, in which one pod has come. ``pod_us``: each further pod, of all classes in
  turn; ``pod_of_rules_us``: of the five.
- ``event``: a pod comes to a node, with ``matchers`` that are counted. ``read_us``: the pod is read; ``recount_us``:
  its node is counted again; ``counted_us``: both, and a decision asks for all of these counts, each time.
- ``gang``: all members have all of the rules, one ``decide``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from bench.processes import divisor, ms, report, seconds, us
from scheduler.core.cluster import Cluster
from scheduler.core.convert.nodes import node_record
from scheduler.core.decide.placer import Placer
from scheduler.core.filters.spread import Staying
from scheduler.core.model.plan import Gang
from scheduler.core.model.pod_class import Requirement
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import Settings
from wire import names
from wire.core import Node, Pod
from wire.crds.podgroup import PodGroup

_NOW_NS: Final = 1
_ZONES: Final = 10
_RACK: Final = 20
_RACK_LABEL: Final = "example.com/rack"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PLAIN: Final = 15
_BEST_OF: Final = 5


def _spread(key: str, app: str) -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}}
    return {"topologyKey": key, "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}


def _off_hosts(app: str) -> dict[str, Any]:
    return {_REQUIRED: [{"topologyKey": names.HOSTNAME_LABEL, "labelSelector": {"matchLabels": {"app": app}}}]}


def _rules(app: str) -> list[dict[str, Any]]:
    """Specs of the five classes; the last one has all of the rules."""
    beside = {_REQUIRED: [{"topologyKey": names.ZONE_LABEL, "labelSelector": {"matchLabels": {"tier": "web"}}}]}
    zones, racks = _spread(names.ZONE_LABEL, app), _spread(_RACK_LABEL, app)
    return [
        {"topologySpreadConstraints": [zones]},
        {"topologySpreadConstraints": [racks]},
        {"affinity": {"podAffinity": beside}},
        {"affinity": {"podAntiAffinity": _off_hosts(app)}},
        {
            "topologySpreadConstraints": [zones, racks],
            "affinity": {"podAffinity": beside, "podAntiAffinity": _off_hosts(app)},
        },
    ]


def _node(number: int) -> Node:
    name = f"node-{number:05}"
    labels = {
        names.HOSTNAME_LABEL: name,
        names.ZONE_LABEL: f"z{number // _RACK % _ZONES}",
        _RACK_LABEL: f"r{number // _RACK:04}",
    }
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": f"n{number}", "labels": labels},
            "status": {
                "allocatable": {"cpu": "128", "memory": "1024Gi", "pods": "110", names.GPU_RESOURCE: "8"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        Node,
    )


def _pod(
    name: str, labels: dict[str, str], spec: dict[str, Any], *, node: str = "", cpu: int = 1, group: str = ""
) -> Pod:
    requests = {"cpu": str(cpu), "memory": "4Gi"} | ({} if node else {names.GPU_RESOURCE: "1"})
    container = {"name": "main", "resources": {"requests": requests}}
    meta = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "labels": labels}
    if group:
        meta["annotations"] = {names.POD_GROUP_NAME: group}
    made = {"schedulerName": names.SCHEDULER_NAME, "nodeName": node, "containers": [container], **spec}
    return msgspec.convert({"metadata": meta, "spec": made}, Pod)


def _running(name: str, number: int, node: str) -> Pod:
    return _pod(name, {"app": f"a{number % 2}", "tier": "web", "name": name}, {}, node=node)


def cluster_of(nodes: int) -> Cluster:
    """Nodes with three pods each."""
    made = Cluster(Settings())
    made.replace_nodes([node_record(_node(number)) for number in range(nodes)])
    for number in range(3 * nodes):
        made.upsert_pod(_running(f"w{number}", number, f"node-{number % nodes:05}"))
    made.refresh()
    return made


def _place_all(placer: Placer, pods: Iterable[PodRecord]) -> None:
    for pod in pods:
        if placer.place(pod) is None:
            raise LookupError(f"pod {pod.name} is not placed")


def _of_classes(made: Cluster, turns: int) -> list[PodRecord]:
    """Pods that wait, of all classes in turn; those with rules are the last five of each turn."""
    snapshot = made.snapshot()
    known = (snapshot.pod(f"p{turn}-{kind}") for turn in range(turns) for kind in range(_PLAIN + len(_rules(""))))
    return [snapshot.judged(pod, _NOW_NS) for pod in known if pod is not None]


def bench_classes(nodes: int, turns: int) -> None:
    """Set-up, and each further pod."""
    made = cluster_of(nodes)
    for turn in range(turns):
        for kind in range(_PLAIN):
            made.upsert_pod(_pod(f"p{turn}-{kind}", {"app": "plain"}, {}, cpu=1 + kind))
        for kind in range(len(_rules(""))):
            app = f"b{kind}"
            made.upsert_pod(_pod(f"p{turn}-{_PLAIN + kind}", {"app": app}, _rules(app)[kind], cpu=2))
    pods, kinds = _of_classes(made, turns), _PLAIN + len(_rules(""))
    with_rules = [pod for pod in pods[kinds:] if pod.cls.rules is not None]

    def set_up() -> Placer:
        made.upsert_pod(_running("one-more", made.generation, f"node-{made.generation % nodes:05}"))
        placer = Placer(made.snapshot())
        taken.append(seconds(lambda: _place_all(placer, pods[:kinds])))
        return placer

    taken: list[float] = []
    placer = set_up()
    mixed, of_rules = [], []
    for _ in range(_BEST_OF):
        mark = placer.statement.checkpoint()
        mixed.append(seconds(partial(_place_all, placer, pods[kinds:])))
        placer.statement.rollback(mark)
        for pod in pods[:kinds]:
            placer.ranking(pod.cls).best()  # what was taken back is counted before
        of_rules.append(seconds(partial(_place_all, placer, with_rules)))
        placer = set_up()
    report(
        "rules.classes",
        nodes=nodes,
        classes=kinds,
        first_ms=ms(taken[0]),
        again_ms=ms(min(taken[1:])),
        pod_us=us(min(mixed) / len(pods[kinds:])),
        pod_of_rules_us=us(min(of_rules) / len(with_rules)),
    )


def _count(made: Cluster, matchers: Sequence[Staying]) -> None:
    """Ask for all counts, as a decision does."""
    snapshot = made.snapshot()
    in_order = snapshot.ledger.in_order()
    counts = snapshot.counting(snapshot.ledger, in_order.rows, in_order.position_of)
    for each in matchers:
        counts.tally(each, None)


def bench_event(nodes: int, matchers: int, events: int) -> None:
    """A pod comes to a node, with these many counts kept."""
    made = cluster_of(nodes)
    counted = [Staying("ns", (Requirement("app", "In", (f"a{number}",)),)) for number in range(matchers)]
    _count(made, counted)
    ours = iter([_running(f"e{number}", number, f"node-{number % nodes:05}") for number in range(2 * events)])

    def recount() -> None:
        made.refresh()
        made.counted_places()

    def take_and_count() -> None:
        for _ in range(events):
            made.upsert_pod(next(ours))
            _count(made, counted)

    read = recounted = 0.0
    for _ in range(events):
        pod = next(ours)
        read += seconds(partial(made.upsert_pod, pod))
        recounted += seconds(recount)
    report(
        "rules.event",
        nodes=nodes,
        matchers=matchers,
        read_us=us(read / events),
        recount_us=us(recounted / events),
        counted_us=us(seconds(take_and_count) / events),
    )


def bench_gang(nodes: int, members: int) -> None:
    """All members have all of the rules."""
    made = cluster_of(nodes)
    group = {"metadata": {"name": "g", "namespace": "ns", "uid": "g"}, "spec": {"minMember": members}}
    made.upsert_pod_group(msgspec.convert(group, PodGroup))
    for number in range(members):
        made.upsert_pod(_pod(f"m{number:03}", {"app": "g"}, _rules("g")[-1], group="g"))

    def whole() -> None:
        made.generation += 1
        made.decide(_NOW_NS)

    taken = min(seconds(whole) for _ in range(_BEST_OF))
    made.generation += 1
    placed = sum(len(entry.placements) for entry in made.decide(_NOW_NS).entries if isinstance(entry, Gang))
    report("rules.gang", nodes=nodes, members=members, placed=placed, ms=ms(taken))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure at two sizes."""
    scale = divisor("Measure what rules about other pods cost decisions.", arguments)
    for nodes in (1_000, 10_000):
        bench_classes(nodes // scale, 50 // scale)
        bench_event(nodes // scale, 100, 200 // scale)
        bench_gang(nodes // scale, 512 // scale)


if __name__ == "__main__":
    main()
