"""etcd is restored from a snapshot while shares run: what was bound, ended and moved since then never happened.

What kubelets run meanwhile is what was true before, so who starts too early gives away what pods still use that the
API server does not know any more (docs/operate.md).
"""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from fractions import Fraction

import anyio
import pytest
from kubernetes_asyncio import client

from simulator.nodes.ground_truth import Record, Started, Stopped
from tests.e2e import restoring
from tests.e2e.cluster import PATIENCE_S, Pod, Scene, eventually, scene, share
from tools.cluster.deployment import ADMISSION, BINDER, SCHEDULER, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

#: A leader is to outlive the API server's absence, on a slow machine too.
LEASE = ["--lease-duration-s", "20", "--lease-renew-deadline-s", "15", "--lease-renew-s", "1"]
EVERYBODY = (SCHEDULER, "scheduler-2", BINDER, "binder-2")
#: What each pod asks of one GPU.
ASKS = {"stays": "0.5", "ends": "0.5", "new": "0.5", "first": "0.9", "second": "0.9"}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of their own: others' work would be undone with it."""
    with ControlPlane() as started:
        yield started


@pytest.fixture(scope="module")
def moorage(plane: ControlPlane) -> Iterator[Deployment]:
    arguments = {SCHEDULER: LEASE, BINDER: [*LEASE, "--idle-s", "1"]}
    options = Options(arguments=arguments, components=(ADMISSION, *EVERYBODY))
    with Deployment(plane, options) as deployment:
        yield deployment


@pytest.fixture
async def undone(plane: ControlPlane, moorage: Deployment) -> AsyncIterator[Scene]:
    """Two GPUs, a snapshot of them, and what is to be undone.

    At the snapshot ``stays`` and ``ends`` share a GPU, ``first`` has the other, and ``second`` waits for it. Then
    ``first`` and ``ends`` go, ``second`` gets the other GPU, and ``new`` the place of ``ends``.
    """
    for component in EVERYBODY:
        if component not in moorage.running:  # a test that failed stopped it
            moorage.start(component)
    async with scene(plane, f"restored-{next(_numbers)}", ["1x2x80GiB"]) as made:
        await made.create(share("stays", ASKS["stays"]), share("ends", ASKS["ends"]))
        await made.running(2)
        await made.create(share("first", ASKS["first"]))
        await made.running(3)
        await made.create(share("second", ASKS["second"]))
        await made.says("second", "GPU")
        renewed_at = await renewals(made)
        await anyio.to_thread.run_sync(restoring.save, plane, plane.folder / "snapshot.db")
        await made.delete("first", "ends")
        await made.gone(["first", "ends"])
        await made.create(share("new", ASKS["new"]))
        await made.running(3)

        async def are_renewed() -> bool | None:
            now = await renewals(made)
            return all(now[lease] != renewed_at[lease] for lease in now) or None

        # Who restores a snapshot that is younger than a renewal undoes nothing that a leader could notice it by.
        for _ in range(2):
            await eventually(are_renewed, "the leases to be renewed", within_s=PATIENCE_S)
            renewed_at = await renewals(made)
        yield made


async def test_after_a_restore_nothing_is_over_committed_and_all_goes_on(
    plane: ControlPlane, moorage: Deployment, undone: Scene
) -> None:
    for component in EVERYBODY:
        moorage.stop(component)
    settled = await restored(plane, undone)
    for component in EVERYBODY:
        moorage.start(component)
    await goes_on(undone)
    assert fullest(undone, since=settled) == 1


async def test_replicas_that_outlive_a_restore_end_by_themselves(
    plane: ControlPlane, moorage: Deployment, undone: Scene
) -> None:
    """Those that lead and those that wait: what they know, and are about to write, is of a history that is undone."""
    replicas = {component: moorage.running[component] for component in EVERYBODY}
    settled = await restored(plane, undone)

    def at_work() -> list[str]:
        return [component for component, child in replicas.items() if child.process.poll() is None]

    async def have_ended() -> bool | None:
        return not at_work() or None

    try:
        await eventually(have_ended, "all replicas to end", within_s=PATIENCE_S)
    except AssertionError:
        for component in at_work():
            # Its log then says where it stands.
            os.kill(moorage.pid(component), signal.SIGABRT)
        raise
    for component, child in replicas.items():
        assert child.process.returncode == 0
        # On a slow machine the API server is away for longer than a leader lasts.
        said = moorage.log(component)
        assert "the API server's history was set back" in said or "was not renewed for" in said
        moorage.kill(component)
    # Their leases' holders are of the snapshot, and nobody is to wait for them here.
    for component in (SCHEDULER, BINDER):
        moorage.start(component, "--no-leader-election")
    await goes_on(undone)
    assert fullest(undone, since=settled) == 1


async def restored(plane: ControlPlane, undone: Scene) -> int:
    """Restore the snapshot, and wait until kubelets run what the API server knows, and nothing else.

    Returns how many records of the machines are from before that.
    """
    before = await undone.pods()
    await anyio.to_thread.run_sync(restoring.restore, plane, plane.folder / "snapshot.db")

    async def is_settled() -> bool | None:
        known = [*(await undone.pods()).values(), *await undone.reservations()]
        return running(undone) == {each["metadata"]["uid"] for each in known if each["spec"].get("nodeName")} or None

    await eventually(is_settled, "kubelets to run what is there, and nothing else", within_s=PATIENCE_S)
    settled = len(undone.ground_truth.history)
    after = await undone.pods()
    assert after["second"]["metadata"]["uid"] == before["second"]["metadata"]["uid"]
    bound = {name: bool(each["spec"].get("nodeName")) for name, each in after.items()}
    assert bound == {"stays": True, "ends": True, "first": True, "second": False}
    return settled


async def goes_on(undone: Scene) -> None:
    """What is full is full, and what gets free is given to who waits, on the device whose book has room."""
    await undone.create(share("new", ASKS["new"]))
    for waits in ("second", "new"):
        await undone.says(waits, "GPU")
    await undone.delete("first", "ends")
    await undone.gone(["first", "ends"])
    pods = await undone.running(3)
    by_uid = {each["metadata"]["uid"]: name for name, each in pods.items()}
    shared = sorted(sorted(by_uid[uid] for uid in tenants(each)) for each in await undone.reservations())
    assert shared == [["new", "stays"], ["second"]]
    assert sorted(undone.sharers(pods).values()) == shared


async def renewals(on: Scene) -> dict[str, str]:
    """When each lease of ours was renewed last."""
    api = client.CoordinationV1Api(on.core.api_client)
    listed = await api.list_namespaced_lease(names.SYSTEM_NAMESPACE)
    return {each.metadata.name: str(each.spec.renew_time) for each in listed.items}


def tenants(reservation: Pod) -> dict[str, object]:
    """The book of a reservation: an entry for each pod's UID."""
    found: dict[str, object] = json.loads(reservation["metadata"]["annotations"][names.TENANTS])
    return found


def running(on: Scene) -> set[str]:
    """UIDs of the pods whose containers really run."""
    return {record.pod_uid for record in _there(on.ground_truth.history)}


def fullest(on: Scene, *, since: int) -> Fraction:
    """How much of one device was asked at most by those that really ran on it at the same time, after a record."""
    history = on.ground_truth.history
    return max(_asked_of_one(_there(history[:end])) for end in range(since, len(history) + 1))


def _there(history: Sequence[Record]) -> list[Started]:
    """Containers that run after these records."""
    there: dict[str, Started] = {}
    for record in history:
        if isinstance(record, Started):
            there[record.pod_uid] = record
        elif isinstance(record, Stopped):
            there.pop(record.pod_uid, None)
    return list(there.values())


def _asked_of_one(there: Sequence[Started]) -> Fraction:
    asked: dict[str, Fraction] = defaultdict(Fraction)
    for record in there:
        for uuid in record.devices:
            asked[uuid] += Fraction(ASKS.get(record.pod.rpartition("/")[2], "0"))
    return max(asked.values(), default=Fraction(0))
