"""Sixteen halves at once on eight GPUs, again and again, while answers and events come late.

KAI went wrong here in 8 of 8 rounds when the pods came without admission's env: a card at 1.5, or pods stuck behind
surplus reservations.
"""

from __future__ import annotations

import random

import pytest

from tests.e2e.cluster import PATIENCE_S, Scene, eventually, share
from tests.e2e.conftest import SetLateScene
from tests.whole import IS_WHOLE

pytestmark = pytest.mark.cluster

ROUNDS = 50 if IS_WHOLE else 2


@pytest.mark.timeout(600)
async def test_sixteen_halves_share_eight_gpus_two_by_two_in_every_round(set_late_scene: SetLateScene) -> None:
    rng = random.Random(16)
    async with set_late_scene(["1x8x80GiB"]) as scene:
        for number in range(ROUNDS):
            await _round(scene, rng, number)


async def _round(scene: Scene, rng: random.Random, number: int) -> None:
    names = [f"r{number}-p{i}" for i in range(16)]
    rng.shuffle(names)
    await scene.create(*(share(name, "0.5") for name in names))
    pods = await scene.running(16)
    by_device = {uuid: sharers for uuid, sharers in scene.sharers(pods).items() if sharers}
    assert sorted(len(sharers) for sharers in by_device.values()) == [2] * 8, f"round {number}: {by_device}"

    async def none_is_left_over() -> bool | None:
        return [r["status"]["phase"] for r in await scene.reservations()] == ["Running"] * 8 or None

    await eventually(none_is_left_over, f"eight reservations in round {number}", within_s=PATIENCE_S)
    assert not scene.refusals(), f"round {number}"
    await scene.delete(*names)
    if rng.random() < 0.5:
        await scene.empty()
    else:
        await scene.gone(names)
