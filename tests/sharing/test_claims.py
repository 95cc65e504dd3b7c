"""What the two LISTs of a verification say: the reservation holds its device alone, and only tenants use it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.reservation import Reservation
from sharing.claims import held_alone, used_by_tenants
from sharing.outcome import Disputed, Failed, Verified
from sharing.pods import PodView
from tests.sharing.made import attempt, bound, pod, reservation

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


TENANT = attempt("tenant")
#: The device of group "g", and the one of another group.
G, H = attempt("stranger"), attempt("stranger", groups=("h",))


def _grant(**changes: Any) -> Any:
    """A grant of two devices: of another group, then of "g", with these changes."""
    grant = bound(attempt("stranger", groups=("h", "g"))).grant
    assert grant is not None
    return msgspec.structs.replace(
        grant, devices=(grant.devices[0], msgspec.structs.replace(grant.devices[1], **changes))
    )


@pytest.mark.parametrize(
    ("stranger", "says"),
    [
        (pod(H), ""),
        (bound(H), ""),
        (bound(G, ended=True), ""),
        (bound(G), "device GPU-g is used"),
        (bound(G, groups=()), "device GPU-g is used"),
        (bound(G, groups=(), grant=_grant(group="k")), "device GPU-g is used"),
        # It holds another device in the name of this group.
        (bound(G, groups=(), grant=_grant(uuid="GPU-k")), "of group g uses device GPU-k"),
        # KAI's pods have labels only.
        (pod(G, node="node-1", groups=("g",)), "is labelled with group g"),
        (pod(G, node="node-1", groups=("h", "g")), "is labelled with group g"),
        (pod(G, node="node-1", groups=("h",)), ""),
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_a_pod_that_uses_the_device_and_is_not_in_its_book_is_named(stranger: PodView, says: str, before: bool) -> None:
    held = reservation("g", TENANT)
    pods = [stranger, bound(TENANT)] if before else [bound(TENANT), stranger]
    found = used_by_tenants(held, pods)
    if not says:
        assert found == Verified("g")
        return
    assert isinstance(found, Failed)
    assert says in found.failure.detail
    assert "team/stranger" in found.failure.detail


@pytest.mark.parametrize(
    ("tenant", "is_verified"),
    [
        (bound(TENANT), True),
        (pod(TENANT), True),
        (pod(TENANT, node="node-1", groups=("g",)), True),
        (bound(TENANT, grant=_grant(uuid="GPU-k")), False),
    ],
    ids=["bound", "not bound yet", "labelled only", "of another device"],
)
def test_a_tenant_in_the_book_uses_the_device_and_no_other_in_its_groups_name(
    tenant: PodView, is_verified: bool
) -> None:
    assert isinstance(used_by_tenants(reservation("g", TENANT), [tenant]), Verified) is is_verified


def test_whoever_uses_a_device_without_a_book_is_named() -> None:
    assert isinstance(used_by_tenants(reservation("g", book=None), [bound(TENANT)]), Failed)
