"""What explanations of pods rest on: a scheduler's own state, a cluster that is followed, or a recorded run."""

from __future__ import annotations

from typing import Final

from cli.explaining import asking
from cli.explaining.questions import Asked, Unanswered
from cli.explaining.supposing import Whole
from cli.inspection.reading import allowed
from cli.page.explaining import Asks, Reads
from cli.page.following import Following
from cli.page.objects import Objects
from cli.page.reading import Listed, listed
from cli.page.winding import Recorded
from cli.queueing import reading
from cli.queueing.counting import EvictionsRead
from cli.reviewing import token_of
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.config import Credentials
from kube.client.errors import ApiError
from scheduler.core.queues.use_over_time import UseOverTime

_S: Final = 1_000_000_000
_NOT_IN_RUNS: Final = (
    "configmaps (the record of evictions, and what queues used over time): a recorded run does not hold them"
)


def scheduler(credentials: Credentials, *, signs_in: bool) -> Asks:
    """Ask the scheduler: with the reader's token where readers sign in, else as the owner of these credentials."""

    async def ask(authorization: str, asked: Asked) -> Whole:
        return await asking.passed_on(_of_reader(credentials, authorization) if signs_in else credentials, asked)

    return ask


def _of_reader(credentials: Credentials, authorization: str) -> Credentials:
    """The same API server, for the owner of a token and nobody else."""

    async def shown() -> str:
        return f"Bearer {token_of(authorization)}"

    return Credentials(
        server=credentials.server,
        ca_file=credentials.ca_file,
        ca_data=credentials.ca_data,
        verify=credentials.verify,
        tls_server_name=credentials.tls_server_name,
        proxy=credentials.proxy,
        authorization=shown,
    )


def cluster(api: Api, objects: Objects, following: Following, clock: Clock) -> Reads:
    """List what is followed, and read what only explanations need."""

    async def read(_: int | None) -> Listed:
        if objects.namespaces is not None:
            raise Unanswered(409, "not all pods are read here (-n), so nothing true can be said; ask: moorage explain")
        wall_s = clock.now_ns() // _S
        unread: list[str] = []
        rooms, used = await _read(api, objects, wall_s, unread)
        return listed(objects, wall_s, rooms=rooms, used=used, unread=(*unread, *following.troubles()))

    return read


async def _read(
    api: Api, objects: Objects, wall_s: int, unread: list[str]
) -> tuple[dict[str, EvictionsRead], dict[str, UseOverTime]]:
    """Read the records of evictions, and what queues used over time. Raises Unanswered."""
    rooms: dict[str, EvictionsRead] = {}
    used: dict[str, UseOverTime] = {}

    async def read_rooms() -> None:
        rooms.update(await reading.evictions(api, tuple(objects.queues.values()), wall_s, unread))

    async def read_use() -> None:
        used.update(await reading.use_over_time(api, tuple(objects.queues.values())))

    try:
        await allowed(read_rooms, "configmaps (the record of evictions)", unread)
        await allowed(read_use, "configmaps (what queues used over time, if that counts)", unread)
    except ApiError as error:
        raise Unanswered(503, f"the API server can't be asked for the record of evictions: {error}") from error
    return rooms, used


def run(recorded: Recorded) -> Reads:
    """List what a recorded run had at a moment. Raises FileChanged."""

    async def read(at_ms: int | None) -> Listed:
        wanted_ms = at_ms or 0
        async with recorded.at(wanted_ms, wanted_ms) as moment:
            wall_s = (recorded.began_ms + moment.at_ms) // 1000
            return listed(moment.frames.objects, wall_s, unread=(*recorded.troubles(), _NOT_IN_RUNS))

    return read
