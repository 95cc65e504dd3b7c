"""Ray: a head and groups of workers."""

from __future__ import annotations

from typing import Final

from podgrouper.core import fields
from podgrouper.core.answers import Json, Shape
from podgrouper.core.fields import bounded
from podgrouper.core.rule_input import Case
from wire import gangs
from wire.crds.podgroup import SubGroup

HEAD: Final = "headgroup"
_PRIORITY: Final = "ray.io/priority-class-name"
_SELECTOR: Final = "spec.clusterSelector"
#: Where a kind has the spec of its RayCluster.
CLUSTER_SPECS: Final = {"RayCluster": "spec", "RayJob": "spec.rayClusterSpec"}


def shape(case: Case) -> Shape:
    """Parts `headgroup` (1) and each worker group: `minReplicas`, or if 0 `replicas`, times `numOfHosts`."""
    cluster = cluster_of(case)
    if cluster is case.top and fields.at(cluster, _SELECTOR):
        # The submitter of a RayJob, whose RayCluster is there already and has its own PodGroup.
        return Shape(minimum=1)
    groups = worker_groups(cluster)
    bounded(case.top, (), len(groups) + 1)
    workers = [SubGroup(name=part_name(at, group), min_member=least(cluster, at, group)) for at, group in groups]
    parts = [SubGroup(name=HEAD, min_member=1), *(each for each in workers if each.min_member)]
    written = fields.labels_of(case.pod).get(gangs.RAY_GROUP, "").lower()
    part = written if any(written == each.name for each in parts) else ""
    priority = fields.labels_of(case.top).get(_PRIORITY, "")
    total = sum(each.min_member or 0 for each in parts)
    return Shape(minimum=total, parts=tuple(parts), part=part, priority=priority)


def cluster_of(case: Case) -> Json:
    """Return the RayCluster among the pod's owners, else what stands for the workload and has its spec."""
    return next((each for each in case.chain if fields.text(each, "kind") == "RayCluster"), case.top)


def worker_groups(cluster: Json) -> list[tuple[int, Json]]:
    """Return the worker groups of a RayCluster, or of a RayJob's, with their places."""
    return list(enumerate(fields.mappings(cluster, f"{spec_of(cluster)}.workerGroupSpecs")))


def least(cluster: Json, at: int, group: Json) -> int:
    """Return how many pods of a worker group start together."""

    def count(field: str, default: int) -> int:
        return fields.checked_count(cluster, f"{place}.{field}", group.get(field), default) or 0

    place = f"{spec_of(cluster)}.workerGroupSpecs[{at}]"
    if group.get("suspend") is True or group.get("suspended") is True:
        return 0
    minimum, replicas = count("minReplicas", 0), count("replicas", 0)
    if fields.at(cluster, f"{spec_of(cluster)}.enableInTreeAutoscaling") is True:
        # `replicas` is what the autoscaler asks for now: what is above the minimum may come late, or never.
        replicas = 0
    most = fields.checked_count(cluster, f"{place}.maxReplicas", group.get("maxReplicas"))
    return (minimum or (replicas if most is None else min(replicas, most))) * count("numOfHosts", 1)


def part_name(at: int, group: Json) -> str:
    """Return the name of a worker group; KubeRay takes capitals, a sub-group does not."""
    return fields.text(group, "groupName").lower() or f"worker-group-{at}"


def spec_of(cluster: Json) -> str:
    """Return where a kind has the spec of its RayCluster."""
    return CLUSTER_SPECS.get(fields.text(cluster, "kind"), "spec")
