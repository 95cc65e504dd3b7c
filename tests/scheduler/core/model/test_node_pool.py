"""Which objects are of a node pool."""

from __future__ import annotations

import pytest

from scheduler.core.model.settings import NodePool, name_of
from wire import names

KEY = names.NODE_POOL_LABEL


@pytest.mark.parametrize(
    ("value", "labels", "takes"),
    [
        ("a", {KEY: "a"}, True),
        ("a", {KEY: "b"}, False),
        ("a", {KEY: "A"}, False),
        ("a", {}, False),
        ("a", None, False),
        ("", {}, True),
        ("", None, True),
        ("", {KEY: ""}, True),
        ("", {KEY: "a"}, False),
        ("", {"other": "a"}, True),
    ],
)
def test_an_object_is_of_the_pool_that_its_label_names(value: str, labels: dict[str, str] | None, takes: bool) -> None:
    assert NodePool(value=value).takes(labels) is takes


def test_the_key_is_a_setting() -> None:
    pool = NodePool(key="team", value="a")
    assert pool.takes({"team": "a"})
    assert not pool.takes({KEY: "a"})
    assert pool.labels == {"team": "a"}


def test_the_pool_without_a_value_has_a_name_and_no_label() -> None:
    assert (NodePool().name, NodePool().labels) == ("default", {})
    assert [name_of(None), name_of(NodePool()), name_of(NodePool(value="a"))] == ["default", "default", "a"]
