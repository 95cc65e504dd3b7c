"""What only a real API server can tell of the record and the evictor: that it takes them, and what it answers."""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from kube.client import config, errors
from kube.client.api import Api
from kube.client.http import HttpTransport
from kube.client.resources import CONFIG_MAPS, NAMESPACES, POD_DISRUPTION_BUDGETS, PODS
from kube.client.retry import Retry
from scheduler.core.model.preemption import Action, FailedClaim, Nomination, Place, Victim
from scheduler.core.preemption.eviction_history import Hour, piece_names
from scheduler.core.preemption.nomination_record import MOST_BYTES, MOST_CLAIMS, Record, sent_bytes, written
from scheduler.core.preemption.record_shares import added
from scheduler.preemption.evictor import Evictor, Wanted
from scheduler.preemption.nomination_record import NominationRecord, Wrote
from scheduler.telemetry.events import Answer
from tests.conftest import AnyioBackend
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

NS = "room"


@pytest.fixture(scope="module")
def anyio_backend() -> AnyioBackend:
    """A real server answers in real time only."""
    return ("asyncio", {})


@pytest.fixture
async def api(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Api]:
    ca_file = tmp_path / "ca.crt"
    ca_file.write_text(control_plane.ca_pem)
    credentials = config.plain(control_plane.url, ca_file=str(ca_file), token=control_plane.token)
    async with HttpTransport(credentials) as transport:
        api = Api(transport, retry=Retry(random.Random(1)))
        for namespace in (NS, names.SYSTEM_NAMESPACE):
            with suppress(errors.AlreadyExists):
                await api.create(NAMESPACES, {"metadata": {"name": namespace}})
        for name in (names.NOMINATIONS, *piece_names(None)):
            with suppress(errors.NotFound):
                await api.delete(CONFIG_MAPS, name, namespace=names.SYSTEM_NAMESPACE)
        yield api


def nomination(number: int, *, victims: int = 1) -> Nomination:
    """A nomination that has nothing in common with those of other numbers."""
    uids = [str(uuid.UUID(int=(number << 64) + at)) for at in range(victims + 1)]
    gone = (
        Victim(pod_uid=uid, namespace=f"namespace-{number}", name=f"pod-{at}", node="n1", owner=f"owner-{number}")
        for at, uid in enumerate(uids[1:])
    )
    places = (Place(uids[0], "n1"),)
    return Nomination(id=f"{uids[0]}-0", action=Action.RECLAIM, namespace=NS, places=places, victims=tuple(gone))


async def test_a_record_as_large_as_it_may_be_is_taken_and_read_back(api: Api) -> None:
    record, hour = Record(), Hour()
    for taker in range(40):
        many = [
            msgspec.structs.replace(nomination(taker << 16 | number), namespace=f"taker-{taker}")
            for number in range(3000 // (taker + 1))
        ]
        record, hour = added(record, hour, many, now_s=1_800_000_000)
    assert MOST_BYTES * 0.95 < sent_bytes(written(record).encode()) <= MOST_BYTES
    claims = {str(uuid.UUID(int=number)): FailedClaim(9, 1_800_000_000) for number in range(MOST_CLAIMS)}
    ours = NominationRecord(api)
    await ours.read()
    assert await ours.write(record, hour, claims) is Wrote.WRITTEN
    assert await ours.write(Record(record.nominations[1:]), hour, claims) is Wrote.WRITTEN
    theirs = NominationRecord(api)
    await theirs.read()
    assert theirs.record.nominations == record.nominations[1:]
    assert (theirs.hour, theirs.claims) == (hour, claims)


async def test_of_two_leaders_the_second_one_loses_its_write_and_reads(api: Api) -> None:
    one, two = NominationRecord(api), NominationRecord(api)
    for record in (one, two):
        await record.read()
    for number in range(2):  # the first time the record is created, then it is changed
        first, second = Record((nomination(number),)), Record((nomination(10 + number),))
        assert await one.write(first, Hour(), {}) is Wrote.WRITTEN
        assert await two.write(second, Hour(), {}) is Wrote.OVERTAKEN
        assert two.record == first


async def polled(is_so: Callable[[], object]) -> None:
    """Wait until something is so."""
    while not is_so():  # noqa: ASYNC110 - nothing signals it
        await anyio.sleep(0.05)


async def running(api: Api, name: str, app: str) -> str:
    """Make a running, ready pod; its UID."""
    spec = {
        "containers": [{"name": "main", "image": "none"}],
        "nodeName": "n1",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
    }
    body = {"metadata": {"name": name, "labels": {"app": app}}, "spec": spec}
    with anyio.fail_after(120.0):
        while True:
            with suppress(errors.Forbidden):  # the service account of a new namespace comes a moment later
                made = await api.create(PODS, body, namespace=NS)
                break
            await anyio.sleep(0.05)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await api.patch(PODS, name, {"status": status}, namespace=NS, subresource="status")
    return made.metadata.uid


async def budget(api: Api, name: str, app: str) -> None:
    """A budget that lets nobody of one pod go; counted by the controller."""
    spec: dict[str, Any] = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
    await api.create(POD_DISRUPTION_BUDGETS, {"metadata": {"name": name}, "spec": spec}, namespace=NS)
    with anyio.fail_after(120.0):
        while True:
            found = await api.get(POD_DISRUPTION_BUDGETS, name, namespace=NS)
            if found.status.observed_generation:
                break
            await anyio.sleep(0.05)
    assert found.status.disruptions_allowed == 0


async def test_the_evictor_knows_each_answer(api: Api) -> None:
    plain, kept, twice, other = [await running(api, name, name) for name in ("plain", "kept", "twice", "other")]
    for name, app in (("kept", "kept"), ("twice-a", "twice"), ("twice-b", "twice")):
        await budget(api, name, app)
    told: dict[str, list[Answer]] = {}
    refused: dict[str, bool] = {}
    evictor = Evictor(api, per_s=300, on_refused=refused.__setitem__)
    wanted = {
        "plain": plain,
        "kept": kept,
        "twice": twice,
        "other": str(uuid.UUID(int=1)),
        "gone": str(uuid.UUID(int=2)),
    }
    for name, uid in wanted.items():
        answers = told[name] = []
        evictor.ask(Wanted(uid=uid, namespace=NS, name=name, asker="test", is_due=lambda: True, told=answers.append))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(evictor.run)
        with anyio.fail_after(120.0):
            await polled(lambda: all(told.values()) and Answer.OTHER_POD in told["other"])
        tasks.cancel_scope.cancel()
    assert told["plain"] == [Answer.EVICTED]
    assert told["gone"] == [Answer.GONE]
    assert told["kept"] == told["twice"] == [Answer.REFUSED]
    assert refused == {kept: True, twice: True}
    assert (await api.get(PODS, "other", namespace=NS)).metadata.uid == other
