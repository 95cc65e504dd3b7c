"""Faulty schedulers that count queues wrong (S6, L1), evict wrong, or leave their node pool, and a faulty desk.

Room is made past budgets, for anybody, too early, too much, from whom it may not; pods, queues or nodes of another pool
are used; the desk joins whatever reservation has the group's name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec
from typing_extensions import override

from binder.bind.join_batches import JoinBatcher
from gpu.reservation import Reservation
from kube.client.transport import Response
from scheduler.core.assumed.nominations import Nominations
from scheduler.core.cluster import Cluster
from scheduler.core.convert.pod_groups import is_preemptible, queue_of
from scheduler.core.decide.allowance import LIMITS, Limits
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.facts import Facts
from scheduler.core.model.plan import GiveUp, Plan
from scheduler.core.model.preemption import Action, Ended, Found, NoVictims
from scheduler.core.model.quota import WITHOUT_END, QueueRecord, Resources
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord, SeenPod
from scheduler.core.model.seen_pods import Elsewhere
from scheduler.core.model.settings import NodePool, Settings
from scheduler.core.model.steps import Steps
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.nodes.node_usage import Charge, NominatedPlace
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.search import finding_victims
from scheduler.core.preemption.trial import Trial
from scheduler.core.queues.accounts import Accounts, Use, over_limit
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.reserved_nodes import NodeReserve
from scheduler.core.queues.tree import Row, Tree
from scheduler.core.scheduling_queue.held_back import Item, OverQuota, Room
from sharing.outcome import Failed
from simulator.checks import nominations
from tests.simulation.planted.wires import Rewriting, Wire
from wire import names, rfc3339
from wire.core import Pod

#: A hundredth of a GPU, in nano.
_HUNDREDTH = 10**7


def counting(queues: Callable[[Callable[[], None]], Queues]) -> type[Cluster]:
    """A cluster with these queues."""

    class Counting(Cluster):
        def __init__(self, settings: Settings) -> None:
            super().__init__(settings)
            self.queues = queues(self._changed)

    return Counting


class ForgetsWhatIsOnItsWay(Queues):
    """What is on its way to be bound counts when it is seen bound."""

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
        return super().row(pod, group, (), node, is_victim=is_victim)


class CountsByTheCurrentLabel(Queues):
    """A pod that runs counts for what its labels and its PodGroup say now, whatever it was placed for."""

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
        if pod.charged is not None:
            queue, said = queue_of(pod.labels), pod.labels.get(names.PREEMPTIBILITY_LABEL)
            pod = msgspec.structs.replace(pod, charged=None, queue=queue, is_preemptible=is_preemptible(said))
        return super().row(pod, group, charges, node, is_victim=is_victim)


class LooksAtLeavesOnly(Queues):
    """A limit holds for the queue that has it, and not for all below it."""

    @override
    def accounts(self) -> Accounts:
        made = super().accounts()
        return _Leaves(made.tree, made.total, made.of)


class _Leaves(Accounts):
    @override
    def refusal(self, use: Use) -> Verdict | None:
        refused = super().refusal(use)
        leaf = self.tree.find(use.queue)
        if refused is None or leaf is None or refused.code is not Code.OVER_LIMIT:
            return refused
        return refused if over_limit(leaf.record, self.of[leaf.number].held, use.amounts) else None


class RoundsAmounts(Queues):
    """Limits and quotas are read in hundredths of a GPU, and rounded up."""

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__(changed)
        self.records = _Rounded(self._queue_changed, read_changed=self._forget_tree)


class _Rounded(Facts[str, QueueRecord]):
    @override
    def put(self, fact: QueueRecord) -> None:
        rounded = {field: _in_hundredths(getattr(fact, field)) for field in ("limit", "quota")}
        super().put(msgspec.structs.replace(fact, **rounded))


def _in_hundredths(amounts: Resources) -> Resources:
    if amounts.gpu_nano >= WITHOUT_END.gpu_nano:
        return amounts
    return amounts._replace(gpu_nano=-(-amounts.gpu_nano // _HUNDREDTH) * _HUNDREDTH)


class NeverWakes(Cluster):
    """Whoever a queue holds back sleeps until a Queue object changes."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.scheduling_queue.over_quota = _SoundAsleep()


class _SoundAsleep(OverQuota):
    @override
    def due(self, tree: Tree, cards: Hashable, accounts: Callable[[], Room], *, version: int = 0) -> list[Item]:
        return super().due(tree, cards, _Full, version=version)

    @override
    def outdated(self, count: int) -> list[Item]:
        return []


class _Full:
    def room_for(self, use: Use) -> int:
        return 0


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


#: The value of the label of the pool whose scheduler is faulty, and the user that it is.
POOL = "a"
USER = f"scheduler-{POOL}"


class TakesTenants(Cluster):
    """A pod that runs is of the pool of its node, so it goes for pods of a pool that is not its own."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._elsewhere = _ByNode(settings.pool, self._pod_groups, self._nodes)


class _ByNode(Elsewhere):
    def __init__(
        self, pool: NodePool | None, groups: Mapping[tuple[str, str], PodGroupRecord], nodes: Mapping[str, NodeRecord]
    ) -> None:
        super().__init__(pool, groups)
        self._nodes = nodes

    @override
    def _is_here(self, pod: PodRecord) -> bool:
        node = self._nodes.get(pod.node)
        if self._pool is None or node is None:
            return super()._is_here(pod)
        return self._pool.takes(node.labels)


@dataclass(slots=True)
class _Labelling(Rewriting):
    """A scheduler takes the objects of a kind for those of its pool."""

    kind: ClassVar[str]

    @override
    def rewritten(self, text: bytes) -> bytes:
        if f'"{self.kind}'.encode() not in text:
            return text
        told = msgspec.json.decode(text)
        if told.get("kind") == f"{self.kind}List":
            found: list[dict[str, Any]] = told["items"]
        else:
            one = told.get("object", told)
            found = [one] if one.get("kind") == self.kind else []
        for each in found:
            each["metadata"].setdefault("labels", {})[names.NODE_POOL_LABEL] = POOL
        return msgspec.json.encode(told)


class UsesAllQueues(_Labelling):
    """It uses the Queues of all pools, so each of two schedulers gives out all of a limit."""

    kind = "Queue"


class UsesAllNodes(_Labelling):
    """It places pods on the nodes of all pools."""

    kind = "Node"


class LooksUpWithoutNode(JoinBatcher):
    """R1 once more: a reservation is looked up by its group, and not by its node."""

    @override
    async def _held(self, group: str, node: str, batch: Sequence[Any]) -> Reservation | Failed:
        return self._view.reservations.get(group) or await super()._held(group, node, batch)
