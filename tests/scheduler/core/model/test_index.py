"""Who is where, in the order in which they came there: never in that of hashes, which differ between processes."""

from __future__ import annotations

from scheduler.core.model.facts import Membership

_KEYS = [f"key-{number}" for number in range(30)]


def test_everybody_at_a_place_is_in_the_order_of_coming() -> None:
    index = Membership[str]()
    for key in _KEYS:
        index.move(key, "here")
    assert list(index.at("here")) == _KEYS
    index.move("key-0", "there")
    index.move("key-0", "here")
    assert list(index.at("here")) == [*_KEYS[1:], "key-0"]


def test_a_place_that_all_have_left_is_none() -> None:
    index = Membership[str]()
    index.move("key", "here")
    index.move("key", "")
    assert not index.has("here")
    assert not index.at("here")
