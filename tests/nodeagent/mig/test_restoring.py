"""MIG slices after a reboot: on a played driver, with a file that is kept, and an agent that ends at each step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nodeagent.core.mig_partitioning import CardSlices, NotDone, Present, Spot
from nodeagent.mig.partitioning import Restoring, boot_id
from tests.nodeagent.core.mig.cards import PROFILES, present
from tests.nodeagent.core.test_reporting import DONE, GPU, asked, told
from wire.crds.gpunode import GpuNode

FOUND = GpuNode(spec=asked(("2g@0", "1g@2", "3g@4")), status=DONE)


class Crash(Exception):
    """Raised where the agent ends."""


class Driver:
    """``ends_after``: so many slices are made, and then the agent ends. ``refuses``: a profile."""

    def __init__(self, *, ends_after: int = 99, refuses: str = "") -> None:
        self.slices: list[Present] = []
        self.ends_after = ends_after
        self.refuses = refuses
        self.made = 0

    async def make(self, card: str, spot: Spot) -> None:
        assert card == GPU
        if self.made >= self.ends_after:
            raise Crash
        if self.refuses and spot.profile.startswith(self.refuses):
            raise NotDone("In use by another client")
        self.made += 1
        self.slices.append(present(f"{spot.profile[:2]}@{spot.start}"))

    @property
    def cards(self) -> Mapping[str, CardSlices]:
        return {GPU: CardSlices(tuple(self.slices), PROFILES)}

    @property
    def starts(self) -> list[int]:
        return [each.spot.start for each in self.slices]


async def looked(driver: Driver, kept: Path, *, boot: str = "b1", found: GpuNode = FOUND) -> tuple[bool, list[str]]:
    refusals: list[str] = []
    restoring = Restoring(driver, kept=kept, boot=boot)
    changed = await restoring.look(found, driver.cards, lambda _, refusal: refusals.append(refusal))
    return changed == {GPU}, refusals


async def test_an_agent_that_ends_at_any_step_is_followed_by_one_that_completes_the_layout(tmp_path: Path) -> None:
    for ends_after in range(3):
        driver, kept = Driver(ends_after=ends_after), tmp_path / f"{ends_after}"
        try:
            await looked(driver, kept)
        except Crash:
            assert len(driver.slices) == ends_after
        driver.ends_after = 99
        assert await looked(driver, kept) == (True, [""])
        assert driver.starts == [0, 2, 4]
        assert driver.made == 3


async def test_a_slice_that_is_destroyed_without_a_reboot_stays_destroyed(tmp_path: Path) -> None:
    driver, kept = Driver(), tmp_path / "kept"
    await looked(driver, kept)
    driver.slices.clear()
    assert await looked(driver, kept) == (False, [])
    assert driver.starts == []
    assert await looked(driver, kept, boot="b2") == (True, [""])
    assert driver.starts == [0, 2, 4]


async def test_what_the_driver_refuses_keeps_no_other_slice_away_and_is_not_tried_again(tmp_path: Path) -> None:
    driver, kept = Driver(refuses="1g"), tmp_path / "kept"
    refusal = "create 1g.10gb at 2 after a reboot: In use by another client"
    assert await looked(driver, kept) == (True, [refusal])
    assert driver.starts == [0, 4]
    assert await looked(driver, kept) == (False, [])


async def test_a_machine_that_names_no_boot_and_a_file_that_can_not_be_kept_change_nothing(tmp_path: Path) -> None:
    driver = Driver()
    assert await looked(driver, tmp_path / "kept", boot="") == (False, [])
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert await looked(driver, blocked / "kept") == (True, [""])
    assert await looked(driver, blocked / "kept") == (False, [])


async def test_each_gpu_is_looked_at_once_also_where_nothing_was_lost(tmp_path: Path) -> None:
    driver, kept = Driver(), tmp_path / "kept"
    nothing = GpuNode(spec=asked(()), status=told("done", ()))
    assert await looked(driver, kept, found=nothing) == (False, [])
    assert await looked(driver, kept) == (False, [])


def test_this_machine_names_its_boot_the_same_twice() -> None:
    assert boot_id() == boot_id() != ""
