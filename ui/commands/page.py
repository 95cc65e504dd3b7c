"""``moorage ui``: follow a cluster, or read a recorded run, and serve the page until stopped.

A recorded run is served with its state and the paths of its pods at any moment. All its readers have the same rights.
"""

from __future__ import annotations

import argparse
import re
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Final

import anyio
import msgspec
from aiohttp import web
from anyio.abc import TaskGroup
from typing_extensions import override

from admission.certificates.tls import Files, FilesShown
from kube.client.clock import SystemClock
from kube.client.config import plain
from kube.client.retry import TRIES
from runtime.client import Reached, reached
from runtime.options import selection
from runtime.output import Progress
from runtime.process import listening, rare_collections, rng
from runtime.settings.page import PageSettings, is_loopback
from runtime.text import BadInput, line, refuse
from ui.leaders import by_server
from ui.page import explanations
from ui.page.auth import Access, Open, TokenReviewAccess
from ui.page.drawing import with_link
from ui.page.explanations import PageExplains, Question
from ui.page.objects import Objects
from ui.page.recording import Recording
from ui.page.server import HEADERS, Answering, Door, Handler, stated, told
from ui.page.timeline import FileChanged, Recorded
from ui.page.values import EVERYTHING, State
from ui.page.watch import Following, Publishing, Unusable

_encode: Final = msgspec.json.Encoder().encode
_LEVEL: Final = 1  # it is asked for several times a second
#: Ms after the beginning, as ``at`` has them. No run is longer.
_MS: Final = re.compile(r"[0-9]{1,12}")


class Opened(Answering):
    """``epoch`` tells this run from others: what a reader knew of another one means nothing here.

    There is no stream: nothing happens in a run but what its reader asks for.
    """

    def __init__(
        self,
        recorded: Recorded,
        *,
        epoch: str,
        source: str,
        speed: float,
        hosts: Collection[str] | None,
        trace_url: str = "",
        explains: PageExplains | None = None,
    ) -> None:
        super().__init__(
            Publishing(epoch), recorded, Open(), source=source, hosts=hosts, trace_url=trace_url, explains=explains
        )
        self._recorded = recorded
        self._epoch = epoch
        self._speed = speed

    @override
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await super()._answer(request, handler)
        except FileChanged as error:
            answer = told(410, str(error))
            answer.headers.update(HEADERS)
            return answer

    @override
    async def _state(self, request: web.Request) -> web.StreamResponse:
        """All of it at the moment ``at``, or what is different there from what the reader knew, ``after``."""
        at_ms = self._at(request)
        if isinstance(at_ms, web.Response):
            return at_ms
        after = request.query.get("after", "")
        epoch, _, known = after.rpartition("-")
        known_ms = int(known) if epoch == self._epoch and _MS.fullmatch(known) else None
        async with self._recorded.at(at_ms, known_ms) as moment:
            is_whole = moment.changes is None
            state = State(
                id=f"{self._epoch}-{moment.at_ms}",
                source=self._source,
                changes=moment.frames.whole() if moment.changes is None else moment.changes,
                run=self._recorded.about(self._speed) if is_whole else None,
                at_ms=moment.at_ms,
                after="" if is_whole else after,
                unread=self._recorded.troubles(),
            )
        return await stated(request, state, level=_LEVEL)

    @override
    async def _pod(self, request: web.Request) -> web.StreamResponse:
        at_ms = self._at(request)
        if isinstance(at_ms, web.Response):
            return at_ms
        async with self._recorded.at(at_ms, at_ms) as moment:
            path = moment.frames.path(request.match_info["namespace"], request.match_info["name"])
        if path is None:
            return told(404, "there is no such pod at that moment")
        return web.Response(body=_encode(with_link(path, self._trace_url)), content_type="application/json")

    @override
    async def _explain(self, request: web.Request) -> web.StreamResponse:
        at_ms = self._at(request)
        if isinstance(at_ms, web.Response):
            return at_ms
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        return await self._explained(Question(namespace=namespace, name=name, sight=EVERYTHING, at_ms=at_ms))

    @override
    async def _changes(self, request: web.Request) -> web.StreamResponse:
        return told(404, "a recorded run is asked for its moments: /api/state?at=MILLISECONDS")

    def _at(self, request: web.Request) -> int | web.Response:
        """The moment that is asked for; without one the first."""
        if not self._recorded.is_in_step:
            return told(503, "the recorded run is being read")
        text = request.query.get("at", str(self._recorded.from_ms))
        if not _MS.fullmatch(text):
            return told(400, "at: allowed is a whole number of milliseconds after the beginning of the run")
        return int(text)


#: Names by which this machine calls itself; any other name was made by somebody to get at what it serves.
_OURSELVES: Final = ("127.0.0.1", "localhost", "[::1]")
_TELL_TROUBLE_AFTER_S: Final = 3.0
#: What is shown, and what it is called.
Source = AbstractAsyncContextManager[tuple[Reached, str]]


def run(arguments: argparse.Namespace, settings: PageSettings) -> int:
    """Serve until told to stop; 0. Raises BadInput."""
    if (arguments.simulate or arguments.open) and not is_loopback(settings.listen[0]):
        what = "--simulate" if arguments.simulate else "--open"
        raise BadInput(f"{what}: allowed on loopback, as in --listen 127.0.0.1:8484: nobody has tokens there")
    try:
        anyio.run(_run, arguments, settings)
    except ExceptionGroup as failed:
        refuse(failed, (BadInput,))
    return 0


async def _shown(settings: PageSettings) -> FilesShown | None:
    """The page's certificate. Raises BadInput where tokens would be sent to it in the clear."""
    cert, key = settings.tls_cert_file, settings.tls_key_file
    if bool(cert) != bool(key):
        raise BadInput("--tls-cert-file and --tls-key-file: allowed are both, or neither")
    if cert:
        shown = FilesShown(Files(certificate=Path(cert), key=Path(key)))
        try:
            await shown.begin()
        except OSError as error:
            raise BadInput(f"--tls-cert-file {cert}, --tls-key-file {key}: {error}") from error
        return shown
    if not is_loopback(settings.listen[0]) and not settings.tls_elsewhere:
        where = f"{settings.listen[0] or 'all addresses'}:{settings.listen[1]}"
        raise BadInput(
            f"--listen {where}: readers show tokens there, which need --tls-cert-file and --tls-key-file, "
            "or --tls-elsewhere where a proxy has the certificate; without any: --listen 127.0.0.1:8484"
        )
    return None


async def _run(arguments: argparse.Namespace, settings: PageSettings) -> None:
    shown = await _shown(settings)
    listener = listening("--listen", settings.listen)
    assert listener is not None  # noqa: S101 - an address was given
    with listener:
        door = Door(listener, shown)
        await (_play(arguments, settings, door) if arguments.open else _follow(arguments, settings, door))


async def _follow(arguments: argparse.Namespace, settings: PageSettings, door: Door) -> None:
    """Show a cluster. Raises BadInput."""
    source = _simulated(arguments) if arguments.simulate else _of_cluster(arguments)
    with _recorded(arguments.record) as make:
        publishing = Publishing(secrets.token_hex(4), make=make)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_until_told, tasks.cancel_scope)
            async with source as (cluster, name):
                dated, leaders = by_server(cluster.transport)
                api = cluster.api(dated, tries=TRIES)
                some = selection.namespaces(arguments)
                following = Following(
                    api,
                    publishing.objects,
                    rng=rng(),
                    namespaces=some,
                    leaders=None if arguments.simulate else leaders,
                    has_use=not some,
                )
                is_local = is_loopback(settings.listen[0])
                access: Access = Open() if is_local else TokenReviewAccess(api)
                hosts = _OURSELVES if is_local else None
                answering = Answering(
                    publishing,
                    following,
                    access,
                    source=name,
                    hosts=hosts,
                    drawn=publishing.begun,
                    warnings=door.warnings,
                    trace_url=settings.trace_url,
                    explains=PageExplains(
                        explanations.cluster(api, publishing.objects, following, SystemClock()),
                        clock=SystemClock(),
                        asks=None
                        if arguments.simulate
                        else explanations.scheduler(cluster.credentials, signs_in=not is_local),
                    ),
                )
                tasks.start_soon(_tell_trouble, following)
                await _listen(answering, door, tasks)
                await tasks.start(following.run)
                if isinstance(publishing.objects, Recording):
                    publishing.objects.note_in_step()
                tasks.start_soon(Unusable(publishing.objects, publishing.note_unusable).run)
                await publishing.run()


async def _play(arguments: argparse.Namespace, settings: PageSettings, door: Door) -> None:
    """Show a recorded run. Raises BadInput."""
    recorded = Recorded(arguments.open)
    opened = Opened(
        recorded,
        epoch=secrets.token_hex(4),
        source=f"recorded in {arguments.open.name}",
        speed=arguments.speed,
        hosts=_OURSELVES,
        trace_url=settings.trace_url,
        explains=PageExplains(explanations.run(recorded), clock=SystemClock()),
    )
    with closing(recorded):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_until_told, tasks.cancel_scope)
            await _listen(opened, door, tasks)
            await recorded.read()
            await anyio.sleep_forever()


async def _listen(answering: Answering, door: Door, tasks: TaskGroup) -> None:
    """Answer from now on, and say where."""
    await tasks.start(door.let_in, answering)
    print(door.address, flush=True)


@contextmanager
def _recorded(path: Path | None) -> Iterator[Callable[[Callable[[], None]], Objects]]:
    """How objects are made: with a file in which they are written down, if one is named. Raises BadInput."""
    if path is None:
        yield Objects
        return
    made: list[Recording] = []

    def make(on_change: Callable[[], None]) -> Objects:
        made.append(Recording(path, on_change))
        return made[0]

    try:
        yield make
    finally:
        for each in made:
            each.close()


async def _tell_trouble(following: Following) -> None:
    """Say on the terminal, too, why there is nothing to see yet."""
    await anyio.sleep(_TELL_TROUBLE_AFTER_S)
    if not following.is_in_step:
        sys.stderr.writelines(f"moorage: {line(trouble)}\n" for trouble in following.troubles())


@asynccontextmanager
async def _of_cluster(arguments: argparse.Namespace) -> AsyncIterator[tuple[Reached, str]]:
    """The cluster that the options name. Raises BadInput."""
    async with reached(arguments, "ui") as cluster:
        yield cluster, cluster.credentials.server


def _simulated(arguments: argparse.Namespace) -> Source:
    """A cluster in memory, at work. Raises BadInput."""
    from ui.page.simulated import at_work, of_nodes  # the simulator is for those who ask for it

    play = of_nodes(arguments.nodes, seed=arguments.seed)

    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[Reached, str]]:
        # A large cluster takes its time to fill; the page shows that.
        with rare_collections():
            async with AsyncExitStack() as stack:
                with Progress("starting the simulated nodes").waiting():
                    transport = await stack.enter_async_context(at_work(play, is_filled=False))
                yield Reached(transport, plain("simulated"), None), "simulated cluster"

    return opened()


async def _until_told(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
            return
