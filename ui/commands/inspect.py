"""``moorage inspect``: read, print.

Imports are most of its cost, so what only nodes, queues or PodGroups need is imported for them, and what reaches a
cluster where one is read. Nothing here needs NumPy (tests/cli/test_startup.py).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

from kube.client.errors import ApiError, BadRequest, Forbidden
from runtime.options import selection
from runtime.options.output import FOR_PROGRAMS, NAME, WIDE
from runtime.options.selection import ALIYUN, CLUSTER, GROUP, NODE, POD, QUEUE
from runtime.output import Progress, write
from runtime.text import BadInput, line
from ui import tables
from ui.inspect.values import Inspection
from ui.tables import Sheet
from wire.names import SCHEDULING_GROUP

if TYPE_CHECKING:
    from kube.client.api import Api
    from ui.leaders import Leaders
    from ui.queues.pools import Divided

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
    from ui.queues import files

    return queues_seen(files.read_listed(arguments.filename), arguments.names)


async def _seen(arguments: argparse.Namespace) -> Inspection:
    from runtime.client import reached
    from ui.leaders import by_server

    async with reached(arguments, "inspect", only_reads=True) as cluster:
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
    try:
        seen = await _looked(api, arguments, own_namespace)
    except BadRequest as error:
        if not arguments.selector:
            raise
        raise BadInput(f"-l {arguments.selector}: {error}") from error
    if leaders is None:
        return seen
    from ui.inspect import reader

    unread: list[str] = []
    await reader.allowed(partial(leaders.look, api), "leases (whether scheduler and binder work)", unread)
    return msgspec.structs.replace(seen, unread=(*seen.unread, *unread), warnings=leaders.warnings())


async def _looked(api: Api, arguments: argparse.Namespace, own_namespace: str) -> Inspection:
    """What the command line asks for. Raises BadInput, ApiError."""
    some = selection.namespaces(arguments)
    labels: str = arguments.selector
    if arguments.what == QUEUE:
        from ui.queues import reader as queue_reading

        seen = queues_seen(await queue_reading.read_listed(api), arguments.names)
        return await _labelled(api, seen, labels) if labels else seen
    from ui.inspect import reader

    if arguments.what in {POD, GROUP} and not some and not arguments.all_namespaces:
        some = (own_namespace or _DEFAULT_NAMESPACE,)
    if arguments.what == GROUP:
        from ui.inspect.groups import group_views

        groups = await reader.read_groups(api, arguments.names, namespaces=some, labels=labels)
        return Inspection(pod_groups=tuple(group_views(groups)), unread=groups.unread)
    if arguments.what == POD:
        found = await reader.read_pods(api, arguments.names, namespaces=some, labels=labels)
    elif arguments.names:
        found = await reader.read_nodes(api, arguments.names)
    else:
        found = await reader.read_cluster(api, labels=labels)
    from ui.inspect.survey import survey

    seen = survey(found, namespaces=some)
    if not arguments.use:
        return seen
    return await reader.with_use(api, seen)


async def _labelled(api: Api, seen: Inspection, labels: str) -> Inspection:
    """The queues that have labels. All of them were counted."""
    from kube.client.resources import QUEUES

    listed = await api.list(QUEUES, label_selector=labels, skip_undecodable=True)
    wanted = {queue.metadata.name for queue in listed.items}
    return msgspec.structs.replace(seen, queues=tuple(queue for queue in seen.queues if queue.name in wanted))


def queues_seen(divided: Divided, wanted: Sequence[str]) -> Inspection:
    """All queues, each as the scheduler of its node pool counts it, or these. Raises BadInput for one not there."""
    from scheduler.conditions.messages import told
    from scheduler.core.report.queue_view import queue_views

    of_pools = [listed.queues for listed in divided.of.values()]
    views = [
        view
        for queues in of_pools
        for view in queue_views(queues, queues.accounts(), lambda verdict: told(verdict).message)
    ]
    if missing := sorted(set(wanted) - {view.name for view in views}):
        raise BadInput(f"there is no queue {missing[0]}")
    shown = [view for view in views if not wanted or view.name in wanted]
    return Inspection(queues=tuple(shown), unread=tuple(divided.unread))


def show(seen: Inspection, arguments: argparse.Namespace) -> None:
    """Print an inspection as the command line asks for it."""
    if arguments.format == ALIYUN:
        show_aliyun(seen, unit=arguments.memory_unit, details=arguments.details, output=arguments.output)
    elif arguments.output in FOR_PROGRAMS:
        write(seen, arguments.output)
    elif arguments.output == NAME:
        sys.stdout.writelines(f"{line(each)}\n" for each in names_of(seen, arguments.what))
    elif arguments.selector and not names_of(seen, arguments.what):
        sys.stderr.write(f"nothing has these labels: {line(arguments.selector)}\n")
    else:
        is_wide = arguments.output == WIDE
        look = tables.Look(is_wide=is_wide, has_headers=not arguments.no_headers)
        tables.show(_sheets(arguments.what)(seen, is_wide), seen.unread, look)
    if arguments.format == ALIYUN or arguments.output not in FOR_PROGRAMS:
        sys.stderr.writelines(f"warning: {line(warning)}\n" for warning in seen.warnings)


def show_aliyun(seen: Inspection, *, unit: str, details: bool, output: str) -> None:
    """Print the summary or the details, or the inspect API's JSON."""
    from scheduler.core.report.node_view import Answer
    from ui.inspect.tables import aliyun_details, aliyun_summary, aliyun_uses

    uses = aliyun_uses(seen, unit)
    if output == "json":
        write(Answer(tuple(use for _, use in uses)), output)
    else:
        width = None if output == WIDE else tables.terminal_width()
        made = (aliyun_details if details else aliyun_summary)(uses, unit, width)
        sys.stdout.writelines(f"{line}\n" for line in made)
    unknown = [node.name for node in seen.nodes if node.gpus and not node.smallest_card_mib]
    sys.stderr.writelines(f"not known: how much memory the GPUs of {name} have; shown as 0\n" for name in unknown)
    sys.stderr.writelines(f"not read: {note}\n" for note in seen.unread)


def _sheets(what: str) -> Callable[[Inspection, bool], list[Sheet]]:
    """What makes tables of what was asked for."""
    if what == QUEUE:
        from ui.queues.tables import tree_sheets

        return lambda seen, is_wide: tree_sheets(seen.queues, wide=is_wide)
    if what == GROUP:
        from ui.inspect.groups import group_sheets

        return lambda seen, is_wide: group_sheets(seen.pod_groups, wide=is_wide)
    from ui.inspect.tables import cluster_sheets, node_sheets, pod_sheets

    made = {CLUSTER: cluster_sheets, NODE: node_sheets, POD: pod_sheets}[what]
    return lambda seen, is_wide: made(seen, wide=is_wide)


def names_of(seen: Inspection, what: str) -> list[str]:
    """What is shown, as kubectl names it with ``-o name``."""
    if what == POD:
        return [f"pod/{pod.name}" for pod in seen.pods]
    if what == GROUP:
        return [f"podgroup.{SCHEDULING_GROUP}/{group.name}" for group in seen.pod_groups]
    if what == QUEUE:
        return [f"queue.{SCHEDULING_GROUP}/{queue.name}" for queue in seen.queues]
    return [f"node/{node.name}" for node in seen.nodes]
