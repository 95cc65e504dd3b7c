from __future__ import annotations

import pytest

from wire.versions import has_jumped, is_older


@pytest.mark.parametrize(
    ("rv", "than", "expected"),
    [
        ("9", "10", True),
        ("10", "10", False),
        ("11", "10", False),
        ("", "10", False),
        ("10", "", False),
        ("a", "10", False),
    ],
)
def test_the_smaller_number_is_older_and_what_is_no_number_is_not(rv: str, than: str, *, expected: bool) -> None:
    assert is_older(rv, than) is expected


@pytest.mark.parametrize(
    ("rv", "since", "expected"),
    [
        ("100000007", "7", True),
        ("100000006", "7", False),  # written in three hours by a server that is very busy
        ("1000000907", "1000", True),  # as etcdutl restores it
        ("7", "100000007", False),
        ("100000007", "", False),  # the first list
        ("x", "7", False),
        ("100000007", "x", False),
    ],
)
def test_versions_have_jumped_when_no_server_writes_so_much(rv: str, since: str, *, expected: bool) -> None:
    assert has_jumped(rv, since) is expected
