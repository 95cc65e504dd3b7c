"""What the page receives: the JSON of its API (docs/page.md), and what of it one reader may see. Pure.

Fields are named as in ``moorage inspect``, whose views fill those of the same name (drawing.py). Amounts are exact, in
nano-GPU (1e9 is a whole device) and MiB; times are those of the API server, RFC 3339. Defaults are left out of JSON,
since a browser reads the document of a large cluster. Shares of pods that a reader may not see are drawn to scale and
without a name: a map with holes would show free devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from scheduler.core.report.node_view import SlicesView


class PageStruct(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """Base of all that is sent."""


class Tenant(PageStruct, frozen=True, gc=False):
    """A pod's share of a device. ``is_hidden``: of a pod that the reader may not see, so it has no name."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    nano: int = 0
    mem_mib: int = 0
    #: It has its place in the book, and is not bound yet.
    is_on_its_way: bool = False
    #: No such pod exists, and its share is kept until its node confirms that its containers ended.
    is_kept: bool = False
    is_hidden: bool = False
    #: Use in percent of the share, as the agent of the node reports it; None: not known.
    memory_percent: int | None = None
    sm_percent: int | None = None
    #: Since when it is idle, "" where it is not.
    idle_since: str = ""
    #: What caps its memory, and how well; "" for nothing.
    enforced: str = ""
    strength: str = ""


class Device(PageStruct, frozen=True, gc=False):
    """One device. ``index`` -1, ``uuid`` "" and ``mem_mib`` 0: no reservation has reported it.

    ``number``: by which views name it (scheduler/core/report/node_view.py); -1 for MIG slices. ``closed``: why it takes
    no tenant.
    ``is_partly_known``: others than ``tenants`` may have shares of it; of kind ``unknown``: anybody may have it.
    """

    kind: str
    number: int = -1
    index: int = -1
    uuid: str = ""
    mem_mib: int = 0
    used_nano: int = 0
    free_nano: int = 0
    group: str = ""
    reservation: str = ""
    #: Of one that ResourceClaims give in parts: driver, pool and name.
    device: str = ""
    closed: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    compute_percent: int = 0
    resource: str = ""
    is_partly_known: bool = False
    tenants: tuple[Tenant, ...] = ()


class NodeCard(PageStruct, frozen=True, gc=False):
    """A node with its devices. The four sums are all that it offers, as metrics have it (report/state.py).

    ``product``, ``node_pool``: what its labels say of its GPUs, and of who decides on it. ``stranded_nano``: free, and
    for nobody. ``is_partly_known``: not all pods were read (ui/page/stream.py); then at least so much is used, and
    ``unknown_nano`` is idle or others'. ``use``: how far the report of its agent counts (gpu/node_use.py), "" without
    one; ``use_since``: of a stale one since when; ``use_why``: why use is not measured there. ``partitionings``: MIG
    slices that are being made, in sentences.
    """

    name: str
    product: str = ""
    node_pool: str = ""
    is_not_ready: bool = False
    is_cordoned: bool = False
    is_mig: bool = False
    is_multiplied: bool = False
    gpus: int = 0
    unhealthy_gpus: int = 0
    lost_gpus: int = 0
    used_nano: int = 0
    idle_nano: int = 0
    pieces_nano: int = 0
    stranded_nano: int = 0
    is_partly_known: bool = False
    unknown_nano: int = 0
    devices: tuple[Device, ...] = ()
    slices: tuple[SlicesView, ...] = ()
    use: str = ""
    use_since: str = ""
    use_why: str = ""
    partitionings: tuple[str, ...] = ()


class PodLine(PageStruct, frozen=True, gc=False):
    """A pod in the lists. ``waits``: it does not run yet; why, as far as anybody has said."""

    namespace: str
    name: str
    uid: str
    phase: str = ""
    node: str = ""
    queue: str = ""
    pod_group: str = ""
    created: str = ""
    #: Its controller: "Kind/name".
    owner: str = ""
    asks: tuple[str, ...] = ()
    waits: bool = False
    reason: str = ""
    message: str = ""
    on_its_way_to: str = ""
    last_failure: str = ""


class EventLine(PageStruct, frozen=True, gc=False):
    """What a component reported of a pod. ``count``: how often, ``at``: the last time."""

    key: str
    namespace: str
    pod: str
    at: str = ""
    type: str = ""
    reason: str = ""
    note: str = ""
    by: str = ""
    count: int = 1


class GroupLine(PageStruct, frozen=True, gc=False):
    """A PodGroup: pods that start together or not at all. ``pods`` that have not ended, ``bound`` of them to a node."""

    namespace: str
    name: str
    queue: str = ""
    min_member: int = 0
    pods: int = 0
    bound: int = 0
    running: int = 0


class QueueLine(PageStruct, frozen=True, gc=False):
    """A Queue: as it is written, amounts being GPUs, -1 for no limit, "" for none written; and what is counted of it.

    Counts are of GPUs, by the scheduler's core, of the queue and of those below it. ``used_nano``: what its pods hold,
    ``leaving_nano`` of it by pods that are terminating. ``is_counted``: all pods are known; without that no count is.
    ``node_pool``: whose nodes it divides, as its label says.
    """

    name: str
    node_pool: str = ""
    display_name: str = ""
    parent: str = ""
    priority: str = ""
    gpu_quota: str = ""
    gpu_limit: str = ""
    gpu_weight: str = ""
    is_counted: bool = False
    fair_nano: int = 0
    used_nano: int = 0
    leaving_nano: int = 0
    waiting_nano: int = 0
    #: The same as written, exactly: -1 for no end.
    quota_nano: int = 0
    limit_nano: int = 0
    #: Why it takes nobody.
    unusable: str = ""


class UnusableLine(PageStruct, frozen=True, gc=False):
    """Free GPUs that no pod that waits or is usual can take, for one cause; ``why``: what it means."""

    cause: str
    nano: int
    why: str = ""


class Stage(PageStruct, frozen=True, gc=False):
    """A step of a pod's way. ``at`` "": it was not reached, or nobody keeps when."""

    name: str
    is_reached: bool = False
    at: str = ""
    note: str = ""


class Part(PageStruct, frozen=True, gc=False):
    """A part of a device that a pod was given."""

    index: int = -1
    uuid: str = ""
    group: str = ""
    reservation: str = ""
    #: Of one that a ResourceClaim gives: driver, pool and name.
    device: str = ""
    nano: int = 0
    mem_mib: int = 0


class PodPath(PageStruct, frozen=True, gc=False):
    """All that the page shows of one pod. ``trace``: the id of its trace, as tools for traces know it; "" without one.

    ``trace_url``: where it is looked at, if anybody has said where.
    """

    pod: PodLine
    trace: str = ""
    trace_url: str = ""
    dialect: str = ""
    refused: str = ""
    not_enforced: str = ""
    whole_gpus: int = 0
    given: tuple[Part, ...] = ()
    stages: tuple[Stage, ...] = ()
    events: tuple[EventLine, ...] = ()


class Table(PageStruct, frozen=True, gc=False):
    """A table of texts, as the command prints it; without columns it is a sentence, its title."""

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


class Explanation(PageStruct, frozen=True, gc=False):
    """Why a pod waits and what would help. ``by``: the source of the answer; ``at``: the time of what it rests on.

    ``not_by_scheduler``: why the scheduler gave none. ``unread``: what the answer leaves out.
    """

    by: str
    at: str
    tables: tuple[Table, ...]
    not_by_scheduler: str = ""
    unread: tuple[str, ...] = ()


class Changes(PageStruct, frozen=True, gc=False):
    """What became different: whole nodes, pods, events, groups and the like, and the keys of those that are gone."""

    nodes: tuple[NodeCard, ...] = ()
    gone_nodes: tuple[str, ...] = ()
    pods: tuple[PodLine, ...] = ()
    gone_pods: tuple[str, ...] = ()
    events: tuple[EventLine, ...] = ()
    gone_events: tuple[str, ...] = ()
    groups: tuple[GroupLine, ...] = ()
    #: namespace/name
    gone_groups: tuple[str, ...] = ()
    queues: tuple[QueueLine, ...] = ()
    gone_queues: tuple[str, ...] = ()
    unusable: tuple[UnusableLine, ...] = ()
    #: Causes.
    gone_unusable: tuple[str, ...] = ()

    def __len__(self) -> int:
        """How many lines they are; none: nothing is different."""
        return sum(len(getattr(self, field)) for field in self.__struct_fields__)


class Mark(PageStruct, frozen=True, gc=False):
    """A warning of a recorded run and how often it came; the pod is the first that it was about."""

    at_ms: int
    reason: str = ""
    namespace: str = ""
    pod: str = ""
    times: int = 1


class Run(PageStruct, frozen=True, gc=False):
    """A recorded run. Moments are ms after its beginning, which was at ``began_ms`` since the epoch.

    ``from_ms``, ``to_ms``: the first moment that can be shown, and the last. ``speed``: at which it is played.
    """

    began_ms: int = 0
    from_ms: int = 0
    to_ms: int = 0
    speed: float = 1.0
    marks: tuple[Mark, ...] = ()


class State(PageStruct, frozen=True, gc=False):
    """All of it at one revision. ``unread``: what can't be read, and so is missing here; ``source``: of what it is.

    Of a recorded run: ``at_ms``, the moment. ``after``: the ``id`` that the reader knew, where ``changes`` are those
    since then and not the whole.
    """

    id: str
    source: str
    changes: Changes
    run: Run | None = None
    at_ms: int = 0
    after: str = ""
    unread: tuple[str, ...] = ()
    #: Whether names are left out, since the reader may not see them.
    is_partly_hidden: bool = False


_Named = TypeVar("_Named", PodLine, GroupLine)


class Sight(msgspec.Struct, frozen=True):
    """``namespaces``: those whose pods, and ``events``: those whose events may be seen; None for all.

    ``queues``: what is written in queues and counted of them. The name of a pod's queue is the pod's.
    """

    nodes: bool = True
    namespaces: frozenset[str] | None = None
    events: frozenset[str] | None = None
    queues: bool = True

    def sees(self, namespace: str) -> bool:
        """Whether pods of a namespace may be seen."""
        return self.namespaces is None or namespace in self.namespaces

    def sees_events(self, namespace: str) -> bool:
        """Whether what is reported of its pods may be."""
        return self.sees(namespace) and (self.events is None or namespace in self.events)


EVERYTHING: Final = Sight()


def seen(changes: Changes, sight: Sight) -> Changes:
    """Leave out what may not be seen. Keys of what is gone stay: who was never told of it can't know what they mean."""
    if sight == EVERYTHING:
        return changes
    return msgspec.structs.replace(
        changes,
        nodes=tuple(_node(node, sight) for node in changes.nodes) if sight.nodes else (),
        gone_nodes=changes.gone_nodes if sight.nodes else (),
        pods=_of(changes.pods, sight),
        events=tuple(event for event in changes.events if sight.sees_events(event.namespace)),
        gone_events=tuple(key for key in changes.gone_events if sight.sees_events(key.partition("/")[0])),
        groups=_of(changes.groups, sight),
        gone_groups=tuple(key for key in changes.gone_groups if sight.sees(key.partition("/")[0])),
        queues=changes.queues if sight.queues else (),
        gone_queues=changes.gone_queues if sight.queues else (),
        unusable=changes.unusable if sight.nodes else (),
        gone_unusable=changes.gone_unusable if sight.nodes else (),
    )


def _of(lines: Iterable[_Named], sight: Sight) -> tuple[_Named, ...]:
    return tuple(line for line in lines if sight.sees(line.namespace))


def _node(node: NodeCard, sight: Sight) -> NodeCard:
    return msgspec.structs.replace(node, devices=tuple(_device(device, sight) for device in node.devices))


def _device(device: Device, sight: Sight) -> Device:
    if all(sight.sees(tenant.namespace) for tenant in device.tenants):
        return device
    tenants = [_tenant(tenant, sight) for tenant in device.tenants]
    # Tenants are in the order of their names, which must not be shown either.
    return msgspec.structs.replace(device, tenants=tuple(sorted(tenants, key=_own_first)))


def _tenant(tenant: Tenant, sight: Sight) -> Tenant:
    if sight.sees(tenant.namespace):
        return tenant
    return Tenant(
        nano=tenant.nano,
        mem_mib=tenant.mem_mib,
        is_on_its_way=tenant.is_on_its_way,
        is_kept=tenant.is_kept,
        is_hidden=True,
    )


def seen_path(path: PodPath, sight: Sight) -> PodPath | None:
    """Leave out of a pod's path what may not be seen; None: all of it."""
    if not sight.sees(path.pod.namespace):
        return None
    return path if sight.sees_events(path.pod.namespace) else msgspec.structs.replace(path, events=())


def _own_first(tenant: Tenant) -> tuple[bool, int]:
    return tenant.is_hidden, tenant.nano if tenant.is_hidden else 0
