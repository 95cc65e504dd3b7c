"""NodeResourceTopology objects, and pods that kubelets align."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from scheduler.core.convert.numa import numa_report
from scheduler.core.model.numa import NumaRecord, NumaReport
from wire import names
from wire.api_groups import NodeResourceTopology

GPU = names.GPU_RESOURCE
SINGLE, RESTRICTED = "single-numa-node", "restricted"

#: Of a NUMA node: what it has, and what is left; a number is both.
Has = Mapping[str, Any]


def resource(name: str, amount: Any) -> dict[str, Any]:
    has, left = amount if isinstance(amount, tuple) else (amount, amount)
    return {"name": name, "capacity": str(has), "allocatable": str(has), "available": str(left)}


def topology(
    node: str, *zones: Has, policy: str = SINGLE, scope: str = "container", **more: Any
) -> NodeResourceTopology:
    """A node's object: ``zones`` in order, each with (has, left) or a number by resource."""
    attributes = [{"name": "topologyManagerPolicy", "value": policy}, {"name": "topologyManagerScope", "value": scope}]
    written = {
        "metadata": {"name": node, "uid": f"numa-{node}"},
        "attributes": attributes,
        "zones": [
            {"name": f"node-{number}", "type": "Node", "resources": [resource(*each) for each in zone.items()]}
            for number, zone in enumerate(zones)
        ],
        **more,
    }
    return msgspec.convert(written, NodeResourceTopology)


def report(node: str, *zones: Has, **more: Any) -> NumaReport:
    return numa_report(topology(node, *zones, **more))


def record(*zones: Has, **more: Any) -> NumaRecord:
    """The same as it is judged by; one that can't be fails the test."""
    found = report("n1", *zones, **more).record
    assert found is not None
    return found


def containers(*asked: Mapping[str, str], is_guaranteed: bool = False) -> list[dict[str, Any]]:
    """Containers with these resources, requested and limited alike; ``is_guaranteed``: with memory."""
    memory = {"memory": "1Gi"} if is_guaranteed else {}
    return [
        {"name": f"c{number}", "resources": {"requests": {**each, **memory}, "limits": {**each, **memory}}}
        for number, each in enumerate(asked)
    ]


def spec(*asked: Mapping[str, str], init: Sequence[dict[str, Any]] = (), is_guaranteed: bool = False) -> dict[str, Any]:
    """The spec of a pod with these containers."""
    return {"containers": containers(*asked, is_guaranteed=is_guaranteed), "initContainers": list(init)}
