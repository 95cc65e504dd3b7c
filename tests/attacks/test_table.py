"""The table of threats names tests that are there, and docs/reference/threats.md has it as it is."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.attacks.table import PAGE, ROOT, named, rendered
from tests.attacks.threats import THREATS, Layer, Threat

_NAMED = sorted({each for threat in THREATS for each in named(threat)})
#: Rows that no test can show; each says why in its own words.
_UNTESTED = {"X2"}


def test_the_page_has_the_table() -> None:
    text = PAGE.read_text()
    assert text == rendered(text)


def test_a_page_without_a_place_for_the_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="no place for the table"):
        rendered("# Security\n")


def test_every_threat_of_the_contract_is_in_the_table() -> None:
    numbers = {int(threat.id.partition(".")[0]) for threat in THREATS if threat.id[0].isdigit()}
    assert numbers == set(range(1, 12))


def test_each_row_has_an_id_of_its_own() -> None:
    assert [each for each, times in Counter(threat.id for threat in THREATS).items() if times > 1] == []


def test_each_row_has_a_test() -> None:
    assert {threat.id for threat in THREATS if not threat.tests} == _UNTESTED


@pytest.mark.parametrize(("file", "part"), _NAMED)
def test_a_named_test_is_there(file: str, part: str) -> None:
    assert re.search(rf"def \w*{part}", (ROOT / f"{file}.py").read_text())


@pytest.mark.parametrize("field", ["threat", "happens"])
def test_a_cell_of_the_table_is_one_line_without_a_bar(field: str) -> None:
    assert [threat.id for threat in THREATS if re.search(r"[|\n]", getattr(threat, field))] == []


def test_a_row_says_what_is_tried_what_happens_and_what_holds_it() -> None:
    threat = Threat("Z1", "a", "b", Layer.RULE, ["tests/attacks/test_a: one"])
    (begin, *_, end) = re.findall(r"<!-- (?:Made|The end) .*-->\n", PAGE.read_text())
    assert "| Z1 | a | b | rule |\n" in rendered(begin + end, [threat])
