from __future__ import annotations

from gpu.attempts import fences, fencing
from wire import names


def test_a_second_fence_keeps_the_first() -> None:
    once = fencing({"other": "x"}, "a")
    assert once == {names.FENCED: "a"}
    twice = {**once, **fencing(once, "b")}
    assert fences(twice) == ("b", "a")


def test_the_same_fence_again_stands_there_once() -> None:
    twice = fencing(fencing(fencing({}, "a"), "b"), "a")
    assert fences(twice) == ("a", "b")


def test_a_pod_without_a_fence_has_none() -> None:
    assert fences(None) == fences({names.FENCED_BEFORE: "a"}) == ()


def test_no_more_than_eight_earlier_fences_are_kept() -> None:
    annotations: dict[str, str] = {}
    for number in range(20):
        annotations = fencing(annotations, f"attempt-{number}")
    assert fences(annotations) == tuple(f"attempt-{number}" for number in range(19, 10, -1))
