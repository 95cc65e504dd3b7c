"""Users who keep a number of pods of every form on a cluster under any fault: they come, end and are deleted.

What a call came to is often not known: the API server dies under it. So users look at what is there, never at what they
did.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Final

import anyio

from kube.client import errors
from kube.client.api import Api
from kube.client.resources import POD_GROUPS, PODS
from simulator.nodes.shape import NodeShape
from verification.hostile.actions import CreatePod
from wire import names

NAMESPACE: Final = "chaos"
_TICK_S: Final = 0.2
#: New pods in a tick, a gang counted as one.
_ARRIVALS: Final = 3
#: Deletions under way at a time, when all leave.
_DELETING: Final = 8
#: How many in a hundred ticks somebody deletes a pod that has not ended.
_PARTINGS_PERCENT: Final = 35
_GANG_PERCENT: Final = 8
_AGAIN_PERCENT: Final = 10
_FRACTIONS: Final = ("0.5", "0.5", "0.25", "0.3", "0.333", "0.6", "0.7", "0.9", "0.1", "0.3333333333333")

Json = dict[str, Any]


class Users:
    """``there`` shows the pods of the cluster by UID, as an observer keeps them."""

    def __init__(
        self, api: Api, there: Mapping[str, Json], *, shapes: Iterable[NodeShape], population: int, rng: random.Random
    ) -> None:
        self.created = 0
        self.gangs = 0
        self._api = api
        self._there = there
        self._cards_mib = sorted({card for shape in shapes for card in shape.cards_mib})
        self._population = population
        self._rng = rng
        #: Names of pods that are gone: some come again.
        self._left: list[str] = []

    async def run(self) -> None:
        """Come and go until cancelled."""
        while True:
            await anyio.sleep(_TICK_S)
            async with anyio.create_task_group() as tasks:
                for act in (self._part, self._arrive):
                    tasks.start_soon(act)

    async def leave(self) -> None:
        """Delete everything that is ours. Raises kube.client.errors.ApiError."""
        there = (await self._api.list(PODS, namespace=NAMESPACE)).items
        going = iter([pod.metadata.name for pod in there if not pod.metadata.deletion_timestamp])

        async def delete() -> None:
            for name in going:
                await self._try(self._api.delete(PODS, name, namespace=NAMESPACE))

        async with anyio.create_task_group() as tasks:
            for _ in range(_DELETING):
                tasks.start_soon(delete)
        for group in (await self._api.list(POD_GROUPS, namespace=NAMESPACE)).items:
            await _gone(self._api.delete(POD_GROUPS, group.metadata.name, namespace=NAMESPACE))

    def pods(self) -> list[Json]:
        """Our pods that nobody has deleted yet."""
        metadata = ((pod, pod["metadata"]) for pod in self._there.values())
        return [pod for pod, meta in metadata if meta["namespace"] == NAMESPACE and "deletionTimestamp" not in meta]

    async def _arrive(self) -> None:
        for _ in range(min(_ARRIVALS, self._population - len(self.pods()))):
            if self._rng.randrange(100) < _GANG_PERCENT:
                await self._try(self._gang())
            else:
                await self._try(self._create(self._single(), self._name()))

    async def _part(self) -> None:
        pods = self.pods()
        ended = [pod for pod in pods if pod["status"].get("phase") in names.ENDED_PHASES]
        leaving = ended[:_ARRIVALS]
        if pods and len(pods) > self._population // 2 and self._rng.randrange(100) < _PARTINGS_PERCENT:
            leaving.append(self._rng.choice(pods))
        for pod in leaving:
            await self._try(self._delete(pod))

    async def _try(self, call: Awaitable[object]) -> None:
        """Users take each answer of the API server, and none, as it comes."""
        try:
            await call
        except errors.ApiError:
            return

    async def _create(self, pod: CreatePod, name: str, **group: str) -> None:
        manifest = pod.manifest
        manifest["metadata"]["name"] = name
        manifest["metadata"]["annotations"] |= group
        await self._api.create(PODS, manifest, namespace=NAMESPACE)
        self.created += 1

    async def _gang(self) -> None:
        """A gang of equal members; at times with one more than its minimum."""
        self.gangs += 1
        name, minimum = f"g-{self.gangs}", self._rng.randrange(2, 6)
        body = {"metadata": {"name": name}, "spec": {"minMember": minimum, "queue": "default"}}
        member = self._rng.choice((self._fraction, self._fraction, self._whole))()
        await self._api.create(POD_GROUPS, body, namespace=NAMESPACE)
        for number in range(minimum + self._rng.choice((0, 0, 0, 1))):
            await self._create(member, f"{name}-{number}", **{names.POD_GROUP_NAME: name})

    async def _delete(self, pod: Json) -> None:
        """Delete a pod; of a gang mostly all of it."""
        meta = pod["metadata"]
        gang = meta.get("annotations", {}).get(names.POD_GROUP_NAME)
        if gang and self._rng.random() < 0.8:
            for other in self.pods():
                if other["metadata"].get("annotations", {}).get(names.POD_GROUP_NAME) == gang:
                    await _gone(self._api.delete(PODS, other["metadata"]["name"], namespace=NAMESPACE))
            await _gone(self._api.delete(POD_GROUPS, gang, namespace=NAMESPACE))
        else:
            await self._api.delete(PODS, meta["name"], namespace=NAMESPACE, uid=meta["uid"])
            self._left.append(meta["name"])

    def _name(self) -> str:
        """A new name, or one that was there before."""
        if self._left and self._rng.randrange(100) < _AGAIN_PERCENT:
            return self._left.pop(self._rng.randrange(len(self._left)))
        return f"p-{self._rng.getrandbits(40):010x}"

    def _single(self) -> CreatePod:
        forms = (self._fraction, self._memory, self._several, self._whole)
        (form,) = self._rng.choices(forms, (10, 4, 2, 3))
        return form()

    def _fraction(self) -> CreatePod:
        return self._pod({names.GPU_FRACTION: self._rng.choice(_FRACTIONS)})

    def _memory(self) -> CreatePod:
        card = self._rng.choice(self._cards_mib)
        return self._pod({names.GPU_MEMORY: str(self._rng.choice((card // 2, card // 3, card // 8, card // 2 + 1)))})

    def _several(self) -> CreatePod:
        annotations = {names.GPU_FRACTION: self._rng.choice(_FRACTIONS), names.GPU_FRACTION_NUM_DEVICES: "2"}
        return self._pod(annotations)

    def _whole(self) -> CreatePod:
        return self._pod({}, gpus=self._rng.choice((1, 1, 1, 2)))

    def _pod(self, annotations: dict[str, str], *, gpus: int = 0) -> CreatePod:
        run_s = round(self._rng.uniform(1.0, 60.0), 1) if self._rng.random() < 0.4 else None
        return CreatePod(at_s=0.0, name="", annotations=annotations, gpus=gpus, run_s=run_s, grace_s=1)


async def _gone(deletion: Awaitable[object]) -> None:
    """Delete what may be gone already."""
    try:
        await deletion
    except (errors.NotFound, errors.Conflict):
        return
