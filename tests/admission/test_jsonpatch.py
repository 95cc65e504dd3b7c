from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.envelope import diff
from tests.admission.pods import apply

_keys = st.sampled_from(["a", "b", "x/y", "x~y", "~1", ""]) | st.text(max_size=4)
_json = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=12,
)


@given(before=st.dictionaries(_keys, _json, max_size=5), after=st.dictionaries(_keys, _json, max_size=5))
def test_a_difference_applied_gives_the_other_side(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert apply(before, diff(before, after)) == after


@given(value=_json)
def test_equal_sides_have_no_difference(value: object) -> None:
    assert diff(value, value) == []


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        ({}, {"a/b": 1}, [{"op": "add", "path": "/a~1b", "value": 1}]),
        ({"a~b": 1}, {}, [{"op": "remove", "path": "/a~0b"}]),
        ({"a": [1, 2]}, {"a": [1, 3]}, [{"op": "replace", "path": "/a/1", "value": 3}]),
        ({"a": [1]}, {"a": [0, 1]}, [{"op": "replace", "path": "/a", "value": [0, 1]}]),
        ({"a": None}, {"a": {}}, [{"op": "replace", "path": "/a", "value": {}}]),
    ],
)
def test_only_what_differs_is_named(before: object, after: object, operations: list[dict[str, Any]]) -> None:
    assert diff(before, after) == operations
