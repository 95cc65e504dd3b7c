from __future__ import annotations

import pytest

from wire.pathsegment import is_path_segment


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("a", True),
        ("a.b", True),
        ("...", True),
        ("a?b#c", True),
        ("ä b", True),
        (".", False),
        ("..", False),
        ("../a", False),
        ("a/b", False),
        ("/", False),
        ("%2e%2e", False),
        ("100%", False),
    ],
)
def test_a_name_with_another_segment_in_it_is_none(name: str, is_one: bool) -> None:
    assert is_path_segment(name) is is_one
