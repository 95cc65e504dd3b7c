from __future__ import annotations

import sys

import pytest

from tests.calls import calls


def _faculty(number: int) -> int:
    return number * _faculty(number - 1) if number else 1


def test_functions_of_python_and_of_c_are_counted_and_calls_of_themselves_too() -> None:
    assert calls(lambda: _faculty(9)) == 11
    assert calls(lambda: [abs(number) for number in (1, 2, 3)]) == 5, (
        "three, the comprehension, and the function around it"
    )


def test_nothing_is_counted_after_an_error() -> None:
    with pytest.raises(ValueError, match="none"):
        calls(lambda: int("none"))
    assert sys.getprofile() is None
    assert calls(lambda: None) == 1
