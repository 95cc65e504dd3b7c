"""A KAI Scheduler that is at work in this cluster: Moorage does not start beside it, and stops where one starts.

Its binder would carry out our BindRequests, and its start-up sync deletes running pods whose reservation it can't see;
its operator creates both again (kai-contract, erratum 12). Its leader election is off by default, so its pods are
looked for (labels of contract 6.1), and its leases (6.4) for a KAI that runs outside of pods. cli/besidekai.py looks
again and again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import anyio
import msgspec

from kube.client.api import Api
from kube.client.resources import LEASES, PODS
from wire import names
from wire.coordination import Lease
from wire.core import Container, Pod

#: Label ``app`` of a component's pods -> what its image is called. A shard's scheduler has the shard's name behind it.
_COMPONENTS: Final[Mapping[str, str]] = {"kai-operator": "operator", "binder": "binder"}
_SCHEDULER_APP: Final = "kai-scheduler-"
_SCHEDULER_IMAGE: Final = "scheduler"
#: Held in the namespace of the release, of the operator, the binder, and the scheduler of the default shard. Those of
#: other shards have the shard's name behind it.
_LEASES: Final = frozenset({"41fce092.run.ai", "2ad35f9c.kai.scheduler", names.SCHEDULER_NAME})
_SHARD_LEASE: Final = f"{names.SCHEDULER_NAME}-"
_POLL_S: Final = 1.0
#: Pods of all namespaces are listed at the first look and at each 60th: users may label as many as they like.
ELSEWHERE_EVERY: Final = 60
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class Found(msgspec.Struct, frozen=True):
    """What was found, in words."""

    #: Surely at work: it stands where only administrators make things.
    at_work: tuple[str, ...] = ()
    #: Seems to be a KAI in another namespace. Each user who may create pods can make such pods.
    elsewhere: tuple[str, ...] = ()


class Also(msgspec.Struct, frozen=True):
    """Further programs of KAI's that do the work of one component of ours: label ``app`` -> image, and leases."""

    apps: Mapping[str, str] = {}
    leases: frozenset[str] = frozenset()


#: Both would write the PodGroups of workloads.
POD_GROUPER: Final = Also({"pod-grouper": "podgrouper"}, frozenset({"54dff599.kai.scheduler"}))
NOTHING_ELSE: Final = Also()


class Lookout:
    """Looks for a KAI, as often as it is asked to. A lease is a sign of life if it was renewed since the last look.

    Renewed: its holder or its time of renewal changed. A label on a lease that KAI left changes the object, too.
    """

    def __init__(self, api: Api, also: Also = NOTHING_ELSE) -> None:
        self._api = api
        self._apps = {**_COMPONENTS, **also.apps}
        self._lease_names = _LEASES | also.leases
        #: The leases that somebody holds, by name, as they were read last.
        self._held: dict[str, Lease] = {}
        self._looks = 0
        self._elsewhere: tuple[str, ...] = ()

    async def look(self) -> Found:
        """Look once, at pods and leases. Raises ApiError."""
        found = await self._look_at_pods()
        renewed = await self.look_at_leases()
        return found if found.at_work else Found(renewed, found.elsewhere)

    async def look_at_leases(self) -> tuple[str, ...]:
        """Return what was renewed since the last look. Raises ApiError."""
        held = {lease.metadata.name: lease for lease in await self._leases() if lease.spec.holder_identity}
        before, self._held = self._held, held
        return tuple(
            f"lease {names.SYSTEM_NAMESPACE}/{name}"
            for name, lease in sorted(held.items())
            if name in before and _renewal(before[name]) != _renewal(lease)
        )

    @property
    def unsure_s(self) -> int:
        """For how long the leases have to be watched until it is known that nobody renews them, 0 without any."""
        return max((lease.spec.lease_duration_seconds or 0 for lease in self._held.values()), default=0)

    async def _look_at_pods(self) -> Found:
        if self._looks % ELSEWHERE_EVERY == 0:
            selector = f"app in ({', '.join(self._apps)})"
            pods = await _pods(self._api, selector, namespace="")
            self._elsewhere = tuple(
                self._components([p for p in pods if p.metadata.namespace != names.SYSTEM_NAMESPACE])
            )
        self._looks += 1
        at_work = self._components(await _pods(self._api, "app", namespace=names.SYSTEM_NAMESPACE))
        return Found(tuple(at_work), self._elsewhere)

    async def _leases(self) -> list[Lease]:
        listed = (await self._api.list(LEASES, namespace=names.SYSTEM_NAMESPACE, skip_undecodable=True)).items
        known = self._lease_names
        return [each for each in listed if each.metadata.name in known or each.metadata.name.startswith(_SHARD_LEASE)]

    def _components(self, pods: Sequence[Pod]) -> list[str]:
        return [f"pod {pod.metadata.namespace}/{pod.metadata.name}" for pod in pods if self._is_component(pod)]

    def _is_component(self, pod: Pod) -> bool:
        """Whether a pod that may still run, or has not started yet, is one that acts on pods and GPUs."""
        app = (pod.metadata.labels or {}).get("app", "")
        image = _SCHEDULER_IMAGE if app.startswith(_SCHEDULER_APP) else self._apps.get(app)
        return pod.status.phase not in _ENDED and any(_image_name(one) == image for one in pod.spec.containers or ())


async def look_for_kai(api: Api, also: Also = NOTHING_ELSE) -> Found:
    """Look what of KAI is at work. Raises ApiError.

    Takes no time where KAI never was; where it left a lease with a holder, as long as that lease lasts.
    """
    lookout = Lookout(api, also)
    # Pods say it at once; leases have to be watched for a while.
    found = await lookout.look()
    renewed = found.at_work
    for _ in range(round(lookout.unsure_s / _POLL_S)):
        if renewed:
            break
        await anyio.sleep(_POLL_S)
        renewed = await lookout.look_at_leases()
    return Found(renewed, found.elsewhere)


def sentence(found: Sequence[str]) -> str:
    """Say why Moorage does not start."""
    return (
        f"KAI Scheduler is at work in this cluster ({', '.join(found)}), and two can't share pods and GPUs: "
        "stop it first (docs/migrating/kai.md)"
    )


async def _pods(api: Api, selector: str, *, namespace: str) -> list[Pod]:
    return (await api.list(PODS, namespace=namespace, label_selector=selector, skip_undecodable=True)).items


def _renewal(lease: Lease) -> tuple[str | None, str | None]:
    return lease.spec.holder_identity, lease.spec.renew_time


def _image_name(container: Container) -> str:
    """Return ``binder`` of ``registry:5000/kai-scheduler/binder:v0.14@sha256:...``."""
    return container.image.partition("@")[0].rpartition("/")[2].partition(":")[0]
