from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.owners import controller_of, controller_uid, identity
from wire.core import ObjectMeta, OwnerReference

OWNER = OwnerReference(api_version="batch/v1", kind="Job", name="j", uid="u", controller=True)


def meta(*owners: dict[str, Any], namespace: str = "ns") -> ObjectMeta:
    return msgspec.convert({"name": "p", "namespace": namespace, "ownerReferences": owners}, ObjectMeta)


def test_of_several_owners_the_one_that_controls_is_named() -> None:
    owners = [{"kind": "Job", "name": name, "uid": f"uid-{name}", "controller": name == "b"} for name in "abc"]
    assert controller_uid(meta(*owners)) == "uid-b"
    assert controller_of(meta(*owners)) == controller_of(meta(owners[1])) != ""
    for read in (controller_uid, controller_of):
        assert read(meta(owners[0])) == ""
        assert read(meta()) == ""


@pytest.mark.parametrize("other", [{"kind": "K"}, {"name": "k"}, {"uid": "v"}, {"api_version": "example.com/v1"}])
def test_an_owner_is_told_by_all_of_its_identity(other: dict[str, str]) -> None:
    forged = msgspec.structs.replace(OWNER, **other)
    assert identity("ns", forged) != identity("ns", OWNER) != identity("other", OWNER)


def test_the_version_of_its_api_is_not_of_its_identity() -> None:
    assert identity("ns", msgspec.structs.replace(OWNER, api_version="batch/v2")) == identity("ns", OWNER)


@pytest.mark.parametrize("length", [1, 500, 1_000_000])
def test_an_identity_has_the_same_length_whatever_a_reference_says(length: int) -> None:
    long = msgspec.structs.replace(OWNER, name="n" * length)
    assert len(identity("ns", long)) == len(identity("ns", OWNER)) == 32
    assert identity("ns", long) == identity("ns", long)


def test_parts_that_run_into_each_other_are_two_identities() -> None:
    first = msgspec.structs.replace(OWNER, kind="ab", name="c")
    assert identity("ns", first) != identity("ns", msgspec.structs.replace(OWNER, kind="a", name="bc"))
