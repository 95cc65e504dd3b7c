from __future__ import annotations

import pytest

from wire.recent import Recent


def nobody(_key: str, _value: int) -> bool:
    return False


def after(ends: int) -> Recent[int]:
    made: Recent[int] = Recent()
    made.put("a", 1)
    for _ in range(ends):
        made.age(nobody)
    return made


@pytest.mark.parametrize(("ends", "expected"), [(0, 1), (1, 1), (2, 1), (3, None)])
def test_what_is_put_sees_two_periods_end_and_not_a_third(ends: int, expected: int | None) -> None:
    made = after(ends)
    assert made.get("a") == expected
    assert ("a" in made) is (expected is not None)
    assert len(made) == (expected is not None)


@pytest.mark.parametrize("ends", range(3))
def test_what_is_put_again_is_as_good_as_new(ends: int) -> None:
    made = after(ends)
    made.put("a", 2)
    for _ in range(2):
        made.age(nobody)
    assert made.get("a") == 2
    assert len(made) == 1


@pytest.mark.parametrize("ends", range(4))
def test_what_is_to_be_forgotten_is_forgotten_at_once(ends: int) -> None:
    made = after(ends)
    made.forget("a")
    assert len(made) == 0


def test_what_is_needed_stays_until_it_is_needed_no_more() -> None:
    made = after(0)
    made.put("b", 2)
    needed = {("a", 1)}
    for _ in range(9):
        made.age(lambda key, value: (key, value) in needed)
    assert [key for key in "ab" if key in made] == ["a"]
    made.age(nobody)
    assert len(made) == 0
