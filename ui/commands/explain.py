"""What ``moorage explain`` does when it is called: read, explain, print.

Importing is most of what it costs. Queues are explained by what is listed, without what decides and without NumPy
(tests/cli/test_startup.py); what explains pods and nodes is imported for them.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

from kube.client.clock import SystemClock
from kube.client.errors import ApiError
from runtime.client import reached
from runtime.options.output import FOR_PROGRAMS, WIDE
from runtime.options.selection import GROUP, IN_NAMESPACES, NODE, POD, QUEUE
from runtime.output import Progress, write
from runtime.text import BadInput, line
from ui import tables as sheets
from ui.queues import reader
from ui.tables import Look, Sheet

if TYPE_CHECKING:
    from ui.explain.explanation import Whole
    from ui.queues.count import Known
    from ui.queues.pools import About, Divided

_S: Final = 1_000_000_000
_DEFAULT_NAMESPACE: Final = "default"


def run(arguments: argparse.Namespace) -> int:
    """Explain the object that the arguments name; return 1 if the cluster can't be read. Raises BadInput."""
    wall_s = SystemClock().now_ns() // _S
    try:
        show_found = _of_files(arguments, wall_s) if arguments.filename else anyio.run(_read, arguments, wall_s)
    except ApiError as error:
        sys.stderr.write(f"moorage: {line(str(error))}\n")
        return 1
    show_found()
    return 0


def _of_files(arguments: argparse.Namespace, wall_s: int) -> Callable[[], None]:
    """Read files; return what prints the explanation. Raises BadInput."""
    from ui.queues import files  # noqa: PLC0415 - YAML is not needed to read a cluster

    if arguments.what == QUEUE:
        return partial(show_queue, files.read_listed(arguments.filename), arguments.names[0], arguments.output)
    return partial(show, files.read(arguments.filename, _about(arguments)), arguments, wall_s)


async def _read(arguments: argparse.Namespace, wall_s: int) -> Callable[[], None]:
    """Take the scheduler's answer where it explains, else read the cluster; return what prints the explanation.

    Raises ApiError, BadInput.
    """
    async with reached(arguments, "explain", only_reads=True) as cluster:
        arguments.namespace = arguments.namespace or cluster.credentials.namespace
        if arguments.what in IN_NAMESPACES:
            from ui.explain import client  # noqa: PLC0415 - of pods

            try:
                answer = await client.ask(cluster, arguments, arguments.namespace or _DEFAULT_NAMESPACE)
                return partial(_show_whole, answer, arguments.output)
            except client.NotServed:
                pass
            except client.NoAnswer as why:
                sys.stderr.write(f"moorage: the scheduler gave no answer ({line(str(why))}): reading the cluster\n")
        with Progress("reading the cluster").waiting():
            api = cluster.api()
            if arguments.what == QUEUE:
                return partial(show_queue, await reader.read_listed(api), arguments.names[0], arguments.output)
            known = await reader.read(api, wall_s=wall_s, about=_about(arguments))
            return partial(show, known, arguments, wall_s)


def _about(arguments: argparse.Namespace) -> About:
    """The object of the question. The scheduler that decides on it is explained."""
    from ui.queues.pools import About  # noqa: PLC0415 - of pods and nodes

    namespace = (arguments.namespace or _DEFAULT_NAMESPACE) if arguments.what in IN_NAMESPACES else ""
    return About(kind=arguments.what, namespace=namespace, name=arguments.names[0])


def show(known: Known, arguments: argparse.Namespace, wall_s: int) -> None:
    """Print the explanation of the pod, PodGroup or node that the arguments name. Raises BadInput for one not there."""
    _SHOW[arguments.what](known, arguments, wall_s)


def _print(view: msgspec.Struct, tables: Callable[[], Sequence[Sheet]], unread: Sequence[str], output: str) -> None:
    if output in FOR_PROGRAMS:
        write(view, output)
        return
    sheets.show(list(tables()), unread, Look(is_wide=output == WIDE))


# --- queues ----------------------------------------------------------------------------------------------------------
def show_queue(divided: Divided, name: str, output: str) -> None:
    """Print the explanation of a queue, for the scheduler of its node pool. Raises BadInput for one not there."""
    from scheduler.conditions.messages import told  # noqa: PLC0415 - of queues
    from scheduler.core.report.queue_explanation import explanation  # noqa: PLC0415 - of queues
    from ui.queues import explanation as telling  # noqa: PLC0415 - of queues

    listed = divided.of_queue(name)
    explained = None if listed is None else explanation(listed, name, lambda verdict: told(verdict).message)
    if explained is None:
        raise BadInput(_unknown_queue(divided, name))
    unread = tuple(divided.unread)
    view = telling.Explained(queue=explained, unread=unread)
    _print(view, lambda: telling.sheets(explained, wide=output == WIDE), unread, output)


def _unknown_queue(divided: Divided, name: str) -> str:
    there, named = divided.names(), divided.waiting_in(name)
    waits = f"; {named} pods name it and wait" if named and there else ""
    near = difflib.get_close_matches(name, there, n=1)
    meant = f"; did you mean {near[0]}?" if near else "" if there else "; without any Queue all pods may use everything"
    return f"there is no queue {name}{waits}{meant}"


# --- pods and PodGroups ----------------------------------------------------------------------------------------------
def _show_group(known: Known, arguments: argparse.Namespace, wall_s: int) -> None:
    from ui.explain import explanation as supposing  # noqa: PLC0415 - of pods
    from ui.explain import tables as groups  # noqa: PLC0415 - of pods

    namespace = arguments.namespace or _DEFAULT_NAMESPACE
    edits = supposing.edits(arguments.what_if)
    subject = supposing.subject(known, arguments.what, namespace, arguments.names[0])
    explained = supposing.explained(known, subject, edits, wall_s)
    view = groups.group_view(explained, edits, is_in_doubt=supposing.is_in_doubt(known, subject, explained))
    unread = (*known.unread, *supposing.not_looked_at(known, subject, explained))
    _show_whole(supposing.Whole(group=view, unread=unread), arguments.output)


def _show_whole(whole: Whole, output: str) -> None:
    from ui.explain import tables as groups  # noqa: PLC0415 - of pods

    _print(whole, lambda: list(groups.group_sheets(whole.group)), whole.unread, output)


# --- nodes -----------------------------------------------------------------------------------------------------------
def _show_node(known: Known, arguments: argparse.Namespace, _: int) -> None:
    from scheduler.core.what_if.explanation import node_explained  # noqa: PLC0415 - of nodes
    from ui.explain import tables as nodes  # noqa: PLC0415 - of nodes
    from ui.queues.count import NOW_NS  # noqa: PLC0415 - of pods and nodes

    explained = node_explained(known.snapshot, arguments.names[0], NOW_NS)
    if explained is None:
        near = difflib.get_close_matches(arguments.names[0], known.snapshot.ledger.row_of, n=1)
        raise BadInput(f"there is no node {arguments.names[0]}" + (f"; did you mean {near[0]}?" if near else ""))
    view = nodes.node_view(explained)
    whole = nodes.Whole(node=view, unread=known.unread)
    _print(whole, lambda: list(nodes.node_sheets(view)), known.unread, arguments.output)


_SHOW: Final[Mapping[str, Callable[[Known, argparse.Namespace, int], None]]] = {
    POD: _show_group,
    GROUP: _show_group,
    NODE: _show_node,
}
