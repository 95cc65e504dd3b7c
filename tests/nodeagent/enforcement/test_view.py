"""Tenants on their sockets, in real time: what they send, and what they don't read, costs themselves alone."""

from __future__ import annotations

import json
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from gpu.book import Book, Entry, render
from kube.client.resources import PODS
from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.tenants import FILE, MOST_BYTES, SOCKET, OwnShare
from nodeagent.enforcement.view import KEPT_S, MOST_TENANTS, Viewing
from tests.background import in_background
from tests.conftest import AnyioBackend
from tests.nodeagent.node import scene
from tests.nodeagent.played import PlayedEnforcer
from wire import names

POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
OTHER = "00000000-1111-4222-8333-444444444444"
ASKED = b"GET /share HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path: the path of a socket has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="v") as folder:
        yield Path(folder)


async def until(condition: Callable[[], bool], *, limit_s: float = 60.0) -> None:
    with anyio.fail_after(limit_s):
        while not condition():  # noqa: ASYNC110 - what is waited for is another program's, or a file
            await anyio.sleep(0.01)


@pytest.fixture(scope="module")
def anyio_backend() -> AnyioBackend:
    return ("asyncio", {})


@dataclass
class Node:
    root: Path
    tenants: set[str] = field(default_factory=lambda: {POD, OTHER})
    asked: list[str] = field(default_factory=list)
    kept_s: float = KEPT_S

    def __post_init__(self) -> None:
        self.viewing = self.made()

    def made(self) -> Viewing:
        return Viewing(
            tenants=lambda: self.tenants,
            shares=self._shares,
            folder=self.root / "view",
            cdi=self.root / "cdi",
            kept_s=self.kept_s,
        )

    def _shares(self, pod: str) -> Sequence[OwnShare]:
        self.asked.append(pod)
        return [OwnShare(Tenancy(pod, f"team/{pod[:4]}", f"GPU-of-{pod[:4]}", 250_000_000, asked_mib=20_000))]

    def path(self, pod: str) -> Path:
        return self.root / "view" / pod / SOCKET

    async def until(self, *pods: str) -> None:
        """Wait until these tenants, and no others, have a socket and are in the file."""
        await until(lambda: self.listed() == set(pods) and all(self.path(pod).exists() for pod in pods))

    def listed(self) -> set[str]:
        try:
            return {each["name"] for each in json.loads((self.root / "cdi" / FILE).read_bytes())["devices"]}
        except FileNotFoundError:
            return set()

    async def ask(self, pod: str, question: bytes = ASKED) -> bytes:
        with anyio.fail_after(60):
            while True:
                try:
                    stream = await anyio.connect_unix(self.path(pod))
                except ConnectionRefusedError:  # an agent that has ended has left its socket
                    await anyio.sleep(0.01)
                    continue
                async with stream:
                    await stream.send(question)
                    return await everything(stream)

    async def devices(self, pod: str) -> list[str]:
        said: Any = json.loads((await self.ask(pod)).partition(b"\r\n\r\n")[2])
        return [share["device"] for share in said["shares"]]


async def everything(stream: anyio.abc.ByteReceiveStream) -> bytes:
    read = b""
    try:
        async for chunk in stream:
            read += chunk
    except anyio.BrokenResourceError:
        pass
    return read


@asynccontextmanager
async def node(root: Path, *, started: bool = True) -> AsyncIterator[Node]:
    it = Node(root)
    async with anyio.create_task_group() as tasks:
        if started:
            tasks.start_soon(it.viewing.run)
            await it.until(*it.tenants)
        yield it
        tasks.cancel_scope.cancel()


async def test_each_tenant_reads_its_own_share_on_its_own_socket(short: Path) -> None:
    async with node(short) as it:
        assert await it.devices(POD) == ["GPU-of-3f1c"]
        assert await it.devices(OTHER) == ["GPU-of-0000"]
        assert it.asked == [POD, OTHER]


async def test_nobody_but_root_comes_through_the_folder_of_all_and_anybody_through_his_own(short: Path) -> None:
    async with node(short) as it:
        modes = {
            path: stat.S_IMODE(path.stat().st_mode) for path in (short / "view", it.path(POD).parent, it.path(POD))
        }
        assert list(modes.values()) == [0o700, 0o755, 0o666]


@pytest.mark.parametrize(
    ("question", "status"),
    [
        (b"GET /share?pod=" + OTHER.encode() + b" HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /../" + OTHER.encode() + b"/share HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /share HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n", b"405"),
        (b"\x00" * MOST_BYTES, b"431"),
        (b"GET /share HTTP/1.1\r\n" + b"x: y\r\n" * 100_000, b"431"),
    ],
    ids=["another pod", "another folder", "a body", "no text", "many headers"],
)
async def test_what_a_tenant_sends_names_nobody_and_is_read_only_so_far(
    short: Path, question: bytes, status: bytes
) -> None:
    async with node(short) as it:
        try:
            said = await it.ask(POD, question)
        except anyio.BrokenResourceError:
            said = b""  # it was closed while the rest was being sent
        assert not said or said.split(b" ")[1] == status
        assert it.asked == []
        assert await it.devices(OTHER) == ["GPU-of-0000"]
        assert await it.devices(POD) == ["GPU-of-3f1c"]


@pytest.mark.thorough
async def test_a_tenant_that_sends_nothing_or_reads_nothing_keeps_itself_waiting_alone(short: Path) -> None:
    async with node(short) as it:
        idle = [await anyio.connect_unix(it.path(POD)) for _ in range(3)]
        await idle[1].send(b"GET /share HTTP/1.1\r\n")
        await idle[2].send(ASKED)
        began_s = anyio.current_time()
        for _ in range(3):
            assert await it.devices(OTHER) == ["GPU-of-0000"]
        # A second for each of the two that say nothing, if the others had to wait for them.
        assert anyio.current_time() - began_s < 2.0
        # The two that say nothing are closed after their second, then the one that reads nothing was answered.
        assert await it.devices(POD) == ["GPU-of-3f1c"]
        for stream in idle:
            await stream.aclose()


def knock(path: Path) -> socket.socket | None:
    """Ask without waiting; None where the kernel keeps no more that wait."""
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        asking.connect(str(path))
        asking.send(ASKED)
    except OSError:
        asking.close()
        return None
    return asking


def is_answered(asking: socket.socket) -> bool:
    try:
        return bool(asking.recv(1 << 16))
    except OSError:
        return False


async def test_a_flood_of_one_tenant_is_answered_slowly_and_the_others_as_ever(short: Path) -> None:
    async with node(short) as it:
        asking: list[socket.socket] = []
        refused = 0

        async def flood() -> None:
            nonlocal refused
            while True:
                for _ in range(20):
                    if (one := knock(it.path(POD))) is None:
                        refused += 1
                    else:
                        asking.append(one)
                await anyio.sleep(0.001)

        async with in_background(flood):
            began_s = anyio.current_time()
            for _ in range(10):
                assert await it.devices(OTHER) == ["GPU-of-0000"]
            took_s = anyio.current_time() - began_s
        answered = sum(map(is_answered, asking))
        for one in asking:
            one.close()
        # 20 a second for each; what comes beside that waits in the kernel, which keeps few.
        assert 0 < answered <= took_s * 20 + 2
        assert refused > 10 * answered


async def test_sockets_come_and_go_with_tenants_and_a_folder_that_a_container_has_stays(short: Path) -> None:
    async with node(short, started=False) as it:
        (short / "view" / "left-over").mkdir(parents=True)
        (short / "view" / "a-file").write_text("x")
        it.tenants = {POD, "../../escape", "not-a-uid"}
        inode = 0
        for attempt in range(2):
            async with anyio.create_task_group() as tasks:
                viewing = it.made()
                tasks.start_soon(viewing.run)
                await it.until(POD)
                inode = it.path(POD).parent.stat().st_ino
                assert await it.devices(POD) == ["GPU-of-3f1c"]
                if attempt:
                    it.tenants.add(OTHER)
                    viewing.look()
                    await it.until(POD, OTHER)
                    it.tenants.clear()
                    viewing.look()
                    await anyio.sleep(0.2)
                    # Its entry may come back: for a minute its folder stays.
                    assert it.listed() == {POD, OTHER}
                    assert await it.devices(OTHER) == ["GPU-of-0000"]
                assert it.path(POD).parent.stat().st_ino == inode
                assert viewing.trouble == ""
                tasks.cancel_scope.cancel()
        assert sorted(path.name for path in (short / "view").iterdir()) == sorted([POD, OTHER])
        assert not (short / "escape").exists()
        # An agent that starts without them takes sockets and file away, and leaves the folders to their containers.
        async with in_background(it.made().run):
            await until(lambda: not (it.path(POD).exists() or (short / "cdi" / FILE).exists()))
        assert it.path(POD).parent.stat().st_ino == inode


async def test_a_tenant_that_comes_back_late_is_served_in_the_folder_that_its_containers_have(short: Path) -> None:
    it = Node(short, kept_s=0.1)
    async with in_background(it.viewing.run):
        await it.until(POD, OTHER)
        inode = it.path(POD).parent.stat().st_ino
        it.tenants.remove(POD)
        await until(lambda: it.listed() == {OTHER} and not it.path(POD).exists())
        # No container is started with it meanwhile, and one that has it reaches no socket.
        assert list(it.path(POD).parent.iterdir()) == []
        it.tenants.add(POD)
        it.viewing.look()
        await it.until(POD, OTHER)
        assert it.path(POD).parent.stat().st_ino == inode
        assert await it.devices(POD) == ["GPU-of-3f1c"]


async def test_a_folder_that_cannot_be_written_is_told_and_tried_again(short: Path) -> None:
    (short / "cdi").write_text("no folder")
    async with node(short, started=False) as it, anyio.create_task_group() as tasks:
        tasks.start_soon(it.viewing.run)
        await until(lambda: "cdi" in it.viewing.trouble)
        (short / "cdi").unlink()
        it.viewing.look()
        await it.until(POD, OTHER)
        assert it.viewing.trouble == ""
        tasks.cancel_scope.cancel()


async def test_there_are_no_more_sockets_than_a_node_can_have_pods(short: Path) -> None:
    it = Node(short)
    it.tenants = {f"00000000-0000-4000-8000-{number:012}" for number in range(MOST_TENANTS + 10)}
    async with in_background(it.viewing.run):
        await until(lambda: len(it.listed()) >= MOST_TENANTS, limit_s=240)
        assert len(list((short / "view").iterdir())) == MOST_TENANTS


async def test_an_agent_shows_what_its_books_and_its_enforcer_say(short: Path) -> None:
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        entry = Entry(250_000_000, "a", "1", 0, "team/p", cap_mib=20_000)
        annotations: dict[str, Any] = {names.RESERVE_FOR_GPU_INDEX: "GPU-a", names.TENANTS: render(Book({POD: entry}))}
        await it.reserve(**annotations)
        started = await it.start(enforcer, tenant_view=short / "view", tenant_view_cdi=short / "cdi")
        node = Node(short)
        await node.until(POD)
        enforcer.holds[POD, "GPU-a"] = 5_000
        enforcer.report()
        said: Any = json.loads((await node.ask(POD)).partition(b"\r\n\r\n")[2])
        (share,) = said["shares"]
        assert (share["device"], share["capMiB"], share["usedMiB"], share["enforced"]) == (
            "GPU-a",
            20_000,
            5_000,
            "kill",
        )
        # A tenant that comes later has its socket at once.
        annotations[names.TENANTS] = render(Book({POD: entry, OTHER: entry}))
        await it.api.patch(PODS, "r", {"metadata": {"annotations": annotations}}, namespace=names.RESERVATION_NAMESPACE)
        await node.until(POD, OTHER)
        started.cancel()


async def test_an_agent_has_no_sockets_unless_that_is_asked_for() -> None:
    async with scene() as it:
        await it.start(PlayedEnforcer("GPU-a"))
        assert it.agent.viewing is None
