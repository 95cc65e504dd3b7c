"""Each tenant's own socket, on which it reads its share, cap and use (nodeagent/core/enforcement/tenants.py).

The socket that was opened says which tenant asks: CDI gives its containers its folder, and no other. A tenant is served
one question at a time, and all tenants together a bounded number a second, each in its turn. So a tenant that sends
much, or does not read, keeps itself waiting.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

import anyio
from anyio.abc import SocketListener, SocketStream, TaskGroup

from kube.watch.signal import Signal
from nodeagent import cdi as cdifiles
from nodeagent.aligned_timer import until_beat
from nodeagent.core.enforcement import tenants as viewfile
from nodeagent.core.enforcement.container_edits import Leftovers
from nodeagent.core.enforcement.tenants import MOST_BYTES, OwnShare, answer, refusal, refused

_log: Final = logging.getLogger(__name__)
#: Bytes of the folder's path: that of a socket has 107 (unix(7)), with a pod's UID and the name of ours in it.
LONGEST_FOLDER: Final = 107 - len(f"/{'u' * 36}/.{viewfile.SOCKET}")
#: Tenants with a socket: more than a node has pods.
MOST_TENANTS: Final = 1_024
#: For a whole question, and for its answer.
_WITHIN_S: Final = 1.0
#: Between two answers to a tenant, and to any.
_TENANT_PAUSE_S: Final = 0.05
_PAUSE_S: Final = 0.005
#: Connections of a tenant that wait in the kernel.
_BACKLOG: Final = 4
#: A tenant that is in no book any more keeps its socket and its place in the file for this time.
KEPT_S: Final = 60.0
_EVERY_S: Final = 1.0
_TIDY_EVERY_S: Final = 60.0


class Viewing:
    """``tenants`` names the pods that have shares, by UID; ``shares`` are those of one of them.

    ``folder``: a folder of ours alone, at the same path for the container runtime. ``cdi``: where that looks for files.
    ``kept_s``: how long a tenant that is in no book any more is served.
    """

    def __init__(
        self,
        *,
        tenants: Callable[[], Collection[str]],
        shares: Callable[[str], Sequence[OwnShare]],
        folder: Path,
        cdi: Path,
        kept_s: float = KEPT_S,
    ) -> None:
        self._tenants = tenants
        self._kept_s = kept_s
        self._shares = shares
        self._folder = folder
        self._cdi = cdi
        self._served: dict[str, anyio.CancelScope] = {}
        #: When a tenant that is in no book any more was seen last.
        self._gone_s: dict[str, float] = {}
        self._leftovers = Leftovers()
        #: For whom, and when, what is left was looked at last.
        self._tidied: tuple[frozenset[str], float] = (frozenset(), float("-inf"))
        self._turn = anyio.Lock()
        self._written: frozenset[str] | None = None
        self._changed = Signal()
        #: Why tenants have no view; "": they have.
        self.trouble = ""

    def look(self) -> None:
        """Have the tenants asked for again: a container may start a moment after its pod is in a book."""
        self._changed.set()

    async def run(self) -> None:
        """Serve until cancelled. To be started when ``tenants`` are known: folders of others are taken away."""
        async with anyio.create_task_group() as tasks:
            while True:
                try:
                    await self._follow(tasks)
                except (OSError, cdifiles.NoCdi) as error:
                    self._say(str(error))
                else:
                    self._say("")
                with until_beat(_EVERY_S):
                    await self._changed.wait()

    def _say(self, why: str) -> None:
        if why and why != self.trouble:
            _log.warning("tenants can't be shown their shares: %s", why)
        self.trouble = why

    async def _follow(self, tasks: TaskGroup) -> None:
        """Bring sockets and file to what books say. Raises OSError, NoCdi."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        wanted = self._wanted()
        for pod in sorted(wanted - self._served.keys()):
            await self._open(pod, tasks)
        if wanted != self._written:
            # A folder is there before the file names it, and goes after that.
            self._write(wanted)
            self._written = wanted
        for pod in self._served.keys() - wanted:
            self._served.pop(pod).cancel()
        now_s = anyio.current_time()
        if wanted != self._tidied[0] or now_s - self._tidied[1] >= _TIDY_EVERY_S:
            self._tidy(wanted, now_s)
            self._tidied = (wanted, now_s)

    def _tidy(self, wanted: Collection[str], now_s: float) -> None:
        """Take away what no tenant has. The folder of one that has gone stays, empty: its containers may have it."""
        left = {one.name: one for one in self._folder.iterdir() if one.name not in wanted}
        folders = {name for name, one in left.items() if viewfile.is_sound(name) and _is_folder(one)}
        expired = self._leftovers.expired(folders, now_s)
        for name, one in left.items():
            if not _is_folder(one):
                one.unlink()
            elif name in expired or name not in folders:
                shutil.rmtree(one)
            else:
                (one / viewfile.SOCKET).unlink(missing_ok=True)

    def _write(self, pods: Collection[str]) -> None:
        """Put the file in its place; without tenants there is none, as a file without devices may be an error."""
        if pods:
            cdifiles.put(self._cdi, viewfile.FILE, viewfile.content(PurePosixPath(self._folder), pods))
        else:
            (self._cdi / viewfile.FILE).unlink(missing_ok=True)

    def _wanted(self) -> frozenset[str]:
        """Tenants of now, and for a while those of before."""
        now_s = anyio.current_time()
        there = {pod for pod in self._tenants() if viewfile.is_sound(pod)}
        for pod in self._served:
            if pod in there:
                self._gone_s.pop(pod, None)
            else:
                self._gone_s.setdefault(pod, now_s)
        self._gone_s = {pod: at_s for pod, at_s in self._gone_s.items() if now_s - at_s < self._kept_s}
        return frozenset(sorted(there)[:MOST_TENANTS]) | self._gone_s.keys()

    async def _open(self, pod: str, tasks: TaskGroup) -> None:
        """Make a tenant's folder, or take the one that its containers have, and its socket in it."""
        folder = self._folder / pod
        folder.mkdir(exist_ok=True)
        # Any user in the container may ask; no other user of the machine comes through the folder above.
        folder.chmod(0o755)
        fresh = folder / f".{viewfile.SOCKET}"
        fresh.unlink(missing_ok=True)
        listener = await anyio.create_unix_listener(fresh, mode=0o666, backlog=_BACKLOG)
        fresh.replace(folder / viewfile.SOCKET)
        scope = self._served[pod] = anyio.CancelScope()
        tasks.start_soon(self._serve, pod, listener, scope)

    async def _serve(self, pod: str, listener: SocketListener, scope: anyio.CancelScope) -> None:
        """One question after the other."""
        with scope:
            async with listener:
                while True:
                    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                        async with await listener.accept() as stream:
                            await self._answer(pod, stream)
                    await anyio.sleep(_TENANT_PAUSE_S)

    async def _answer(self, pod: str, stream: SocketStream) -> None:
        with anyio.move_on_after(_WITHIN_S):
            question = await _read(stream)
            async with self._turn:
                status = refused(question)
                said = answer(self._shares(pod)) if status is None else refusal(status)
                await anyio.sleep(_PAUSE_S)
            await stream.send(said)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


async def _read(stream: SocketStream) -> bytes:
    """What comes before an empty line, or as much as is read at all. Raises EndOfStream."""
    question = bytearray()
    while len(question) < MOST_BYTES:
        question += await stream.receive(MOST_BYTES - len(question))
        head, is_end, _ = question.partition(b"\r\n\r\n")
        if is_end:
            return bytes(head)
    return bytes(question)
