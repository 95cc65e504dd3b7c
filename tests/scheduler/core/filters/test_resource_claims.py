"""Where allocated ResourceClaims can be used."""

from __future__ import annotations

import msgspec
import pytest

from scheduler.core.filters.resource_claims import ClaimPlaces, Places, ResourceSource, Sources
from scheduler.core.model.pod_class import Constraints, Demand, Requirement, Term
from tests.scheduler.core.device_objects import node
from wire import names

_A = Term((), (Requirement("metadata.name", "In", ("a",)),))
_FAST = Term((Requirement("speed", "In", ("fast",)),), ())


@pytest.mark.parametrize(
    ("asked", "admitted"),
    [(((_A,),), {"a"}), (((_FAST,),), {"b"}), (((_A, _FAST),), {"a", "b"}), (((_A,), (_FAST,)), set()), (((),), set())],
)
def test_a_term_of_each_claim_has_to_hold(asked: Places, admitted: set[str]) -> None:
    nodes = [node("a"), node("b", speed="fast"), node("c")]
    places = ClaimPlaces()
    assert places.asked(Constraints(allocated=asked)) == asked
    assert {each.name for each in nodes if places.admits(each, asked)} == admitted
    assert places.effort(asked) >= sum(map(len, asked))


def test_a_pod_without_such_claims_asks_nothing() -> None:
    assert ClaimPlaces().asked(Constraints()) is None


# Nodes whose device plugins offer the extended resources of a pod, and nodes whose plugins don't.
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
