from __future__ import annotations

import msgspec
import pytest

from kube.client.resources import PODS
from kube.watch.reflector import Bookmarked, Deleted, Failed, Garbled, Upserted, WatchDecoder


def line(kind: str, obj: object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


POD = {"metadata": {"name": "a", "namespace": "ns", "resourceVersion": "7"}, "spec": {"nodeName": "n1"}}
BAD = {"metadata": {"name": "bad", "namespace": "ns", "resourceVersion": "8"}, "spec": {"nodeName": 1}}


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED"])
def test_what_is_there_is_an_upsert(kind: str) -> None:
    event = WatchDecoder(PODS).decode(line(kind, POD))
    assert isinstance(event, Upserted)
    assert (event.obj.spec.node_name, event.resource_version) == ("n1", "7")


def test_a_deletion_carries_the_last_state_and_its_own_version() -> None:
    event = WatchDecoder(PODS).decode(line("DELETED", POD))
    assert isinstance(event, Deleted)
    assert (event.obj.metadata.name, event.resource_version) == ("a", "7")


@pytest.mark.parametrize("kind", ["BOOKMARK", "SOMETHING_OF_LATER_YEARS"])
def test_a_bookmark_is_its_version(kind: str) -> None:
    assert WatchDecoder(PODS).decode(line(kind, {"metadata": {"resourceVersion": "9"}})) == Bookmarked("9")


def test_an_error_is_its_status() -> None:
    event = WatchDecoder(PODS).decode(line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}))
    assert isinstance(event, Failed)
    assert (event.status.code, event.status.reason) == (410, "Expired")


def test_an_error_that_does_not_decode_is_an_error_still() -> None:
    assert isinstance(WatchDecoder(PODS).decode(line("ERROR", {"code": "many"})), Failed)


@pytest.mark.parametrize(("kind", "is_deletion"), [("ADDED", False), ("MODIFIED", False), ("DELETED", True)])
def test_an_object_that_does_not_decode_is_named_with_its_version(kind: str, is_deletion: bool) -> None:
    event = WatchDecoder(PODS).decode(line(kind, BAD))
    assert isinstance(event, Garbled)
    assert (event.key, event.resource_version, event.is_deletion) == ("ns/bad", "8", is_deletion)
    assert "nodeName" in event.error


@pytest.mark.parametrize("garbage", [b"", b"{", b"null\n", b"[1]\n", b'{"type": "ADDED"}\n', b"\xff\xfe\n"])
def test_a_line_that_is_no_event_is_an_event_without_version(garbage: bytes) -> None:
    event = WatchDecoder(PODS).decode(garbage)
    assert isinstance(event, Garbled)
    assert event.resource_version == ""


def test_a_decoded_object_does_not_keep_its_line_alive() -> None:
    event = WatchDecoder(PODS).decode(line("ADDED", {**POD, "status": {"message": "x" * 100_000}}))
    assert isinstance(event, Upserted)
    assert type(event.obj.spec.node_name) is str
