"""What faults strike: the parts of a simulated cluster as a fault sees them, and what all faults have in common."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeVar

import anyio
import msgspec

from admission.policies import Identities
from kube.client import errors
from kube.client.api import Api
from kube.client.resources import PODS
from kube.client.retry import Retry
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Listener, RepeatRule, RequestRule, ReviewRule, WatchRule
from simulator.apiserver.server import MemoryApiServer
from simulator.mig.nodes import SlicedRuntime
from simulator.nodes.kubelet import Kubelet
from simulator.replicas import BINDER, Component
from simulator.world import World
from verification.hostile.versions import Versions
from wire import names
from wire.core import Pod

#: The hands of the faults: a controller of Kubernetes, which the policies on reservations let through.
HOSTILE: Final = Identities().life_cycle_users[0]
#: Whom the policies take for a component of Moorage (simulator/replicas.py, is_ours).
LAWLESS: Final = f"{BINDER}@hostile"
#: Who is never struck by a fault of requests or watches: the checker's eyes, users (their troubles are no test of
#: ours), and the faults themselves.
SPARED: Final = frozenset({"observer", "user", HOSTILE, LAWLESS})
READS: Final = frozenset({"get", "list", "watch"})

_AGAIN_S: Final = 1.0
_LOOK_S: Final = 0.1

T = TypeVar("T")


@dataclass(slots=True)
class Ground:
    """One for a whole run, made when the cluster is ready: ``start_s`` is the event loop's time of a fault's 0."""

    world: World
    versions: Versions = field(default_factory=Versions)
    #: Nodes whose agents make MIG slices, by name.
    sliced: Mapping[str, SlicedRuntime] = field(default_factory=dict)
    start_s: float = field(default_factory=anyio.current_time)
    #: Components that a fault has crashed and not yet started again.
    _down: set[str] = field(default_factory=set)

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def server(self) -> MemoryApiServer:
        """The API server."""
        return self.world.server

    @property
    def api(self) -> Api:
        """Calls that no fault strikes: those of administrators and of Kubernetes' own controllers."""
        return Api(self.server.transport(HOSTILE), retry=Retry(random.Random(HOSTILE)))

    @property
    def lawless(self) -> Api:
        """Calls that no policy stops either: those of an administrator without policies."""
        return Api(self.server.transport(LAWLESS), retry=Retry(random.Random(LAWLESS)))

    @property
    def components(self) -> Mapping[str, Component]:
        """The processes of Moorage by name, which is also their user name on the API server."""
        return self.world.components

    def node(self, name: str) -> Kubelet | None:
        """Return a node; None where a smaller cluster lacks it: the fault then strikes nothing."""
        return self.world.nodes.kubelets.get(name)

    def dice(self, kind: str, seed: int) -> random.Random:
        """Return the random source of one fault."""
        return random.Random(f"{kind}/{seed}")

    async def reservations(self) -> list[Pod]:
        """Return the reservation pods that are not being deleted, by name."""
        listing = await self.api.list(PODS, namespace=names.RESERVATION_NAMESPACE, skip_undecodable=True)
        ours = [pod for pod in listing.items if (pod.metadata.labels or {}).get(names.APP_LABEL)]
        return [pod for pod in ours if not pod.metadata.deletion_timestamp]

    # --- when --------------------------------------------------------------------------------------------------------

    async def wait_until(self, at_s: float) -> None:
        """Wait until this many seconds after the start; no longer when they are over."""
        await anyio.sleep_until(self.start_s + at_s)

    def left_s(self, end_s: float) -> float:
        """Return how many seconds are left until ``end_s`` after the start."""
        return max(0.0, self.start_s + end_s - anyio.current_time())

    # --- rules, in force inside of the block -------------------------------------------------------------------------

    @contextmanager
    def requests(self, rule: RequestRule) -> Iterator[None]:
        """Have a rule for requests. It is asked before those that came earlier."""
        with _among(self.server.faults.on_request, rule):
            yield

    @contextmanager
    def reviews(self, rule: ReviewRule) -> Iterator[None]:
        """Have a rule for what the API server asks webhooks. It is asked before those that came earlier."""
        with _among(self.server.faults.on_review, rule):
            yield

    @contextmanager
    def lines(self, rule: WatchRule) -> Iterator[None]:
        """Have a rule that holds watch lines back."""
        with _among(self.server.faults.on_watch_line, rule):
            yield

    @contextmanager
    def repeats(self, rule: RepeatRule) -> Iterator[None]:
        """Have a rule that repeats watch lines."""
        with _among(self.server.faults.on_watch_repeat, rule):
            yield

    @contextmanager
    def answers(self, listener: Listener) -> Iterator[None]:
        """Be told of every request that was carried out."""
        with _among(self.server.faults.on_answer, listener):
            yield

    # --- processes ---------------------------------------------------------------------------------------------------

    def crash(self, component: Component) -> bool:
        """Kill a component, from any task; False when another fault has done so already."""
        if component.name in self._down:
            return False
        self._down.add(component.name)
        component.crash()
        return True

    async def start_again(self, component: Component, *, pause_s: float) -> None:
        """Start a component that ``crash`` killed, after a pause."""
        await self.world.restart(component, pause_s=pause_s)
        self._down.discard(component.name)

    # --- calls -------------------------------------------------------------------------------------------------------

    async def insist(self, act: Callable[[], Awaitable[T]]) -> T | None:
        """Await ``act()`` until it is done; None when what it is about is gone."""
        while True:
            try:
                return await act()
            except (errors.NotFound, errors.Conflict):
                return None
            except errors.ApiError:
                await anyio.sleep(_AGAIN_S)

    async def first_reservation(self, wanted: Callable[[Pod], bool], *, pick: int, for_s: float) -> Pod | None:
        """Wait up to ``for_s`` for reservation pods as wanted; return the ``pick``-th of them, counted round."""
        with anyio.move_on_after(for_s):
            while True:
                found = [pod for pod in await self.reservations() if wanted(pod)]
                if found:
                    return found[pick % len(found)]
                await anyio.sleep(_LOOK_S)
        return None


def is_struck(call: Call, user: str) -> bool:
    """Whether a fault for ``user`` ("": everybody who may be struck) concerns a request."""
    return call.user == user if user else call.user not in SPARED


@contextmanager
def _among(rules: list[T], rule: T) -> Iterator[None]:
    rules.insert(0, rule)
    try:
        yield
    finally:
        # By identity: two equal faults have equal rules.
        rules[:] = [each for each in rules if each is not rule]


#: What can't be held for the tenants of a device that their reservation lost, while they live: it may be given to
#: others (S2, and with several replicas S10, which says no more), and the group that lost it takes nobody in (L1, L4).
LOST_DEVICE: Final = frozenset({"S2", "S10", "L1", "L4"})


class Timed(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind"
):
    """A fault: from ``at_s`` on, in seconds since the cluster was ready, for ``for_s`` seconds.

    Afterwards it is taken back, but for what it has done to objects. All else that happens follows from the fields,
    dice from ``seed``. Where a node or component of its name isn't there, a fault does nothing.
    """

    #: Invariants (docs/design/invariants.md) that nobody can hold under this fault; the docstring says why.
    unpromised: ClassVar[frozenset[str]] = frozenset()

    at_s: float
    for_s: float

    @property
    def kind(self) -> str:
        """The name by which it is switched on."""
        return str(self.__struct_config__.tag)

    @property
    def end_s(self) -> float:
        """When it is over."""
        return self.at_s + self.for_s

    async def strike(self, ground: Ground) -> None:
        """Wait for its time, let it happen, and return when it is over."""
        await ground.wait_until(self.at_s)
        await self._happen(ground)

    async def _happen(self, ground: Ground) -> None:
        """Let it happen from now on; return when it is over."""
        raise NotImplementedError
