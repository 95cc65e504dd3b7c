"""The process of ``moorage check-kai``."""

from __future__ import annotations

import argparse
from typing import Final

from cli import connections
from cli.checks.reader import Reader
from cli.migration.judging import judge
from cli.migration.reading import Survey
from cli.migration.rows import Level, Row
from cli.migration.telling import tell
from cli.progress import Progress
from cli.refusing import BadInput
from cli.settings.common import AsKubectl
from cli.settings.gathering import from_line
from kube.client.api import Api
from kube.client.config import ConfigError
from kube.client.http import HttpTransport
from kube.client.retry import Retry
from kube.client.transport import Transport

#: Somebody waits at a terminal.
_TRIES: Final = 2


async def run(arguments: argparse.Namespace) -> int:
    """Look, print, and return the exit code. Raises BadInput when it can't be told where the API server is."""
    try:
        credentials = await connections.credentials_of_user(from_line(AsKubectl, arguments))
        async with HttpTransport(credentials, user_agent="moorage-check-kai") as transport:
            with Progress("reading the cluster").waiting():
                rows = await look(transport)
    except ConfigError as error:
        raise BadInput(str(error)) from error
    tell(rows, output=arguments.output, details=arguments.details)
    return 1 if any(row.level is Level.FIRST for row in rows) else 0


async def look(transport: Transport) -> list[Row]:
    """All rows about a cluster."""
    api = Api(transport, retry=Retry(connections.rng(), tries=_TRIES))
    return judge(await Survey(Reader(transport), api).read())
