"""A row of the translation table (docs/reference/dialects.md) as a test case: a pod, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from gpu.device_plugin import containers
from gpu.dialects.settings import DialectSettings
from gpu.request import Ask, ContainerRef, ContainerRequest, GpuRequest
from gpu.translation import Mistake, Note, NoteCode, Refusal, ResourceEdit, Translation, Written
from tests.gpu.dialects.pods import Raw
from wire.core import Pod

Env = Mapping[str, Mapping[str, str]]
Translate = Callable[[Pod, DialectSettings], Translation | Refusal]


@dataclass(frozen=True)
class Row:
    """``name`` starts with the row's id. ``written`` is what is written back for a pod that got ``given`` devices."""

    name: str
    pod: Pod
    expected: Translation | tuple[Mistake, str]
    settings: DialectSettings = field(default_factory=DialectSettings)
    written: Written = field(default_factory=Written)


def parametrized(rows: Iterable[Row]) -> pytest.MarkDecorator:
    """One test a row, named by it."""
    return pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in rows])


def asks(*asked: tuple[ContainerRef, Iterable[Ask]]) -> GpuRequest:
    """What regular and plain init containers ask."""
    return GpuRequest(tuple(ContainerRequest(ref, tuple(mine)) for ref, mine in asked))


def holds(row: Row, translate: Translate) -> None:
    """Check what is made of the row's pod; a refusal by its kind and field, and that it says all three things."""
    answer = translate(row.pod, row.settings)
    if isinstance(row.expected, Translation):
        assert answer == row.expected
        return
    assert isinstance(answer, Refusal)
    assert (answer.code, answer.field) == row.expected
    assert answer.message
    assert answer.allowed


def note(code: NoteCode, where: str, value: str, instead: str = "") -> tuple[Note]:
    return (Note(code, where, value, instead),)


def without(row: Row, *resources: str) -> Row:
    """The row, of which admission also takes these resources out of every container that names them."""
    if not isinstance(row.expected, Translation):
        return row
    gone = [
        ResourceEdit(ref, name, None)
        for ref, container in containers(row.pod.spec)
        for name in sorted({*(container.resources.limits or ()), *(container.resources.requests or ())})
        if name in resources
    ]
    expected = msgspec.structs.replace(row.expected, edits=(*row.expected.edits, *gone))
    return replace(row, expected=expected)


def edited(pod: Pod, edits: Iterable[ResourceEdit]) -> Pod:
    """The pod after admission: the counts in limits and requests set or taken out."""
    raw: Raw = msgspec.to_builtins(pod)
    for edit in edits:
        listed = raw["spec"]["containers" if edit.container.kind.value == "c" else "initContainers"]
        resources: dict[str, Any] = listed[edit.container.index].setdefault("resources", {})
        for kind in ("limits", "requests"):
            if edit.count is None:
                resources.get(kind, {}).pop(edit.resource, None)
        if edit.count is not None:
            resources.setdefault("limits", {})[edit.resource] = edit.count
            resources.get("requests", {}).pop(edit.resource, None)
    return msgspec.convert(raw, Pod)
