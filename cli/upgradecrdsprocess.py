"""The process of ``moorage admin upgrade-crds``."""

from __future__ import annotations

import argparse
from typing import Final

from cli.checks.reader import CantLook, Reader
from cli.definitions.upgrading import Outcome, Upgrade, upgrade
from cli.options.output import FOR_PROGRAMS
from cli.printable import line
from cli.progress import Progress
from cli.reaching import reached
from cli.refusing import BadInput
from cli.writing import write
from kube.client.api import Api
from kube.client.retry import TRIES
from wire.crds.render import DEFINITIONS

_FOREIGN: Final = (
    "nothing else was done to it. Either take it as it is (the chart: crds.upgrade=false), or bring it to a version "
    "that knows both"
)


async def run(arguments: argparse.Namespace) -> int:
    """Upgrade, print, and return the exit code. Raises BadInput when the cluster can't be read."""
    try:
        async with reached(arguments, "upgrade-crds") as cluster:
            done = await told_meanwhile(Reader(cluster.transport), cluster.api(tries=TRIES), Progress())
    except CantLook as error:
        raise BadInput(str(error)) from error
    if arguments.output in FOR_PROGRAMS:
        write([{"name": each.name, "outcome": each.outcome.value, "why": each.why} for each in done], arguments.output)
    else:
        print("\n".join(line(told(each)) for each in done))
    return 0 if all(each.outcome.is_good for each in done) else 1


async def told_meanwhile(reader: Reader, api: Api, progress: Progress) -> list[Upgrade]:
    """Upgrade, and say on a terminal what is being done where that takes long."""
    with progress.waiting():
        return await upgrade(reader, api, DEFINITIONS, progress)


def told(done: Upgrade) -> str:
    """One line for people."""
    said = f"{done.name}: {done.outcome.value}"
    said += f": {done.why}" if done.why else ""
    return f"{said}; {_FOREIGN}" if done.outcome is Outcome.FOREIGN else said
