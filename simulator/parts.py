"""Who plays the components of a simulated cluster: Moorage's own, unless a test hands in others.

That is how it is shown that the simulation finds faults: a collaborator with a planted one takes the real one's place,
and the product needs no switch for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from anyio.abc import TaskStatus

from admission.review import PodAdmission
from admission.tracing import Traces
from binder.app import Binder
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.transport import Transport
from kube.events import EventRecorder
from kube.lead.replica import Replica
from kube.memory.transport import MemoryTransport
from scheduler.app import Scheduler
from simulator.hooks import Hook, hooks
from simulator.kubelet import Kubelet
from simulator.nodeagent import NodeAgent
from simulator.policies import Policy, policies


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
    traces: Traces | None = None
    #: What does the steps of agents that make MIG slices; None: nodeagent.mig.partitioning.Carver, loaded for them
    #: only.
    carver: type[Any] | None = None


PRODUCT: Final = Parts()
