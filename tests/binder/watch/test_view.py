from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest
from typing_extensions import override

from binder.core.reservation_pod import ReservationTemplate
from binder.watch.sinks import NodeSink, PodSink, RequestSink
from binder.watch.view import View
from gpu import bind_request
from gpu.bind_request import Handover, PlannedDevice
from gpu.book import Book
from kube.events import EventRecorder
from kube.watch.signal import Signal
from sharing.attempt import Attempt
from sharing.pods import PodView
from tests.binder.cluster import cluster
from tests.sharing.made import attempt, bound, pod, reservation
from wire import names
from wire.core import Node, NodeSpec, ObjectMeta, ObjectReference, Pod, PodSpec
from wire.crds.bindrequest import BindRequest


def view() -> View:
    made = View(on_request=lambda _: None)
    made.tend()
    return made


def test_an_older_state_never_replaces_a_newer_one() -> None:
    seen = view()
    for rv in ("12", "9", "11"):
        seen.note_pod(pod(rv=rv))
        seen.note_reservation(reservation(rv=rv))
    assert seen.pods[pod().uid].rv == seen.reservations["g"].rv == "12"


def test_an_answer_that_comes_after_the_deletion_brings_nothing_back() -> None:
    seen = view()
    seen.forget_pod(pod(), is_last=True)
    seen.note_pod(pod(rv="12"))
    seen.forget_reservation(reservation())
    seen.note_reservation(reservation(rv="22"))
    assert not seen.pods
    assert not seen.reservations
    assert seen.is_lost(reservation().uid)


def test_what_a_watch_shows_is_there_even_if_a_list_had_missed_it() -> None:
    seen = view()
    seen.forget_pod(pod(), is_last=False)
    seen.pod_seen(pod(rv="12"))
    seen.forget_reservation(reservation())
    seen.reservation_seen(reservation(rv="22"))
    assert pod().uid in seen.pods
    assert pod().uid not in seen.gone_pods
    assert not seen.is_lost(reservation().uid)


@pytest.mark.parametrize(
    ("last", "is_last", "expected"),
    [(pod(), True, pod()), (bound(), True, bound()), (bound(), False, bound()), (pod(), False, None)],
)
def test_a_pod_that_a_list_misses_may_have_been_bound_since(
    last: PodView, is_last: bool, expected: PodView | None
) -> None:
    seen = view()
    seen.forget_pod(last, is_last=is_last)
    assert last.uid in seen.gone_pods
    kept = seen.gone_pods.get(last.uid)
    assert (kept and (kept.node, kept.ended, kept.grace_s)) == (
        expected and (expected.node, expected.ended, expected.grace_s)
    )


def test_of_pods_that_are_gone_only_the_kind_of_end_is_kept() -> None:
    seen = view()
    seen.forget_pod(bound(), is_last=True)
    kept = seen.gone_pods.get(bound().uid)
    assert kept is not None
    assert (kept.name, kept.grant, kept.groups) == ("", None, ())


def periods_end(seen: View, count: int) -> None:
    for _ in range(count):
        seen.forget_gone()


def test_what_is_gone_is_remembered_for_two_periods_and_then_forgotten() -> None:
    seen = view()
    seen.forget_pod(bound(), is_last=True)
    seen.forget_reservation(reservation())
    periods_end(seen, 2)
    seen.note_pod(pod())
    seen.note_reservation(reservation())
    assert not seen.pods
    assert not seen.reservations
    periods_end(seen, 1)
    assert len(seen.gone_pods) == len(seen._lost) == 0


def test_a_pod_that_is_gone_is_remembered_while_a_book_names_it() -> None:
    seen = view()
    seen.note_reservation(reservation("g", attempt()))
    seen.forget_pod(bound(), is_last=True)
    periods_end(seen, 9)
    assert bound().uid in seen.gone_pods
    seen.note_reservation(reservation("g", rv="30", book=Book()))
    periods_end(seen, 1)
    assert bound().uid not in seen.gone_pods


def test_what_is_gone_is_remembered_while_somebody_waits_for_it() -> None:
    seen = view()
    keys = {f"pod:{pod().uid}", "group:g"}
    waiting = Signal()
    seen.subscriptions.add(waiting, keys)
    seen.forget_pod(pod(), is_last=True)
    seen.forget_reservation(reservation())
    periods_end(seen, 9)
    assert pod().uid in seen.gone_pods
    assert seen.is_lost(reservation().uid)
    seen.subscriptions.remove(waiting, keys)
    periods_end(seen, 1)
    assert len(seen.gone_pods) == len(seen._lost) == 0


def test_a_device_that_is_verified_when_its_reservation_is_gone_is_not_remembered() -> None:
    seen = view()
    seen.note_reservation(reservation())
    seen.note_verified(reservation())
    assert seen.verified == {("R-g", "GPU-g")}
    seen.forget_reservation(reservation())
    seen.note_verified(reservation())
    seen.note_reservation(reservation(uid="R-2", rv="40"))
    seen.note_verified(reservation())
    assert seen.verified == set()


def test_a_device_that_comes_back_to_its_reservation_after_another_one_is_verified_anew() -> None:
    seen = view()
    seen.note_reservation(reservation(rv="31"))
    seen.note_verified(reservation(rv="31"))
    seen.note_reservation(reservation(rv="32"))
    assert seen.verified == {("R-g", "GPU-g")}
    seen.note_reservation(reservation(rv="33", uuid="GPU-other"))
    seen.note_reservation(reservation(rv="34"))
    assert seen.verified == set()


def test_bound_pods_are_found_by_group_until_they_end_or_go() -> None:
    seen = view()
    seen.note_pod(pod())
    assert seen.bound_in("g") == []
    seen.note_pod(bound())
    assert seen.bound_in("g") == [bound()]
    seen.note_pod(bound(rv="12", groups=(), grant=None))
    assert seen.bound_in("g") == []
    seen.note_pod(bound(rv="13", ended=True))
    assert seen.bound_in("g") == []
    seen.forget_pod(bound(rv="13"), is_last=True)
    assert seen.bound_groups() == []


def test_a_reservation_that_goes_takes_its_verification_with_it() -> None:
    seen = view()
    seen.note_reservation(reservation())
    seen.note_verified(reservation())
    seen.forget_reservation(reservation())
    assert seen.verified == set()


def test_the_end_of_a_tenant_points_at_the_groups_whose_books_name_it() -> None:
    seen = view()
    seen.note_reservation(reservation("g", attempt()))
    seen.note_reservation(reservation("h"))
    seen.dirty.clear()
    seen.forget_pod(pod(), is_last=True)
    assert seen.dirty == {"g"}
    seen.note_reservation(reservation("g", rv="30", book=Book()))
    seen.dirty.clear()
    seen.forget_pod(pod(), is_last=True)
    assert seen.dirty == set()


def test_a_request_that_we_deleted_stays_gone_while_the_watch_still_shows_it() -> None:
    taken: list[Attempt] = []
    seen = View(on_request=taken.append)
    made = attempt()
    seen._requests[made.id] = made
    seen.request_dropped(made.id)
    assert not seen.has_request(made.id)
    seen.forget_request(made.id)
    seen.request_dropped(made.id)
    assert not seen._dropped


def wire_pod(name: str, scheduler_name: str) -> Pod:
    meta = ObjectMeta(name=name, namespace="team", uid=f"uid-{name}", resource_version="10")
    return Pod(metadata=meta, spec=PodSpec(scheduler_name=scheduler_name))


async def test_a_list_replaces_what_was_known() -> None:
    seen = view()
    sink = PodSink(seen, ReservationTemplate())
    ours, foreign = wire_pod("a", names.SCHEDULER_NAME), wire_pod("b", "default")
    await sink.replace([sink.keep(ours), sink.keep(foreign)])
    assert set(seen.pods) == {"uid-a"}
    await sink.replace([sink.keep(wire_pod("c", names.SCHEDULER_NAME))])
    assert set(seen.pods) == {"uid-c"}
    assert seen.gone_pods.get("uid-a") is None
    await RequestSink(seen).replace([])


@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_request_that_is_being_deleted_is_gone_whatever_keeps_it(*, is_listed: bool) -> None:
    seen = view()
    sink = RequestSink(seen)
    handed = bind_request.render(Handover("1", (PlannedDevice("g", 1),)))
    meta = {"name": "p", "uid": "r", "annotations": {names.HANDOVER: handed}}
    spec = {"podName": "p", "selectedNode": "node-1", "selectedGPUGroups": ["g"]}
    whole = {"metadata": {**meta, "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "u"}]}, "spec": spec}
    request = msgspec.convert(whole, BindRequest)
    sink.upsert(request)
    assert seen.has_request("r")
    metadata = msgspec.structs.replace(
        request.metadata, deletion_timestamp="2026-01-01T00:00:00Z", finalizers=["example.com/kept"]
    )
    deleted = msgspec.structs.replace(request, metadata=metadata)
    if is_listed:
        await sink.replace([deleted])
    else:
        sink.upsert(deleted)
    assert not seen.has_request("r")


async def test_pods_share_what_they_have_in_common() -> None:
    seen = view()
    sink = PodSink(seen, ReservationTemplate())
    for name in "ab":
        made = wire_pod(name, names.SCHEDULER_NAME)
        sink.upsert(msgspec.json.decode(msgspec.json.encode(made), type=Pod))
    a, b = seen.pods.values()
    for field in ("namespace", "scheduler"):
        assert getattr(a, field) is getattr(b, field)


async def test_nodes_that_come_and_go_and_are_cordoned_point_at_their_reservations() -> None:
    seen = view()
    seen.note_reservation(reservation())
    sink = NodeSink(seen)
    plain = Node(metadata=ObjectMeta(name="node-1"))
    cordoned = msgspec.structs.replace(plain, spec=NodeSpec(unschedulable=True))
    steps: list[tuple[Node, bool, bool]] = [
        (plain, True, True),
        (plain, False, False),
        (cordoned, False, True),
        (cordoned, True, False),
        (plain, True, True),
    ]
    for now, by_list, points in steps:
        seen.dirty.clear()
        if by_list:
            await sink.replace([sink.keep(now)])
        else:
            sink.upsert(now)
        assert ("g" in seen.dirty) is points
    seen.dirty.clear()
    await sink.replace([])
    assert "g" in seen.dirty
    assert not seen.nodes


def test_a_node_points_at_the_groups_that_are_on_it_and_at_no_others() -> None:
    seen = view()
    seen.note_reservation(reservation())
    elsewhere = msgspec.structs.replace(reservation(), group="h", uid="uid-h", node="node-2")
    seen.note_reservation(elsewhere)
    for node, expected in [("node-1", {"g"}), ("node-2", {"h"}), ("node-3", set())]:
        seen.dirty.clear()
        seen.mark_node(node)
        assert seen.dirty == expected
    made_again = msgspec.structs.replace(elsewhere, uid="uid-h2", rv="99", node="node-1")
    seen.note_reservation(made_again)
    for node, expected in [("node-1", {"g", "h"}), ("node-2", set())]:
        seen.dirty.clear()
        seen.mark_node(node)
        assert seen.dirty == expected
    seen.forget_reservation(made_again)
    seen.dirty.clear()
    seen.mark_node("node-1")
    assert seen.dirty == {"g"}


class Clumsy(EventRecorder):
    """Stumbles over the first event."""

    has_stumbled = False

    @override
    def record(self, regarding: ObjectReference, **what: Any) -> None:
        if not Clumsy.has_stumbled:
            Clumsy.has_stumbled = True
            raise KeyError("a fault of ours")
        super().record(regarding, **what)


async def test_a_fault_in_one_unit_stops_nobody_and_it_starts_over(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(recorder=Clumsy) as it:
        await it.bound("p", "g")
        await it.bound("q", "h")
        await anyio.sleep(5)
        assert await it.requests() == []
    assert "starts over" in caplog.text


def test_the_devices_that_pods_of_a_group_were_given_follow_the_pods() -> None:
    seen = view()
    assert seen.given("g") == set()
    seen.note_pod(bound(rv="12"))
    assert seen.given("g") == {"GPU-g"}
    seen.note_pod(msgspec.structs.replace(bound(rv="13"), ended=True))
    assert seen.given("g") == set()
    seen.note_pod(bound(rv="14"))
    assert seen.given("g") == {"GPU-g"}
    seen.forget_pod(bound(rv="15"), is_last=True)
    assert seen.given("g") == set()


def test_a_group_is_at_rest_until_something_is_heard_of_it_or_of_a_pod_in_its_book() -> None:
    seen = view()
    heard: list[Callable[[], None]] = [
        lambda: seen.note_reservation(reservation("g", attempt())),
        lambda: seen.note_pod(bound(rv="12")),
        lambda: seen.note_pod(msgspec.structs.replace(bound(rv="13"), ended=True)),
        lambda: seen.forget_pod(bound(rv="14"), is_last=True),
        lambda: seen.forget_reservation(reservation("g", attempt())),
    ]
    for hear in heard:
        seen.at_rest |= {"g", "other"}
        hear()
        assert seen.at_rest == {"other"}
