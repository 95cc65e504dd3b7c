"""What one definition knows and another does not, in a table of changes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from cli.checks.crds import known
from wire.crds import queue
from wire.crds.render import DEFINITIONS

Raw = dict[str, Any]
Change = Callable[[Raw], None]


def crd(change: Change = lambda _: None) -> Raw:
    """A definition with one of everything that is compared, changed."""
    spec: Raw = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "mode": {"type": "string", "enum": ["a", "b"]},
            "amount": {"x-kubernetes-int-or-string": True},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "levels": {"type": "array", "items": {"type": "object", "properties": {"key": {"type": "string"}}}},
            "limits": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v2", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    made = {"spec": {"versions": [version]}, "status": {"storedVersions": ["v2"]}}
    change(made)
    return made


def fields(made: Raw) -> Raw:
    properties: Raw = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return properties


def _another_version(made: Raw) -> None:
    made["spec"]["versions"].append({**copy.deepcopy(made["spec"]["versions"][0]), "name": "v3", "storage": False})


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda made: fields(made).update(new={"type": "boolean"}), ["v2 spec.new (boolean)"]),
        (
            lambda made: fields(made)["levels"]["items"]["properties"].update(new={"type": "string"}),
            ["v2 spec.levels[].new (string)"],
        ),
        (
            lambda made: fields(made)["limits"].update(additionalProperties={"type": "integer"}),
            ["v2 spec.limits.* (integer)"],
        ),
        (lambda made: fields(made)["limits"].update(additionalProperties=True), ["v2 spec.limits (anything)"]),
        (lambda made: fields(made).update(name={"type": "integer"}), ["v2 spec.name (integer)"]),
        (lambda made: fields(made)["mode"]["enum"].append("c"), ["v2 spec.mode=c"]),
        (
            lambda made: fields(made)["name"].update({"x-kubernetes-preserve-unknown-fields": True}),
            ["v2 spec.name (anything)"],
        ),
        (lambda made: made["spec"]["versions"][0]["subresources"].update(scale={}), ["v2 scale"]),
        (lambda made: made["status"].update(storedVersions=["v1", "v2"]), ["v1 (of stored objects)"]),
        (lambda made: made["spec"].update(conversion={"strategy": "Webhook"}), ["a webhook that converts"]),
        (lambda made: made["spec"].update(preserveUnknownFields=True), ["fields that no schema names"]),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_what_only_the_other_knows_is_named(change: Change, lost: list[str]) -> None:
    ours, theirs = known(crd()), known(crd(change))
    assert list(ours.lacks(theirs)) == lost


def test_a_version_that_only_the_other_has_is_named_with_all_its_fields() -> None:
    lost = known(crd()).lacks(known(crd(_another_version)))
    assert {"v3", "v3 (served)", "v3 spec.name (string)"} <= set(lost)
    assert all(fact.startswith("v3") for fact in lost)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda _: None, id="nothing"),
        pytest.param(
            lambda made: fields(made)["name"].update(description="another text", maxLength=7, default="x"),
            id="what is said of a field",
        ),
        pytest.param(lambda made: fields(made)["name"].update(enum=["x"]), id="values where ours allows all"),
        pytest.param(
            lambda made: fields(made)["any"].update(properties={"x": {"type": "string"}}),
            id="a field where ours keeps everything",
        ),
        pytest.param(lambda made: made["spec"].update(conversion={"strategy": "None"}), id="a default"),
        pytest.param(lambda made: made.pop("status"), id="no status"),
        pytest.param(lambda made: made["spec"]["versions"][0].pop("subresources"), id="no subresource"),
        pytest.param(lambda made: fields(made).pop("levels"), id="no field"),
    ],
)
def test_what_takes_nothing_away_is_no_difference(change: Change) -> None:
    assert known(crd()).lacks(known(crd(change))) == ()


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each.plural)
def test_our_own_know_what_they_know(definition: Any) -> None:
    own = known(definition.manifest())
    assert own.lacks(own) == ()
    assert f"{definition.version} (served)" in own.facts


def test_a_field_of_ours_is_named_as_people_write_it() -> None:
    assert "v2 spec.resources.gpu.quota (number)" in known(queue.DEFINITION.manifest()).facts
