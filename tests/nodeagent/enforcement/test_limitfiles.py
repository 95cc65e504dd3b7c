"""The agent's CDI file of limits, with a played back end, on a folder of the test and in virtual time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.container_edits import Edits
from nodeagent.core.enforcement.overuse import Key
from nodeagent.core.mps.control import Wanted
from nodeagent.core.mps.limits import Held, Report, read_wanted, write_report
from nodeagent.enforcement.backend import BackEnd, Tenants
from nodeagent.enforcement.limit_files import ILL_AFTER_S, KEPT_S, LimitFiles
from nodeagent.listener import Listener
from nodeagent.mps.backend import SILENT_S, Mps
from tests.nodeagent.core.mps.test_mpssteps import GPU, PIPES
from tests.nodeagent.core.mps.test_mpssteps import POD as MPS_POD
from tests.nodeagent.enforcement.test_limiting import BOOK, MINE, OTHER, POD, entry, told
from tests.nodeagent.mps.test_mpsbackend import holding as mps_holding
from tests.nodeagent.node import scene

FILE = "moorage-limits.json"


@dataclass
class Played:
    """Serves tenants with a cap, and writes down what it is asked to do."""

    name: str = "hami-core"
    cdi: Path | None = None
    why: str = ""
    is_unseen: bool = False
    is_prompt: bool = True
    on_change: Callable[[], None] = lambda: None
    gone: dict[str, str] = field(default_factory=dict)
    holds: set[Key] = field(default_factory=set)
    done: list[tuple[str, Any]] = field(default_factory=list)

    def trouble(self) -> str:
        return self.why

    def edits(self, tenant: Sequence[Tenancy]) -> Edits | None:
        caps = [one.cap_mib for one in tenant if one.cap_mib]
        return Edits(env={self.name: str(min(caps))}) if caps else None

    def is_ready(self, tenant: Sequence[Tenancy]) -> bool:
        return self.is_prompt

    def ill(self, tenants: Tenants) -> Mapping[str, str]:
        return self.gone if tenants else {}

    async def run(self, on_change: Callable[[], None]) -> None:
        self.on_change = on_change

    def prepare(self, tenants: Tenants) -> None:
        self._note("prepare", sorted(tenants))

    def tidy(self, kept: Collection[str], now_s: float) -> None:
        assert now_s == anyio.current_time()
        self._note("tidy", sorted(kept))

    def in_place(self, tenants: Tenants) -> Collection[Key]:
        if self.is_unseen:
            raise OSError("no folder")
        return {key for key in self.holds if key[0] in tenants}

    def _note(self, what: str, pods: list[str]) -> None:
        """With what the file says at this time, where that is new."""
        said = (what, (pods, sorted(devices(self.cdi)) if self.cdi is not None else []))
        if said not in self.done[-2:]:
            self.done.append(said)


def holding(cap_mib: int = 20_000, **more: Any) -> Tenancy:
    return Tenancy(POD, "team/p", "GPU-a", 250_000_000, 20_000, cap_mib, **more)


def devices(cdi: Path) -> dict[str, Any]:
    file = cdi / FILE
    listed = json.loads(file.read_bytes())["devices"] if file.exists() else []
    return {each["name"]: each["containerEdits"] for each in listed}


@asynccontextmanager
async def files(
    cdi: Path, tenants: dict[str, list[Tenancy]], *back_ends: BackEnd, **how: Any
) -> AsyncIterator[LimitFiles]:
    made = LimitFiles(back_ends, tenants=lambda: tenants, cdi=cdi, **how)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.run)
        await anyio.sleep(0.1)
        yield made
        tasks.cancel_scope.cancel()


async def test_files_are_there_before_a_device_names_them_and_go_after_it(tmp_path: Path) -> None:
    back_end, tenants = Played(cdi=tmp_path), {POD: [holding()]}
    async with files(tmp_path, tenants, back_end):
        assert devices(tmp_path) == {POD: {"env": ["hami-core=20000"]}}
        tenants.clear()
        await anyio.sleep(KEPT_S / 2)
        assert list(devices(tmp_path)) == [POD]
        await anyio.sleep(KEPT_S)
        assert not (tmp_path / FILE).exists()
    assert back_end.done[:2] == [("prepare", ([POD], [])), ("tidy", ([POD], [POD]))]
    assert ("tidy", ([], [])) in back_end.done
    assert ("tidy", ([], [POD])) not in back_end.done


async def test_a_new_tenant_is_written_at_once_when_books_are_said_to_have_changed(tmp_path: Path) -> None:
    tenants: dict[str, list[Tenancy]] = {}
    async with files(tmp_path, tenants, Played()) as made:
        tenants[POD] = [holding()]
        made.look()
        await anyio.sleep(0.01)
        assert list(devices(tmp_path)) == [POD]


async def test_a_tenant_without_limits_or_with_limits_that_are_not_known_has_no_device(tmp_path: Path) -> None:
    tenants = {POD: [holding(), holding(0, is_doubtful=True)], OTHER: [holding(0)], "../x": [holding()]}
    async with files(tmp_path, tenants, Played()):
        assert devices(tmp_path) == {}
        tenants[POD].pop()
        await anyio.sleep(1.1)
        assert list(devices(tmp_path)) == [POD]


async def test_a_tenant_keeps_limits_that_a_book_made_again_lacks_also_with_the_next_agent(tmp_path: Path) -> None:
    given = {POD: {"env": ["hami-core=20000"]}}
    tenants = {POD: [holding()]}
    async with files(tmp_path, tenants, Played()):
        tenants[POD] = [holding(0)]
        await anyio.sleep(1.1)
        assert devices(tmp_path) == given
    back_end = Played()
    async with files(tmp_path, tenants, back_end):
        assert devices(tmp_path) == given
        back_end.why = "the library is gone"
        await anyio.sleep(1.1)
        assert devices(tmp_path) == {}
        back_end.why = ""
        await anyio.sleep(1.1)
        assert devices(tmp_path) == given
        tenants[POD] = [holding(0, is_doubtful=True)]
        await anyio.sleep(1.1)
        assert devices(tmp_path) == {}


async def test_a_tenant_that_is_in_no_book_when_the_agent_starts_keeps_its_device_for_a_while(tmp_path: Path) -> None:
    async with files(tmp_path, {POD: [holding()]}, Played()):
        pass
    async with files(tmp_path, {}, Played()):
        await anyio.sleep(KEPT_S / 2)
        assert list(devices(tmp_path)) == [POD]
        await anyio.sleep(KEPT_S)
        assert not (tmp_path / FILE).exists()


async def test_a_tenant_whose_back_end_is_not_ready_has_no_device_until_it_is(tmp_path: Path) -> None:
    late = Played("mps", is_prompt=False)
    async with files(tmp_path, {POD: [holding()]}, late, Played()):
        assert devices(tmp_path) == {}
        late.is_prompt = True
        late.on_change()
        await anyio.sleep(0.01)
        assert devices(tmp_path) == {POD: {"env": ["hami-core=20000", "mps=20000"]}}
        late.is_prompt = False
        late.on_change()
        await anyio.sleep(0.01)
        assert devices(tmp_path) == {}


async def test_several_back_ends_make_one_device(tmp_path: Path) -> None:
    async with files(tmp_path, {POD: [holding()]}, Played("mps"), Played()):
        assert devices(tmp_path) == {POD: {"env": ["hami-core=20000", "mps=20000"]}}


async def test_where_a_back_end_is_in_trouble_its_tenants_are_not_started_without_it(tmp_path: Path) -> None:
    back_end = Played(why="the library is gone")
    async with files(tmp_path, {POD: [holding()]}, back_end, Played("mps")) as made:
        assert devices(tmp_path) == {}
        assert [(one.what, one.why) for one in made.missing()] == [("memory caps by hami-core", "the library is gone")]
        assert made.working == ["mps"]
        back_end.why = ""
        await anyio.sleep(1.1)
        assert list(devices(tmp_path)) == [POD]
        assert (made.missing(), made.working) == ([], ["hami-core", "mps"])


async def test_a_folder_that_cannot_be_written_is_told_and_tried_again(tmp_path: Path) -> None:
    cdi = tmp_path / "cdi"
    cdi.write_text("no folder")
    async with files(cdi, {POD: [holding()]}, Played()) as made:
        assert "cdi" in made.missing()[0].why
        assert made.working == []
        cdi.unlink()
        await anyio.sleep(1.1)
        assert (list(devices(cdi)), made.missing()) == ([POD], [])


async def test_a_cap_that_holds_no_more_is_told_also_while_no_file_can_be_written(tmp_path: Path) -> None:
    cdi, back_end, looks = tmp_path / "cdi", Played(holds={MINE}), list[Mapping[str, Collection[Key]]]()
    tenants = {POD: [holding()]}
    async with files(cdi, tenants, back_end, on_look=looks.append) as made:
        assert looks == [{"hami-core": {MINE}}]
        (cdi / FILE).unlink()
        cdi.rmdir()
        cdi.write_text("no folder")
        tenants[POD] = [holding(10_000)]
        back_end.holds = set()
        await anyio.sleep(6)
        assert made.working == []
        assert looks[1:] == [{"hami-core": set()}]
        back_end.holds, back_end.is_unseen = {MINE}, True
        await anyio.sleep(5)
        assert looks[2:] == [{"hami-core": set()}]


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (None, "the MPS daemon does not answer"),
        (Report(why="can't be started", is_down=True), "no MPS daemon serves the node"),
        (Report(why="not ready", gone=(GPU,)), "its MPS server has ended, or does not come up"),
    ],
)
async def test_a_gpu_that_mps_serves_not_even_once_is_ill_after_a_while(
    tmp_path: Path, report: Report | None, why: str
) -> None:
    """With the real back end, and an MPS daemon at the other end of its socket, or none."""
    ill: list[Mapping[str, str]] = []
    mps = Mps(tmp_path / "mps-daemon.sock", PIPES)
    mps_daemon = Listener(str(tmp_path / "mps-daemon.sock"), read=read_wanted, say=lambda _: None)
    tenants = {MPS_POD: [mps_holding(cap_mib=5_120)]}

    async def says(report: Report) -> None:
        mps_daemon.wait(0)
        assert mps_daemon.send(write_report(report))
        await anyio.sleep(0.1)

    async with files(tmp_path / "cdi", tenants, mps, on_ill=ill.append):
        if report is not None:
            await says(report)
        await anyio.sleep(ILL_AFTER_S - 2)
        assert ill == []
        await anyio.sleep(4)
        assert ill == [{GPU: why}]
        await says(Report((Held(Wanted(MPS_POD, GPU, 5_120, 100)),)))
        await anyio.sleep(2)
        assert ill[1:] == [{}]
    mps_daemon.close()


async def test_an_mps_daemon_that_hangs_is_named_and_not_its_control_daemon(tmp_path: Path) -> None:
    ill: list[Mapping[str, str]] = []
    mps = Mps(tmp_path / "mps-daemon.sock", PIPES)
    mps_daemon = Listener(str(tmp_path / "mps-daemon.sock"), read=read_wanted, say=lambda _: None)
    async with files(tmp_path / "cdi", {MPS_POD: [mps_holding(cap_mib=5_120)]}, mps, on_ill=ill.append) as made:
        mps_daemon.wait(0)
        assert mps_daemon.send(write_report(Report((Held(Wanted(MPS_POD, GPU, 5_120, 100)),))))
        await anyio.sleep(SILENT_S - 2 + ILL_AFTER_S)
        assert ill == []
        await anyio.sleep(6)
        assert ill == [{GPU: "the MPS daemon does not answer"}]
        assert made.troubles == {"mps": "the MPS daemon has been silent for 90 s"}
    mps_daemon.close()


async def test_a_gpu_is_ill_for_tenants_that_are_there_and_for_no_others(tmp_path: Path) -> None:
    ill: list[Mapping[str, str]] = []
    back_end, tenants = Played(gone={"GPU-a": "its server has ended"}), {POD: [holding()]}
    async with files(tmp_path, tenants, back_end, on_ill=ill.append):
        await anyio.sleep(ILL_AFTER_S + 2)
        tenants.clear()
        await anyio.sleep(2)
        assert ill == [{"GPU-a": "its server has ended"}, {}]


async def test_what_holds_is_told_in_the_gpu_node_without_an_enforcer(tmp_path: Path) -> None:
    back_end = Played()
    async with scene() as it:
        await it.reserve(**BOOK)
        await it.start(back_ends=[back_end], limits_cdi=tmp_path)
        await anyio.sleep(3.0)
        status = (await it.gpu_node()).status
        assert (status.agent.back_ends, status.agent.missing) == (["hami-core"], None)
        assert {one.pod: one.enforced for one in status.tenants or ()} == {"team/p": "", "team/q": ""}
        assert list(devices(tmp_path)) == [POD]
        # A tenant without a cap is shown as capped by nothing, also where a back end sees one.
        back_end.holds = {MINE, (OTHER, "GPU-a")}
        await anyio.sleep(8.0)
        status = (await it.gpu_node()).status
        assert {one.pod: one.enforced for one in status.tenants or ()} == {"team/p": "hami-core", "team/q": ""}
        back_end.holds = set()
        await anyio.sleep(8.0)
        assert {one.enforced for one in (await it.gpu_node()).status.tenants or ()} == {""}


async def test_a_back_end_in_trouble_is_told_in_the_gpu_node(tmp_path: Path) -> None:
    async with scene() as it:
        await it.reserve(**told(p=entry("p", cap_mib=20_000)))
        await it.start(back_ends=[Played(why="the library is gone")], limits_cdi=tmp_path)
        await anyio.sleep(3.0)
        agent = (await it.gpu_node()).status.agent
        assert agent.back_ends is None
        assert [(one.what, one.why) for one in agent.missing or ()] == [
            ("memory caps by hami-core", "the library is gone")
        ]


async def test_files_of_before_stay_until_the_agent_knows_all_tenants(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"devices": [{"name": POD, "containerEdits": {"env": ["A=1"]}}]}))
    async with scene() as it:
        it.takes_s = 30.0
        await it.reserve(**told())
        await it.start(back_ends=[Played()], limits_cdi=tmp_path)
        await anyio.sleep(20.0)
        assert list(devices(tmp_path)) == [POD]
        await anyio.sleep(20.0 + KEPT_S)
        assert not (tmp_path / FILE).exists()
