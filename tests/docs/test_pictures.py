"""Pictures are well-formed, say in words what they show, and tell what their page tells."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from tests.docs.pages import ROOT
from tools.sitecheck import loads

PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
_SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_says_what_it_shows_and_loads_nothing(picture: Path) -> None:
    # A file of our own.
    root = Xml.parse(picture).getroot()  # noqa: S314
    assert root.findtext(f"{_SVG}title")
    assert root.findtext(f"{_SVG}desc")
    assert loads(picture) == []


def test_the_steps_that_move_are_those_of_the_page() -> None:
    root = Xml.parse(ROOT / "docs" / "pictures" / "sharing.svg").getroot()  # noqa: S314
    steps = [" ".join(text.text or "" for text in group.iter(f"{_SVG}text")) for group in root.iter(f"{_SVG}g")]
    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    assert steps == re.findall(r"^\d\. .+$", page, re.MULTILINE)
    assert len(steps) == 7
