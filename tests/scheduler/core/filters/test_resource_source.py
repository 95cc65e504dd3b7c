"""Nodes whose device plugins offer the extended resources of a pod, and nodes whose plugins don't."""

from __future__ import annotations

import msgspec
import pytest

from scheduler.core.filters.resource_claims import ResourceSource, Sources
from scheduler.core.model.pod_class import Constraints, Demand
from tests.scheduler.core.device_objects import node
from wire import names

_GPU, _NIC = names.GPU_RESOURCE, "example.com/nic"
_NODES = [
    node("none"),
    msgspec.structs.replace(node("gpus"), capacity=Demand(gpus=8)),
    msgspec.structs.replace(node("nics"), capacity=Demand(extended=((_NIC, 1),))),
    msgspec.structs.replace(node("both"), capacity=Demand(gpus=1, extended=((_NIC, 1),))),
]


@pytest.mark.parametrize(
    ("asked", "admitted"),
    [
        (((_GPU, True),), {"gpus", "both"}),
        (((_GPU, False),), {"none", "nics"}),
        (((_NIC, True), (_GPU, False)), {"nics"}),
        (((_NIC, True), (_GPU, True)), {"both"}),
        (((_NIC, False), (_GPU, False)), {"none"}),
    ],
)
def test_a_node_offers_what_it_has_to_and_nothing_else_of_these(asked: Sources, admitted: set[str]) -> None:
    source = ResourceSource()
    assert source.asked(Constraints(sources=asked)) == asked
    assert {each.name for each in _NODES if source.admits(each, asked)} == admitted
    assert source.effort(asked) == len(asked)


def test_a_node_is_judged_again_when_it_offers_something_else() -> None:
    assert len({ResourceSource().reads(each) for each in _NODES}) == len(_NODES)


def test_a_pod_without_such_resources_asks_nothing() -> None:
    assert ResourceSource().asked(Constraints()) is None
