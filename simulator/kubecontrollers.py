"""The controllers of Kubernetes that a simulated cluster has, beside those whose work the API server in memory does."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.retry import Retry
from kube.memory.server import MemoryApiServer
from simulator import claimbinding, claimcontroller, disruptions
from simulator.claimbinding import ClaimBinding
from simulator.claimcontroller import ClaimController
from simulator.disruptions import Disruptions, Json


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

        self.disruptions = Disruptions(
            api(disruptions.USER, "disruptions"), pods=pods, now_s=lambda: clock.now_ns() // 10**9
        )
        self.claims = ClaimBinding(api(claimbinding.USER, "claims"), begin=begin)
        self.resource_claims = ClaimController(api(claimcontroller.USER, "resource-claims"), begin=begin)
        for one in (self.disruptions, self.claims, self.resource_claims):
            server.listen(one.take)
