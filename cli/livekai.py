"""A KAI Scheduler that is at work in this cluster: Moorage does not start beside it.

Its binder would carry out our BindRequests, and its start-up sync deletes running pods whose reservation it can't see;
its operator makes both anew (kai-contract, erratum 12). Its leader election is off by default, so its pods are looked
for (labels of contract 6.1), and its leases (6.4) for a KAI that runs outside of pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import anyio
import msgspec

from kube import errors
from kube.api import Api
from kube.resources import LEASES, PODS
from wire import names
from wire.core import Container, Pod

#: Label ``app`` of a component's pods -> what its image is called. A shard's scheduler has the shard's name behind it.
_COMPONENTS: Final[Mapping[str, str]] = {"kai-operator": "operator", "binder": "binder"}
_SCHEDULER_APP: Final = "kai-scheduler-"
_SCHEDULER_IMAGE: Final = "scheduler"
#: Held in the namespace of the release, of the operator, the binder, and the scheduler of the default shard.
_LEASES: Final = ("41fce092.run.ai", "2ad35f9c.kai.scheduler", names.SCHEDULER_NAME)
_POLL_S: Final = 1.0
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class Found(msgspec.Struct, frozen=True):
    """What was found, in words."""

    #: Surely at work: it stands where only administrators make things.
    at_work: tuple[str, ...] = ()
    #: Looks like a KAI that was installed elsewhere. Whoever may make pods can make one that does.
    elsewhere: tuple[str, ...] = ()


async def look_for_kai(api: Api) -> Found:
    """Look what of KAI is at work.

    Takes no time where KAI never was; where it left a lease with a holder, as long as that lease lasts.
    """
    selector = f"app in ({', '.join(_COMPONENTS)})"
    pods = [pod for pod in await _pods(api, selector, namespace="") if pod.metadata.namespace != names.SYSTEM_NAMESPACE]
    elsewhere = _components(pods)
    at_work = _components(await _pods(api, "app", namespace=names.SYSTEM_NAMESPACE))
    if not at_work:
        # Pods say it at once; leases have to be watched for a while.
        at_work = [f"lease {names.SYSTEM_NAMESPACE}/{name}" for name in _LEASES if await _is_renewed(api, name)]
    return Found(tuple(at_work), tuple(elsewhere))


def sentence(found: Sequence[str]) -> str:
    """Say why Moorage does not start."""
    return (
        f"KAI Scheduler is at work in this cluster ({', '.join(found)}), and two can't share pods and GPUs: "
        "stop it first (docs/migrating/kai.md)"
    )


async def _pods(api: Api, selector: str, *, namespace: str) -> list[Pod]:
    return (await api.list(PODS, namespace=namespace, label_selector=selector, skip_undecodable=True)).items


def _components(pods: Sequence[Pod]) -> list[str]:
    return [f"pod {pod.metadata.namespace}/{pod.metadata.name}" for pod in pods if _is_component(pod)]


def _is_component(pod: Pod) -> bool:
    """Whether a pod that may still run, or has not started yet, is one that acts on pods and GPUs."""
    app = (pod.metadata.labels or {}).get("app", "")
    image = _SCHEDULER_IMAGE if app.startswith(_SCHEDULER_APP) else _COMPONENTS.get(app)
    return pod.status.phase not in _ENDED and any(_image_name(one) == image for one in pod.spec.containers or ())


def _image_name(container: Container) -> str:
    """Return ``binder`` of ``registry:5000/kai-scheduler/binder:v0.14@sha256:...``."""
    return container.image.partition("@")[0].rpartition("/")[2].partition(":")[0]


async def _is_renewed(api: Api, name: str) -> bool:
    """Whether somebody renews a lease within its duration. No clocks are compared."""
    try:
        first = await api.get(LEASES, name, namespace=names.SYSTEM_NAMESPACE)
        if not first.spec.holder_identity:
            return False
        for _ in range(max(1, round((first.spec.lease_duration_seconds or 0) / _POLL_S))):
            await anyio.sleep(_POLL_S)
            lease = await api.get(LEASES, name, namespace=names.SYSTEM_NAMESPACE)
            if lease.metadata.resource_version != first.metadata.resource_version:
                return bool(lease.spec.holder_identity)
    except errors.NotFound:
        pass
    return False
