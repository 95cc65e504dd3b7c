from __future__ import annotations

import json
from pathlib import PurePosixPath

import pytest

from nodeagent.core.enforcement.container_edits import Edits, Scratch, content, edits_in, narrowed, pods_in
from tests.nodeagent.core.enforcement.test_edits import CACHE, LIBRARY

POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
OTHER = "00000000-1111-4222-8333-444444444444"


def test_each_pod_is_a_device_with_its_own_edits() -> None:
    said = json.loads(content({POD: Edits(env={"A": "1"}), OTHER: Edits(env={"A": "2"})}))
    assert said == {
        "cdiVersion": "0.5.0",
        "kind": "moorage.dev/limits",
        "devices": [
            {"name": OTHER, "containerEdits": {"env": ["A=2"]}},
            {"name": POD, "containerEdits": {"env": ["A=1"]}},
        ],
    }


def test_the_same_is_the_same_file() -> None:
    one, two = Edits(env={"A": "1"}), Edits(env={"A": "2"})
    assert content({POD: one, OTHER: two}) == content({OTHER: two, POD: one})


def test_a_file_is_read_back_as_it_was_written() -> None:
    edits = {
        POD: Edits((LIBRARY, CACHE, Scratch(PurePosixPath("/run/lock"), 64)), {"A": "1=2", "B": ""}),
        OTHER: Edits(env={"A": "2"}),
    }
    assert edits_in(content(edits)) == edits


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"[" * 100_000,
        b"{}",
        b'{"devices": [{"name": "a", "containerEdits": {}}]}',
        b'{"devices": [{"name": "a", "containerEdits": {"env": ["A"]}}]}',
        b'{"devices": [{"name": "a", "containerEdits": {"mounts": [{"hostPath": "/a"}]}}]}',
        b'{"devices": [{"name": "a", "containerEdits": {"mounts": [{"hostPath": "a", "containerPath": "/a", '
        b'"type": "tmpfs", "options": ["size=xk"]}]}}]}',
    ],
)
def test_a_file_that_can_not_be_read_gives_nobody_anything(said: bytes) -> None:
    assert edits_in(said) == {}


def test_a_device_whose_name_is_no_text_is_left_out() -> None:
    said = json.dumps({"devices": [{"name": ["a"]}, {"name": POD}]}).encode()
    assert pods_in(said) == {POD}
    assert pods_in(narrowed(said, {POD})) == {POD}


def test_a_file_is_narrowed_down_to_some_pods_and_keeps_what_another_version_wrote() -> None:
    said = json.loads(content({POD: Edits(env={"A": "1"}), OTHER: Edits(env={"A": "2"})}))
    said["annotations"] = {"of": "another version"}
    written = json.dumps(said).encode()
    assert pods_in(written) == {POD, OTHER}
    left = json.loads(narrowed(written, {POD}))
    assert (left["annotations"], [each["name"] for each in left["devices"]]) == (said["annotations"], [POD])


@pytest.mark.parametrize("said", [b"", b"[" * 100_000, b"{}", b"[]", b'{"devices": [1]}', b'{"devices": 1}'])
def test_the_pods_of_a_file_that_can_not_be_read_are_not_known(said: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        pods_in(said)
