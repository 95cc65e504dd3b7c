"""What ``moorage inspect`` does when it is called: read, survey, print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import anyio
import msgspec

from cli import writing
from cli.inspection import aliyun, reading, sheets, telling
from cli.inspection.options import ALIYUN, CLUSTER, NODE, POD, QUEUE
from cli.inspection.sheets import Sheet
from cli.inspection.surveying import Found, survey
from cli.inspection.values import Inspection
from cli.leaders import Leaders, by_server
from cli.printable import line
from cli.progress import Progress
from cli.queueing import files
from cli.queueing import reading as queue_reading
from cli.queueing.counting import Known
from cli.queueing.tree import tree_sheets
from cli.reaching import reached
from cli.refusing import BadInput
from kube.client.api import Api
from kube.client.errors import ApiError, Forbidden
from scheduler.core.report.queue_view import queue_views
from scheduler.status.reasons import told

_DEFAULT_NAMESPACE: Final = "default"


def run(arguments: argparse.Namespace) -> int:
    """Show what is asked for; 1 if the cluster can't be read. Raises BadInput."""
    try:
        seen = _of_files(arguments) if arguments.filename else anyio.run(_seen, arguments)
    except ApiError as error:
        hint = "; your own pods are shown by: inspect pod" if isinstance(error, Forbidden) else ""
        sys.stderr.write(f"moorage: {line(str(error))}{hint}\n")
        return 1
    show(seen, arguments)
    return 0


def _of_files(arguments: argparse.Namespace) -> Inspection:
    return queues_seen(files.read(arguments.filename), arguments.names)


async def _seen(arguments: argparse.Namespace) -> Inspection:
    async with reached(arguments, "inspect") as cluster:
        dated, leaders = by_server(cluster.transport)
        own = cluster.credentials.namespace
        with Progress("reading the cluster").waiting():
            return await look(cluster.api(dated), arguments, own_namespace=own, leaders=leaders)


async def look(
    api: Api, arguments: argparse.Namespace, *, leaders: Leaders | None = None, own_namespace: str = ""
) -> Inspection:
    """Read and survey what is asked for, and whether the components work.

    ``leaders`` None: do not ask for leases. Raises BadInput for a name that is not there, ApiError.
    """
    namespace: str = arguments.namespace
    if arguments.what == POD and not namespace and not arguments.all_namespaces:
        namespace = own_namespace or _DEFAULT_NAMESPACE
    if arguments.what == QUEUE:
        seen = queues_seen(await queue_reading.read(api), arguments.names)
    else:
        seen = survey(await _found(api, arguments, namespace), namespace=namespace)
    if leaders is None:
        return seen
    unread: list[str] = []
    await reading.allowed(partial(leaders.look, api), "leases (whether scheduler and binder work)", unread)
    return msgspec.structs.replace(seen, unread=(*seen.unread, *unread), warnings=leaders.warnings())


def queues_seen(known: Known, wanted: Sequence[str]) -> Inspection:
    """All queues, or these. Raises BadInput for one that is not there."""
    queues = known.snapshot.queues
    views = queue_views(queues, queues.accounts(), lambda verdict: told(verdict).message)
    if missing := sorted(set(wanted) - {view.name for view in views}):
        raise BadInput(f"there is no queue {missing[0]}")
    shown = [view for view in views if not wanted or view.name in wanted]
    return Inspection(queues=tuple(shown), unread=known.unread)


async def _found(api: Api, arguments: argparse.Namespace, namespace: str) -> Found:
    if arguments.what == POD:
        return await reading.read_pods(api, arguments.names, namespace=namespace)
    if arguments.names:
        return await reading.read_nodes(api, arguments.names)
    return await reading.read_cluster(api)


def show(seen: Inspection, arguments: argparse.Namespace) -> None:
    """Print an inspection as the command line asks for it."""
    if arguments.format == ALIYUN:
        aliyun.show(seen, unit=arguments.memory_unit, details=arguments.details, output=arguments.output)
    elif arguments.output in {"json", "yaml"}:
        writing.write(seen, arguments.output)
    else:
        tell: Mapping[str, Callable[..., list[Sheet]]] = {
            CLUSTER: telling.cluster_sheets,
            NODE: telling.node_sheets,
            POD: telling.pod_sheets,
            QUEUE: lambda seen, wide: tree_sheets(seen.queues, wide=wide),
        }
        sheets.show(tell[arguments.what](seen, wide=arguments.output == "wide"), seen.unread)
    if arguments.format == ALIYUN or arguments.output not in {"json", "yaml"}:
        sys.stderr.writelines(f"warning: {line(warning)}\n" for warning in seen.warnings)
