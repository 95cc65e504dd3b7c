"""What an agent leaves that limited tenants, and how the next one removes it: on folders, in virtual time."""

from __future__ import annotations

from pathlib import Path

import anyio

from kube.client.resources import PODS
from nodeagent.core.enforcement.container_edits import Edits, content
from nodeagent.enforcement.limit_files import FORMER_KEPT_S, FormerLimits
from tests.nodeagent.enforcement.test_limitfiles import FILE, devices
from tests.nodeagent.enforcement.test_limiting import BOOK, OTHER, POD
from tests.nodeagent.node import scene
from wire import names


def left_by_an_agent(root: Path) -> tuple[Path, Path]:
    """A CDI file with two pods, and the folder of their back end."""
    cdi, folder = root / "cdi", root / "limits" / "hami-core"
    (folder / "boot").mkdir(parents=True)
    (folder / "boot" / POD).touch()
    cdi.mkdir()
    (cdi / FILE).write_bytes(content({POD: Edits(env={"A": "1"}), OTHER: Edits(env={"A": "2"})}))
    (cdi / "another.json").touch()
    (root / "limits" / "another").mkdir()
    return cdi, folder


async def test_a_pod_keeps_its_device_while_it_is_in_a_book_and_files_go_after_the_last_one(tmp_path: Path) -> None:
    cdi, folder = left_by_an_agent(tmp_path)
    tenants = {POD}
    former = FormerLimits(lambda: tenants, folders=[folder], cdi=cdi)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(former.run)
        await anyio.sleep(FORMER_KEPT_S - 1)
        assert devices(cdi).keys() == {POD, OTHER}
        await anyio.sleep(20.0)
        # What is left starts again as before.
        assert devices(cdi) == {POD: {"env": ["A=1"]}}
        assert (folder / "boot" / POD).exists()
        tenants.clear()
        await anyio.sleep(FORMER_KEPT_S / 2)
        assert devices(cdi).keys() == {POD}
        await anyio.sleep(FORMER_KEPT_S)
    assert (folder.exists(), [one.name for one in cdi.iterdir()]) == (False, ["another.json"])
    assert (tmp_path / "limits" / "another").exists()


async def test_a_pod_that_is_in_no_book_for_a_while_keeps_its_device(tmp_path: Path) -> None:
    cdi, folder = left_by_an_agent(tmp_path)
    tenants = {POD, OTHER}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FormerLimits(lambda: tenants, folders=[folder], cdi=cdi).run)
        for _ in range(3):
            await anyio.sleep(60.0)
            tenants.discard(POD)
            await anyio.sleep(FORMER_KEPT_S - 60.0)
            tenants.add(POD)
        assert devices(cdi).keys() == {POD, OTHER}
        tasks.cancel_scope.cancel()


async def test_a_file_that_can_not_be_read_stays_and_so_do_the_folders(tmp_path: Path) -> None:
    cdi, folder = left_by_an_agent(tmp_path)
    (cdi / FILE).write_bytes(b"{")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FormerLimits(set, folders=[folder], cdi=cdi).run)
        await anyio.sleep(2 * FORMER_KEPT_S)
        assert ((cdi / FILE).exists(), folder.exists()) == (True, True)
        (cdi / FILE).unlink()
        await anyio.sleep(20.0)
    assert not folder.exists()


async def test_an_agent_without_back_ends_removes_them_where_it_is_asked_to(tmp_path: Path) -> None:
    cdi, folder = left_by_an_agent(tmp_path)
    async with scene() as it:
        held = await it.reserve(**BOOK)
        scope = await it.start(limits_cdi=cdi, limits=tmp_path / "limits")
        await anyio.sleep(2 * FORMER_KEPT_S)
        assert devices(cdi).keys() == {POD, OTHER}
        scope.cancel()
        await it.start(limits_cdi=cdi, limits=tmp_path / "limits", remove_limits=True)
        await anyio.sleep(2 * FORMER_KEPT_S)
        assert devices(cdi).keys() == {POD, OTHER}
        book = {"metadata": {"annotations": {names.TENANTS: None}}}
        await it.api.patch(PODS, held.metadata.name, book, namespace=held.metadata.namespace)
        await anyio.sleep(2 * FORMER_KEPT_S)
        assert (folder.exists(), devices(cdi)) == (False, {})
