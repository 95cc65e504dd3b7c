"""docs/reference/settings.md tells every setting, as it is declared."""

from __future__ import annotations

import pytest

from cli.commands import COMPONENTS
from runtime.settings.declaration import declared
from tools.settingsdoc import PATH, rendered


def test_the_page_is_what_the_code_would_make_and_tells_every_setting() -> None:
    page = PATH.read_text()
    assert rendered(page) == page
    for component in COMPONENTS:
        for each in declared(component.settings()):
            assert f"| `{each.key}` |" in page


def test_a_page_without_a_place_for_the_tables_is_left_alone() -> None:
    with pytest.raises(ValueError, match="has no line that says where the tables begin"):
        rendered("# Settings\n")


def test_a_row_that_somebody_changed_is_found() -> None:
    page = PATH.read_text()
    assert rendered(page.replace("| `idle-s` |", "| `idle` |")) == page
