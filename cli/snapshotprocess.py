"""What ``moorage snapshot`` does when it is called: read, leave out, rename, print."""

from __future__ import annotations

import argparse
import sys

import anyio

from cli.printable import line
from cli.progress import Progress
from cli.reaching import reached
from cli.refusing import BadInput
from cli.snapshots import anonymizing, reading, saved
from cli.snapshots.saved import Saved
from kube.client.clock import SystemClock
from kube.client.errors import ApiError


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
    made = anonymizing.anonymized(found) if arguments.anonymize else found
    sys.stdout.flush()
    sys.stdout.buffer.write(saved.write(made))
    return 0


async def read(arguments: argparse.Namespace) -> Saved:
    """The cluster that the options of the connection name. Raises ApiError, BadInput."""
    async with reached(arguments, "snapshot", only_reads=True) as cluster:
        with Progress("reading the cluster").waiting():
            return await reading.read(cluster.api(), now_ns=SystemClock().now_ns())
    raise AssertionError("a connection swallows no exception")
