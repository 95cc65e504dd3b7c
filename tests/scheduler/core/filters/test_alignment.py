"""Which pods a kubelet aligns, and which NUMA nodes they get; compared with the merging of hints as kubelet does it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import combinations, product

import msgspec
import pytest

from scheduler.core.convert.numa import numa_ask
from scheduler.core.filters.numa import NumaAlignment, admits, aligned, empty, free_of
from scheduler.core.filters.registry import FILTERS, OK
from scheduler.core.model.numa import AlignedPart, Amounts, NumaAsk, NumaRecord
from scheduler.core.model.pod_class import Constraints
from tests.scheduler.core.device_objects import node
from tests.scheduler.core.numa_objects import GPU, RESTRICTED, SINGLE, record, spec
from tests.scheduler.core.objects import pod
from tests.whole import seeds

NIC = "example.com/nic"


def _ask(*parts: Mapping[str, int]) -> NumaAsk:
    """Containers that go on, with these amounts; CPUs in milli."""
    whole: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            whole[name] = whole.get(name, 0) + amount
    return NumaAsk(tuple(AlignedPart(_sorted(part)) for part in parts), _sorted(whole))


def _sorted(amounts: Mapping[str, int]) -> Amounts:
    return tuple(sorted(amounts.items()))


@pytest.mark.parametrize(
    ("zones", "asked", "policy", "scope", "is_taken"),
    [
        ([{GPU: 4}, {GPU: 4}], [{GPU: 4}], SINGLE, "container", True),
        ([{GPU: 4}, {GPU: 4}], [{GPU: 5}], SINGLE, "container", False),
        ([{GPU: 4}, {GPU: 4}], [{GPU: 5}], RESTRICTED, "container", True),
        ([{GPU: 4}, {GPU: 4}], [{GPU: 9}], RESTRICTED, "container", False),
        # What is left in all is enough, and not on one NUMA node.
        ([{GPU: (4, 2)}, {GPU: (4, 2)}], [{GPU: 3}], SINGLE, "container", False),
        ([{GPU: (4, 2)}, {GPU: (4, 2)}], [{GPU: 3}], RESTRICTED, "container", False),
        ([{GPU: (4, 2)}, {GPU: (4, 2)}], [{GPU: 2}], SINGLE, "container", True),
        # Two NUMA nodes are allowed only to who could not do with one.
        ([{GPU: (4, 3)}, {GPU: (4, 3)}], [{GPU: 5}], RESTRICTED, "container", True),
        # GPUs and CPUs have to be on the same ones.
        ([{GPU: 4, "cpu": (8, 2)}, {GPU: (4, 0), "cpu": 8}], [{GPU: 1, "cpu": 4000}], SINGLE, "container", False),
        ([{GPU: 4, "cpu": (8, 4)}, {GPU: (4, 0), "cpu": 8}], [{GPU: 1, "cpu": 4000}], SINGLE, "container", True),
        # One resource needs two NUMA nodes, another only one: kubelet finds no common set that both prefer.
        ([{GPU: 4, "cpu": 8}, {GPU: 4, "cpu": 8}], [{GPU: 1, "cpu": 12000}], RESTRICTED, "container", False),
        ([{GPU: 4, "cpu": 8}, {GPU: 4, "cpu": 8}], [{GPU: 8, "cpu": 12000}], RESTRICTED, "container", True),
        # Containers one by one, or the pod as a whole.
        ([{GPU: 4}, {GPU: 4}], [{GPU: 3}, {GPU: 3}], SINGLE, "container", True),
        ([{GPU: 4}, {GPU: 4}], [{GPU: 3}, {GPU: 3}], SINGLE, "pod", False),
        ([{GPU: 4}, {GPU: 4}], [{GPU: 2}, {GPU: 2}], SINGLE, "pod", True),
        ([{GPU: (4, 3)}, {GPU: (4, 0)}], [{GPU: 2}, {GPU: 2}], SINGLE, "container", False),
        # A resource that no NUMA node has is not aligned.
        ([{GPU: 4}, {GPU: 4}], [{GPU: 1, NIC: 3}], SINGLE, "container", True),
        ([{"cpu": 8}], [{GPU: 8}], SINGLE, "container", True),
    ],
)
def test_a_kubelet_takes_a_pod_if_each_part_fits_on_the_fewest_numa_nodes(
    zones: list[dict[str, object]], asked: list[dict[str, int]], policy: str, scope: str, is_taken: bool
) -> None:
    made = record(*zones, policy=policy, scope=scope)
    assert admits(made, free_of(made), _ask(*asked)) is is_taken


def test_the_lowest_numa_nodes_are_taken_and_charged() -> None:
    made = record({GPU: (4, 1)}, {GPU: 4}, {GPU: 4})
    left = aligned(made, free_of(made), _ask({GPU: 2}, {GPU: 1}))
    assert left == [[0], [2], [4]]
    assert free_of(made) == [[1], [4], [4]]
    assert empty(made) == [[4], [4], [4]]


def test_a_container_that_ends_first_has_to_fit_and_leaves_what_it_had() -> None:
    made = record({GPU: 4})
    brief = AlignedPart(((GPU, 3),), is_brief=True)
    assert aligned(made, free_of(made), NumaAsk((brief, AlignedPart(((GPU, 2),))), ((GPU, 3),))) == [[2]]
    too_large = AlignedPart(((GPU, 5),), is_brief=True)
    assert aligned(made, free_of(made), NumaAsk((too_large, AlignedPart(((GPU, 2),))), ((GPU, 5),))) is None


@pytest.mark.parametrize(
    ("zones", "brief", "then", "policy", "left"),
    [
        # The init container gets the lowest NUMA node, and its device has to be among those of the next one.
        ([{GPU: (4, 1)}, {GPU: 4}], [1], [4], SINGLE, None),
        ([{GPU: (4, 1)}, {GPU: 4}], [1], [4], RESTRICTED, None),
        ([{GPU: (4, 1)}, {GPU: 4}], [1], [1], SINGLE, [[0], [4]]),
        ([{GPU: (4, 1)}, {GPU: 4}], [2], [4], SINGLE, [[1], [0]]),
        # One of several later containers has it; those after it go where they like.
        ([{GPU: (4, 2)}, {GPU: 4}], [1], [2, 3], SINGLE, [[0], [1]]),
        ([{GPU: (4, 2)}, {GPU: 4}], [2], [1, 3], SINGLE, None),
        # Two init containers have the same device.
        ([{GPU: (4, 3)}, {GPU: 4}], [1, 3], [3], SINGLE, [[0], [4]]),
        ([{GPU: (4, 3)}, {GPU: 4}], [3, 1], [4], SINGLE, None),
        ([{GPU: 4}, {GPU: 4}], [5], [6], RESTRICTED, [[0], [2]]),
    ],
)
def test_a_container_is_put_where_what_an_init_container_had_is(
    zones: list[dict[str, object]], brief: list[int], then: list[int], policy: str, left: list[list[int]] | None
) -> None:
    made = record(*zones, policy=policy)
    parts = [AlignedPart(((GPU, amount),), is_brief=at < len(brief)) for at, amount in enumerate((*brief, *then))]
    assert aligned(made, free_of(made), NumaAsk(tuple(parts), ((GPU, sum(then)),))) == left


@pytest.mark.parametrize("seed", seeds(300))
def test_it_decides_as_the_merging_of_hints(seed: int) -> None:
    chance = random.Random(seed)
    zones = [
        {name: (has := chance.randint(0, 4), chance.randint(0, has)) for name in (GPU, NIC)}
        for _ in range(chance.randint(1, 4))
    ]
    policy = chance.choice((SINGLE, RESTRICTED))
    made = record(*zones, policy=policy)
    amounts = {name: chance.randint(1, 7) for name in chance.sample([GPU, NIC], chance.randint(1, 2))}
    taken = _merged(made, amounts)
    left = aligned(made, free_of(made), _ask(amounts))
    whole = sum(amount for name, amount in amounts.items() if name in made.resources)
    assert (left is not None) == (taken is not None)
    if left is not None and taken is not None:
        changed = {at for at, zone in enumerate(left) if zone != free_of(made)[at]}
        assert changed <= set(taken)
        assert sum(map(sum, free_of(made))) - sum(map(sum, left)) == whole


#: A set of NUMA nodes, and whether it is of the fewest that would do.
_Hint = tuple[tuple[int, ...], bool]


def _merged(made: NumaRecord, amounts: Mapping[str, int]) -> tuple[int, ...] | None:
    """What kubelet does: hints of each resource, all combinations of them, the best of what is in common.

    Of a resource that no NUMA node has any of, it gets no hints, and does without.
    """
    hinted = [(name, amount) for name, amount in amounts.items() if name in made.resources]
    hints = [list(_hints(made, name, amount)) or [((), False)] for name, amount in hinted]
    if not hints:
        return ()
    if made.is_single:
        hints = [[hint for hint in each if len(hint[0]) == 1 and hint[1]] for each in hints]
    best: _Hint | None = None
    for chosen in product(*hints):
        common = set(range(len(made.zones)))
        for zones, _ in chosen:
            common &= set(zones)
        is_preferred = all(preferred for _, preferred in chosen) and len({zones for zones, _ in chosen}) == 1
        if not common:
            continue
        merged = (tuple(sorted(common)), is_preferred)
        if best is None or (merged[1], -len(merged[0]), -_bits(merged[0])) > (best[1], -len(best[0]), -_bits(best[0])):
            best = merged
    return best[0] if best is not None and best[1] else None


def _bits(zones: tuple[int, ...]) -> int:
    return sum(1 << at for at in zones)


def _hints(made: NumaRecord, name: str, amount: int) -> Iterator[_Hint]:
    number = made.resources.index(name)
    every = [each for size in range(1, len(made.zones) + 1) for each in combinations(range(len(made.zones)), size)]
    enough = [each for each in every if sum(made.zones[at].capacity[number] for at in each) >= amount]
    fewest = min(map(len, enough), default=0)
    for each in enough:
        if sum(made.zones[at].available[number] for at in each) >= amount:
            yield each, len(each) == fewest


# Nodes whose kubelet could not align a pod even if nobody else were there.

_NODES = {
    "none": node("n1"),
    "two": msgspec.structs.replace(node("n1"), numa=record({GPU: (4, 0)}, {GPU: (4, 0)})),
    "one": msgspec.structs.replace(node("n1"), numa=record({GPU: 8})),
    "restricted": msgspec.structs.replace(node("n1"), numa=record({GPU: 4}, {GPU: 4}, policy=RESTRICTED)),
}


@pytest.mark.parametrize(
    ("gpus", "admitting"),
    [(1, {"none", "two", "one", "restricted"}), (5, {"none", "one", "restricted"}), (9, {"none"})],
)
def test_a_node_is_out_where_the_pod_would_be_refused_without_others(gpus: int, admitting: set[str]) -> None:
    asked = numa_ask(pod(spec=spec({GPU: str(gpus)})))
    assert asked is not None
    made = Constraints(aligned=asked)
    number = FILTERS.number(NumaAlignment)
    judged = {name: FILTERS.judge(each, made) for name, each in _NODES.items()}
    assert {name for name, found in judged.items() if found == OK} == admitting
    assert {found for found in judged.values() if found != OK} <= {number}
    assert NumaAlignment().effort(asked) == 4


def test_a_pod_that_gets_nothing_aligned_is_not_looked_at() -> None:
    assert NumaAlignment().asked(Constraints()) is None


def test_a_node_is_judged_again_when_it_reports_something_else() -> None:
    assert len({NumaAlignment().reads(each) for each in _NODES.values()}) == len(_NODES)
