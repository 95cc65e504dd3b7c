from __future__ import annotations

import gc

import anyio

from runtime.process import HARDLY_EVER, lasting, rare_collections, trim_now_and_then

VIRTUAL_TIME = True


class _Musl:
    """A C library that has none of it."""


class _Counting:
    """A C library that counts how often it is asked to give pages back."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def malloc_trim(self, pad: int) -> int:
        self.asked.append(pad)
        return 1


async def test_free_pages_are_given_back_once_a_minute() -> None:
    library = _Counting()
    with anyio.move_on_after(330):
        await trim_now_and_then(library)
    assert library.asked == [0] * 5


async def test_another_c_library_is_left_as_it_is() -> None:
    await trim_now_and_then(_Musl())
    assert anyio.current_time() == 0


def test_garbage_is_looked_for_seldom_while_a_cluster_is_simulated_and_as_before_then() -> None:
    before = gc.get_threshold()
    with rare_collections():
        assert gc.isenabled()
        assert gc.get_threshold()[0] >= 100 * before[0]
    assert gc.get_threshold() == before
    with rare_collections(HARDLY_EVER):
        assert gc.get_threshold()[0] == HARDLY_EVER
    assert gc.get_threshold() == before


def test_what_is_there_is_looked_through_no_more_and_what_comes_later_is() -> None:
    made = [[number] for number in range(1000)]
    before = gc.get_threshold()
    with lasting() as keep_what_is_there:
        assert gc.get_threshold() == before
        keep_what_is_there()
        frozen = gc.get_freeze_count()
        assert frozen > len(made)
        assert gc.get_threshold()[0] > before[0]
        del made
        assert gc.get_freeze_count() <= frozen - 1000
        later: list[object] = []
        later.append(later)
        del later
        assert gc.collect() > 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
