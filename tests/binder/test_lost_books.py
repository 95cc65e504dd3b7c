"""A book that can't be read is written anew, when nobody who stood in it can come back (protocol.md, step 5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import msgspec
import pytest

from gpu import grant as grants
from gpu import reservation as reservations
from gpu.book import Book, Entry, Tenant
from gpu.dialects import kai
from gpu.grant import DeviceGrant, Grant
from gpu.request import GpuRequest
from gpu.reservation import Reservation, name_for
from kube import binding, books
from kube.binding import Accepted, Identity, NotAccepted
from kube.client.resources import BIND_REQUESTS, EVENTS, NODES, PODS
from sharing.entries import LONGEST_SILENCE_S
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from tests.binder.cluster import BINDER, HALF, RESERVATIONS, TEAM, Cluster, cluster
from tests.kai import reading
from wire import names
from wire.core import Binding, ObjectMeta, ObjectReference, Pod

#: Longer than vanished pods are waited for, with a look of the collector.
WAIT_S = 185.0


async def _lose(it: Cluster, text: str | None = "[]") -> Pod:
    """Somebody spoils the book."""
    name = (await it.reservation()).metadata.name
    patch = {"metadata": {"annotations": {names.TENANTS: text}}}
    return await it.api.patch(PODS, name, patch, namespace=RESERVATIONS)


async def _text(it: Cluster) -> str | None:
    return ((await it.reservation()).metadata.annotations or {}).get(names.TENANTS)


async def _is_readable(it: Cluster) -> bool:
    held = await books.read(it.api, RESERVATIONS, (await it.reservation()).metadata.name)
    return held is not None and held.book is not None


async def _notes(it: Cluster) -> list[str]:
    events = (await it.api.list(EVENTS, namespace=RESERVATIONS)).items
    return [event.note for event in events if event.reason == "BookLost"]


async def _in_flight(it: Cluster, name: str = "q") -> Tenant:
    """A direct attempt that has joined, and whose Binding may be on its way."""
    pod = (await it.pod(name)).metadata
    held = await books.read(it.api, RESERVATIONS, (await it.reservation()).metadata.name)
    assert held is not None
    tenant = Tenant(pod.uid, Entry(HALF, "direct", pod.resource_version, 0, f"{TEAM}/{name}"))
    assert isinstance(await books.join(it.api, held, [tenant]), Reservation)
    return tenant


async def _bind_late(it: Cluster, tenant: Tenant) -> Accepted | NotAccepted:
    """The Binding of that attempt arrives."""
    held = (await it.reservation()).metadata
    device = DeviceGrant("g", held.uid, it.kubelet.given[held.uid], tenant.entry.nano)
    namespace, _, name = tenant.entry.pod.partition("/")
    request = kai.translate(await it.get(name))
    assert isinstance(request, GpuRequest)
    metadata = grants.shared_metadata(Grant(tenant.entry.attempt, (device,)), request)
    identity = Identity(namespace, name, tenant.pod_uid)
    return await binding.post(it.api, identity, rv=tenant.entry.rv, node="node-1", metadata=metadata)


_NESTED = '{"a":{"nano":1,"attempt":"","rv":"","since":0,"pod":"","x":' + "[" * 100_000 + "]" * 100_000 + "}}"


@pytest.mark.parametrize(
    "text",
    ["[]", "no book", '{"a":{"nano":0,"attempt":"","rv":"","since":0,"pod":""}}', _NESTED, None],
    ids=["list", "text", "nano 0", "nested", "gone"],
)
async def test_a_lost_book_is_written_anew_from_the_bound_pods_and_said_so(text: str | None) -> None:
    async with cluster() as it:
        await it.bound()
        entries = (await it.book()).entries
        await _lose(it, text)
        await anyio.sleep(WAIT_S)
        again = (await it.book()).entries
        assert {uid: (e.nano, e.attempt) for uid, e in again.items()} == {
            uid: (e.nano, e.attempt) for uid, e in entries.items()
        }
        notes = await _notes(it)
        assert len(notes) == 2
        assert notes[0].startswith("the book of this device can't be read")
        assert notes[1] == "the book was written again with 1 bound pods; 0 unbound were withdrawn"
        await it.bound("q")
        assert await it.tenants() == {"p", "q"}


async def test_nobody_joins_while_a_book_is_lost() -> None:
    async with cluster() as it:
        await it.bound()
        await _lose(it)
        await it.hand_over(await it.pod("q"), "g")
        await it.until(it.is_fenced, "q")
        held = await books.read(it.api, RESERVATIONS, (await it.reservation()).metadata.name)
        assert held is not None
        direct = Tenant("uid", Entry(HALF, "direct", "1", 0, "team/r"))
        assert await books.join(it.api, held, [direct]) == books.NotJoinable("it has no book that can be read")
        await anyio.sleep(WAIT_S / 2)
        assert await _text(it) == "[]"


async def test_whoever_stood_unbound_in_a_lost_book_is_never_bound_by_that_attempt() -> None:
    async with cluster() as it:
        await it.bound()
        late = await _in_flight(it)
        await _lose(it)
        await it.until(_is_readable, it)
        assert await it.tenants() == {"p"}
        await it.bound("r")
        assert isinstance(await _bind_late(it, late), NotAccepted)
        assert not await it.is_bound("q")
        assert (await _notes(it))[-1].endswith("1 unbound were withdrawn")
        because = ((await it.get("q")).metadata.annotations or {})[names.FENCED_BECAUSE]
        assert because.startswith("Withdrawn: the book of reservation pod")


async def test_whoever_is_bound_while_others_are_withdrawn_is_in_the_new_book() -> None:
    async with cluster() as it:
        await it.bound()
        late = await _in_flight(it)
        await _lose(it)
        with _slow_fence(it) as asked:
            await it.until(_is_set, asked)
            assert isinstance(await _bind_late(it, late), Accepted)
        await it.until(_is_readable, it)
        assert await it.tenants() == {"p", "q"}


@contextmanager
def _slow_fence(it: Cluster) -> Iterator[list[Call]]:
    """Fences take so long that a Binding comes before them; the list tells when one was asked for."""
    asked: list[Call] = []

    def rule(call: Call) -> Fault | None:
        if (call.user, call.verb, call.subresource) != (BINDER, "patch", "status"):
            return None
        asked.append(call)
        return Fault(delay_s=3.0)

    it.server.faults.on_request.append(rule)
    yield asked
    it.server.faults.on_request.remove(rule)


async def _is_set(asked: list[Call]) -> bool:
    return bool(asked)


async def test_a_pod_without_a_share_is_not_withdrawn() -> None:
    async with cluster() as it:
        await it.bound()
        before = [await it.pod("whole", fraction=""), await it.pod("other", fraction="0.5")]
        await _lose(it)
        await it.until(_is_readable, it)
        after = [await it.get("whole"), await it.get("other")]
        versions = [
            (one.metadata.resource_version, two.metadata.resource_version)
            for one, two in zip(before, after, strict=True)
        ]
        changed = [old != new for old, new in versions]
        assert changed == [False, True]


async def test_a_book_that_changes_while_it_is_repaired_is_left_alone() -> None:
    async with cluster() as it:
        await it.bound()
        good = await _text(it)
        await _in_flight(it)
        await _lose(it)
        with _slow_fence(it) as asked:
            await it.until(_is_set, asked)
            await _lose(it, "still no book")
            await anyio.sleep(5)
        assert await _text(it) == "still no book"
        await _lose(it, good)
        await anyio.sleep(2 * WAIT_S)
        assert await it.tenants() == {"p"}


async def test_a_tenant_that_vanished_is_waited_for_before_its_share_is_forgotten() -> None:
    async with cluster() as it:
        await it.bound("q")
        await _lose(it)
        await anyio.sleep(WAIT_S - 20)
        await it.api.delete(PODS, "q", namespace=TEAM, grace_s=0)
        await anyio.sleep(145)
        assert not await _is_readable(it)
        await anyio.sleep(30)
        assert await it.reservations() == [] or await _is_readable(it)


async def test_a_tenant_that_vanished_on_a_silent_machine_is_waited_for_until_that_is_heard_of_again() -> None:
    async with cluster() as it:
        await it.bound("q")
        await _lose(it)
        there = await it.api.get(NODES, "node-1")
        await it.api.delete(NODES, "node-1")
        await it.api.delete(PODS, "q", namespace=TEAM, grace_s=0)
        await anyio.sleep(600)
        assert not await _is_readable(it)
        meta = msgspec.structs.replace(there.metadata, uid="", resource_version="")
        await it.api.create(NODES, msgspec.structs.replace(there, metadata=meta))
        await anyio.sleep(165)
        assert not await _is_readable(it)
        await anyio.sleep(2 * WAIT_S)
        assert await it.reservations() == [] or await _is_readable(it)


async def test_a_node_that_registers_again_unseen_by_the_watch_makes_the_wait_for_a_lost_book_begin_again() -> None:
    """The view is late, as a watch may be: a book is written again on what a quorum read says of the Node."""
    async with cluster() as it:
        await it.bound("q")
        await _lose(it)
        it.server.faults.on_watch_line.append(_lateness_s)
        await it.api.delete(PODS, "q", namespace=TEAM, grace_s=0)
        await anyio.sleep(160)
        there = await it.api.get(NODES, "node-1")
        await it.api.delete(NODES, "node-1")
        meta = msgspec.structs.replace(there.metadata, uid="", resource_version="")
        await it.api.create(NODES, msgspec.structs.replace(there, metadata=meta))
        await anyio.sleep(160)
        assert not await _is_readable(it)
        await anyio.sleep(60)
        assert await it.reservations() == [] or await _is_readable(it)


def _lateness_s(call: Call, line: bytes) -> float:
    return 300.0 if call.user == BINDER and call.kind.plural == "nodes" else 0.0


async def test_a_tenant_that_vanishes_while_others_are_withdrawn_is_waited_for_too() -> None:
    async with cluster() as it:
        await it.bound("q")
        await it.pod("unbound")
        await _lose(it)
        with _slow_fence(it) as asked:
            await it.until(_is_set, asked)
            await it.api.delete(PODS, "q", namespace=TEAM, grace_s=0)
            await anyio.sleep(30)
        assert not await _is_readable(it)
        await anyio.sleep(2 * WAIT_S)
        assert await it.reservations() == [] or await _is_readable(it)


async def test_a_pod_that_can_not_be_withdrawn_is_named_and_the_others_are_withdrawn_once() -> None:
    async with cluster() as it:
        await it.bound()
        await it.pod("fat", notes="x" * (256 * 1024 - 60))
        await it.pod("q")
        await _lose(it)
        await anyio.sleep(5 * WAIT_S)
        assert await _text(it) == "[]"
        assert "as pod team/fat can't be withdrawn: " in (await _notes(it))[-1]
        assert it.writes(BINDER).count("patch pods/status") == 1
        await it.api.delete(PODS, "fat", namespace=TEAM)
        await anyio.sleep(WAIT_S)
        assert await it.tenants() == {"p"}
        assert (await _notes(it))[-1].endswith("with 1 bound pods; 1 unbound were withdrawn")


async def test_a_book_of_a_newer_version_is_left_alone() -> None:
    async with cluster() as it:
        await it.bound()
        late = await _in_flight(it)
        known = msgspec.json.decode(await _text(it) or "")
        newer = msgspec.json.encode({uid: {**entry, "colour": "red"} for uid, entry in known.items()}).decode()
        await _lose(it, newer)
        await anyio.sleep(5 * WAIT_S)
        assert await _text(it) == newer
        assert (await it.get("q")).metadata.resource_version == late.entry.rv
        notes = await _notes(it)
        assert len(notes) == 2
        assert notes[-1].endswith("stays as it is, as it was written by a newer version of the scheduler or the binder")


async def test_a_lost_book_of_bound_pods_that_need_more_than_a_device_is_left_alone() -> None:
    async with cluster() as it:
        await it.bound()
        await _lose(it)
        spec = {"nodeName": "node-1", "schedulerName": "kai-scheduler", "containers": [{"name": "m", "image": "w"}]}
        stray = {"name": "stray", "labels": {"runai-gpu-group": "g"}, "annotations": {"gpu-fraction": "0.7"}}
        await it.api.create(PODS, {"metadata": stray, "spec": spec}, namespace=TEAM)
        await anyio.sleep(3 * WAIT_S)
        assert await _text(it) == "[]"
        assert "its bound pods were given more than one device" in (await _notes(it))[-1]


async def test_a_departing_reservation_with_a_lost_book_goes_in_the_end() -> None:
    async with cluster() as it:
        await it.bound()
        await _lose(it)
        await it.kubelet.status("p", namespace=TEAM, phase="Succeeded")
        await it.api.delete(PODS, (await it.reservation()).metadata.name, namespace=RESERVATIONS, grace_s=0)
        await anyio.sleep(WAIT_S + 10)
        assert await it.reservations() == []


# What an earlier binder left behind, of every kind: a new one finds it at its start, and what came meanwhile later.

Leave = Callable[[Cluster], Awaitable[None]]
_NOBODY = Entry(1, "gone", "1", 0, f"{TEAM}/nobody", 0)


async def held(it: Cluster, book: Book | None = None, *, node: str = "node-1", **annotations: str) -> str:
    """A reservation pod as the binder makes it; its name."""
    metadata: dict[str, Any] = {
        "name": "gpu-reservation-left",
        "labels": {names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: "left"},
        "annotations": {**(reservations.annotations_of(book) if book is not None else {}), **annotations},
        "finalizers": [names.BOOK_FINALIZER] if book is not None else [],
    }
    spec = {
        "nodeName": node,
        "serviceAccountName": names.RESERVATION_SERVICE_ACCOUNT,
        "containers": [{"name": "resource-reservation", "image": "r"}],
    }
    await it.api.create(PODS, {"metadata": metadata, "spec": spec}, namespace=RESERVATIONS)
    return str(metadata["name"])


async def an_idle_reservation(it: Cluster) -> None:
    await held(it, Book())


async def an_ended_reservation(it: Cluster) -> None:
    await it.kubelet.status(await held(it, Book()), phase="Failed")


async def a_departing_reservation(it: Cluster) -> None:
    await it.api.delete(PODS, await held(it, Book()), namespace=RESERVATIONS)


async def a_dead_entry(it: Cluster) -> None:
    await held(it, Book({"uid-of-nobody": _NOBODY}))


async def a_reservation_of_a_node_that_is_gone(it: Cluster) -> None:
    await held(it, Book({"uid-of-nobody": _NOBODY}), node="node-9")


async def a_reservation_of_kais(it: Cluster) -> None:
    await held(it)


async def a_request_of_a_bound_pod(it: Cluster) -> None:
    pod = (await it.pod()).metadata
    await it.hand_over(await it.get(), "left")
    await it.api.bind(
        TEAM,
        "p",
        Binding(metadata=ObjectMeta(name="p", uid=pod.uid), target=ObjectReference(kind="Node", name="node-1")),
    )


async def a_request_of_a_pod_that_was_made_again(it: Cluster) -> None:
    pod = await it.pod()
    await it.hand_over(pod, "left")
    await it.api.delete(PODS, "p", namespace=TEAM, grace_s=0)
    await it.pod()


async def a_request_of_a_pod_that_is_gone(it: Cluster) -> None:
    await it.hand_over(await it.pod(), "left")
    await it.api.delete(PODS, "p", namespace=TEAM, grace_s=0)


async def a_request_that_the_pod_does_not_ask_for_any_more(it: Cluster) -> None:
    await it.hand_over(await it.pod(), "left")
    await it.api.patch(PODS, "p", {"metadata": {"annotations": {"gpu-fraction": "0.7"}}}, namespace=TEAM)


KINDS: list[Leave] = [
    an_idle_reservation,
    an_ended_reservation,
    a_departing_reservation,
    a_dead_entry,
    a_reservation_of_a_node_that_is_gone,
    a_reservation_of_kais,
    a_request_of_a_bound_pod,
    a_request_of_a_pod_that_was_made_again,
    a_request_of_a_pod_that_is_gone,
    a_request_that_the_pod_does_not_ask_for_any_more,
]


#: What a machine may still run that is away is waited for longer.
WAITS_S: dict[Leave, float] = {a_reservation_of_a_node_that_is_gone: LONGEST_SILENCE_S + 240}
#: The API server itself takes these away with their owner, as a rule sooner than anybody looks.
OWNED = {a_request_of_a_pod_that_was_made_again, a_request_of_a_pod_that_is_gone}


async def left(it: Cluster) -> list[str]:
    found = await it.api.list(BIND_REQUESTS)
    return [*(one.metadata.name for one in await it.reservations()), *(one.metadata.name for one in found.items)]


@pytest.mark.parametrize("leave", KINDS, ids=lambda leave: leave.__name__)
@pytest.mark.parametrize("at_start", [True, False], ids=["at its start", "later"])
async def test_what_was_left_behind_goes(leave: Leave, *, at_start: bool) -> None:
    async with cluster(started=False) as it:
        if not at_start:
            await it.start()
        await leave(it)
        if at_start:
            assert await left(it) or leave in OWNED
            await it.start()
        await anyio.sleep(WAITS_S.get(leave, 240))
        assert await left(it) == []


async def test_what_looks_left_behind_and_is_used_stays() -> None:
    """Each is read anew before it goes: here everything is in use when that is done."""
    async with cluster() as it:
        await it.bound()
        it.kill()
        await it.start()
        await anyio.sleep(120)
        assert await it.tenants() == {"p"}
        assert "delete pods" not in it.writes(BINDER)


# What a Binding of ours leaves on a pod is all that a KAI reads of it: so one that starts again goes on with it.


async def _pods(it: Cluster) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(pod) for pod in (await it.api.list(PODS)).items]


async def _runs(it: Cluster, *pod_names: str) -> None:
    for name in pod_names:
        await it.kubelet.status(name, namespace="team", phase="Running")


@pytest.mark.parametrize(
    ("asked", "devices", "labels", "received"),
    [
        ({"fraction": "0.5"}, ("g",), {"runai-gpu-group": "g"}, "Fraction"),
        (
            {"fraction": "0.5", "devices": 2},
            ("g", "h"),
            {"runai-gpu-group/g": "g", "runai-gpu-group/h": "h"},
            "Fraction",
        ),
        ({"fraction": ""}, (), {}, "Regular"),
    ],
)
async def test_a_pod_that_was_bound_here_has_all_that_kai_reads_of_it(
    asked: dict[str, Any], devices: tuple[str, ...], labels: dict[str, str], received: str
) -> None:
    async with cluster() as it:
        made = await it.pod("p", **asked)
        await it.hand_over(made, *devices, nano=HALF)
        await it.until(it.is_bound, "p")
        await _runs(it, "p")
        (pod,) = [each for each in await _pods(it) if each["metadata"]["name"] == "p"]
        assert pod["metadata"].get("labels", {}) == labels
        annotations = pod["metadata"]["annotations"]
        assert annotations["received-resource-type"] == received
        assert annotations.items() >= (made.metadata.annotations or {}).items()
        assert reading.groups(pod) == set(devices)
        pods = await _pods(it)
        assert reading.deleted_at_its_start(pods) == []
        told = annotations.get("moorage.dev/visible-devices.c0", "")
        assert ",".join(reading.device(pods, group) for group in devices) == told
        for held in filter(reading.is_reservation, pods):
            (group,) = reading.groups(held)
            assert held["metadata"]["labels"] == {"app": "kai-resource-reservation", "runai-gpu-group": group}
            assert held["metadata"]["name"] == name_for("node-1", group)
            assert held["spec"]["nodeName"] == "node-1"
            assert held["spec"]["containers"][0]["resources"]["limits"] == {names.GPU_RESOURCE: "1"}


async def test_pods_on_their_way_are_told_apart_from_those_that_are_bound() -> None:
    """KAI would take a label on a pod that is not bound for a bind that broke off: a Binding writes both at once."""
    async with cluster() as it:
        await it.bound("p")
        await it.pod("q")
        pods = await _pods(it)
        labelled = [pod["metadata"]["name"] for pod in pods if reading.groups(pod) and not reading.is_reservation(pod)]
        assert labelled == ["p"]
