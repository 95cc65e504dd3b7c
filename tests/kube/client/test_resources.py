from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kube.client.errors import BadName
from kube.client.resources import BIND_REQUESTS, EVENTS, LEASES, NODES, POD_GROUPS, PODS, QUEUES, TOPOLOGIES, Resource
from wire import core
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
    ("name", "segment"),
    [
        ("x?watch=true", "x%3Fwatch%3Dtrue"),
        ("x#y", "x%23y"),
        ("two words", "two%20words"),
        ("a&limit=1", "a%26limit%3D1"),
        ("ä\n", "%C3%A4%0A"),
        ("...", "..."),
        (".hidden", ".hidden"),
        ("system:node", "system:node"),
        ("a;b", "a%3Bb"),
        ("a\\b", "a%5Cb"),
    ],
)
def test_a_name_is_one_quoted_segment_of_the_path(name: str, segment: str) -> None:
    assert PODS.path("ns", name) == f"/api/v1/namespaces/ns/pods/{segment}"
    assert PODS.path(name, "a") == f"/api/v1/namespaces/{segment}/pods/a"


@pytest.mark.parametrize(
    "name", [".", "..", "../x", "../../team/jobs/quiet", "a/b", "/", "%2e%2e", "%2F", "100%", "a/", "\ud800"]
)
def test_a_name_that_would_be_another_path_is_refused_with_its_field(name: str) -> None:
    paths: dict[str, Callable[[], str]] = {
        "namespace": lambda: PODS.path(name, "a"),
        "name": lambda: PODS.path("ns", name),
        "subresource": lambda: PODS.path("ns", "a", name),
        "group": lambda: served(group=name, version="v1", plural="things").path(),
        "version": lambda: served(group="example.com", version=name, plural="things").path(),
        "plural": lambda: served(group="example.com", version="v1", plural=name).path(),
    }
    for field, made in paths.items():
        with pytest.raises(BadName) as refused:
            made()
        assert (refused.value.field, refused.value.value) == (field, name)
        assert "allowed: a name other than . and .., without / and %" in str(refused.value)


def test_a_long_name_that_is_refused_is_cut_in_the_message() -> None:
    with pytest.raises(BadName) as refused:
        PODS.path("ns", "/" * 100_000)
    assert len(str(refused.value)) < 250


def test_an_object_without_a_name_is_refused_where_the_path_would_be_that_of_all() -> None:
    with pytest.raises(BadName, match="allowed: the name of one object"):
        PODS.object_path("ns", "")
    assert served(group="batch", version="v1", plural="").object_path("", "") == "/apis/batch/v1"


def served(*, group: str, version: str, plural: str) -> Resource[Any]:
    return Resource(group=group, version=version, plural=plural, kind="Thing", namespaced=True, type=core.Pod)


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
