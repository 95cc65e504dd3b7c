"""Faulty schedulers that make room wrong: past budgets, for anybody, too early, too much, from whom they may not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import msgspec
from typing_extensions import override

from kube.client.transport import Response
from scheduler.core.assumed.nominations import Nominations
from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import LIMITS, Limits
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.plan import GiveUp, Plan
from scheduler.core.model.preemption import Action, Ended, Found, NoVictims
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord, SeenPod
from scheduler.core.model.settings import Settings
from scheduler.core.model.steps import Steps
from scheduler.core.nodes.node_usage import Charge, NominatedPlace
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.search import finding_victims
from scheduler.core.preemption.trial import Trial
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.reserved_nodes import NodeReserve
from scheduler.core.queues.tree import Row
from simulator.checks import nominations
from tests.simulation.planted.wires import Wire
from wire import rfc3339
from wire.core import Pod

_EVICTION: Final = "/eviction"
_RECORD: Final = f"/configmaps/{nominations.NAME}"
_NS: Final = 1_000_000_000
_TIMEOUT_S: Final = 10.0
#: After this many failures an attempt is not tried again for minutes.
_FAILURES: Final = 8


class KeepsNothing(Cluster):
    """Nodes are not charged with what nominations keep."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.commits.nominations.__class__ = _KeepingNothing


class _KeepingNothing(Nominations):
    __slots__ = ()

    @override
    def kept_at(self, node: str) -> list[NominatedPlace]:
        return [msgspec.structs.replace(room, places=()) for room in super().kept_at(node)]

    @override
    def all_kept(self) -> Iterator[tuple[str, NominatedPlace]]:
        for node, room in super().all_kept():
            yield node, msgspec.structs.replace(room, places=())


class DeletesVictims(Wire):
    """An eviction is sent as the deletion that it comes to, so budgets are not asked."""

    @override
    async def request(self, method: str, path: str, **rest: Any) -> Response:
        if not path.endswith(_EVICTION):
            return await self.inner.request(method, path, **rest)
        said = msgspec.json.decode(rest["body"]).get("deleteOptions") or {}
        body = msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", **said})
        return await self.inner.request("DELETE", path.removesuffix(_EVICTION), **{**rest, "body": body})


class EvictsFirst(Wire):
    """Victims are evicted before the record that names them is written."""

    @override
    async def request(self, method: str, path: str, **rest: Any) -> Response:
        if path.endswith(_RECORD) and method != "GET" and rest.get("body"):
            for victim in _victims(rest["body"]):
                await self._evict(victim)
        return await self.inner.request(method, path, **rest)

    async def _evict(self, victim: nominations.Victim) -> None:
        namespace, _, name = victim.key.partition("/")
        said = {"metadata": {"name": name}, "deleteOptions": {"preconditions": {"uid": victim.uid}}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}{_EVICTION}"
        await self.inner.request("POST", path, query={}, body=msgspec.json.encode(said), timeout_s=_TIMEOUT_S)


def _victims(body: bytes) -> Iterator[nominations.Victim]:
    for nomination in nominations.nominations(msgspec.json.decode(body)):
        yield from nomination.victims


class DropsWhatIsFree(Cluster):
    """A nomination is over as soon as all its victims are gone; its pod backs off as after failed attempts."""

    @override
    def decide(self, now_ns: int, limits: Limits = LIMITS, *, wall_s: int = 0) -> Plan:
        standing, over = self.commits.nominations, list[GiveUp]()
        for nomination in standing.all():
            if not standing.is_ending(nomination.id) and not any(
                self.pod(victim.pod_uid) for victim in nomination.victims
            ):
                over.append(GiveUp(nomination.id, Ended.PLACE_TAKEN))
                for place in nomination.places:
                    for _ in range(_FAILURES):
                        self.commits.failed(place.pod_uid, place.node, "dropped", now_ns=now_ns)
        plan = super().decide(now_ns, limits, wall_s=wall_s)
        return msgspec.structs.replace(plan, entries=(*over, *plan.entries)) if over else plan


class CountsVictims(Queues):
    """Pods that have to go count in their queues until they are gone."""

    @override
    def row(
        self,
        pod: PodRecord,
        group: PodGroupRecord | None,
        charges: Collection[Charge],
        node: NodeRecord | None,
        *,
        is_victim: bool = False,
    ) -> Row | None:
        return super().row(pod, group, charges, node)


class TakesInPart(Cluster):
    """Of a gang that has to go whole one pod stays."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, find_victims=_in_part)


def _in_part(need: Need, trial: Trial, actions: Sequence[Action]) -> Steps[Found | NoVictims]:
    found = yield from finding_victims(need, trial, actions)
    if isinstance(found, NoVictims):
        return found
    spared = [msgspec.structs.replace(unit, pods=unit.pods[: max(1, len(unit.pods) - 1)]) for unit in found.units]
    return msgspec.structs.replace(found, units=tuple(spared))


class AgesFromCreation(Cluster):
    """A group runs since it was created."""

    @override
    def read_pod(self, pod: Pod) -> SeenPod:
        seen = super().read_pod(pod)
        if seen.record is None or not seen.record.started_s:
            return seen
        created_s = (rfc3339.parse_ns(seen.record.created) or 0) // _NS
        return msgspec.structs.replace(seen, record=msgspec.structs.replace(seen.record, started_s=created_s))


class _Blocking(NodeReserve, frozen=True, gc=False, kw_only=True):
    """It keeps everybody off but its nominated pod's queue."""

    @override
    def keeps_off(self, *, queue: str, rank: Any, is_starved: bool, end_s: int) -> bool:
        return super().keeps_off(queue=queue, rank=rank, is_starved=False, end_s=end_s)


class KeepsOffTheStarved(Cluster):
    """A queue that is short of its quota is kept off nodes that are kept for others."""

    @override
    def snapshot(self) -> Snapshot:
        reserves = self.scheduling_queue.reserves
        blocking = tuple(_Blocking(**msgspec.structs.asdict(reserve)) for reserve in reserves.of)
        self.scheduling_queue.reserves = msgspec.structs.replace(reserves, of=blocking)
        return super().snapshot()
