"""Blocks of YAML and JSON in the pages can be read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import PAGES, name

_DATA = re.compile(r"^( *)```(?:yaml|json)\n(?P<text>.*?)^\1```$", re.MULTILINE | re.DOTALL)
_READ = {page: list(_DATA.finditer(page.read_text(encoding="utf-8"))) for page in PAGES}


@pytest.mark.parametrize("page", [page for page, found in _READ.items() if found], ids=name)
def test_data_of_a_page_can_be_read(page: Path) -> None:
    for found in _READ[page]:
        text = re.sub(rf"^{found[1]}", "", found["text"], flags=re.MULTILINE)
        if "```json" in found[0]:
            assert json.loads(text)
        else:
            assert all(yaml.safe_load_all(text))
