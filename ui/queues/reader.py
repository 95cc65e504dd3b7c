"""Reads what queues depend on from a cluster, with the rights of the user.

What decides is imported only where pods and nodes are explained: it takes longer than reading a small cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from kube.client.api import Api
from kube.client.errors import Forbidden, NotFound
from kube.client.listing import Listing
from kube.client.resources import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    KUEUE_TOPOLOGIES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    TOPOLOGIES,
    Resource,
)
from scheduler.core.model.records import SeenPod
from scheduler.core.model.settings import NodePool, own_name
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime, read_counts
from scheduler.core.report.queue_explanation import ListedQueues
from ui.inspect.reader import allowed, read_requests
from ui.queues.pools import Divided, EvictionsRead, Found, divided, pools_of
from wire import names
from wire.api_groups import PodDisruptionBudget
from wire.core import Node, Pod, PriorityClass
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue
from wire.crds.topology import Topology

if TYPE_CHECKING:
    from ui.queues.count import Devices, Known
    from ui.queues.pools import About


T = TypeVar("T", bound=msgspec.Struct)


async def read(api: Api, *, wall_s: int | None = None, about: About | None = None) -> Known:
    """Read queues, nodes and all pods; what is on its way, PodGroups and what claims get as far as one may.

    ``wall_s``: now, for those who also ask for the record of evictions. ``about``: the object that is asked about, so
    that all is counted for the scheduler that decides on it. Raises ApiError where queues, nodes or pods can't
    be read: then nothing true can be said.
    """
    from ui.queues.count import Counting  # what decides, NumPy included

    unread: list[str] = []
    records: dict[str, EvictionsRead] = {}
    topologies: list[Topology] = []
    budgets: list[PodDisruptionBudget] = []
    counting = Counting(may_preempt=wall_s is not None, about=about, devices=await _devices(api, unread))
    found = await _found(api, counting.read_pod, unread)

    async def read_evictions() -> None:
        records.update(await evictions(api, found.queues, wall_s or 0, unread))

    async def read_topologies() -> None:
        topologies.extend(await _topologies(api))

    async def read_budgets() -> None:
        budgets.extend((await _served(api, POD_DISRUPTION_BUDGETS)).items)

    knows_evictions = wall_s is None
    may_read_topologies = await allowed(read_topologies, "topologies (where PodGroups may be)", unread)
    may_read_budgets = False
    if wall_s is not None:
        knows_evictions = await allowed(read_evictions, "configmaps (the record of evictions)", unread)
        may_read_budgets = await allowed(read_budgets, "poddisruptionbudgets (which pods are protected)", unread)
    return counting.count(
        msgspec.structs.replace(
            found,
            records=records,
            topologies=topologies if may_read_topologies else None,
            budgets=budgets if may_read_budgets else None,
            knows_evictions=knows_evictions,
        )
    )


async def _topologies(api: Api) -> list[Topology]:
    """KAI's Topologies, and Kueue's of other names in the newest version that the cluster serves. Raises ApiError."""
    found = {each.metadata.name: each for each in (await _served(api, TOPOLOGIES)).items}
    for resource in KUEUE_TOPOLOGIES:
        if others := (await _served(api, resource)).items:
            return [*found.values(), *(each for each in others if each.metadata.name not in found)]
    return [*found.values()]


async def read_listed(api: Api) -> Divided:
    """Read the same, of which only queues are counted, for each node pool. Raises ApiError as ``read``."""
    return divided(await _found(api, ListedQueues().read_pod, []))


async def _found(api: Api, read_pod: Callable[[Pod], SeenPod], unread: list[str]) -> Found[SeenPod]:
    groups: list[PodGroup] = []
    requests: list[BindRequest] = []
    queues = await _served(api, QUEUES)
    nodes: Listing[Node] = await api.list(NODES, skip_undecodable=True)
    pods: Listing[SeenPod] = await api.digest(PODS, read_pod)
    for plural, listing in (("queue", queues), ("node", nodes), ("pod", pods)):
        unread += [f"{plural} {one.key}: {one.error}" for one in listing.undecoded]

    async def read_groups() -> None:
        groups.extend((await _served(api, POD_GROUPS)).items)

    used: dict[str, UseOverTime] = {}

    async def read_use() -> None:
        used.update(await use_over_time(api, queues.items))

    await allowed(read_use, "configmaps (what queues used over time, if that counts)", unread)
    await allowed(read_groups, "podgroups (which queue their pods count in)", unread)
    await read_requests(api, requests, unread)
    return Found(
        queues=queues.items,
        nodes=nodes.items,
        pods=pods.items,
        groups=groups,
        requests=requests,
        priority_classes=await priority_classes(api),
        used=used,
        unread=unread,
    )


async def priority_classes(api: Api) -> Sequence[PriorityClass] | None:
    """Read all PriorityClasses; None where one may not (ui/queues/pools.py names what is missing then)."""
    try:
        return (await _served(api, PRIORITY_CLASSES)).items
    except Forbidden:
        return None


async def evictions(api: Api, queues: Iterable[Queue], wall_s: int, unread: list[str]) -> dict[str, EvictionsRead]:
    """Read the record of evictions of each scheduler: by pool of these queues, and the default one.

    A pool is left out where nobody is evicted for anybody, as its scheduler keeps no record. ``wall_s``: now.
    ``unread`` takes what of the records can't be read. Raises ApiError.
    """
    from scheduler.core.preemption import eviction_history, nomination_record

    found: dict[str, EvictionsRead] = {}
    for pool in pools_of(queues):
        text = await _text(api, own_name(names.NOMINATIONS, NodePool(value=pool)), nomination_record.KEY)
        if text is not None:
            names_of = eviction_history.piece_names(NodePool(value=pool))
            pieces = [await _text(api, each, eviction_history.KEY) or "" for each in names_of]
            found[pool] = evictions_read(pool, text, pieces, wall_s=wall_s, unread=unread)
    return found


def evictions_read(pool: str, text: str, pieces: Sequence[str], *, wall_s: int, unread: list[str]) -> EvictionsRead:
    """Read the record of evictions of a pool's scheduler. ``pieces``: the last hour's evictions. ``wall_s``: now."""
    from scheduler.core.preemption import eviction_history, nomination_record

    reading, (hour, more) = nomination_record.read(text), eviction_history.Hour.of(pieces)
    name = own_name(names.NOMINATIONS, NodePool(value=pool))
    unread += [f"configmap {name}: {problem}" for problem in reading.unread]
    unread += [f"configmap {problem}" for problem in more]
    waits = eviction_history.waits_of(hour, wall_s)
    return EvictionsRead(nomination_record.Record(reading.record.nominations, hour.evicted(wall_s), waits), wall_s)


async def use_over_time(api: Api, queues: Iterable[Queue]) -> dict[str, UseOverTime]:
    """Read what queues used over time, as each scheduler last wrote it: by pool of these queues, and the default one.

    Raises ApiError.
    """
    return {pool: await _use_of(api, NodePool(value=pool)) for pool in pools_of(queues)}


async def _use_of(api: Api, pool: NodePool) -> UseOverTime:
    """What one scheduler wrote; nothing where that does not count."""
    text = await _text(api, own_name(names.QUEUE_USE, pool), names.QUEUE_USE_COUNTS)
    counts = NOT_COUNTED if text is None else read_counts(text)
    return NOT_COUNTED if isinstance(counts, str) else counts


async def _text(api: Api, name: str, key: str) -> str | None:
    """What a scheduler keeps in a ConfigMap of its own; None where there is no such ConfigMap."""
    try:
        found = await api.get(CONFIG_MAPS, name, namespace=names.SYSTEM_NAMESPACE)
    except NotFound:
        return None
    return (found.data or {}).get(key, "")


async def _served(api: Api, resource: Resource[T]) -> Listing[T]:
    """All of a kind; none where the cluster does not know it."""
    try:
        return await api.list(resource, skip_undecodable=True)
    except NotFound:
        return Listing([], "")


_FREE: Final = "which devices ResourceClaims may have"


async def _devices(api: Api, unread: list[str]) -> Devices | None:
    """Read what ResourceClaims get; None where a kind but the rules may not be read: nothing true can be said then.

    ``unread`` takes what could not be read. Raises ApiError.
    """
    from scheduler.core.convert import devices
    from scheduler.core.convert.resource_claims import resource_claim_record
    from ui.queues.count import Devices

    # With what each is good for, in the order in which they are read: a claim after what it may name.
    kinds: Sequence[tuple[Resource[Any], Callable[[Any], Any], str]] = (
        (DEVICE_CLASSES, devices.device_class_record, _FREE),
        (DEVICE_TAINT_RULES, devices.taint_rule_record, "which devices are tainted, if the scheduler follows them"),
        (RESOURCE_SLICES, devices.slice_record, _FREE),
        (RESOURCE_CLAIMS, resource_claim_record, "which devices are taken"),
    )
    found: dict[str, Sequence[Any] | None] = {}
    for resource, record, what in kinds:

        async def read_kind(resource: Resource[Any] = resource, record: Callable[[Any], Any] = record) -> None:
            found[resource.plural] = await _records(api, resource, record, unread)

        await allowed(read_kind, f"{resource.plural} ({what})", unread)
    if not {each.plural for each in (DEVICE_CLASSES, RESOURCE_SLICES, RESOURCE_CLAIMS)} <= found.keys():
        return None
    rules = DEVICE_TAINT_RULES.plural
    may_read, serves = rules in found, found.get(rules, ()) is not None
    return Devices(
        classes=found[DEVICE_CLASSES.plural] or (),
        slices=found[RESOURCE_SLICES.plural] or (),
        claims=found[RESOURCE_CLAIMS.plural] or (),
        rules=found[rules] or () if may_read else None,
        serves_rules=serves,
    )


async def _records(
    api: Api, resource: Resource[Any], record: Callable[[Any], Any], unread: list[str]
) -> Sequence[Any] | None:
    """All of a kind; None where the cluster does not know it."""
    try:
        listing = await api.digest(resource, record)
    except NotFound:
        return None
    unread += [f"{resource.kind.lower()} {one.key}: {one.error}" for one in listing.undecoded]
    return listing.items
