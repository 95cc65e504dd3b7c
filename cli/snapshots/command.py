"""What ``moorage snapshot`` does when it is called: read with the rights of the user, leave out, rename, print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence, Set
from typing import Any, Final

import anyio
import msgspec

from cli.snapshots import anonymous, file
from cli.snapshots.fields import kept
from cli.snapshots.file import KIND, VERSION, Saved
from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.errors import ApiError, NotFound
from kube.client.resources import (
    BIND_REQUESTS,
    CONFIG_MAPS,
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    JOBS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    TOPOLOGIES,
    VOLUME_ATTACHMENTS,
    Resource,
)
from runtime.client import reached
from runtime.output import Progress
from runtime.scheduler_pods import SchedulerPods, Unsure
from runtime.text import BadInput, line
from runtime.version import VERSION as MOORAGE
from scheduler.core.model.settings import NodePool, own_name
from scheduler.core.preemption import eviction_history, nomination_record
from scheduler.core.preemption.eviction_history import Hour, piece_names, waits_of
from scheduler.core.preemption.nomination_record import Reading, Record
from ui.inspect.reader import allowed
from ui.queues.pools import DEFAULT, pools_of
from wire import names
from wire.core import Pod
from wire.rfc3339 import rfc3339
from wire.units import SECOND_NS

#: In the order in which they are read: pods last, so that nothing that a pod names is missing because it came later.
_KINDS: Final[tuple[Resource[Any], ...]] = (
    *(NODES, POD_GROUPS, BIND_REQUESTS, QUEUES, NAMESPACES, TOPOLOGIES, JOBS, STORAGE_CLASSES, CSI_NODES),
    *(CSI_DRIVERS, CSI_STORAGE_CAPACITIES, VOLUME_ATTACHMENTS, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS),
    *(
        POD_DISRUPTION_BUDGETS,
        DEVICE_CLASSES,
        DEVICE_TAINT_RULES,
        RESOURCE_SLICES,
        RESOURCE_CLAIMS,
        PRIORITY_CLASSES,
        PODS,
    ),
)
_NEEDED: Final = frozenset({NODES.plural, PODS.plural})


async def read_cluster(api: Api, *, now_ns: int) -> Saved:
    """Read all that decisions read. What one may not read is named in ``missing`` and ``unread``.

    Raises ApiError where nodes or pods can't be read: then nothing true can be said.
    """
    unread: list[str] = []
    missing: list[str] = []
    found: dict[str, list[Any]] = {}
    unserved: set[str] = set()
    schedulers = SchedulerPods()
    for resource in _KINDS:

        async def read_kind(resource: Resource[Any] = resource) -> None:
            found[resource.plural] = await _list(api, resource, unread, schedulers, unserved=unserved)

        if resource.plural in _NEEDED:
            await read_kind()
        else:
            await allowed(read_kind, resource.plural, unread)
        if resource.plural not in found:
            missing.append(resource.plural)
    records: list[Record] = []
    room: str | None = None
    use: str | None = None

    async def read_texts() -> None:
        nonlocal use
        for pool in pools_of(found.get(QUEUES.plural, ())):
            name = own_name(names.NOMINATIONS, NodePool(value=pool))
            if text := await _text(api, name, nomination_record.KEY):
                pieces = [await _text(api, each, eviction_history.KEY) for each in piece_names(NodePool(value=pool))]
                hour, problems = Hour.of(pieces)
                unread.extend(f"configmap {problem}" for problem in problems)
                nominations, now_s = (
                    _noted(nomination_record.read(text), name, unread).nominations,
                    now_ns // SECOND_NS,
                )
                records.append(Record(nominations, hour.evicted(now_s), waits_of(hour, now_s)))
        use = await _text(api, names.QUEUE_USE, names.QUEUE_USE_COUNTS)

    await allowed(read_texts, "configmaps (the records of evictions, and what queues used over time)", unread)
    if use is None:
        missing.append(CONFIG_MAPS.plural)
    if records:
        room = nomination_record.written(
            _noted(nomination_record.read(nomination_record.written(_together(records))), names.NOMINATIONS, unread)
        )
    follows = schedulers.follow_taint_rules(DEFAULT, {pod.metadata.uid for pod in found[PODS.plural]})
    missing += _followed_in_vain(follows, unserved, unread)
    empty = Saved(kind=KIND, version=VERSION, taken_at=rfc3339(now_ns), moorage=MOORAGE)
    return msgspec.structs.replace(
        empty,
        missing=missing,
        unread=unread,
        nominations=room,
        queue_use=use or "",
        follows_taint_rules=None if isinstance(follows, Unsure) else follows,
        **found,
    )


def _followed_in_vain(follows: bool | Unsure, unserved: Set[str], unread: list[str]) -> list[str]:
    """DeviceTaintRules, if the cluster does not serve them and claims wait since the scheduler follows them."""
    plural = DEVICE_TAINT_RULES.plural
    if follows is not True or plural not in unserved:
        return []
    unread.append(f"{plural}: the cluster does not serve them, and the scheduler follows them")
    return [plural]


async def _list(
    api: Api, resource: Resource[Any], unread: list[str], schedulers: SchedulerPods, *, unserved: set[str]
) -> list[Any]:
    """All objects of a kind, as far as they are kept; none where the cluster does not know it (``unserved`` takes it).

    ``schedulers`` looks at pods with their arguments, which are not kept; by UID, as the list may begin again.
    """

    def keep_pod(pod: Pod) -> Pod:
        schedulers.note(pod)
        return kept(pod)

    keep: Callable[[Any], Any] = keep_pod if resource is PODS else kept
    try:
        listing = await api.digest(resource, keep)
    except NotFound:
        unserved.add(resource.plural)
        return []
    unread += [f"{resource.kind.lower()} {one.key}: {one.error}" for one in listing.undecoded]
    return listing.items


async def _text(api: Api, name: str, key: str) -> str:
    """What a scheduler keeps in a ConfigMap of its own, "" where it keeps nothing."""
    try:
        config_map = await api.get(CONFIG_MAPS, name, namespace=names.SYSTEM_NAMESPACE)
    except NotFound:
        return ""
    return (config_map.data or {}).get(key, "")


def _noted(reading: Reading, name: str, unread: list[str]) -> Record:
    """What could be read of a record; the rest is noted."""
    unread += [f"configmap {name}: {problem}" for problem in reading.unread]
    return reading.record


def _together(records: Sequence[Record]) -> Record:
    """The records of all pools as one: a snapshot is of the whole cluster."""
    evicted: dict[str, list[int]] = {}
    for record in records:
        for owner, times in record.evicted.items():
            evicted.setdefault(owner, []).extend(times)
    return Record(
        nominations=tuple(nomination for record in records for nomination in record.nominations),
        evicted={owner: tuple(sorted(times))[-nomination_record.MOST_TIMES :] for owner, times in evicted.items()},
        waits={namespace: until_s for record in records for namespace, until_s in record.waits.items()},
    )


def run(arguments: argparse.Namespace) -> int:
    """Print a snapshot; return 1 if the cluster can't be read. Raises BadInput."""
    if sys.stdout.isatty():
        raise BadInput("snapshot: stdout is a terminal; redirect it, as in: moorage snapshot > cluster.json")
    try:
        found = anyio.run(read, arguments)
    except ApiError as error:
        sys.stderr.write(f"moorage: {line(str(error))}\n")
        return 1
    for note in found.unread:
        sys.stderr.write(f"not read: {line(note)}\n")
    made = anonymous.anonymized(found) if arguments.anonymize else found
    sys.stdout.flush()
    sys.stdout.buffer.write(file.write(made))
    return 0


async def read(arguments: argparse.Namespace) -> Saved:
    """The cluster that the options of the connection name. Raises ApiError, BadInput."""
    async with reached(arguments, "snapshot", only_reads=True) as cluster:
        with Progress("reading the cluster").waiting():
            return await read_cluster(cluster.api(), now_ns=SystemClock().now_ns())
    raise AssertionError("a connection swallows no exception")
