from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.plugin.allocation import Place, preferred
from nodeagent.core.plugin.resources import Device, Resource, by_id, uuid_of
from nodeagent.core.plugin.settings import Policy


def all_of(**replicas: int) -> Mapping[str, Device]:
    made = tuple(Device(uuid=uuid, card=uuid, index="0", replicas=count) for uuid, count in replicas.items())
    return by_id(Resource("nvidia.com/x", made))


FOUR = all_of(a=0, b=0, c=0, d=0)
SHARED = all_of(a=4, b=4, c=4, d=4)


def free(**left: int) -> list[str]:
    """The last replicas of each GPU of SHARED."""
    return [f"{uuid}::{number}" for uuid, count in left.items() for number in range(4 - count, 4)]


# iktos: least shared first, distinct GPUs as far as they go, ties by the lowest UUID. NVIDIA: distributed and packed.
@pytest.mark.parametrize(
    ("left", "size", "policy", "gpus"),
    [
        (free(a=4, b=4, c=4, d=4), 1, Policy.DISTRIBUTED, ["a"]),
        (free(a=3, b=4, c=4, d=4), 1, Policy.DISTRIBUTED, ["b"]),
        (free(a=4, b=4, c=4, d=4), 4, Policy.DISTRIBUTED, ["a", "b", "c", "d"]),
        (free(a=4, b=4, c=4, d=4), 8, Policy.DISTRIBUTED, ["a", "b", "c", "d", "a", "b", "c", "d"]),
        (free(a=1, b=2, c=3, d=4), 2, Policy.DISTRIBUTED, ["d", "c"]),
        (free(a=1), 1, Policy.DISTRIBUTED, ["a"]),
        (free(a=1, b=1), 2, Policy.DISTRIBUTED, ["a", "b"]),
        (free(a=1, b=1), 3, Policy.DISTRIBUTED, ["a", "b"]),
        (free(a=4, b=3, c=2, d=1), 1, Policy.PACKED, ["d"]),
        (free(a=4, b=3, c=2, d=1), 2, Policy.PACKED, ["d", "c"]),
        (free(a=4, b=4), 1, Policy.PACKED, ["a"]),
    ],
)
def test_replicas(left: Sequence[str], size: int, policy: Policy, gpus: list[str]) -> None:
    chosen = preferred(left, [], size, devices=SHARED, policy=policy)
    assert [uuid_of(one) for one in chosen] == gpus
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(left)


def test_what_has_to_be_included_comes_first_and_its_gpu_counts_as_taken() -> None:
    left = free(a=3, b=2)
    chosen = preferred(left, ["a::3"], 2, devices=SHARED)
    assert chosen[0] == "a::3"
    assert uuid_of(chosen[1]) == "b"
    assert preferred(left, ["a::2", "a::3"], 2, devices=SHARED) == ["a::2", "a::3"]
    assert preferred(left, ["a::2", "a::3"], 1, devices=SHARED) == ["a::2", "a::3"]


ISLANDS: Mapping[str, Place] = {"a": (0, 0), "b": (0, 0), "c": (1, 1), "d": (1, 1)}


@pytest.mark.parametrize(
    ("left", "included", "size", "wanted", "chosen"),
    [
        ("abcd", "", 1, {"c"}, ["c"]),
        ("abcd", "", 2, {"c"}, ["c", "d"]),
        ("abcd", "", 1, (), ["a"]),
        ("abcd", "", 2, (), ["a", "b"]),
        ("acd", "", 1, (), ["a"]),
        ("acd", "", 2, (), ["c", "d"]),
        ("abc", "", 1, (), ["c"]),
        ("abcd", "c", 2, (), ["c", "d"]),
        ("abcd", "", 3, (), ["a", "b", "c"]),
        ("abcd", "", 4, (), ["a", "b", "c", "d"]),
        ("ab", "", 3, (), ["a", "b"]),
    ],
)
def test_exclusive_devices(left: str, included: str, size: int, wanted: Sequence[str], chosen: list[str]) -> None:
    found = preferred(list(left), list(included), size, devices=FOUR, wanted=wanted, places=ISLANDS)
    assert found == chosen


def test_the_rest_of_a_request_goes_to_the_smallest_island_that_has_enough_for_it() -> None:
    six = all_of(a=0, b=0, c=0, d=0, e=0, f=0)
    places = {each: (island, 0) for island, devices in enumerate(("abc", "de", "f")) for each in devices}
    assert preferred(list("abcdef"), [], 4, devices=six, places=places) == list("abcf")
    assert preferred(list("abcdef"), [], 5, devices=six, places=places) == list("abcde")


def test_within_an_island_one_numa_node_is_filled() -> None:
    places = {"a": (0, 0), "b": (0, 1), "c": (0, 1), "d": (0, 0)}
    assert preferred(list("abc"), [], 2, devices=FOUR, places=places) == ["b", "c"]
    assert preferred(list("abc"), [], 1, devices=FOUR, places=places) == ["a"]
    assert sorted(preferred(list("abcd"), [], 3, devices=FOUR, places=places)) in (
        list("abd"),
        list("acd"),
        list("abc"),
    )


def test_ids_that_are_not_ours_are_left_out() -> None:
    assert preferred(["x", "a"], ["y"], 2, devices=FOUR) == ["a"]


@given(
    st.lists(st.sampled_from(list(SHARED))),
    st.lists(st.sampled_from(list(SHARED))),
    st.integers(-1, 20),
    st.sampled_from(Policy),
)
def test_any_question_is_answered_from_what_is_free(
    left: list[str], included: list[str], size: int, policy: Policy
) -> None:
    chosen = preferred(left, included, size, devices=SHARED, policy=policy)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(left) | set(included)
    assert set(included) <= set(chosen)
    assert len(chosen) == max(len(set(included)), min(size, len(set(left) | set(included))))


def test_sixty_thousand_ids_take_less_than_a_second() -> None:
    many = all_of(**{f"g{number}": 7_500 for number in range(8)})
    began = time.process_time()
    assert len(preferred(list(many), [], 60_000, devices=many)) == 60_000
    assert time.process_time() - began < 1
