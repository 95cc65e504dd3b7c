"""What ``moorage explain`` does when it is called: read, explain, print."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import anyio
import msgspec

from cli import writing
from cli.inspection import sheets
from cli.inspection.options import QUEUE
from cli.inspection.sheets import Look, Sheet
from cli.options.output import FOR_PROGRAMS, WIDE
from cli.printable import line
from cli.progress import Progress
from cli.queueing import reading, telling
from cli.queueing.counting import NOW_NS, Known
from cli.reaching import reached
from cli.refusing import BadInput
from kube.client.errors import ApiError
from scheduler.core.report.queue_explanation import Explanation, explanation
from scheduler.status.reasons import told


class Explained(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is printed as JSON and YAML. ``unread``: what could not be read, and so is missing here."""

    queue: Explanation
    unread: tuple[str, ...] = ()


def run(arguments: argparse.Namespace) -> int:
    """Explain the object that the arguments name; return 1 if the cluster can't be read. Raises BadInput."""
    try:
        known = _of_files(arguments.filename) if arguments.filename else anyio.run(_read, arguments)
    except ApiError as error:
        sys.stderr.write(f"moorage: {line(str(error))}\n")
        return 1
    _SHOW[arguments.what](known, arguments.names[0], arguments.output)
    return 0


def _of_files(names: Sequence[str]) -> Known:
    from cli.queueing import files  # noqa: PLC0415 - YAML is not needed to read a cluster

    return files.read(names)


async def _read(arguments: argparse.Namespace) -> Known:
    async with reached(arguments, "explain") as cluster:
        with Progress("reading the cluster").waiting():
            return await reading.read(cluster.api())


def show_queue(known: Known, name: str, output: str) -> None:
    """Print the explanation of a queue. Raises BadInput if there is none of that name."""
    explained = explanation(known.snapshot, name, NOW_NS, lambda verdict: told(verdict).message)
    if explained is None:
        raise BadInput(_unknown(known, name))
    if output in FOR_PROGRAMS:
        writing.write(Explained(queue=explained, unread=known.unread), output)
        return
    tables: list[Sheet] = telling.sheets(explained, wide=output == WIDE)
    sheets.show(tables, known.unread, Look(is_wide=output == WIDE))


_SHOW: Final[Mapping[str, Callable[[Known, str, str], None]]] = {QUEUE: show_queue}


def _unknown(known: Known, name: str) -> str:
    queues = known.snapshot.queues
    there = sorted(record.name for record in queues.records.all())
    named = queues.sums.sums.get(name)
    waits = f"; {named.pods} pods name it and wait" if named is not None and there else ""
    near = difflib.get_close_matches(name, there, n=1)
    meant = f"; did you mean {near[0]}?" if near else "" if there else "; without any Queue all pods may use everything"
    return f"there is no queue {name}{waits}{meant}"
