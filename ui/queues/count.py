"""A cluster that was read once, counted as the scheduler counts it, for what is shown of queues.

Claims of volumes and Jobs of pods are not read, nor ResourceClaims where no ``devices`` are given. They may keep a pod
waiting, but change nothing about what it counts for: the order of queues is shown as if they kept nobody.

What ResourceClaims get, as it was read once: claims, devices, classes, and rules that taint devices. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from runtime.scheduler_pods import SchedulerPods, Unsure
from scheduler.core.cluster import Cluster
from scheduler.core.convert import queues
from scheduler.core.convert.devices import device_class_record, slice_record, taint_rule_record
from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.devices import DeviceClassRecord, ResourceClaimRecord, SliceRecord, TaintRuleRecord
from scheduler.core.model.preemption import RoomFacts
from scheduler.core.model.records import SeenPod
from scheduler.core.model.settings import NodePool, Settings
from scheduler.core.preemption.nomination_record import Record, evictions
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime
from ui.queues.pools import DEFAULT, About, Pools, pool_of
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue
from wire.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """Records of each kind. A kind that the cluster does not have has none.

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
_UNUSED: Final[Mapping[str, UseOverTime]] = {}
_NO_ROOMS: Final[Mapping[str, EvictionsRead]] = {}
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
    """

    snapshot: Snapshot
    unread: tuple[str, ...] = ()
    mounting: frozenset[str] = frozenset()
    claiming: frozenset[str] = frozenset()
    pool: str = DEFAULT
    pools: Pools | None = None
    has_doubtful_rules: bool = False

    def is_for(self, about: About) -> bool:
        """Whether it is counted for the scheduler that decides on this object."""
        return self.pools is None or self.pools.of(about) == self.pool


class EvictionsRead(msgspec.Struct, frozen=True):
    """The record of evictions, as the scheduler wrote it, read at this time of the wall clock."""

    record: Record
    wall_s: int


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

    def count(
        self,
        nodes: Iterable[Node],
        pods: Iterable[SeenPod],
        *,
        found: Iterable[Queue],
        groups: Iterable[PodGroup] = (),
        requests: Iterable[BindRequest] = (),
        used: Mapping[str, UseOverTime] = _UNUSED,
        rooms: Mapping[str, EvictionsRead] = _NO_ROOMS,
        unread: Sequence[str] = (),
    ) -> Known:
        """Count everything. ``used``: what queues used over time, ``rooms``: records of evictions, by node pool.

        Pods are evicted for others where the pool's scheduler keeps a record.
        """
        nodes, pods, found, groups = list(nodes), list(pods), list(found), list(groups)
        pools = Pools(nodes, pods, groups, found) if self._about is not None else None
        pool = pools.of(self._about) if pools is not None and self._about is not None else DEFAULT
        room, is_divided = rooms.get(pool), pools is not None and pools.is_divided
        settings = msgspec.structs.replace(
            self._settings, preemption=room is not None, pool=NodePool(value=pool) if is_divided else None
        )
        follows = self._schedulers.follow_taint_rules(pool, {pod.uid for pod in pods})
        devices = _known(self._devices, follows)
        if devices is None:
            pods = list(map(self._without_claims, pods))
        if settings != self._settings:
            self._cluster = Cluster(settings)
            pods = list(map(self._cluster.interned, pods))
        if is_divided:
            found = [queue for queue in found if pool_of(queue.metadata.labels) == pool]
        cluster = self._cluster
        missing = [*unread, *_rules_left_out(self._devices, follows)]
        if devices is not None:
            devices.put(cluster, follows_taint_rules=follows is True)
        for node in nodes:
            cluster.upsert_node(node)
        for group in groups:
            cluster.upsert_pod_group(group)
        for request in requests:
            cluster.upsert_bind_request(request)
        for pod in pods:
            cluster.take_pod(pod)
        # What is reserved for a pod that waits counts as reserved by the scheduler that decides here.
        for held in cluster.claims.held_by_waiting():
            cluster.claims.note_own(held.uid, held.rv)
        cluster.queues.records.replace(queues.queue_record(queue) for queue in found)
        cluster.queues.note_use_over_time(used.get(pool, NOT_COUNTED))
        missing += () if room is None else self._put_room(room)
        snapshot = cluster.prepared(NOW_NS)
        return Known(
            snapshot,
            tuple(missing),
            frozenset(self._mounting),
            frozenset(self._claiming),
            pool,
            pools,
            has_doubtful_rules=devices is not None and _are_doubtful(devices, follows),
        )

    def _put_room(self, room: EvictionsRead) -> Iterator[str]:
        """Let nominations stand, and count evictions; name those that contradict others."""
        self._cluster.note_room_facts(
            RoomFacts(version=1, evicted=evictions(room.record, now_s=room.wall_s), takers_wait=room.record.waits)
        )
        for nomination in room.record.nominations:
            try:
                self._cluster.commits.nominations.put(nomination)
            except ValueError as error:
                yield str(error)


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
