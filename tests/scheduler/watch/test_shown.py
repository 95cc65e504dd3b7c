from __future__ import annotations

import pytest

from scheduler.watch.cache import Shown, ShownObjects


def made() -> tuple[ShownObjects[str, str], list[str]]:
    objects, changed = ShownObjects[str, str](), list[str]()
    objects.on_change = changed.append
    objects.note("a", Shown("uid-1", "5", "five"))
    return objects, changed


@pytest.mark.parametrize(
    ("shown", "what"),
    [
        pytest.param(Shown("uid-1", "6", "six"), "six", id="newer"),
        pytest.param(Shown("uid-1", "4", "four"), "five", id="older"),
        pytest.param(Shown("uid-2", "4", "four"), "four", id="another object of that name"),
    ],
)
def test_the_newest_version_of_an_object_stays(shown: Shown[str], what: str) -> None:
    objects, changed = made()
    objects.note("a", shown)
    known = objects.get("a")
    assert known is not None
    assert known.what == what
    assert changed == ["a"] * (1 if what == "five" else 2)


def test_an_object_that_is_gone_is_told_once() -> None:
    objects, changed = made()
    objects.drop("a")
    objects.drop("a")
    assert objects.get("a") is None
    assert changed == ["a", "a"]


def test_what_a_list_does_not_name_is_gone() -> None:
    objects, changed = made()
    objects.replace({"b": Shown("uid-3", "7", "seven")})
    assert objects.get("a") is None
    assert objects.get("b") == Shown("uid-3", "7", "seven")
    assert changed == ["a", "a", "b"]
