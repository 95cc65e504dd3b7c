"""Parts of MIG slices on the real API server: a slice is shared like a card, and no other device serves for it."""

from __future__ import annotations

import json

import pytest

from tests.e2e.cluster import Pod, pod
from tests.e2e.conftest import SetScene
from wire import names

pytestmark = pytest.mark.cluster

SLICE = "nvidia.com/mig-3g.20gb"


def half(name: str) -> Pod:
    """Half of a slice, in the words of the record: they need no settings."""
    asks = [{"container": "c0", "mig": "3g.20gb", "nano": 500_000_000}]
    return pod(name, annotations={names.GPU_RECORD: json.dumps({"version": 1, "dialect": "replicas", "asks": asks})})


def whole(name: str) -> Pod:
    wanted = pod(name)
    wanted["spec"]["containers"][0]["resources"] = {"limits": {SLICE: "1"}}
    return wanted


async def test_two_halves_share_a_slice_beside_a_whole_one_and_a_third_waits(set_scene: SetScene) -> None:
    async with set_scene(["1x1x80GiB", "1x1x80GiB+2x3g.20gb"]) as scene:
        await scene.create(half("one"), half("two"))
        await scene.running(2)
        await scene.create(whole("whole"))
        running = await scene.running(3)
        seen = {name: scene.seen(found)["main"] for name, found in running.items()}
        [slice_] = seen["one"]
        assert slice_.startswith("MIG-")
        assert seen["two"] == seen["one"]
        assert seen["whole"] != seen["one"]
        [held] = await scene.reservations()
        assert held["spec"]["containers"][0]["resources"]["limits"] == {SLICE: "1"}
        assert held["metadata"]["annotations"][names.RESERVE_FOR_GPU_INDEX] == slice_
        assert held["metadata"]["annotations"][names.DEVICE_MEMORY] == str(20 * 1024)
        await scene.create(half("late"))
        await scene.says("late", f"didn't have enough of mig profile: {SLICE}")
        await scene.delete("two")
        await scene.gone(["two"])
        await scene.running(3)
        assert scene.seen(await scene.pod("late"))["main"] == seen["one"]
