"""The pages of reference tell what the code says, and every reason of an Event is among it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpu.attempts import Cause
from scheduler.core.model.verdict import Code
from tools.referencedoc import FOLDER, PAGES, constants, rendered
from wire.crds.render import DEFINITIONS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_is_what_the_code_would_make(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert rendered(name, text) == text
    with pytest.raises(ValueError, match="has no line that says where the tables begin"):
        rendered(name, "# A page\n")


def test_every_kind_has_its_fields_down_to_the_last() -> None:
    page = (FOLDER / "crds.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == [each.kind for each in DEFINITIONS]
    assert "| `spec.subGroups[].minMember` |" in page
    assert "| `spec.resources.gpu.quota` | number |" in page
    assert re.search(
        r"^\| `spec\.levels\[\]\.nodeLabel` \| string \| required; at least 1 characters", page, re.MULTILINE
    )


def test_every_verdict_and_every_cause_is_told() -> None:
    page = (FOLDER / "events.md").read_text(encoding="utf-8")
    for each in (*Code, *Cause):
        assert re.search(rf"^\| `{each.value}` \| \S", page, re.MULTILINE), each


def test_events_have_reasons_that_are_names() -> None:
    """A reason that stood in the code as a text would not come into the page."""
    said = re.compile(r"(?:_events\.record|\bBursts)\((?:[^()]|\([^()]*\))*?reason=(?P<what>[\w.\"]+)", re.DOTALL)
    found = [
        (path.name, match["what"])
        for folder in ("admission", "binder", "kube", "scheduler")
        for path in (ROOT / folder).rglob("*.py")
        for match in said.finditer(path.read_text(encoding="utf-8"))
    ]
    assert len(found) >= 8
    passed_on = {"reason", "told.reason", "self._reason"}
    assert [one for one in found if not one[1].startswith("names.REASON_") and one[1] not in passed_on] == []


def test_a_constant_is_read_with_its_section_and_comment() -> None:
    found = {each.name: each for each in constants("wire/names.py")}
    assert found["TENANTS"].section == "pod annotations that are ours"
    assert found["TENANTS"].value == "moorage.dev/tenants"
    assert found["TENANTS"].comment.startswith("On a reservation pod: the book of its device")
    assert found["FENCED_BECAUSE"].comment.endswith('"Cause: detail" (gpu/attempts.py).')
    assert not found["HAMI_CORES"].comment


def test_every_name_of_ours_is_explained() -> None:
    page = (FOLDER / "names.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `[^`]+` \|  \|$", page, re.MULTILINE) == []
