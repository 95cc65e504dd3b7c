"""What the first of two LISTs says of a reservation: it is there, as it was, and holds its device alone."""

from __future__ import annotations

from typing import Any

import pytest

from binder.core.claims import held_alone
from binder.core.outcome import Disputed, Failed
from gpu.reservation import Reservation
from tests.binder.core.made import reservation

HELD = reservation()


def _other(**changes: Any) -> Reservation:
    return reservation("other", uuid=HELD.uuid, **changes)


@pytest.mark.parametrize(
    "there",
    [
        [],
        [reservation("other")],
        [reservation(uid="R-another")],
        [reservation(uuid="GPU-another")],
        [reservation(book=None)],
    ],
    ids=["gone", "another's", "replaced", "of another device", "without a readable book"],
)
def test_a_reservation_that_changed_is_not_verified(there: list[Reservation]) -> None:
    found = held_alone(HELD, there)
    assert isinstance(found, Failed)
    assert "changed" in found.failure.detail


def test_it_is_returned_as_it_is_listed_now() -> None:
    now = reservation(rv="21")
    assert held_alone(HELD, [reservation("other"), now]) is now


@pytest.mark.parametrize(
    ("other", "kind"),
    [(_other(), Failed), (_other(deleting=True), Disputed), (_other(phase="Failed"), Disputed)],
    ids=["lives", "is deleted", "has ended"],
)
def test_another_holder_of_the_device_is_named(other: Reservation, kind: type[Failed | Disputed]) -> None:
    found = held_alone(HELD, [HELD, other])
    assert isinstance(found, kind)
    assert other.name in str(found)
