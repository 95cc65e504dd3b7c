"""JSON that is nested too deep for a decoder is read all the same, without what is too deep."""

from __future__ import annotations

import json
import time
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from kube.client.decoding import Codec, Page, object_key, shallow
from kube.client.resources import PODS
from kube.watch.reflector import Bookmarked, Deleted, Upserted, WatchDecoder
from wire.core import Pod

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
    pod = Codec(PODS).one(deep_pod())
    assert isinstance(pod, Pod)
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
    seen = WatchDecoder(PODS).decode(b'{"type":"%s","object":%s}' % (kind.encode(), deep_pod()))
    assert isinstance(seen, event)
    assert getattr(seen, "resource_version", "") == "7"


def test_an_unfinished_string_is_not_tried_in_all_ways() -> None:
    began = time.process_time()
    shallow(b'{"a":"' + b"b\\n" * 100_000)
    assert time.process_time() - began < 5
