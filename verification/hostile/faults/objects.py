"""Objects that somebody deletes, holds back or takes back under us: nominations and their pods, leases, all of etcd.

Evictions fail, pods stay, a queue or a namespace vanishes, pods are under two budgets, a snapshot is restored.
Everything is promised under what befalls preemption, which is drawn only where room is made.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Final

import anyio
import msgspec
from typing_extensions import override

from kube.client import errors
from kube.client.resources import CONFIG_MAPS, LEASES, NAMESPACES, POD_DISRUPTION_BUDGETS, PODS, QUEUES, Resource
from simulator import installation
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.checks import nominations
from verification.hostile.actions import NAMESPACE
from verification.hostile.faults.ground import LOST_DEVICE, Ground, Timed
from verification.hostile.faults.requests import Requests
from wire import names
from wire.core import Pod

#: Somebody's finalizer: he takes his time.
KEEPS: Final = "hostile.example.com/keeps"


class _Evictions(Requests, frozen=True, kw_only=True):
    @override
    def _picks(self, call: Call) -> bool:
        return call.subresource == "eviction"


class EvictionsRefused(_Evictions, frozen=True, kw_only=True, tag="evictions-refused"):
    """429 to evictions, as of a PodDisruptionBudget that allows none."""

    @override
    def _fault(self, dice: random.Random, left_s: float) -> Fault:
        return Fault(refuse_with=429)


class EvictionsFail(_Evictions, frozen=True, kw_only=True, tag="evictions-fail"):
    """500 to evictions, as of a pod under two budgets; of a thousand ``done_per_mille`` were carried out though."""

    done_per_mille: int = 0

    @override
    def _fault(self, dice: random.Random, left_s: float) -> Fault:
        return Fault(refuse_with=500, carried_out=dice.randrange(1000) < self.done_per_mille)


class EvictionsSlow(_Evictions, frozen=True, kw_only=True, tag="evictions-slow"):
    """Evictions take up to ``there_s`` to the server, and their answers up to ``back_s`` from it."""

    there_s: float
    back_s: float = 0.0

    @override
    def _fault(self, dice: random.Random, left_s: float) -> Fault:
        there_s = min(dice.uniform(0.0, self.there_s), left_s)
        return Fault(delay_s=there_s, answer_delay_s=min(dice.uniform(0.0, self.back_s), left_s - there_s))


class VictimStays(Timed, frozen=True, kw_only=True, tag="victim-stays"):
    """Of a thousand pods that are bound just then ``per_mille`` get a finalizer, which is taken off at the end.

    A pod that is evicted meanwhile ends, and its object stays.
    """

    per_mille: int = 1000
    seed: int = 0

    @override
    async def _happen(self, ground: Ground) -> None:
        dice = ground.dice(self.kind, self.seed)
        bound = [pod for pod in await _pods(ground) if pod.spec.node_name]
        for pod in [pod for pod in bound if dice.randrange(1000) < self.per_mille]:
            await _put(ground, pod, [*(pod.metadata.finalizers or ()), KEEPS])
        await anyio.sleep(ground.left_s(self.end_s))
        await let_go(ground)


async def let_go(ground: Ground) -> None:
    """Take the finalizer off each pod that has it, bound or not: a restored etcd may have undone its Binding."""
    for pod in await _pods(ground):
        if KEEPS in (left := list(pod.metadata.finalizers or ())):
            left.remove(KEEPS)
            await _put(ground, pod, left)


async def _pods(ground: Ground) -> list[Pod]:
    listing = await ground.api.list(PODS, skip_undecodable=True)
    return [pod for pod in listing.items if pod.spec.scheduler_name == names.SCHEDULER_NAME]


async def _put(ground: Ground, pod: Pod, finalizers: list[str]) -> None:
    meta = pod.metadata
    body = {"metadata": {"finalizers": finalizers}}
    await ground.insist(lambda: ground.lawless.patch(PODS, meta.name, body, namespace=meta.namespace, uid=meta.uid))


_PREEMPTION_LOOK_S: Final = 0.05


class NominationConflict(Requests, frozen=True, kw_only=True, tag="nomination-conflict"):
    """409 to writes of the record of nominations: another leader was faster, as its answers say."""

    @override
    def _picks(self, call: Call) -> bool:
        return (call.verb, call.kind.plural, call.name) == ("patch", CONFIG_MAPS.plural, names.NOMINATIONS)

    @override
    def _fault(self, dice: random.Random, left_s: float) -> Fault:
        return Fault(refuse_with=409)


class NominationsDeleted(Timed, frozen=True, kw_only=True, tag="nominations-deleted"):
    """Somebody deletes the record of nominations, every ``every_s``."""

    every_s: float

    @override
    async def _happen(self, ground: Ground) -> None:
        with anyio.move_on_after(self.for_s):
            while True:
                await ground.insist(
                    lambda: ground.api.delete(CONFIG_MAPS, names.NOMINATIONS, namespace=names.SYSTEM_NAMESPACE)
                )
                await anyio.sleep(self.every_s)


async def _nominations(ground: Ground) -> list[nominations.Nomination]:
    found = await ground.insist(
        lambda: ground.api.get(CONFIG_MAPS, names.NOMINATIONS, namespace=names.SYSTEM_NAMESPACE)
    )
    return [] if found is None else nominations.nominations(msgspec.to_builtins(found))


class NomineeGoes(Timed, frozen=True, kw_only=True, tag="nominee-goes"):
    """Of a thousand pods that room is made for ``per_mille`` are deleted as soon as the record names them."""

    per_mille: int = 1000
    seed: int = 0

    @override
    async def _happen(self, ground: Ground) -> None:
        dice, seen = ground.dice(self.kind, self.seed), set[str]()
        with anyio.move_on_after(self.for_s):
            while True:
                nominees = {uid for nomination in await _nominations(ground) for uid in nomination.nominees}
                for pod in (await ground.api.list(PODS, skip_undecodable=True)).items if nominees - seen else ():
                    meta = pod.metadata
                    if meta.uid in nominees - seen and dice.randrange(1000) < self.per_mille:
                        at: dict[str, Any] = {"namespace": meta.namespace, "uid": meta.uid}
                        await ground.insist(partial(ground.api.delete, PODS, meta.name, **at))
                seen |= nominees
                await anyio.sleep(_PREEMPTION_LOOK_S)


async def _made(ground: Ground, kind: Resource[Any], body: dict[str, Any], namespace: str = "") -> None:
    """Make an object, unless somebody else has, or this did though the answer was another one."""
    with contextlib.suppress(errors.AlreadyExists):
        await ground.api.create(kind, body, namespace=namespace)


class QueueVanishes(Timed, frozen=True, kw_only=True, tag="queue-vanishes"):
    """The queue of a pod that room is made for is deleted with the first nomination; at the end it is made again."""

    @override
    async def _happen(self, ground: Ground) -> None:
        taken: Any = None
        with anyio.move_on_after(self.for_s):
            while taken is None:
                taken = await self._take(ground)
                await anyio.sleep(_PREEMPTION_LOOK_S)
            await anyio.sleep(ground.left_s(self.end_s))
        if taken is not None:
            body = {"metadata": {"name": taken["metadata"]["name"]}, "spec": taken["spec"]}
            await ground.insist(partial(_made, ground, QUEUES, body))

    async def _take(self, ground: Ground) -> Any:
        nominees = {uid for nomination in await _nominations(ground) for uid in nomination.nominees}
        if not nominees:
            return None
        for pod in (await ground.api.list(PODS, skip_undecodable=True)).items:
            name = (pod.metadata.labels or {}).get(names.QUEUE_LABEL)
            if pod.metadata.uid in nominees and name:
                found = await ground.insist(partial(ground.api.get, QUEUES, name))
                if found is not None:
                    await ground.insist(partial(ground.api.delete, QUEUES, name))
                    return msgspec.to_builtins(found)
        return None


class TwoBudgets(Timed, frozen=True, kw_only=True, tag="evictions-two-budgets"):
    """All pods of the users' namespace are under two budgets that allow all to go: none can be evicted (500)."""

    @override
    async def _happen(self, ground: Ground) -> None:
        body = {"spec": {"minAvailable": 0, "selector": {}}}
        made = [f"{self.kind}-{number}-{round(self.at_s * 1000)}" for number in range(2)]
        for name in made:
            named = {"metadata": {"name": name}, **body}
            await ground.insist(partial(_made, ground, POD_DISRUPTION_BUDGETS, named, NAMESPACE))
        await anyio.sleep(ground.left_s(self.end_s))
        for name in made:
            await ground.insist(partial(ground.api.delete, POD_DISRUPTION_BUDGETS, name, namespace=NAMESPACE))


_LOOK_S: Final = 0.5


class NamespaceDeleted(Timed, frozen=True, kw_only=True, tag="namespace-deleted"):
    """The users' namespace is deleted with all that is in it; a user who needs it later creates it again.

    Everything is promised: what its pods had is free when they have ended, and while it goes nothing can be created.
    """

    @override
    async def _happen(self, ground: Ground) -> None:
        await ground.insist(lambda: ground.api.delete(NAMESPACES, NAMESPACE))


class ReservationsDeleted(Timed, frozen=True, kw_only=True, tag="reservations-deleted"):
    """The namespace of the reservations is deleted under their tenants; at the end somebody installs it again.

    What still keeps it from going then is taken out of the way by hand. Devices are lost as their reservations go.
    """

    unpromised: ClassVar[frozenset[str]] = LOST_DEVICE

    @override
    async def _happen(self, ground: Ground) -> None:
        await ground.insist(lambda: ground.api.delete(NAMESPACES, names.RESERVATION_NAMESPACE))
        await anyio.sleep(self.for_s)
        await install(ground)


async def install(ground: Ground) -> None:
    """Make the namespace of the reservations and its account where they are not there, once an old one is gone."""
    while not await _is_home(ground):
        await _clear(ground)
        await anyio.sleep(_LOOK_S)


async def _is_home(ground: Ground) -> bool:
    """Install the namespace and its account, unless the old one still goes."""
    try:
        found = await ground.api.get(NAMESPACES, names.RESERVATION_NAMESPACE)
        if found.metadata.deletion_timestamp:
            return False
    except errors.NotFound:
        await ground.insist(lambda: ground.api.create(NAMESPACES, installation.named(names.RESERVATION_NAMESPACE)))
    account, namespace = installation.named(names.RESERVATION_SERVICE_ACCOUNT), names.RESERVATION_NAMESPACE
    await ground.insist(lambda: ground.api.create(installation.SERVICE_ACCOUNTS, account, namespace=namespace))
    return True


async def _clear(ground: Ground) -> None:
    api, body = ground.lawless, {"metadata": {"finalizers": None}}
    listing = await ground.api.list(PODS, namespace=names.RESERVATION_NAMESPACE, skip_undecodable=True)
    for meta in [pod.metadata for pod in listing.items]:
        at = {"namespace": meta.namespace, "uid": meta.uid}
        await ground.insist(partial(api.patch, PODS, meta.name, body, **at))
        await ground.insist(partial(api.delete, PODS, meta.name, namespace=meta.namespace, uid=meta.uid, grace_s=0))


class LeaseDeleted(Timed, frozen=True, kw_only=True, tag="lease-deleted"):
    """The lease of the leader of ``role`` is deleted every ``every_s``. Where there is no election nothing happens.

    Everything is promised: a leader that lost its lease writes nothing more once its own time is over.
    """

    role: str
    every_s: float

    @override
    async def _happen(self, ground: Ground) -> None:
        api, name = ground.api, f"moorage-{self.role}"
        with anyio.move_on_after(self.for_s):
            while True:
                await ground.insist(lambda: api.delete(LEASES, name, namespace=names.SYSTEM_NAMESPACE))
                await anyio.sleep(self.every_s)


#: What is not judged from the restore until the machines have caught up: devices are used by pods that are unknown (S1,
#: S2), pods run elsewhere than where they are bound, or are bound no more (S3, S5), a gang is in part what it was (S4),
#: a gang's rest is evicted by who saw another gang (S7), books are older than the use of the devices (S8), ledgers are
#: of what is undone (S12), and so are the record of nominations (S13, S14) and claims (S15 to S17). S10 says no more.
UNDONE: Final = frozenset({"S1", "S2", "S3", "S4", "S5", "S7", "S8", "S10", "S12", "S13", "S14", "S15", "S16", "S17"})
_RESTORE_LOOK_S: Final = 0.25


class _Restored(Timed, frozen=True, kw_only=True):
    """etcd is restored from a snapshot: the API server is what it was some time ago, and the machines are not.

    Kubelets end what the API server does not know any more, and run what it has again, each in its own time. Until they
    have, a device may be used by a pod that nobody knows of, so devices and bindings (``UNDONE``) are not judged
    meanwhile: no scheduler could know. What is promised afterwards is in docs/safety.md.

    The snapshot is taken at ``at_s`` and restored ``undone_s`` later, with versions that go on (--bump-revision).
    """

    undone_s: float

    def _restore(self, ground: Ground, snapshot: int) -> None:
        """Set the API server back. What was on its way to it is lost, and its watchers have to list again."""
        for kubelet in ground.world.nodes.kubelets.values():
            kubelet.history_set_back()
        ground.server.restore(snapshot, lambda call: call.user != "observer")

    async def _machines_caught_up(self, ground: Ground) -> None:
        """Wait until each machine runs what the API server has it run, and nothing else, while this fault lasts.

        First what the snapshot lacks of the installation is made again, as an administrator does, and finalizers that
        it brought back are taken off by whose they are.
        """
        nodes = ground.world.nodes
        await install(ground)
        await let_go(ground)
        for name in nodes.kubelets:
            await ground.insist(partial(nodes.register, name))
        with anyio.move_on_after(ground.left_s(self.end_s)):
            while any(_differences(ground)):  # noqa: ASYNC110 - machines are plain data
                await anyio.sleep(_RESTORE_LOOK_S)


class EtcdRestored(_Restored, frozen=True, kw_only=True, tag="etcd-restored"):
    """A restore as docs/operate.md has it: the components are stopped until the machines have caught up.

    Everything is promised from then on. Until then ``UNDONE`` is not judged, nor later where the machines do not catch
    up in time, because another fault parts one of them from the API server.
    """

    @override
    async def _happen(self, ground: Ground) -> None:
        snapshot = ground.server.resource_version
        await anyio.sleep(self.undone_s)
        stopped = [each for each in ground.components.values() if ground.crash(each)]
        with ground.world.checker.findings.excusing(UNDONE) as excuse:
            self._restore(ground, snapshot)
            await self._machines_caught_up(ground)
            excuse.is_over = not any(_differences(ground))
        for component in stopped:
            await ground.start_again(component, pause_s=0.0)


class EtcdRestoredUnderWork(_Restored, frozen=True, kw_only=True, tag="etcd-restored-live"):
    """A restore under components that nobody stopped.

    They notice it, by their lease or by the next list, and begin again. Until then, and until the machines have caught
    up, they place pods where devices are used, so ``UNDONE`` can't be held. Liveness is promised, and that nothing is
    left.
    """

    unpromised: ClassVar[frozenset[str]] = UNDONE

    @override
    async def _happen(self, ground: Ground) -> None:
        snapshot = ground.server.resource_version
        await anyio.sleep(self.undone_s)
        self._restore(ground, snapshot)
        await self._machines_caught_up(ground)


def _differences(ground: Ground) -> Iterator[str]:
    """Pods of which a machine and the API server do not say the same, by name or UID.

    One that the API server does not have there, and that runs or is being started; one that runs by its status only;
    a reservation that does not run yet; and one that the machine ends, as it was deleted at a time that is undone. For
    all but the first the device of a restored reservation may be free, or become another one.
    """
    pods = {pod["metadata"]["uid"]: pod for pod in ground.world.pods}
    bound = {uid: pod["spec"].get("nodeName") for uid, pod in pods.items()}
    running = ground.world.nodes.ground_truth.running
    yield from (each.pod for each in running if bound.get(each.pod_uid) != each.node)
    for name, kubelet in ground.world.nodes.kubelets.items():
        yield from (uid for uid in sorted(kubelet.intake.active) if bound.get(uid) != name)
        yield from (uid for uid in kubelet.ending if uid in pods and "deletionTimestamp" not in pods[uid]["metadata"])
    live = {(each.pod_uid, each.container) for each in running}
    for uid, pod in pods.items():
        yield from (uid for container in _to_run(pod) if (uid, container) not in live)


def _to_run(pod: dict[str, Any]) -> Iterator[str]:
    """Containers that run by their status, and those of a reservation that has not ended."""
    status, spec = pod.get("status") or {}, pod["spec"]
    is_live = spec.get("nodeName") and status.get("phase") not in names.ENDED_PHASES
    if is_live and pod["metadata"]["namespace"] == names.RESERVATION_NAMESPACE:
        yield from (container["name"] for container in spec["containers"])
    for told in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        if "running" in (told.get("state") or {}):
            yield told["name"]
