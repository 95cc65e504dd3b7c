from __future__ import annotations

from typing import Any

import pytest

from binder.report.status import BinderState, Drift, Held, held_as
from binder.watch.view import View
from gpu.bind_request import PlannedDevice
from gpu.reservation import Reservation
from sharing.pods import PodView
from tests.sharing.made import HALF, attempt, bound, pod, reservation

P, Q = attempt("p"), attempt("q")


def state(held: list[Reservation], pods: list[PodView]) -> BinderState:
    view = View(on_request=lambda _: None)
    for one in held:
        view.note_reservation(one)
    for each in pods:
        view.note_pod(each)
    return BinderState(view)


@pytest.mark.parametrize(
    ("held", "pods", "expected"),
    [
        ([reservation("g", P)], [bound(P)], {}),
        # Books are ahead of pods on purpose.
        ([reservation("g", P, Q)], [bound(P), pod(Q)], {}),
        ([reservation("g", P)], [bound(P), bound(Q)], {Drift.UNCHARGED: 1}),
        ([], [bound(P), bound(Q)], {Drift.UNRESERVED: 2}),
        ([reservation("g", P)], [bound(P), bound(Q, ended=True)], {}),
        # The state of the reservation reports what can't be read.
        ([reservation("g", book=None)], [bound(P)], {}),
    ],
)
def test_drift_is_what_books_do_not_say_of_bound_pods(
    held: list[Reservation], pods: list[PodView], expected: dict[Drift, int]
) -> None:
    assert state(held, pods).drift() == {kind: expected.get(kind, 0) for kind in Drift}


@pytest.mark.parametrize(
    ("asked_nano", "kind"), [(HALF - 1, Drift.OVERCHARGED), (HALF + 1, Drift.UNDERCHARGED), (HALF, None)]
)
def test_drift_is_told_to_the_nano_gpu(asked_nano: int, kind: Drift | None) -> None:
    given = bound(attempt("p", devices=(PlannedDevice("g", asked_nano),)))
    found = state([reservation("g", P)], [given]).drift()
    assert found == {each: int(each is kind) for each in Drift}


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, Held.IDLE),
        ({"phase": "Pending", "uuid": ""}, Held.STARTING),
        ({"alive": False}, Held.STARTING),
        ({"is_ill": True}, Held.ILL),
        ({"book": None}, Held.UNREADABLE),
        ({"phase": "Failed", "book": None}, Held.ENDED),
        ({"phase": "Failed", "deleting": True}, Held.LEAVING),
    ],
    ids=str,
)
def test_a_reservation_is_in_one_state(changes: dict[str, Any], state: Held) -> None:
    assert held_as(reservation("g", **changes)) is state


def test_devices_and_tenants_are_counted_with_and_without_reservations() -> None:
    other = attempt("r", groups=("h",))
    found = state([reservation("g", P, Q), reservation("i")], [bound(P), bound(other)])
    assert (found.groups(), found.tenants()) == (3, 2)
    assert found.reservations() == {state: {Held.SHARED: 1, Held.IDLE: 1}.get(state, 0) for state in Held}
