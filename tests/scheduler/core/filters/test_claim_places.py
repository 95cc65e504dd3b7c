"""Where allocated ResourceClaims can be used."""

from __future__ import annotations

import pytest

from scheduler.core.filters.resource_claims import ClaimPlaces, Places
from scheduler.core.model.pod_class import Constraints, Requirement, Term
from tests.scheduler.core.device_objects import node

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
