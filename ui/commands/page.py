"""What ``moorage ui`` does when it is called: follow a cluster, and serve its page until told to stop."""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup

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
from ui.page.auth import Access, Open, Reviewed
from ui.page.explanations import PageExplains
from ui.page.objects import Objects
from ui.page.recording import Recording
from ui.page.replay import Opened
from ui.page.server import Answering, Door
from ui.page.timeline import Recorded
from ui.page.watch import Following, Publishing, Unusable

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
                access: Access = Open() if is_local else Reviewed(api)
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
    from ui.page.simulated import at_work, of_nodes  # noqa: PLC0415 - the simulator is for those who ask for it

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
