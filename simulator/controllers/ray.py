"""RayCluster, RayJob and RayService (ray-project/kuberay: API reference)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulator.controllers.pods import (
    Charge,
    Json,
    Placed,
    child,
    identity,
    named,
    number,
    objects,
    placed,
    read_template,
    stored,
)
from wire import gangs

#: Where a kind has the spec of its cluster.
_SPECS: Final = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
_MOST: Final = 2**31 - 1


def expand(ray: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the head and the workers. The submitter of a RayJob comes once its cluster runs: it is not made."""
    spec = child(ray, "spec")
    if child(spec, "suspend") is True:
        return
    if ray["kind"] == "RayCluster":
        yield from _cluster(ray, [ray], "spec", charge)
        return
    field = _SPECS[ray["kind"]]
    if child(spec, field) is None:
        return
    name = f"{ray['metadata']['name']}-{identity(ray['metadata']['name'])[-5:]}"
    cluster = stored(ray["apiVersion"], "RayCluster", name, above=ray, like={"spec": child(spec, field)})
    yield from _cluster(cluster, [cluster, ray], f"spec.{field}", charge)


def _cluster(cluster: Json, owners: list[Json], path: str, charge: Charge) -> Iterator[Placed]:
    name, spec = cluster["metadata"]["name"], cluster["spec"]
    head = read_template(child(child(spec, "headGroupSpec"), "template"), f"{path}.headGroupSpec.template")
    charge(1, f"{path}.headGroupSpec", head)
    yield placed(owners, head, name=f"{name}-head", labels=_labels(name, "headgroup", "head"))
    for at, group in enumerate(objects(child(spec, "workerGroupSpecs"), f"{path}.workerGroupSpecs")):
        place = f"{path}.workerGroupSpecs[{at}]"
        called = named(group, place, field="groupName", default=f"worker-group-{at}")
        template = read_template(group.get("template"), f"{place}.template")
        count = _count(group, place)
        charge(count, f"{place}.replicas", template)
        for _ in range(count):
            labels = _labels(name, called, "worker")
            yield placed(owners, template, generate_name=f"{name}-{called.lower()}-worker-", labels=labels)


def _count(group: Json, place: str) -> int:
    """Return how many pods a worker group has: replicas within their limits, each of some hosts."""
    if group.get("suspend") is True:
        return 0
    least, most = number(group, "minReplicas", place, 0), number(group, "maxReplicas", place, _MOST)
    replicas = max(least, min(number(group, "replicas", place, 0), most))
    return replicas * number(group, "numOfHosts", place, 1)


def _labels(cluster: str, group: str, node: str) -> dict[str, str]:
    return {
        gangs.RAY_CLUSTER: cluster,
        gangs.RAY_GROUP: group,
        gangs.RAY_NODE_TYPE: node,
        "ray.io/is-ray-node": "yes",
        "ray.io/identifier": f"{cluster}-{node}",
    }
