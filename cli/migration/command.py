"""The process of ``moorage admin check-kai``: read what a migration is judged by, and print its rows.

Lines for people are as those of ``moorage admin check``; programs get JSON or YAML.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from cli.checks.reader import CantLook, Raw, Reader, finding_lines, some_of
from cli.migration.findings import is_kais_webhook, is_lenient, judge
from cli.migration.rows import Found, Level, Row
from gpu.grant import has_ended, labelled_groups
from kube.client.api import Api
from kube.client.errors import ApiError
from kube.client.resources import (
    BIND_REQUESTS,
    MUTATING_WEBHOOKS,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
    VALIDATING_WEBHOOKS,
    Resource,
)
from kube.client.transport import Transport
from runtime.client import reached
from runtime.kai_beside import Found as LiveKai
from runtime.kai_beside import look_for_kai
from runtime.options.output import FOR_PROGRAMS, WIDE
from runtime.output import Progress, write
from runtime.text import line
from wire import names
from wire.core import Node, Pod

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R")

CONFIGS: Final = "/apis/kai.scheduler/v1/configs"
SHARDS: Final = "/apis/kai.scheduler/v1/schedulingshards"
DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{names.SYSTEM_NAMESPACE}/deployments"


class Survey:
    """Reads everything once. What can't be read is reported, and the rest is read."""

    def __init__(self, reader: Reader, api: Api) -> None:
        self._reader = reader
        self._api = api
        self._unread: list[tuple[str, str]] = []

    async def read(self) -> Found:
        """Read all. Never raises for what can't be read."""
        live = await self._or("KAI's pods and leases", lambda: look_for_kai(self._api), LiveKai())
        space = await self._or(
            "Namespaces", lambda: self._reader.get(f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}"), None
        )
        webhooks = [found async for found in self._webhooks()]
        return Found(
            at_work=live.at_work,
            elsewhere=live.elsewhere,
            deployments=await self._raw("Deployments", DEPLOYMENTS),
            webhooks=tuple(name for name, _ in webhooks),
            lenient_webhooks=frozenset(name for name, is_lenient in webhooks if is_lenient),
            reservation_namespace=space or {},
            configs=await self._raw("Configs", CONFIGS),
            shards=await self._raw("SchedulingShards", SHARDS),
            queues=await self._decoded(QUEUES),
            groups=await self._decoded(POD_GROUPS),
            requests=await self._decoded(BIND_REQUESTS),
            pods=tuple(pod for pod in await self._digest(PODS, _kept) if pod is not None),
            nodes={node.metadata.name: node for node in await self._digest(NODES, _of_node)},
            unread=tuple(self._unread),
        )

    async def _webhooks(self) -> AsyncIterator[tuple[str, bool]]:
        """KAI's registrations, and whether they refuse nothing while KAI does not answer."""
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            for one in await self._raw(resource.kind, resource.path()):
                if is_kais_webhook(one):
                    yield f"{resource.kind} {one['metadata']['name']}", is_lenient(one)

    async def _raw(self, what: str, path: str) -> tuple[Raw, ...]:
        return tuple(await self._or(what, lambda: self._reader.items(path, if_served=True), []))

    async def _decoded(self, resource: Resource[T]) -> tuple[T, ...]:
        """Objects of ours or KAI's; one that can't be read is named."""
        found: list[T] = []
        for raw in await self._raw(f"{resource.kind}s", resource.path()):
            try:
                found.append(msgspec.convert(raw, resource.type))
            except msgspec.ValidationError as error:
                name = "/".join(raw["metadata"][part] for part in ("namespace", "name") if part in raw["metadata"])
                self._unread.append((f"{resource.kind} {name}", str(error)))
        return tuple(found)

    async def _digest(self, resource: Resource[T], keep: Callable[[T], R]) -> list[R]:
        async def read() -> list[R]:
            listing = await self._api.digest(resource, keep)
            self._unread += [(f"{resource.kind} {one.key}", one.error) for one in listing.undecoded]
            return listing.items

        return await self._or(f"{resource.kind}s", read, [])

    async def _or(self, what: str, read: Callable[[], Awaitable[R]], otherwise: R) -> R:
        try:
            return await read()
        except (ApiError, CantLook) as error:
            self._unread.append((what, str(error)))
            return otherwise


def _kept(pod: Pod) -> Pod | None:
    """Whether a pod has to do with KAI's scheduling, and has not ended. A reservation that has is of interest."""
    labels = pod.metadata.labels or {}
    if labels.get(names.APP_LABEL) == names.RESERVATION_APP:
        return pod
    is_kais = pod.spec.scheduler_name == names.SCHEDULER_NAME or bool(labelled_groups(labels))
    return pod if is_kais and not has_ended(pod.status) else None


def _of_node(node: Node) -> Node:
    """A node without what nobody asks here: images and conditions are most of it."""
    return Node(metadata=node.metadata)


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows there are of each level."""
    return {level.value: sum(row.level is level for row in rows) for level in Level}


def tell(rows: Sequence[Row], *, output: str, details: bool = False) -> None:
    """Print the rows to stdout. ``wide``: a line for each object; else rows that differ in their objects only are one.

    ``details``: with those that say that nothing changes, too; programs get them in any case.
    """
    if output in FOR_PROGRAMS:
        write({"counts": counts(rows), "rows": [row.told() for row in rows]}, output)
        return
    shown = [row for row in rows if details or not row.is_detail]
    for those in _alike(shown, is_wide=output == WIDE):
        print("\n".join(_lines(those)))
    if hidden := len(rows) - len(shown):
        options = "an option" if hidden == 1 else f"{hidden} options"
        print(*finding_lines(Level.KEPT, f"{options} of KAI's changing nothing here (--details)"))
    print(", ".join(f"{count} {level}" for level, count in counts(rows).items()))


def _alike(rows: Sequence[Row], *, is_wide: bool) -> Iterator[list[Row]]:
    """Rows that differ in their objects only, or each alone."""
    lines: dict[tuple[str, ...], list[Row]] = {}
    for number, row in enumerate(rows):
        kind = row.about.partition(" ")[0]
        lines.setdefault((row.code.value, row.said, kind, str(number) if is_wide else ""), []).append(row)
    yield from lines.values()


def _lines(those: Sequence[Row]) -> list[str]:
    """What was found, and below it what to do."""
    first = those[0]
    kind, _, name = first.about.partition(" ")
    others = [row.about.removeprefix(f"{kind} ") for row in those[1:]]
    about = f"{kind} {some_of([name, *others])}" if name else first.about
    said = f"{line(about)}: {line(first.said)} [{first.code.value}]"
    return finding_lines(first.level, said, line(first.do))


async def run(arguments: argparse.Namespace) -> int:
    """Look, print, and return the exit code. Raises BadInput when it can't be told where the API server is."""
    async with reached(arguments, "check-kai") as cluster:
        with Progress("reading the cluster").waiting():
            rows = await look(cluster.transport, cluster.api())
    tell(rows, output=arguments.output, details=arguments.details)
    return 1 if any(row.level is Level.FIRST for row in rows) else 0


async def look(transport: Transport, api: Api) -> list[Row]:
    """All rows about a cluster."""
    return judge(await Survey(Reader(transport), api).read())
