"""Who plays the components of a simulated cluster, with admission as webhooks: Moorage's own, unless a test has others.

So it is shown that the simulation finds faults: a collaborator with a planted one takes the real one's place, and the
product needs no switch for it.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from anyio.abc import TaskGroup, TaskStatus

from admission.manifests import ADOPTION, EXEMPT
from admission.namespaces import NamespaceChoices
from admission.objects.review import KnownQueues, ObjectAdmission
from admission.review import PodAdmission
from admission.settings import Settings as AdmissionSettings
from admission.tracing import PodTraces
from binder.app import Binder
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import NAMESPACES
from kube.client.retry import Retry
from kube.client.transport import Transport
from kube.events import EventRecorder
from kube.lead.replica import Replica
from kube.watch.reflector import Reflector
from scheduler.app import Scheduler
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.transport import MemoryTransport
from simulator.nodes.kubelet import Kubelet
from simulator.nodes.node_set import NodeAgent
from simulator.policies import Policy, policies
from wire import names

Review = dict[str, Any]

#: Where the webhooks are not asked: Moorage's own namespace and the cluster's (kai-contract 1.3).
_LEFT_OUT = frozenset({"kube-system", names.SYSTEM_NAMESPACE, names.RESERVATION_NAMESPACE})


@dataclass(slots=True)
class Hook:
    """One webhook: for pods of our scheduler, or (ADOPTION) for others where their namespace adopts them."""

    name: str
    mutating: bool
    resource: str
    operations: tuple[str, ...]
    answer: Callable[[Review], Review]
    is_optional: bool = False

    def matches(self, obj: dict[str, Any], namespace_labels: dict[str, str]) -> bool:
        """Apply the selectors and match conditions of the real configurations."""
        if namespace_labels.get("kubernetes.io/metadata.name") in _LEFT_OUT:
            return False
        is_ours = bool((obj.get("spec") or {}).get("schedulerName") == names.SCHEDULER_NAME)
        return not is_ours and namespace_labels.get(names.ADOPT) == "true" if self.name == ADOPTION else is_ours

    async def review(self, admission_review: Review) -> Review:
        """Answer a review."""
        return self.answer(admission_review)


@dataclass(slots=True)
class ObjectHook:
    """A webhook of Queues or PodGroups. While it does not answer, objects are stored unchecked."""

    name: str
    resource: str
    operations: tuple[str, ...]
    prepare: Callable[[], Awaitable[Callable[[Review], Review]]]
    mutating: bool = False
    is_optional: bool = True

    def matches(self, obj: dict[str, Any], namespace_labels: dict[str, str]) -> bool:
        """Apply the selectors; whether the spec changes is seen in the review."""
        return namespace_labels.get("kubernetes.io/metadata.name") not in EXEMPT

    async def review(self, admission_review: Review) -> Review:
        """Answer a review; a write that leaves the spec as it is needs nobody's."""
        request = admission_review["request"]
        old, new = request["oldObject"], request["object"]
        if old is not None and new is not None and old.get("spec") == new.get("spec"):
            return {"response": {"uid": request["uid"], "allowed": True}}
        judge = await self.prepare()
        return judge(admission_review)


def object_hooks(admission: ObjectAdmission) -> tuple[ObjectHook, ...]:
    """Return the webhooks of Queues and PodGroups."""

    async def of_group() -> Callable[[Review], Review]:
        return admission.of_group

    return (
        ObjectHook("queues.moorage.dev", "queues", ("CREATE", "UPDATE", "DELETE"), admission.knowing_queues),
        ObjectHook("podgroups.moorage.dev", "podgroups", ("CREATE", "UPDATE"), of_group),
    )


def hooks(admission: PodAdmission) -> tuple[Hook, ...]:
    """Return the webhooks in the order in which they are asked: adoption, mutation, validation."""
    return (
        Hook(ADOPTION, True, "pods", ("CREATE",), admission.adopting),
        Hook("mutate.moorage.dev", True, "pods", ("CREATE",), admission.mutating),
        Hook("validate.moorage.dev", False, "pods", ("CREATE", "UPDATE"), admission.validating),
    )


class Runnable(Replica, Protocol):
    """A component that is ready to run, alone or as one of several replicas."""

    async def run(self, *, task_status: TaskStatus[None] = ...) -> None:
        """Run until cancelled, without an election; started when it is ready to work."""
        ...


class Make(Protocol):
    """Makes a scheduler or a binder."""

    def __call__(self, api: Api, *, settings: Any, clock: Clock, rng: random.Random, events: EventRecorder) -> Runnable:
        """Make one incarnation."""
        ...


def _as_it_is(_user: str, transport: MemoryTransport) -> Transport:
    return transport


@dataclass(frozen=True, slots=True)
class Parts:
    """``wire`` is what stands between a component (its user's name) and the API server.

    ``policies`` makes the API server's own guards, given who is one of ours. ``traces`` follows what admission does.
    """

    scheduler: Make = Scheduler
    binder: Make = Binder
    hooks: Callable[[PodAdmission], Sequence[Hook]] = hooks
    policies: Callable[[Callable[[str], bool]], Iterable[Policy]] = policies
    wire: Callable[[str, MemoryTransport], Transport] = _as_it_is
    agent: Callable[[Api, Kubelet], NodeAgent] = NodeAgent
    traces: PodTraces | None = None
    #: What does the steps of agents that make MIG slices; None: nodeagent.mig.partitioning.Partitioner, loaded for them
    #: only.
    partitioner: type[Any] | None = None


PRODUCT: Final = Parts()


async def start_admission(
    server: MemoryApiServer,
    group: TaskGroup,
    *,
    settings: AdmissionSettings,
    checks_queues: bool,
    rng: Callable[[str], random.Random],
    is_ours: Callable[[str], bool],
    parts: Parts = PRODUCT,
) -> None:
    """Put admission and the policies in front of an API server. ``rng``: for a purpose; ``is_ours``: of users."""
    choices = NamespaceChoices(settings.choices)
    api = Api(parts.wire("admission", server.transport("admission")), retry=Retry(rng("admission")))
    await group.start(Reflector(api, NAMESPACES, choices, rng=rng("admission")).run)
    admission = PodAdmission(settings, rng=rng("names"), choices_of=choices, traces=parts.traces)
    for hook in parts.hooks(admission):
        server.add_webhook(hook)
    if checks_queues:
        for checked in object_hooks(ObjectAdmission(KnownQueues(api))):
            server.add_webhook(checked)
    for policy in parts.policies(is_ours):
        server.add_webhook(policy)
