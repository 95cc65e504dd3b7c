"""The process of ``moorage admin check-kai``."""

from __future__ import annotations

import argparse

from cli.checks.reader import Reader
from cli.migration.judging import judge
from cli.migration.reading import Survey
from cli.migration.rows import Level, Row
from cli.migration.telling import tell
from cli.progress import Progress
from cli.reaching import reached
from kube.client.api import Api
from kube.client.transport import Transport


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
