"""What befalls preemption: evictions, pods that stay, the record, nominated pods, their queue, pods under two budgets.

Everything is promised under these. They are drawn only where room is made.
"""

from __future__ import annotations

import contextlib
import random
from functools import partial
from typing import Any, Final

import anyio
import msgspec
from typing_extensions import override

from kube.client import errors
from kube.client.resources import CONFIG_MAPS, POD_DISRUPTION_BUDGETS, PODS, QUEUES, Resource
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.checks import nominations
from verification.hostile.actions import NAMESPACE
from verification.hostile.faults.ground import Ground, Timed
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


_LOOK_S: Final = 0.05


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
                await anyio.sleep(_LOOK_S)


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
                await anyio.sleep(_LOOK_S)
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
