"""Node affinity that an administrator adds to all pods."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.model.pod_class import Requirement, Term
from scheduler.core.model.settings import Settings
from tests.scheduler.core.filters.beside import places, reasons, waiting
from tests.scheduler.core.objects import cluster, node

_POOL = Term((Requirement("pool", "In", ("a",)),), ())
_NAMED = Term((), (Requirement("metadata.name", "In", ("p",)),))


@pytest.mark.parametrize(
    ("terms", "used"),
    [
        (None, {"p", "q"}),
        ((_POOL,), {"q"}),
        ((_POOL, _NAMED), {"p", "q"}),
        ((Term((), ()),), set()),
        ((), set()),
    ],
)
def test_every_pod_has_it(terms: tuple[Term, ...] | None, used: set[str]) -> None:
    nodes = [node("p", cpu="1"), node("q", cpu="1", labels={"pool": "a"})]
    found = cluster(*nodes, waiting({}, "w"), waiting({}, "v"), settings=Settings(enforced_affinity=terms))
    assert {*places(found.decide(0)).values()} == used
    assert found.validate() == []


def test_it_is_told_before_what_the_pod_asks_itself() -> None:
    asked: dict[str, Any] = {"nodeSelector": {"pool": "b"}}
    found = cluster(node("p"), waiting(asked), settings=Settings(enforced_affinity=(_POOL,)))
    assert reasons(found) == {"enforced-affinity": 1}
    found.upsert_node(node("p", labels={"pool": "a"}))
    assert reasons(found) == {"selector": 1}
