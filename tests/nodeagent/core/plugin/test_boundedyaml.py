from __future__ import annotations

import pytest

from nodeagent.core.plugin.settings_file import MOST_BYTES, Unreadable, decoded


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a: 1", {"a": 1}),
        ("a: -1\nb: +2\nc: 0", {"a": -1, "b": 2, "c": 0}),
        ("a: 1:0\nb: 010\nc: 0x1f\nd: 1_000\ne: 1.5", {"a": "1:0", "b": "010", "c": "0x1f", "d": "1_000", "e": "1.5"}),
        ("a: 2001-99-99", {"a": "2001-99-99"}),
        ("a: yes\nb: off\nc: ~", {"a": True, "b": False, "c": None}),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ("a: " + "9" * 30, {"a": "9" * 30}),
        ('{"a": [1, "b", null]}', {"a": [1, "b", None]}),
    ],
)
def test_values_are_text_decimal_numbers_booleans_lists_and_mappings(text: str, value: object) -> None:
    assert decoded(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: {a: " * 10 + "1" + "}" * 10, "line 1"),
        ("[" * 21 + "]" * 21, "more than 20 levels"),
        ("a: 1\na: 2", "a key is there twice"),
        ("? {b: 1}\n: 2", "a key is no text"),
        ("a: &x 1\nb: *x", "aliases"),
        ("a: !!set {b}", "line 1, column 4: tags"),
        ("x" * (MOST_BYTES + 1), "has more than 65536 bytes"),
        ("a: !!int x", "tags"),
        ("a: !!timestamp 2001-99-99", "tags"),
        ("--- 1\n--- 2", "document"),
    ],
)
def test_what_is_refused_says_why(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why) as refused:
        decoded(text)
    assert "\n" not in str(refused.value)


def test_twenty_levels_are_read() -> None:
    assert decoded("[" * 20 + "]" * 20)
