"""The file of a snapshot: written and read the same, and refused by field, value and what is allowed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cli.snapshots import file
from cli.snapshots.file import KIND, VERSION, Refused, Saved
from wire.core import Node, ObjectMeta, Pod

HEAD: dict[str, Any] = {"kind": KIND, "version": VERSION, "takenAt": "2026-11-27T04:00:00Z"}


def test_what_is_written_is_read_again() -> None:
    found = Saved(
        kind=KIND,
        version=VERSION,
        taken_at="2026-11-27T04:00:00Z",
        missing=["jobs"],
        room='{"nominations":[],"evicted":{}}',
        nodes=[Node(metadata=ObjectMeta(name="n", uid="1"))],
        pods=[Pod(metadata=ObjectMeta(name="p", namespace="a", uid="2"))],
    )
    assert file.read(file.write(found)) == found
    assert found.wall_s == 1_795_752_000


def pod(**meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "a", "uid": "u", **meta}}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "file: []; allowed: Expected `object`, got `array`"),
        ({"apiVersion": "v1", "kind": "List"}, f"kind: List; allowed: {KIND}"),
        ({**HEAD, "version": 2}, "version: 2; allowed: 1; take the snapshot with this version of moorage"),
        ({**HEAD, "version": None}, "version: null; allowed: 1"),
        ({**HEAD, "takenAt": "yesterday"}, "takenAt: yesterday; allowed: a time in RFC 3339"),
        ({"kind": KIND, "version": VERSION}, "Object missing required field `takenAt`"),
        ({**HEAD, "missing": ["pods"]}, "missing[0]: pods; allowed: bindrequests, "),
        ({**HEAD, "pods": [pod(uid=7)]}, "pods[0].metadata.uid: 7; allowed: Expected `str`, got `int`"),
        ({**HEAD, "pods": [{**pod(), "spec": {"priority": "high"}}]}, "pods[0].spec.priority: high; allowed: "),
        ({**HEAD, "pods": {}}, "pods: {}; allowed: Expected `array`, got `object`"),
        ({**HEAD, "pods": [pod(uid="")]}, 'pods[0].metadata.uid: ""; allowed: a text that is not empty'),
        ({**HEAD, "nodes": [{}]}, 'nodes[0].metadata.name: ""; allowed: a text that is not empty'),
        ({**HEAD, "pods": [pod(), pod(name="q")]}, "pods[1].metadata.uid: u; allowed: each UID once"),
        ({**HEAD, "pods": [pod(), pod(uid="v")]}, "pods[1].metadata.name: a/p; allowed: each name once in "),
        ({**HEAD, "room": "{}"}, "room: nothing can be read: "),
        ({**HEAD, "queueUse": "7"}, "queueUse: "),
    ],
)
def test_a_file_that_is_none_is_refused(given: Any, told: str) -> None:
    with pytest.raises(Refused) as refused:
        file.read(msgspec.json.encode(given))
    assert told in str(refused.value)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, b'{"kind": ' + b"[" * 100_000])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(Refused, match=r"file: .*; allowed: one JSON object, as moorage snapshot writes it"):
        file.read(text)


def test_a_value_is_shown_in_part() -> None:
    with pytest.raises(Refused) as refused:
        file.read(msgspec.json.encode({**HEAD, "takenAt": "x" * 10_000}))
    assert len(str(refused.value)) < 300
