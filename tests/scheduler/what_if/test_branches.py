"""A branch goes on from the moment at which it was forked, alone, and says what came of it."""

from __future__ import annotations

import os

import anyio
import pytest

from verification.what_if.branches import Branches, BranchFailed


def test_branches_go_on_from_one_moment_and_leave_the_run_as_it_was() -> None:
    branches, known = Branches(), ["before"]

    async def run() -> list[object]:
        await anyio.sleep(5.0)
        found: list[object] = []
        for later_s in (10.0, 20.0):
            if (branch := branches.fork()) is None:
                known.append("in a branch")
                await anyio.sleep(later_s)
                return [anyio.current_time(), *known]
            found.append(branch.result())
        return [*found, anyio.current_time(), *known]

    assert branches.run(run) == [[15.0, "before", "in a branch"], [25.0, "before", "in a branch"], 5.0, "before"]


def test_an_error_in_a_branch_is_told_where_its_result_is_asked_for() -> None:
    branches = Branches()

    async def fail() -> None:
        raise ValueError("no such pod")

    async def run() -> str:
        async with anyio.create_task_group() as group:
            if (branch := branches.fork()) is None:
                group.start_soon(fail)
                await anyio.sleep_forever()
                raise AssertionError
            with pytest.raises(BranchFailed, match=r"^ValueError\('no such pod'\)$"):
                branch.result()
        return "on"

    assert branches.run(run) == "on"


def test_a_branch_that_is_killed_is_no_result() -> None:
    branches = Branches()

    async def run() -> None:
        if (branch := branches.fork()) is None:
            os._exit(1)
        with pytest.raises(BranchFailed, match="killed"):
            branch.result()

    branches.run(run)
