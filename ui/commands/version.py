"""What ``moorage version`` does when it is called: read the versions of a cluster, if one is configured, and print."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Final

import anyio
import msgspec

from kube.client.api import Api, check
from kube.client.errors import ApiError
from kube.client.resources import LEASES, PODS
from runtime import output
from runtime.client import Reached, is_configured, reached
from runtime.options import connection
from runtime.options.output import FOR_PROGRAMS, WIDE
from runtime.output import Progress
from runtime.text import BadInput, line
from runtime.version import VERSION
from runtime.versions import SELECTOR, Component, components
from ui import tables
from ui.inspect.reader import allowed
from ui.tables import Cell, Look, Sheet
from wire import names
from wire.api_groups import Lease
from wire.core import Pod

_VERSION_WITHIN_S: Final = 10.0


class Client(msgspec.Struct, frozen=True):
    """This program."""

    version: str = VERSION


class Versions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is printed. ``kubernetes`` and ``components`` are missing where no cluster was read."""

    client: Client
    kubernetes: str = ""
    components: tuple[Component, ...] | None = None
    unread: tuple[str, ...] = ()


class _Info(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of /version."""

    git_version: str = ""


def run(arguments: argparse.Namespace) -> int:
    """Print the versions; return 1 if a cluster is configured and can't be read, as kubectl does. Raises BadInput."""
    client = Versions(client=Client())
    try:
        is_alone = arguments.client or not is_configured(connection.chosen(arguments))
        seen = client if is_alone else anyio.run(_read, arguments)
    except (ApiError, BadInput) as error:
        show(client, arguments)
        sys.stdout.flush()
        if isinstance(error, BadInput):
            raise
        sys.stderr.write(f"moorage: {line(str(error))}\n")
        return 1
    show(seen, arguments)
    return 0


async def _read(arguments: argparse.Namespace) -> Versions:
    async with reached(arguments, "version") as cluster:
        with Progress("reading the cluster").waiting():
            return await look(cluster)


async def look(cluster: Reached) -> Versions:
    """Read what a cluster says of versions. Raises ApiError where it does not answer."""
    api = cluster.api(tries=1)
    told = check(await cluster.transport.request("GET", "/version", query={}, timeout_s=_VERSION_WITHIN_S))
    unread: list[str] = []
    pods: list[Pod] = []
    leases: list[Lease] = []
    where = f"namespace {names.SYSTEM_NAMESPACE}"
    await allowed(partial(_pods, api, pods), f"pods of {where} (versions of components)", unread)
    await allowed(partial(_leases, api, leases), f"leases of {where} (which replicas lead)", unread)
    return Versions(
        client=Client(),
        kubernetes=msgspec.json.decode(told.body, type=_Info).git_version,
        components=tuple(components(pods, leases)),
        unread=tuple(unread),
    )


async def _pods(api: Api, found: list[Pod]) -> None:
    listed = await api.list(PODS, namespace=names.SYSTEM_NAMESPACE, label_selector=SELECTOR, skip_undecodable=True)
    found += listed.items


async def _leases(api: Api, found: list[Lease]) -> None:
    found += (await api.list(LEASES, namespace=names.SYSTEM_NAMESPACE, skip_undecodable=True)).items


def show(seen: Versions, arguments: argparse.Namespace) -> None:
    """Print versions as the command line asks for it."""
    if arguments.output in FOR_PROGRAMS:
        output.write(seen, arguments.output)
        return
    lines = [f"moorage {seen.client.version}", *([f"Kubernetes {seen.kubernetes}"] if seen.kubernetes else [])]
    print("\n".join(map(line, lines)))
    if seen.components is None:
        return
    look = Look(is_wide=arguments.output == WIDE, has_headers=not arguments.no_headers)
    tables.show([_sheet(seen.components)], seen.unread, look)


def _sheet(found: tuple[Component, ...]) -> Sheet:
    if not found:
        return Sheet(title=f"no components in namespace {names.SYSTEM_NAMESPACE}", columns=(), rows=())
    rows = [
        [
            Cell(each.name or "?"),
            Cell(each.version or "?"),
            Cell(f"{each.ready}/{each.pods}"),
            Cell(each.leader or "-"),
            Cell(each.source or "nothing says it"),
            Cell(each.image or "-"),
        ]
        for each in found
    ]
    return Sheet(
        columns=("COMPONENT", "VERSION", "READY", "LEADER", "SOURCE", "IMAGE"),
        rows=rows,
        spare=("IMAGE", "SOURCE"),
        prose=("SOURCE",),
        folds=("LEADER", "IMAGE"),
    )
