"""Reads a cluster for a snapshot, with the rights of the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from cli.inspection.reading import allowed
from cli.snapshots.leaving_out import kept
from cli.snapshots.saved import KIND, VERSION, Saved
from cli.version import VERSION as MOORAGE
from kube.client.api import Api
from kube.client.errors import NotFound
from kube.client.resources import (
    BIND_REQUESTS,
    CONFIG_MAPS,
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    JOBS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    QUEUES,
    STORAGE_CLASSES,
    TOPOLOGIES,
    VOLUME_ATTACHMENTS,
    Resource,
)
from scheduler.core.room import written
from wire import names
from wire.rfc3339 import rfc3339

#: In the order in which they are read: pods last, so that nothing that a pod names is missing because it came later.
_KINDS: Final[tuple[Resource[Any], ...]] = (
    *(NODES, POD_GROUPS, BIND_REQUESTS, QUEUES, NAMESPACES, TOPOLOGIES, JOBS, STORAGE_CLASSES, CSI_NODES),
    *(CSI_DRIVERS, CSI_STORAGE_CAPACITIES, VOLUME_ATTACHMENTS, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS),
    *(POD_DISRUPTION_BUDGETS, PODS),
)
_NEEDED: Final = frozenset({NODES.plural, PODS.plural})


async def read(api: Api, *, now_ns: int) -> Saved:
    """Read all that decisions read. What one may not read is named in ``missing`` and ``unread``.

    Raises ApiError where nodes or pods can't be read: then nothing true can be said.
    """
    unread: list[str] = []
    missing: list[str] = []
    found: dict[str, list[Any]] = {}
    for resource in _KINDS:

        async def read_kind(resource: Resource[Any] = resource) -> None:
            found[resource.plural] = await _list(api, resource, unread)

        if resource.plural in _NEEDED:
            await read_kind()
        else:
            await allowed(read_kind, resource.plural, unread)
        if resource.plural not in found:
            missing.append(resource.plural)
    texts: dict[str, str] = {}
    room: str | None = None

    async def read_texts() -> None:
        texts.update(await _texts(api))

    await allowed(read_texts, "configmaps (the record of evictions, and what queues used over time)", unread)
    if not texts:
        missing.append(CONFIG_MAPS.plural)
    if text := texts.get(written.KEY):
        reading = written.read(text)
        room = written.written(reading.record)
        unread += [f"configmap {names.ROOM}: {problem}" for problem in reading.unread]
    empty = Saved(kind=KIND, version=VERSION, taken_at=rfc3339(now_ns), moorage=MOORAGE)
    use = texts.get(names.QUEUE_USE_COUNTS, "")
    return msgspec.structs.replace(empty, missing=missing, unread=unread, room=room, queue_use=use, **found)


async def _list(api: Api, resource: Resource[Any], unread: list[str]) -> list[Any]:
    """All objects of a kind, as far as they are kept; none where the cluster does not know the kind."""
    keep: Callable[[Any], Any] = kept
    try:
        listing = await api.digest(resource, keep)
    except NotFound:
        return []
    unread += [f"{resource.kind.lower()} {one.key}: {one.error}" for one in listing.undecoded]
    return listing.items


async def _texts(api: Api) -> dict[str, str]:
    """The scheduler's records, "" where it keeps none."""
    found = {}
    for name, key in ((names.ROOM, written.KEY), (names.QUEUE_USE, names.QUEUE_USE_COUNTS)):
        try:
            config_map = await api.get(CONFIG_MAPS, name, namespace=names.SYSTEM_NAMESPACE)
        except NotFound:
            found[key] = ""
        else:
            found[key] = (config_map.data or {}).get(key, "")
    return found
