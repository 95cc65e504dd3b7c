"""A cluster that was read once, counted as the scheduler counts it, for what is shown of queues. Pure.

Claims of volumes and Jobs of pods are not read, nor Topologies where none are given, nor ResourceClaims where no
``devices`` are given. They may keep a pod waiting, but change nothing about what it counts for: the order of queues is
shown as if they kept nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from runtime.scheduler_pods import SchedulerPods, Unsure
from scheduler.core.cluster import Cluster
from scheduler.core.convert import pod_groups
from scheduler.core.convert.devices import device_class_record, slice_record, taint_rule_record
from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.convert.selectors import budget_record
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.groups.priority import priority_class_record
from scheduler.core.model.devices import DeviceClassRecord, ResourceClaimRecord, SliceRecord, TaintRuleRecord
from scheduler.core.model.preemption import PreemptionFacts
from scheduler.core.model.records import SeenPod
from scheduler.core.model.settings import NodePool, Settings
from scheduler.core.preemption.nomination_record import evictions
from scheduler.core.queues.use_over_time import NOT_COUNTED
from ui.queues.pools import DEFAULT, About, EvictionsRead, Found, Pools, pool_of, without_classes
from wire import names
from wire.core import Pod
from wire.crds.podgroup import PodGroup, SubGroup, TopologyConstraint
from wire.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """What ResourceClaims get: records of each kind. A kind that the cluster does not have has none.

    ``rules``: None where there may be some that were not read. ``serves_rules``: the cluster knows DeviceTaintRules.
    """

    classes: Sequence[DeviceClassRecord] = ()
    slices: Sequence[SliceRecord] = ()
    claims: Sequence[ResourceClaimRecord] = ()
    rules: Sequence[TaintRuleRecord] | None = ()
    serves_rules: bool = True

    def put(self, cluster: Cluster, *, follows_taint_rules: bool) -> None:
        """Let a cluster have read them. ``follows_taint_rules``: the rules count.

        A scheduler that follows rules of which its cluster does not know lets claims wait, as one that can't read them.
        """
        inventory = cluster.claims.inventory
        inventory.classes.replace(self.classes)
        if follows_taint_rules and not self.serves_rules:
            inventory.rules.expect()
        elif follows_taint_rules:
            inventory.rules.replace(self.rules or ())
        inventory.slices.replace(self.slices)
        # A list does not say in which order devices were allocated.
        with cluster.claims.order.listing():
            cluster.claims.claims.replace(self.claims)


def recorded(
    *,
    classes: Iterable[DeviceClass],
    slices: Iterable[ResourceSlice],
    claims: Iterable[ResourceClaim],
    rules: Iterable[DeviceTaintRule] | None,
) -> Devices:
    """Return records of objects that were read already. ``rules``: None where there are some that were not read."""
    return Devices(
        classes=list(map(device_class_record, classes)),
        slices=list(map(slice_record, slices)),
        claims=list(map(resource_claim_record, claims)),
        rules=None if rules is None else list(map(taint_rule_record, rules)),
    )


#: Nothing that is read once has a past: no back-off, no deadline.
NOW_NS: Final = 0
_RULES_UNKNOWN: Final = (
    "whether the scheduler follows DeviceTaintRules (--device-taint-rules): {why}, and they do not count here"
)
_RULES_UNREAD: Final = (
    "DeviceTaintRules, which do not count here; whether the scheduler follows them (--device-taint-rules): {why}"
)
_RULES_MISSED: Final = "DeviceTaintRules, which the scheduler follows (--device-taint-rules)"


class Known(msgspec.Struct, frozen=True):
    """``snapshot``: what a decision would read. ``unread``: what could not be read, and so is missing in it.

    ``mounting``: pods (UIDs) that wait and mount claims, which are not read; ``claiming``: the same of ResourceClaims.
    ``pool``: the node pool of the scheduler that it is counted for; ``pools``: of all objects, None where it is counted
    for all of them. ``has_doubtful_rules``: there may be DeviceTaintRules, and it is not known whether they count.
    ``placed_anywhere``: PodGroups (namespace, name) whose Topology was not read: they count as if they named none.
    ``knows_budgets``: PodDisruptionBudgets were read; ``knows_evictions``: the record of evictions was.
    """

    snapshot: Snapshot
    unread: tuple[str, ...] = ()
    mounting: frozenset[str] = frozenset()
    claiming: frozenset[str] = frozenset()
    pool: str = DEFAULT
    pools: Pools | None = None
    has_doubtful_rules: bool = False
    placed_anywhere: frozenset[tuple[str, str]] = frozenset()
    knows_budgets: bool = False
    knows_evictions: bool = True

    def is_for(self, about: About) -> bool:
        """Whether it is counted for the scheduler that decides on this object."""
        return self.pools is None or self.pools.of(about) == self.pool


class Counting:
    """Takes objects of all kinds that queues depend on. ``may_preempt``: pods may be evicted for others.

    ``about``: what is asked about, so that the cluster is counted for the scheduler that decides on it; None: for all.
    ``devices``: what ResourceClaims get; None: not read, and pods are counted as if they had no ResourceClaims. So they
    are where rules were not read that the scheduler follows.
    """

    def __init__(
        self, *, may_preempt: bool = False, about: About | None = None, devices: Devices | None = None
    ) -> None:
        self._settings = Settings(preemption=may_preempt)
        self._about = about
        self._cluster = Cluster(self._settings)
        self._read = self._cluster.list_reader()
        self._devices = devices
        self._schedulers = SchedulerPods()
        self._mounting: set[str] = set()
        self._claiming: set[str] = set()

    def read_pod(self, pod: Pod) -> SeenPod:
        """Keep of a pod what is counted."""
        self._schedulers.note(pod)
        seen = self._read(pod)
        record = seen.record
        if record is None:
            return seen
        if record.claims or record.job:
            if record.claims and not record.node:
                self._mounting.add(seen.uid)
            record = msgspec.structs.replace(record, claims=(), job="", job_name="")
        return seen if record is seen.record else msgspec.structs.replace(seen, record=record)

    def _without_claims(self, seen: SeenPod) -> SeenPod:
        """A pod as if it had no ResourceClaims; it is noted if it waits."""
        record = seen.record
        if record is None or not (record.resource_claims or record.extended_claim):
            return seen
        if not record.node:
            self._claiming.add(seen.uid)
        record = msgspec.structs.replace(record, resource_claims=(), extended_claim="")
        return msgspec.structs.replace(seen, record=record)

    def count(self, found: Found[SeenPod]) -> Known:
        """Count everything. Pods are evicted for others where the pool's scheduler keeps a record."""
        pools = Pools(found) if self._about is not None else None
        pool = pools.of(self._about) if pools is not None and self._about is not None else DEFAULT
        room, is_divided = found.records.get(pool), pools is not None and pools.is_divided
        settings = msgspec.structs.replace(
            self._settings, preemption=room is not None, pool=NodePool(value=pool) if is_divided else None
        )
        follows = self._schedulers.follow_taint_rules(pool, {pod.uid for pod in found.pods})
        devices = _known(self._devices, follows)
        pods = found.pods if devices is not None else list(map(self._without_claims, found.pods))
        if settings != self._settings:
            self._cluster = Cluster(settings)
            pods = list(map(self._cluster.interned, pods))
        cluster = self._cluster
        missing = [*found.unread, *without_classes(found), *_rules_left_out(self._devices, follows)]
        if devices is not None:
            devices.put(cluster, follows_taint_rules=follows is True)
        for node in found.nodes:
            cluster.upsert_node(node)
        groups = found.groups if found.topologies is not None else list(map(_without_topology, found.groups))
        cluster.topologies.of_kai.replace(map(pod_groups.topology_record, found.topologies or ()))
        cluster.priorities.classes.replace(map(priority_class_record, found.priority_classes or ()))
        for group in groups:
            cluster.upsert_pod_group(group)
        for request in found.requests:
            cluster.upsert_bind_request(request)
        for pod in pods:
            cluster.take_pod(pod)
        # What is reserved for a pod that waits counts as reserved by the scheduler that decides here.
        for held in cluster.claims.held_by_waiting():
            cluster.claims.note_own(held.uid, held.rv)
        own = (queue for queue in found.queues if not is_divided or pool_of(queue.metadata.labels) == pool)
        others = (queue for queue in found.queues if is_divided and pool_of(queue.metadata.labels) != pool)
        cluster.queues.records.replace(map(pod_groups.queue_record, own))
        cluster.queues.elsewhere.replace(map(pod_groups.queue_elsewhere, others))
        cluster.queues.note_use_over_time(found.used.get(pool, NOT_COUNTED))
        missing += () if room is None else self._put_evictions(room, found)
        return Known(
            cluster.prepared(NOW_NS),
            tuple(missing),
            frozenset(self._mounting),
            frozenset(self._claiming),
            pool,
            pools,
            has_doubtful_rules=devices is not None and _are_doubtful(devices, follows),
            placed_anywhere=frozenset(_key(at) for at, as_is in zip(groups, found.groups, strict=True) if at != as_is),
            knows_budgets=found.budgets is not None,
            knows_evictions=found.knows_evictions,
        )

    def _put_evictions(self, room: EvictionsRead, found: Found[SeenPod]) -> Iterator[str]:
        """Let nominations stand, and count evictions and budgets; name nominations that contradict others."""
        budgets = tuple(map(budget_record, found.budgets or ()))
        namespaces = {budget.namespace for budget in budgets}
        there = (pod for seen in found.pods if (pod := seen.record) is not None and pod.node)
        self._cluster.note_preemption_facts(
            PreemptionFacts(
                version=1,
                budgets=budgets,
                labels={pod.uid: pod.labels for pod in there if pod.namespace in namespaces},
                evicted=evictions(room.record, now_s=room.wall_s),
                takers_wait=room.record.waits,
            )
        )
        for nomination in room.record.nominations:
            try:
                self._cluster.commits.nominations.put(nomination)
            except ValueError as error:
                yield str(error)


def _key(group: PodGroup) -> tuple[str, str]:
    return group.metadata.namespace, group.metadata.name


def _without_topology(group: PodGroup) -> PodGroup:
    """The PodGroup as if it named no Topology."""
    parts = group.spec.sub_groups
    spec = msgspec.structs.replace(
        group.spec,
        topology_constraint=_of_labels(group.spec.topology_constraint),
        sub_groups=None if parts is None else [_part_without(part) for part in parts],
    )
    return msgspec.structs.replace(group, spec=spec)


def _part_without(part: SubGroup) -> SubGroup:
    return msgspec.structs.replace(part, topology_constraint=_of_labels(part.topology_constraint))


def _of_labels(asked: TopologyConstraint | None) -> TopologyConstraint | None:
    """A constraint on labels alone, which needs no Topology."""
    return asked if asked is not None and asked.topology == names.LABEL_ALONE else None


def _known(devices: Devices | None, follows: bool | Unsure) -> Devices | None:
    """What claims get, if it was read as far as the scheduler goes by it."""
    return None if devices is None or (devices.rules is None and follows is True) else devices


def _are_doubtful(devices: Devices, follows: bool | Unsure) -> bool:
    """Whether there are or may be rules of which it is not known whether they count."""
    return isinstance(follows, Unsure) and (devices.rules is None or bool(devices.rules))


def _rules_left_out(devices: Devices | None, follows: bool | Unsure) -> Iterator[str]:
    """That rules which may count do not count here, and why."""
    if devices is None:
        return
    if isinstance(follows, Unsure) and _are_doubtful(devices, follows):
        yield (_RULES_UNREAD if devices.rules is None else _RULES_UNKNOWN).format(why=follows.value)
    elif devices.rules is None and follows is True:
        yield _RULES_MISSED
