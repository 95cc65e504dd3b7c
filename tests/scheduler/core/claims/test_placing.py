"""Nodes of an allocation are those that reach all of its devices."""

from __future__ import annotations

import pytest

from scheduler.core.claims.allocation import terms_of
from scheduler.core.model.devices import DevicePlace
from scheduler.core.model.pod_class import Requirement, Term

_R1 = Requirement("rack", "In", ("r1",))
_ZONE = Requirement("zone", "Exists", ())
_NAME = Requirement("metadata.name", "In", ("n1",))


def _open(*labels: Requirement) -> DevicePlace:
    return DevicePlace(terms=(Term(labels, ()),))


@pytest.mark.parametrize(
    ("places", "terms"),
    [
        ([], None),
        ([DevicePlace(is_everywhere=True)], None),
        ([DevicePlace(node="n1")], (Term((), (_NAME,)),)),
        ([_open(_R1), DevicePlace(node="n1")], (Term((), (_NAME,)),)),
        ([_open(_R1), _open(_R1, _ZONE), DevicePlace(is_everywhere=True)], (Term((_R1, _ZONE), ()),)),
        ([DevicePlace(terms=(Term((), (_NAME,)),)), _open(_R1)], (Term((_R1,), (_NAME,)),)),
    ],
)
def test_places_of_devices_are_joined(places: list[DevicePlace], terms: tuple[Term, ...] | None) -> None:
    assert terms_of(places) == terms
