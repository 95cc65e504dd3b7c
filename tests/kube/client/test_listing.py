"""Lists and objects: pages, what does not decode, what is nested too deep, and paths of resources."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import anyio.lowlevel
import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from kube.client import errors
from kube.client.decoding import Codec, Page, object_key, shallow
from kube.client.errors import BadName
from kube.client.listing import PAGE_BYTES, PAGE_SIZE, WHOLE_BYTES, Listing, read_list
from kube.client.resources import BIND_REQUESTS, EVENTS, LEASES, NODES, POD_GROUPS, PODS, QUEUES, TOPOLOGIES, Resource
from kube.client.transport import Response
from kube.watch.reflector import Bookmarked, Deleted, Upserted, WatchDecoder
from tests.values import of_kind
from wire import core
from wire.core import Node, Pod, Status
from wire.crds import bindrequest, podgroup, queue, topology
from wire.crds.definition import Definition


class Pages:
    """A server with so many pages of two nodes each. ``failing``: what it answers for a token, once."""

    def __init__(self, pages: int, failing: Mapping[str, Exception] | None = None) -> None:
        self.log: list[str] = []
        self._pages = pages
        self._failing = dict(failing or {})

    async def read(self, query: Mapping[str, str], most_bytes: int) -> Response:
        assert most_bytes == PAGE_BYTES
        token = query.get("continue", "")
        self.log.append(f"ask {token or 0}")
        await anyio.lowlevel.checkpoint()
        if (error := self._failing.pop(token, None)) is not None:
            raise error
        number = int(token or "0")
        more = {"continue": str(number + 1)} if number + 1 < self._pages else {}
        items = [{"metadata": {"name": f"n{number}{letter}"}} for letter in "ab"]
        return Response(200, {}, msgspec.json.encode({"metadata": {"resourceVersion": "7", **more}, "items": items}))

    def keep(self, node: Node) -> str:
        self.log.append(f"keep {node.metadata.name}")
        return node.metadata.name

    async def list(self) -> Listing[str]:
        return await read_list(self.read, {}, Codec(NODES), self.keep)


async def test_all_pages_are_read_in_order() -> None:
    listed = await Pages(3).list()
    assert listed.items == ["n0a", "n0b", "n1a", "n1b", "n2a", "n2b"]
    assert listed.resource_version == "7"


async def test_the_server_makes_a_page_while_the_one_before_is_taken() -> None:
    server = Pages(3)
    await server.list()
    for number in (1, 2):
        assert server.log.index(f"ask {number}") < server.log.index(f"keep n{number - 1}a")
    assert len(server.log) == 3 + 6


@pytest.mark.parametrize("error", [errors.Unreachable("gone"), errors.Timeout("late"), errors.Undecodable("odd")])
async def test_an_error_of_a_later_page_comes_out_as_it_is(error: errors.ApiError) -> None:
    with pytest.raises(type(error)) as raised:
        await Pages(3, {"1": error}).list()
    assert raised.value is error


async def test_a_list_is_given_up_when_what_is_kept_fails() -> None:
    server = Pages(3)

    def fails(node: Node) -> str:
        raise ValueError(node.metadata.name)

    with pytest.raises(ExceptionGroup) as raised:
        await read_list(server.read, {}, Codec(NODES), fails)
    assert raised.group_contains(ValueError, match="n0a")


class Sizes:
    """A server of objects of these sizes; an answer above the limit of its reader is not read."""

    def __init__(self, *sizes: int) -> None:
        self.limits: list[int] = []
        self._sizes = sizes

    async def read(self, query: Mapping[str, str], most_bytes: int) -> Response:
        begin, limit = int(query.get("continue", "0")), int(query["limit"])
        self.limits.append(limit)
        end = begin + limit
        if sum(self._sizes[begin:end]) > most_bytes:
            raise errors.TooLarge("too large")
        more = {"continue": str(end)} if end < len(self._sizes) else {}
        items = [{"metadata": {"name": f"n{number}"}} for number in range(begin, min(end, len(self._sizes)))]
        return Response(200, {}, msgspec.json.encode({"metadata": {"resourceVersion": "7", **more}, "items": items}))

    async def list(self) -> list[str]:
        return (await read_list(self.read, {}, Codec(NODES), lambda node: node.metadata.name)).items


async def test_a_page_that_is_too_long_is_read_in_smaller_ones_which_grow_again() -> None:
    server = Sizes(*[1] * 500, *[PAGE_BYTES // 50] * 500, *[1] * 2000)
    assert await server.list() == [f"n{number}" for number in range(3000)]
    assert server.limits[:3] == [500, 500, 62]
    assert server.limits[-1] == PAGE_SIZE
    assert len(server.limits) < 60


async def test_the_largest_objects_are_read_one_by_one() -> None:
    server = Sizes(*[PAGE_BYTES] * 9)
    assert await server.list() == [f"n{number}" for number in range(9)]


async def test_an_object_that_is_too_large_alone_is_an_error_that_ends() -> None:
    server = Sizes(1, PAGE_BYTES + 1, 1)
    with pytest.raises(errors.TooLarge):
        await server.list()
    assert len(server.limits) < 8


async def test_a_list_in_one_piece_has_a_limit() -> None:
    asked: list[int] = []

    async def read(query: Mapping[str, str], most_bytes: int) -> Response:
        asked.append(most_bytes)
        if "limit" in query:
            raise errors.refused(410, Status(reason="Expired"))
        return Response(200, {}, b'{"items": []}')

    assert (await read_list(read, {}, Codec(NODES), lambda node: node.metadata.name)).items == []
    assert asked == [PAGE_BYTES, PAGE_BYTES, WHOLE_BYTES]


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        (b'{"metadata": {"name": "a", "namespace": "ns"}, "spec": 5}', "ns/a"),
        (b'{"metadata": {"name": "a"}, "spec": 5}', "a"),
        (b'{"metadata": {}}', "(unnamed)"),
        (b'{"metadata": {"name": 5}}', "(unnamed)"),
        (b"{", "(unnamed)"),
    ],
)
def test_an_object_that_does_not_decode_is_named_as_far_as_it_can_be(raw: bytes, key: str) -> None:
    assert object_key(raw) == key


LEVELS = 50_000


def deep_pod(levels: int = LEVELS) -> bytes:
    """A pod as anybody may store it who may create pods."""
    fields = b'{"f:a":' * levels + b"{}" + b"}" * levels
    meta = b'{"managedFields":[{"fieldsV1":%s}],"name":"p","namespace":"n","resourceVersion":"7"}' % fields
    return b'{"metadata":%s,"spec":{"nodeName":"n1"}}' % meta


def json_values() -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    )


def cut(value: Any, most: int) -> Any:
    if not isinstance(value, list | dict):
        return value
    if most == 0:
        return None
    if isinstance(value, list):
        return [cut(one, most - 1) for one in value]
    return {key: cut(one, most - 1) for key, one in value.items()}


@given(json_values(), st.integers(0, 4))
def test_what_is_nested_too_deep_is_null_and_the_rest_stays(value: Any, most: int) -> None:
    assert json.loads(shallow(json.dumps(value).encode(), most)) == cut(value, most)


def test_an_object_with_something_deep_in_it_is_read() -> None:
    pod = of_kind(Pod, Codec(PODS).one(deep_pod()))
    assert (pod.metadata.resource_version, pod.spec.node_name) == ("7", "n1")
    assert object_key(deep_pod()) == "n/p"


def test_a_list_with_a_deep_object_is_read_whole() -> None:
    page = Codec(PODS).page(b'{"items":[%s,{"metadata":{"name":"q"}}],"metadata":{"resourceVersion":"9"}}' % deep_pod())
    assert isinstance(page, Page)
    pods = [Codec(PODS).one(raw) for raw in page.items or ()]
    assert [pod.metadata.name for pod in pods if isinstance(pod, Pod)] == ["p", "q"]
    assert page.metadata.resource_version == "9"


@pytest.mark.parametrize(
    ("kind", "event"), [("ADDED", Upserted), ("MODIFIED", Upserted), ("DELETED", Deleted), ("BOOKMARK", Bookmarked)]
)
def test_a_deep_object_in_a_watch_is_seen(kind: str, event: type[msgspec.Struct]) -> None:
    seen = of_kind(event, WatchDecoder(PODS).decode(b'{"type":"%s","object":%s}' % (kind.encode(), deep_pod())))
    assert getattr(seen, "resource_version", "") == "7"


def test_an_unfinished_string_is_not_tried_in_all_ways() -> None:
    began = time.process_time()
    shallow(b'{"a":"' + b"b\\n" * 100_000)
    assert time.process_time() - began < 5


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
