"""Evictions that are refused, fail or take long, and pods that stay when they are evicted.

Everything is promised under these. They strike evictions alone, so they are drawn only where room is made.
"""

from __future__ import annotations

import random
from typing import Final

import anyio
from typing_extensions import override

from kube.client.resources import PODS
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from verification.hostile.faults.ground import Ground
from verification.hostile.faults.requests import Requests
from verification.hostile.faults.timed import Timed
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
