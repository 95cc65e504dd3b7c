"""The controllers of Kubernetes that a simulated cluster has, beside those whose work the API server in memory does."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

import anyio
import msgspec

from admission.policies import Identities
from kube.client import errors
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import POD_DISRUPTION_BUDGETS
from kube.client.retry import Retry
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.types import ResourceType
from simulator.checks.checker import BUDGETS, PODS
from simulator.checks.evictions import is_healthy, selects
from simulator.controllers import claims
from simulator.controllers.claims import ClaimBinding, ClaimController
from wire import rfc3339
from wire.units import SECOND_NS

Json = Mapping[str, Any]
_log: Final = logging.getLogger(__name__)

#: As which controllers of Kubernetes are known to the API server.
USER: Final = Identities().life_cycle_users[0]
#: So long after a change it counts again; an eviction is answered by what it wrote last.
LATE_S: Final = 0.1
_AGAIN_S: Final = 1.0
#: An eviction that was allowed counts for so long, if its pod does not go.
_NOTED_S: Final = 120


class Disruptions:
    """The disruption controller, as far as evictions ask: writes how many pods of each budget may go now.

    Pods here have no controller that it knows, so budgets say ``minAvailable`` as a number: of other budgets the real
    one writes that it can't count their pods, and allows none. Without a budget it asks the API server for nothing.
    ``pods``: all that exist; ``now_s``: seconds since the epoch.
    """

    def __init__(self, api: Api, *, pods: Callable[[], Iterable[Json]], now_s: Callable[[], int]) -> None:
        self._api = api
        self._pods = pods
        self._now_s = now_s
        #: Namespace and name -> the budget as it is stored.
        self._budgets: dict[tuple[str, str], Json] = {}
        self._news = anyio.Event()

    def take(self, kind: ResourceType, raw: bytes, is_gone: bool) -> None:
        """Take an object as the API server stores it."""
        if kind.plural == BUDGETS:
            said: dict[str, Any] = msgspec.json.decode(raw)
            key = said["metadata"]["namespace"], said["metadata"]["name"]
            self._budgets.pop(key, None)
            if not is_gone:
                self._budgets[key] = said
            self._news.set()
        elif kind.plural == PODS and self._budgets:
            self._news.set()

    async def run(self) -> None:
        """Count after each change, until cancelled."""
        while True:
            await self._news.wait()
            await anyio.sleep(LATE_S)
            self._news = anyio.Event()
            for budget in list(self._budgets.values()):
                await self._count(budget)

    async def _count(self, budget: Json) -> None:
        status = self._status(budget)
        if status == {key: (budget.get("status") or {}).get(key) for key in status}:
            return
        meta = budget["metadata"]
        # Null takes away the pods that were noted and are noted no more.
        before = (budget.get("status") or {}).get("disruptedPods") or {}
        noted = {**dict.fromkeys(before), **status["disruptedPods"]}
        body = {"status": {**status, "disruptedPods": noted}}
        at = {"namespace": meta["namespace"], "resource_version": meta["resourceVersion"]}
        try:
            await self._api.patch(POD_DISRUPTION_BUDGETS, meta["name"], body, subresource="status", **at)
        except (errors.Conflict, errors.NotFound):
            self._news.set()
        except errors.ApiError as error:
            _log.warning("PodDisruptionBudget %s is not counted: %s", meta["name"], error)
            await anyio.sleep(_AGAIN_S)
            self._news.set()

    def _status(self, budget: Json) -> dict[str, Any]:
        meta, spec = budget["metadata"], budget.get("spec") or {}
        pods = [
            pod
            for pod in self._pods()
            if pod["metadata"].get("namespace") == meta["namespace"]
            and selects(spec.get("selector"), pod["metadata"].get("labels") or {})
        ]
        going = {pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")}
        noted = {
            name: at
            for name, at in ((budget.get("status") or {}).get("disruptedPods") or {}).items()
            if name in going and (rfc3339.parse_ns(at) or 0) // SECOND_NS + _NOTED_S > self._now_s()
        }
        healthy = sum(is_healthy(pod) and pod["metadata"]["name"] not in noted for pod in pods)
        said = spec.get("minAvailable")
        desired = said if isinstance(said, int) else len(pods)
        return {
            "observedGeneration": meta.get("generation", 0),
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": len(pods),
            "disruptionsAllowed": max(0, healthy - desired),
            "disruptedPods": noted,
        }


class KubeControllers:
    """``pods``: all that are there. ``rng``: for a purpose. ``begin`` runs what it is given until the cluster ends."""

    def __init__(
        self,
        server: MemoryApiServer,
        *,
        clock: Clock,
        pods: Callable[[], Iterable[Json]],
        rng: Callable[[str], random.Random],
        begin: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
    ) -> None:
        def api(user: str, purpose: str) -> Api:
            return Api(server.transport(user), retry=Retry(rng(purpose)))

        self.disruptions = Disruptions(api(USER, "disruptions"), pods=pods, now_s=lambda: clock.now_ns() // SECOND_NS)
        self.claims = ClaimBinding(api(claims.VOLUME_CONTROLLER, "claims"), begin=begin)
        self.resource_claims = ClaimController(api(claims.CLAIM_CONTROLLER, "resource-claims"), begin=begin)
        for one in (self.disruptions, self.claims, self.resource_claims):
            server.listen(one.take)
