from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.aligned_timer import beat, next_beat_s, until_beat


@pytest.mark.parametrize(
    ("now_s", "every_s", "at_s"),
    [(0.0, 1.0, 1.0), (7.0, 1.0, 8.0), (7.4, 1.0, 8.0), (7.6, 1.0, 9.0), (7.999_999, 1.0, 9.0), (7.6, 0.5, 8.0)],
)
def test_the_next_beat_is_a_multiple_and_at_least_half_a_pause_away(now_s: float, every_s: float, at_s: float) -> None:
    assert next_beat_s(now_s, every_s) == at_s


@given(st.floats(0, 1e7), st.sampled_from([0.01, 0.25, 0.5, 1.0, 10.0]))
def test_a_pause_is_half_to_one_and_a_half_of_what_was_asked(now_s: float, every_s: float) -> None:
    pause_s = next_beat_s(now_s, every_s) - now_s
    assert 0.5 - 1e-6 <= pause_s / every_s <= 1.5 + 1e-6


async def test_loops_that_began_at_other_times_look_together() -> None:
    await beat(1.0)
    began_s = anyio.current_time()
    looks: list[tuple[str, float]] = []

    async def look(name: str, after_s: float) -> None:
        await anyio.sleep(after_s)
        for _ in range(3):
            await beat(1.0)
            looks.append((name, anyio.current_time() - began_s))

    async def wait(name: str, after_s: float) -> None:
        await anyio.sleep(after_s)
        for _ in range(3):
            with until_beat(1.0):
                await anyio.Event().wait()
            looks.append((name, anyio.current_time() - began_s))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look, "a", 0.0)
        tasks.start_soon(look, "b", 0.2)
        tasks.start_soon(wait, "c", 0.4)
    assert sorted(looks) == [(name, at_s) for name in "abc" for at_s in (1.0, 2.0, 3.0)]
