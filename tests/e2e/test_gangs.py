"""Gangs on the real control plane: whole or not at all."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import Pod, share
from tests.e2e.conftest import SetScene

pytestmark = pytest.mark.cluster


def _bound(pods: dict[str, Pod]) -> set[str]:
    return {name for name, found in pods.items() if found["spec"].get("nodeName")}


async def test_a_gang_of_eight_halves_with_room_for_seven_waits_whole_and_then_runs_whole(set_scene: SetScene) -> None:
    async with set_scene(["1x4x80GiB"]) as scene:
        await scene.create(share("other", "0.5"))
        await scene.running(1)
        await scene.create_gang("gang", 8, *(share(f"m{i}", "0.5") for i in range(8)))
        said = await scene.says("m0", "required for gang scheduling")
        assert said.startswith("Resources were found for 7 pods while 8 are required for gang scheduling.")
        assert _bound(await scene.pods()) == {"other"}
        await scene.delete("other")
        pods = await scene.running(8)
        assert sorted(len(sharers) for sharers in scene.sharers(pods).values()) == [2, 2, 2, 2]
