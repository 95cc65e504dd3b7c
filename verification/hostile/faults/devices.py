"""What befalls devices that are made on demand: claims and their controllers, and agents that make MIG slices.

Controllers stand still, devices vanish, another scheduler takes devices of the same pools without lock or order, writes
are struck; agents crash at each step, drivers fail or are late, reports are late. Everything is promised under these.
They are drawn only where users have claims or agents make slices, or by name; elsewhere nothing happens.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, Literal

import anyio
from typing_extensions import override

from kube.client import errors
from kube.client.resources import (
    GPU_NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.mig.hardware import End, Moment
from simulator.mig.nodes import SlicedRuntime
from simulator.policies import AGENT
from verification.hostile.actions import NAMESPACE
from verification.hostile.device_actions import ANY_CLASS, MEMORY, Offered, Want, asked, remove_slices, slices, tainted
from verification.hostile.faults.ground import READS, Ground, Timed
from verification.hostile.faults.processes import Crash
from verification.hostile.faults.requests import Requests, WatchHeld
from wire import names
from wire.core import Binding, ObjectMeta, ObjectReference
from wire.resource import Device, ResourceClaim, ResourceSlice

RIVALS: Final = "rivals"
SCHEDULER: Final = "rival-scheduler"
#: node, driver, pool, device
_Place = tuple[str, str, str, str]


class RivalAllocates(Timed, frozen=True, kw_only=True, tag="rival-allocates"):
    """Another scheduler gives devices to ``count`` pods of its own, one after the other, which go at the end.

    What it knows of claims and slices is up to ``late_s`` old when it writes. As kube-scheduler it binds its pods
    without a look at what others wrote meanwhile.
    """

    count: int
    late_s: float
    seed: int

    @override
    async def _happen(self, ground: Ground) -> None:
        dice = ground.dice(self.kind, self.seed)
        made: list[str] = []
        with anyio.move_on_after(self.for_s):
            for number in range(self.count):
                name = f"rival-{self.seed}-{round(self.at_s * 1000)}-{number}"
                made.append(name)
                with anyio.CancelScope(shield=True):
                    await self._run(ground, dice, name)
                await anyio.sleep(self.for_s / (2 * self.count) * dice.random())
            await anyio.sleep(ground.left_s(self.end_s))
        for name in made:
            for kind in (PODS, RESOURCE_CLAIMS):
                await ground.insist(partial(ground.api.delete, kind, name, namespace=RIVALS))

    async def _run(self, ground: Ground, dice: random.Random, name: str) -> None:
        """Create a pod with a claim, allocate it, and bind the pod."""
        api, at = ground.api, {"namespace": RIVALS}
        try:
            claim = await api.create(RESOURCE_CLAIMS, _claim(name), **at)
            pod = await api.create(PODS, _pod(name), **at)
            held = {device for each in (await api.list(RESOURCE_CLAIMS)).items for device in _held(each)}
            free = [place for place in _places((await api.list(RESOURCE_SLICES)).items) if place[1:] not in held]
            await anyio.sleep(dice.uniform(0.0, self.late_s))
            if not free:
                return
            place = free[0] if dice.random() < 0.5 else dice.choice(free)  # the first is everybody's first choice
            finalizers = {"metadata": {"finalizers": [names.CLAIM_FINALIZER]}}
            claim = await api.patch(RESOURCE_CLAIMS, name, finalizers, **at)
            version = claim.metadata.resource_version
            status = {"status": _allocated(place, name, pod.metadata.uid)}
            await api.patch(RESOURCE_CLAIMS, name, status, subresource="status", resource_version=version, **at)
            meta = ObjectMeta(name=name, namespace=RIVALS, uid=pod.metadata.uid)
            target = ObjectReference(api_version="v1", kind="Node", name=place[0])
            await api.bind(RIVALS, name, Binding(metadata=meta, target=target))
        except errors.ApiError:
            return


def _claim(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": asked((Want(cls=ANY_CLASS),))}


def _pod(name: str) -> dict[str, Any]:
    spec = {
        "schedulerName": SCHEDULER,
        "containers": [{"name": "main", "image": "work"}],
        "resourceClaims": [{"name": "c", "resourceClaimName": name}],
    }
    return {"metadata": {"name": name}, "spec": spec}


def _allocated(place: _Place, name: str, uid: str) -> dict[str, Any]:
    node, driver, pool, device = place
    result = {"request": "r0", "driver": driver, "pool": pool, "device": device}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    return {"allocation": allocation, "reservedFor": [{"resource": "pods", "name": name, "uid": uid}]}


def _held(claim: ResourceClaim) -> Iterator[tuple[str, str, str]]:
    allocation = claim.status.allocation
    for each in (allocation.devices.results if allocation is not None else None) or ():
        yield each.driver, each.pool, each.device


def _places(listed: Sequence[ResourceSlice]) -> Iterator[_Place]:
    """Whole devices without taints of the newest generations."""
    newest: dict[str, int] = {}
    for each in listed:
        newest[each.spec.pool.name] = max(newest.get(each.spec.pool.name, 0), each.spec.pool.generation)
    for spec in (each.spec for each in sorted(listed, key=lambda each: each.metadata.name)):
        for device in spec.devices or () if spec.pool.generation == newest[spec.pool.name] else ():
            if not device.taints and not device.allow_multiple_allocations:
                yield spec.node_name or "", spec.driver, spec.pool.name, device.name


_WRITTEN: Final = frozenset({
    RESOURCE_CLAIMS.plural, PERSISTENT_VOLUME_CLAIMS.plural, PERSISTENT_VOLUMES.plural,
})  # fmt: skip

_AGAIN_S: Final = 1.0
#: What becomes of a write: refused, carried out and answered by an error, or its answer or itself lost.
Blow = Literal["conflict", "forbidden", "error", "error-done", "answer-lost", "lost", "late"]


class ClaimControllerDown(Timed, frozen=True, kw_only=True, tag="claim-controller-down"):
    """Nobody makes claims from templates, or takes pods that are gone out of claims; at the end it is caught up."""

    @override
    async def _happen(self, ground: Ground) -> None:
        ground.world.resource_claims.is_off = True
        await anyio.sleep(self.for_s)
        ground.world.resource_claims.resume()


class ProvisionerDown(Timed, frozen=True, kw_only=True, tag="provisioner-down"):
    """Nobody binds claims of volumes, or makes volumes."""

    @override
    async def _happen(self, ground: Ground) -> None:
        ground.world.claims.is_off = True
        await anyio.sleep(self.for_s)
        ground.world.claims.is_off = False


class ProvisioningFails(Timed, frozen=True, kw_only=True, tag="provisioning-fails"):
    """Of a thousand pairs of a claim and a node, for ``per_mille`` no volume can be made."""

    per_mille: int
    seed: int

    @override
    async def _happen(self, ground: Ground) -> None:
        def fails(claim: str, node: str) -> bool:
            return random.Random(f"{self.seed}/{claim}/{node}").randrange(1000) < self.per_mille

        ground.world.claims.fails = fails
        await anyio.sleep(self.for_s)
        ground.world.claims.fails = lambda _, __: False


class ProvisioningSlow(Timed, frozen=True, kw_only=True, tag="provisioning-slow"):
    """A volume takes ``slow_s`` to be made: perhaps longer than the scheduler waits for it."""

    slow_s: float

    @override
    async def _happen(self, ground: Ground) -> None:
        usual_s = ground.world.claims.usual_s
        ground.world.claims.takes_s = max(usual_s, self.slow_s)
        await anyio.sleep(self.for_s)
        ground.world.claims.takes_s = usual_s


async def _published(ground: Ground, node: str) -> tuple[int, tuple[Offered, ...]]:
    """The newest generation of a node's pool, and its devices; none where it has no pool."""
    listed = await ground.insist(partial(ground.api.list, RESOURCE_SLICES))
    found = [each.spec for each in (listed.items if listed is not None else ()) if each.spec.pool.name == node]
    newest = max((spec.pool.generation for spec in found), default=0)
    devices = [each for spec in found if spec.pool.generation == newest for each in spec.devices or ()]
    return newest, tuple(_offered(each) for each in sorted(devices, key=lambda each: each.name))


def _offered(device: Device) -> Offered:
    capacity, attributes = (device.capacity or {}).get(MEMORY), device.attributes or {}
    return Offered(
        name=device.name,
        is_big=bool(attributes["big"].boolean),
        is_tainted=bool(device.taints),
        shared_gib=int(str(capacity.value).removesuffix("Gi")) if capacity is not None else 0,
        draws=sum(int(one.value) for each in device.consumes_counters or () for one in (each.counters or {}).values()),
        has_to_get_ready=bool(device.binding_conditions),
        uuid=attributes["uuid"].string or "" if "uuid" in attributes else "",
    )


async def _remove(ground: Ground, node: str, *, below: int | None = None) -> None:
    await ground.insist(partial(remove_slices, ground.api, node, below=below))


class DevicesVanish(Timed, frozen=True, kw_only=True, tag="devices-vanish"):
    """The driver of a node goes, and its slices with it; at the end it publishes the same devices once more."""

    node: str

    @override
    async def _happen(self, ground: Ground) -> None:
        generation, devices = await _published(ground, self.node)
        await _remove(ground, self.node)
        await anyio.sleep(ground.left_s(self.end_s))
        if (await _published(ground, self.node))[0] or not devices:
            return
        for body in slices(self.node, devices, generation=generation + 1, count=1):
            await ground.insist(partial(ground.api.create, RESOURCE_SLICES, body))


class DevicesRenewed(Timed, frozen=True, kw_only=True, tag="devices-renewed"):
    """The driver of a node publishes its devices in a new generation of two slices, the second one at the end.

    Until then the newest generation of the pool is not complete.
    """

    node: str

    @override
    async def _happen(self, ground: Ground) -> None:
        before, devices = await _published(ground, self.node)
        if not devices:
            return
        *first, second = slices(self.node, devices, generation=before + 1, count=2)
        try:
            for body in first:
                await ground.api.create(RESOURCE_SLICES, body)
        except errors.AlreadyExists:  # another fault renews them
            return
        await anyio.sleep(ground.left_s(self.end_s))
        if (await _published(ground, self.node))[0] == before + 1:
            await ground.insist(partial(ground.api.create, RESOURCE_SLICES, second))
            await _remove(ground, self.node, below=before + 1)


class DevicesTainted(Timed, frozen=True, kw_only=True, tag="devices-tainted"):
    """The driver of a node taints its devices until the end."""

    node: str

    @override
    async def _happen(self, ground: Ground) -> None:
        changed: dict[str, tuple[str, ...]] = {}
        listed = await ground.insist(partial(ground.api.list, RESOURCE_SLICES))
        for each in listed.items if listed is not None else ():
            if each.spec.pool.name == self.node:
                changed[each.metadata.uid] = tuple(device.name for device in each.spec.devices or () if device.taints)
                await self._write(ground, each.metadata.name, each.metadata.uid, None)
        await anyio.sleep(ground.left_s(self.end_s))
        listed = await ground.insist(partial(ground.api.list, RESOURCE_SLICES))
        for each in listed.items if listed is not None else ():
            if each.metadata.uid in changed:
                await self._write(ground, each.metadata.name, each.metadata.uid, changed[each.metadata.uid])

    @staticmethod
    async def _write(ground: Ground, name: str, uid: str, kept: tuple[str, ...] | None) -> None:
        """Taint all devices of a slice, or only those that are ``kept`` tainted."""
        found = await ground.insist(partial(ground.api.get, RESOURCE_SLICES, name))
        offered = [_offered(device) for device in found.spec.devices or ()] if found is not None else []
        body = {"spec": {"devices": [tainted(each, kept is None or each.name in kept).manifest for each in offered]}}
        await ground.insist(partial(ground.api.patch, RESOURCE_SLICES, name, body, uid=uid))


class ClaimsRemade(Timed, frozen=True, kw_only=True, tag="claims-remade"):
    """Every ``every_s`` a claim that was made for no pod is deleted, and created again under its name once it is gone.

    ``pick``: which of them, counted round.
    """

    every_s: float
    pick: int

    @override
    async def _happen(self, ground: Ground) -> None:
        with anyio.move_on_after(self.for_s):
            while True:
                await self._remake(ground)
                await anyio.sleep(self.every_s)

    async def _remake(self, ground: Ground) -> None:
        listed = await ground.insist(partial(ground.api.list, RESOURCE_CLAIMS, namespace=NAMESPACE))
        found = [each for each in (listed.items if listed is not None else ()) if not each.metadata.owner_references]
        if not found:
            return
        claim = found[self.pick % len(found)]
        name, uid = claim.metadata.name, claim.metadata.uid
        with anyio.CancelScope(shield=True):
            await ground.insist(partial(ground.api.delete, RESOURCE_CLAIMS, name, namespace=NAMESPACE, uid=uid))
            with anyio.move_on_after(ground.left_s(self.end_s)):
                body = {"metadata": {"name": name}, "spec": claim.spec}
                while not await self._is_made(ground, body):  # noqa: ASYNC110 - it is on the server that it waits for
                    await anyio.sleep(_AGAIN_S)

    @staticmethod
    async def _is_made(ground: Ground, body: dict[str, Any]) -> bool:
        try:
            await ground.api.create(RESOURCE_CLAIMS, body, namespace=NAMESPACE)
        except errors.ApiError:
            return False
        return True


class ClaimWrites(Requests, frozen=True, kw_only=True, tag="claim-writes"):
    """Writes of claims and volumes are struck: of ``user``, or of all processes."""

    blow: Blow
    later_s: float = 0.0

    @override
    def _picks(self, call: Call) -> bool:
        return call.verb == "patch" and call.kind.plural in _WRITTEN

    @override
    def _fault(self, dice: random.Random, left_s: float) -> Fault:
        later_s = min(self.later_s, left_s)
        blows: dict[Blow, Fault] = {
            "conflict": Fault(refuse_with=409),
            "forbidden": Fault(refuse_with=403),
            "error": Fault(refuse_with=500),
            "error-done": Fault(refuse_with=500, carried_out=True),
            "answer-lost": Fault(lost="answer"),
            "lost": Fault(lost="request"),
            "late": Fault(lost="request", lands_after_s=later_s),
        }
        return blows[self.blow]


class CrashAtClaims(Crash, frozen=True, kw_only=True, tag="crash-at-claims"):
    """A scheduler is killed at its ``nth`` write of a claim, a volume, or a pod that has them."""

    @override
    def counts(self, call: Call) -> bool:
        is_binding = call.kind.plural == "pods" and call.subresource in {"binding", "status"}
        return call.verb not in READS and (call.kind.plural in _WRITTEN or is_binding)


class ClaimsUnheard(WatchHeld, frozen=True, kw_only=True, tag="claims-unheard"):
    """Nothing is heard of one kind of claims, volumes or slices until the end."""


GRABBERS: Final = "grabbers"
_LOOK_S: Final = 0.1


class _OnSliced(Timed, frozen=True, kw_only=True):
    """A fault of the agent of ``node``, of its driver or its kubelet."""

    node: str

    @override
    async def _happen(self, ground: Ground) -> None:
        found = ground.sliced.get(self.node)
        if found is not None:
            await self._strike(ground, found)

    async def _strike(self, ground: Ground, found: SlicedRuntime) -> None:
        """Let it happen to the node."""
        raise NotImplementedError


class PartitionerCrashes(_OnSliced, frozen=True, kw_only=True, tag="partitioner-crashes"):
    """The agent is killed at the ``nth`` change of slices (0: at once), before or after the driver has done it.

    ``pause_s`` later it is started again, but not before the driver is done with what it was asked.
    """

    nth: int
    moment: Moment
    pause_s: float

    @override
    async def _strike(self, ground: Ground, found: SlicedRuntime) -> None:
        left, hit = self.nth, anyio.Event()

        def noticed(moment: Moment) -> None:
            nonlocal left
            left -= moment == self.moment
            if left <= 0 and not hit.is_set():
                hit.set()
                found.hold_down()

        if not self.nth:
            noticed(self.moment)
        found.driver.listeners.append(noticed)
        with anyio.move_on_after(ground.left_s(self.end_s - self.pause_s)):
            await hit.wait()
        found.driver.listeners.remove(noticed)
        if hit.is_set():
            await anyio.sleep(min(self.pause_s, ground.left_s(self.end_s)))
            found.let_up()


class PartitionerDown(_OnSliced, frozen=True, kw_only=True, tag="partitioner-down"):
    """The agent is down until the end: what is asked of it is not taken up, and the scheduler withdraws it."""

    @override
    async def _strike(self, ground: Ground, found: SlicedRuntime) -> None:
        found.hold_down()
        await anyio.sleep(self.for_s)
        found.let_up()


class DriverFails(_OnSliced, frozen=True, kw_only=True, tag="mig-driver-fails"):
    """Of a thousand changes ``per_mille`` fail: refused, done by half, or done and an error reported nevertheless."""

    per_mille: int
    end: End
    seed: int

    @override
    async def _strike(self, ground: Ground, found: SlicedRuntime) -> None:
        dice = ground.dice(self.kind, self.seed)
        found.driver.faults.end = lambda: self.end if dice.randrange(1000) < self.per_mille else "done"
        await anyio.sleep(self.for_s)
        found.driver.faults.end = lambda: "done"


class DriverSlow(_OnSliced, frozen=True, kw_only=True, tag="mig-driver-slow"):
    """A change of slices takes ``slow_s`` longer: perhaps longer than the agent waits, and it is done nevertheless."""

    slow_s: float

    @override
    async def _strike(self, ground: Ground, found: SlicedRuntime) -> None:
        found.driver.faults.slow_s = self.slow_s
        await anyio.sleep(self.for_s)
        found.driver.faults.slow_s = 0.0


class KubeletRestarts(_OnSliced, frozen=True, kw_only=True, tag="kubelet-restarts"):
    """The kubelet's process restarts every ``every_s``, and shows no pods for ``blind_s``; containers go on."""

    every_s: float
    blind_s: float

    @override
    async def _strike(self, ground: Ground, found: SlicedRuntime) -> None:
        with anyio.move_on_after(self.for_s):
            while True:
                found.side.restart(self.blind_s)
                await anyio.sleep(self.every_s)


class SlicesGrabbed(_OnSliced, frozen=True, kw_only=True, tag="slices-grabbed"):
    """Whenever a slice is about to go, a pod that names the node comes for one of its kind, up to ``late_s`` later.

    Its maker asks no scheduler. At the end these pods go.
    """

    late_s: float
    seed: int

    @override
    async def _strike(self, ground: Ground, found: SlicedRuntime) -> None:
        dice, made, known = ground.dice(self.kind, self.seed), list[str](), frozenset[str]()
        with anyio.move_on_after(self.for_s):
            while True:
                now = found.agent.partitioner.withdrawn if found.agent is not None else frozenset[str]()
                for uuid in sorted(now - known):
                    resource = next((each.resource for each in found.machine.devices() if each.uuid == uuid), "")
                    await anyio.sleep(dice.uniform(0.0, self.late_s))
                    if resource:
                        made.append(f"grab-{self.node}-{round(self.at_s * 1000)}-{len(made)}")
                        with anyio.CancelScope(shield=True):
                            await self._grab(ground, made[-1], resource)
                known = now
                await anyio.sleep(_LOOK_S)
        for name in made:
            await ground.insist(partial(ground.api.delete, PODS, name, namespace=GRABBERS))

    async def _grab(self, ground: Ground, name: str, resource: str) -> None:
        container = {"name": "main", "image": "work", "resources": {"limits": {resource: "1"}}}
        spec = {"schedulerName": "default-scheduler", "nodeName": self.node, "containers": [container]}
        try:
            await ground.api.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace=GRABBERS)
        except errors.ApiError:
            return


class GpuNodesLate(Timed, frozen=True, kw_only=True, tag="gpu-nodes-late"):
    """What agents write of GpuNodes takes up to ``there_s`` to the API server, and the answer as long."""

    there_s: float
    seed: int

    @override
    async def _happen(self, ground: Ground) -> None:
        dice = ground.dice(self.kind, self.seed)

        def rule(call: Call) -> Fault | None:
            if call.user != AGENT or call.kind.plural != GPU_NODES.plural or call.verb in READS:
                return None
            left_s = ground.left_s(self.end_s)
            there_s = min(dice.uniform(0.0, self.there_s), left_s)
            return Fault(delay_s=there_s, answer_delay_s=min(dice.uniform(0.0, self.there_s), left_s - there_s))

        with ground.requests(rule):
            await anyio.sleep(self.for_s)


class GpuNodesUnheard(WatchHeld, frozen=True, kw_only=True, tag="gpu-nodes-unheard"):
    """A scheduler or the agents hear nothing of GpuNodes until the end."""


class GpuNodesMeddled(Timed, frozen=True, kw_only=True, tag="gpu-nodes-meddled"):
    """Every ``every_s`` all that is asked of nodes is taken back, or their GpuNodes are deleted."""

    every_s: float
    how: Literal["withdrawn", "deleted"]

    @override
    async def _happen(self, ground: Ground) -> None:
        with anyio.move_on_after(self.for_s):
            while True:
                for name in ground.sliced:
                    with anyio.CancelScope(shield=True):
                        await self._meddle(ground, name)
                await anyio.sleep(self.every_s)

    async def _meddle(self, ground: Ground, name: str) -> None:
        if self.how == "deleted":
            await ground.insist(partial(ground.api.delete, GPU_NODES, name))
        else:
            await ground.insist(partial(ground.api.patch, GPU_NODES, name, {"spec": {"mig": None}}))
