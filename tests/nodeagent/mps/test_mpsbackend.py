"""The back end MPS with a played MPS daemon at the other end of a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.messages import framed
from nodeagent.core.mps.control import Wanted
from nodeagent.core.mps.limits import Held, Report, read_wanted, write_report
from nodeagent.listener import Listener
from nodeagent.mps.backend import KEPT_S, Mps, edits, limits_wanted
from tests.nodeagent.core.mps.test_mpssteps import GPU, OTHER, PIPES, POD


def holding(device: str = GPU, pod: str = POD, **more: Any) -> Tenancy:
    return Tenancy(pod, "team/p", device, 250_000_000, 20_000, **more)


@pytest.mark.parametrize(
    ("what", "tenant", "found"),
    [
        ("nothing to limit", [holding()], None),
        ("all compute", [holding(compute_percent=100)], None),
        ("memory", [holding(cap_mib=20_000)], (20_000, 100)),
        ("compute", [holding(compute_percent=30)], (0, 30)),
        ("both", [holding(cap_mib=20_000, compute_percent=30)], (20_000, 30)),
        ("parts whose sum is above all compute", [holding(cap_mib=1, compute_percent=120)], (1, 100)),
        ("the mode of MPS", [holding(cap_mib=1, mode="mps")], (1, 100)),
        ("another mode", [holding(cap_mib=1, mode="time-slicing")], None),
        ("two GPUs", [holding(cap_mib=1), holding(OTHER, cap_mib=1)], None),
        ("a MIG slice", [holding("MIG-5f2c1a90-0000-4000-8000-000000000001", cap_mib=1)], None),
        ("a pod that is no UUID", [holding(pod="../x", cap_mib=1)], None),
        ("none", [], None),
    ],
)
def test_a_tenant_of_one_gpu_is_held_to_its_limits(
    what: str, tenant: list[Tenancy], found: tuple[int, int] | None
) -> None:
    assert limits_wanted(tenant) == (None if found is None else Wanted(POD, GPU, *found)), what


def test_a_container_gets_the_folder_of_its_own_namespace_and_no_other() -> None:
    given = edits(Wanted(POD, GPU, 5_120, 30), PIPES).written()
    folder = "/run/moorage/mps/g5f2c1a9000004000/t3f1c2a526d0c4d559a303d5c7e0b6f3e"
    (mount,) = given["mounts"]
    assert (mount["hostPath"], mount["containerPath"]) == (folder, folder)
    assert {"ro", "nosuid", "nodev", "noexec"} <= set(mount["options"])
    assert given["env"] == [
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=5120M",
        f"CUDA_MPS_PIPE_DIRECTORY={folder}",
    ]


def test_memory_that_nobody_limits_is_not_said() -> None:
    env = edits(Wanted(POD, GPU, 0, 30), PIPES).env
    assert set(env) == {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PIPE_DIRECTORY"}


MINE = [holding(cap_mib=5_120, compute_percent=30)]
WANTED = Wanted(POD, GPU, 5_120, 30)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Both:
    """``until`` lets both ends work until something holds; the test fails by its deadline."""

    path: Path
    happened: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.mps = Mps(self.path, PIPES)
        self.mps_daemon = self.listen()

    def listen(self) -> Listener[tuple[Wanted, ...]]:
        return Listener(str(self.path), read=read_wanted, say=lambda _: None)

    def changed(self) -> None:
        self.happened.set()

    async def until_wanted(self, *wanted: Wanted) -> None:
        with anyio.fail_after(30):
            while self.mps_daemon.said != wanted:
                self.mps_daemon.wait(0)
                await anyio.sleep(0.001)

    async def report(self, report: Report) -> None:
        """Send it, and let the agent hear it."""
        self.happened = anyio.Event()
        assert self.mps_daemon.send(write_report(report))
        with anyio.fail_after(30):
            await self.happened.wait()


@asynccontextmanager
async def both(path: Path) -> AsyncIterator[Both]:
    made = Both(path / "mps-daemon.sock")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.mps.run, made.changed)
        yield made
        tasks.cancel_scope.cancel()
    made.mps_daemon.close()


async def test_a_tenant_is_ready_once_its_mps_daemon_has_read_back_its_limits(tmp_path: Path) -> None:
    async with both(tmp_path) as on:
        assert on.mps.trouble() == "no MPS daemon has reported yet"
        on.mps.prepare({POD: MINE})
        await on.until_wanted(WANTED)
        await on.report(Report())
        assert (on.mps.trouble(), on.mps.is_ready(MINE)) == ("", False)
        await on.report(Report((Held(WANTED),)))
        assert on.mps.is_ready(MINE)
        given = on.mps.edits(MINE)
        assert given is not None
        assert given.env["CUDA_MPS_PIPE_DIRECTORY"].startswith(str(PIPES))


async def test_an_mps_daemon_of_a_later_version_is_heard(tmp_path: Path) -> None:
    async with both(tmp_path) as on:
        on.mps.prepare({POD: MINE})
        await on.until_wanted(WANTED)
        on.happened = anyio.Event()
        on.mps_daemon.send(framed({"held": [[POD, GPU, 5_120, 30, False]], "down": False, "later": {"x": 1}}))
        with anyio.fail_after(30):
            await on.happened.wait()
        assert on.mps.is_ready(MINE)


@pytest.mark.parametrize("other", [Wanted(POD, GPU, 5_121, 30), Wanted(POD, GPU, 5_120, 31)])
async def test_limits_of_other_books_make_nobody_ready(tmp_path: Path, other: Wanted) -> None:
    async with both(tmp_path) as on:
        on.mps.prepare({POD: MINE})
        await on.until_wanted(WANTED)
        await on.report(Report((Held(other, was_joined=True),)))
        assert not on.mps.is_ready(MINE)
        assert on.mps.in_place({POD: MINE}) == set()


async def test_a_cap_is_in_place_once_a_program_has_joined(tmp_path: Path) -> None:
    async with both(tmp_path) as on:
        on.mps.prepare({POD: MINE})
        await on.until_wanted(WANTED)
        await on.report(Report((Held(WANTED),)))
        assert on.mps.in_place({POD: MINE}) == set()
        await on.report(Report((Held(WANTED, was_joined=True),)))
        assert on.mps.in_place({POD: MINE}) == {(POD, GPU)}


async def test_without_its_mps_daemon_nobody_is_ready_and_the_next_one_is_sent_all(tmp_path: Path) -> None:
    async with both(tmp_path) as on:
        on.mps.prepare({POD: MINE})
        await on.until_wanted(WANTED)
        await on.report(Report((Held(WANTED, was_joined=True),)))
        on.happened = anyio.Event()
        on.mps_daemon.close()
        with anyio.fail_after(30):
            await on.happened.wait()
        assert on.mps.trouble() == "no MPS daemon: it closed the connection"
        assert not on.mps.is_ready(MINE)
        assert on.mps.in_place({POD: MINE}) == ()
        on.mps_daemon = on.listen()
        await on.until_wanted(WANTED)


async def test_a_tenant_that_is_kept_is_wanted_and_one_that_is_not_is_no_more(tmp_path: Path) -> None:
    async with both(tmp_path) as on:
        on.mps.prepare({POD: MINE})
        on.mps.prepare({})
        on.mps.tidy([POD], 0.0)
        await on.until_wanted(WANTED)
        on.mps.tidy([], KEPT_S - 1)
        await on.until_wanted(WANTED)
        on.mps.tidy([], KEPT_S)
        await on.until_wanted()


async def test_before_books_are_known_nothing_is_sent(tmp_path: Path) -> None:
    """An empty list would have the MPS daemon delete what containers of an agent before this one have mounted."""
    async with both(tmp_path) as on:
        on.mps.tidy([], 0.0)
        for _ in range(20):
            on.mps_daemon.wait(0)
            await anyio.sleep(0.001)
        await on.report(Report())
        assert on.mps_daemon.said is None
        on.mps.prepare({})
        await on.until_wanted()


async def test_a_daemon_that_is_down_is_trouble_and_a_gpu_that_is_not_served_is_that_of_its_tenants(
    tmp_path: Path,
) -> None:
    async with both(tmp_path) as on:
        on.mps.prepare({POD: MINE})
        await on.until_wanted(WANTED)
        await on.report(Report(why="the MPS server of it is not ready"))
        assert on.mps.trouble() == ""
        await on.report(Report(why="the MPS control daemon can't be started", is_down=True))
        assert on.mps.trouble() == "the MPS control daemon can't be started"
        await on.report(Report())
        assert on.mps.trouble() == ""


async def test_a_gpu_is_ill_while_its_server_is_away_and_while_no_daemon_serves(tmp_path: Path) -> None:
    tenants = {POD: MINE}
    async with both(tmp_path) as on:
        on.mps.prepare(tenants)
        await on.until_wanted(WANTED)
        await on.report(Report(gone=(GPU,)))
        assert on.mps.ill(tenants) == {GPU: "its MPS server has ended, or does not come up"}
        await on.report(Report((Held(WANTED),)))
        assert on.mps.ill(tenants) == {}
        await on.report(Report(why="it does not answer", is_down=True))
        assert on.mps.ill(tenants) == {GPU: "no MPS daemon serves the node"}
        on.happened = anyio.Event()
        on.mps_daemon.close()
        with anyio.fail_after(30):
            await on.happened.wait()
        assert on.mps.ill(tenants) == {GPU: "the MPS daemon does not answer"}


def test_a_gpu_without_tenants_of_mps_is_not_ill_for_want_of_an_mps_daemon() -> None:
    it = Mps(Path("/nowhere"), PIPES)
    assert it.ill({}) == it.ill({POD: [holding()]}) == {}
    assert list(it.ill({POD: MINE})) == [GPU]


def test_a_tenant_that_mps_does_not_serve_is_not_waited_for() -> None:
    several: list[Tenancy] = [*MINE, holding("GPU-77aa1a90-0000-4000-8000-000000000001", cap_mib=1)]
    it = Mps(Path("/nowhere"), PIPES)
    assert (it.edits(several), it.is_ready(several)) == (None, True)
