from __future__ import annotations

from typing import Any

import pytest

from kube.client.resources import BIND_REQUESTS, EVENTS, LEASES, NODES, POD_GROUPS, PODS, QUEUES, TOPOLOGIES, Resource
from wire.crds import bindrequest, podgroup, queue, topology
from wire.crds.definition import Definition


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("ns"), "/api/v1/namespaces/ns/pods"),
        (PODS.path("ns", "a", "binding"), "/api/v1/namespaces/ns/pods/a/binding"),
        (NODES.path("", "n1", "status"), "/api/v1/nodes/n1/status"),
        (NODES.path("ns", "n1"), "/api/v1/nodes/n1"),
        (LEASES.path("ns", "l"), "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l"),
        (EVENTS.path("ns"), "/apis/events.k8s.io/v1/namespaces/ns/events"),
        (QUEUES.path("", "q"), "/apis/scheduling.run.ai/v2/queues/q"),
        (TOPOLOGIES.path(), "/apis/kai.scheduler/v1alpha1/topologies"),
    ],
)
def test_an_object_stands_where_the_server_has_it(path: str, expected: str) -> None:
    assert path == expected


@pytest.mark.parametrize(
    ("resource", "definition"),
    [
        (BIND_REQUESTS, bindrequest.DEFINITION),
        (POD_GROUPS, podgroup.DEFINITION),
        (QUEUES, queue.DEFINITION),
        (TOPOLOGIES, topology.DEFINITION),
    ],
)
def test_what_is_asked_for_is_what_the_definition_installs(resource: Resource[Any], definition: Definition) -> None:
    for name in ("group", "version", "plural", "kind", "namespaced", "type"):
        assert getattr(resource, name) == getattr(definition, name)
