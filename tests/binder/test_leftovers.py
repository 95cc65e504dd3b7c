"""What an earlier binder left behind, of every kind: a new one finds it at its start, and what came meanwhile later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from gpu import reservation as reservations
from gpu.book import Book, Entry
from kube.client.resources import BIND_REQUESTS, PODS
from sharing.entries import LONGEST_SILENCE_S
from tests.binder.cluster import BINDER, RESERVATIONS, TEAM, Cluster, cluster
from wire import names
from wire.core import Binding, ObjectMeta, ObjectReference

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
