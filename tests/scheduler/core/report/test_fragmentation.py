"""What is unusable can take no pod of any kind, and what is usable can take one: tried by real decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.plan import Alone, Explain, Retire
from scheduler.core.model.pod_kind import LEAST_PODS, Kind
from scheduler.core.model.settings import NodePool
from scheduler.core.model.verdict import Code
from scheduler.core.nodes.table import GPUS
from scheduler.core.report.fragmentation import (
    MOST_KEPT,
    MOST_LOOKED_AT,
    Cause,
    Use,
    counted_kinds,
    unusable_nano,
    use_of_node,
)
from scheduler.core.report.pool_use import Pool, fragmented_pools, use_of_pools
from tests.scheduler.core.objects import NANO, bind_request, bound, cluster, node, pod, reservation
from tests.scheduler.core.report.fragmented import (
    CARD_MIB,
    SETTINGS,
    Machine,
    Shared,
    alone,
    counted_of,
    kinds,
    left_of,
    machines,
    pod_of,
)
from wire import names

_PLENTY = 1 << 40
_WHOLE, _HALF, _MEMORY = Kind(1, 1_000, 1_000, 1_024), Kind(1, 500, 1_000, 1_024), Kind(1, 0, 0, 0, 12_000)
_USED = 7 * NANO // 10


def _unusable(machine: Machine, kinds: Sequence[Kind]) -> dict[Cause, int]:
    return unusable_nano(left_of(alone(machine), "n1"), kinds, SETTINGS)


# --- by decisions --------------------------------------------------------------------------------------------------
def _is_taken(machine: Machine, kind: Kind) -> bool:
    """Whether a decision places a pod of a kind there, or gives a device back for it."""
    made = cluster(*machine.objects(), pod_of(kind), settings=SETTINGS)
    return any(
        isinstance(entry, Alone | Retire)
        or (isinstance(entry, Explain) and entry.verdict.code is Code.WAITING_FOR_DEVICE)
        for entry in made.decide(0).entries
    )


def _takes(machine: Machine, device: int, kind: Kind) -> bool:
    """Whether a device takes a pod of a kind, beside any others, while the rest of the node's devices are full."""
    others = [number for number in range(machine.gpus + len(machine.shared)) if number != device]
    return any(_is_taken(machine.left(device, *some), kind) for some in combinations(others, kind.devices - 1))


@given(machine=machines(), known=st.lists(kinds(), min_size=1, max_size=2))
def test_what_is_unusable_takes_no_pod_of_any_kind_and_what_is_usable_takes_one(
    machine: Machine, known: list[Kind]
) -> None:
    free = [NANO] * machine.gpus + [NANO - each.used_nano for each in machine.shared]
    expected = sum(
        nano for device, nano in enumerate(free) if nano and not any(_takes(machine, device, kind) for kind in known)
    )
    assert sum(_unusable(machine, known).values()) == expected


# --- by cause ------------------------------------------------------------------------------------------------------
@given(machine=machines(3, 3), known=st.lists(kinds(), min_size=1, max_size=4))
def test_with_more_of_what_is_short_it_is_usable_and_of_pieces_and_closed_devices_it_is_not(
    machine: Machine, known: list[Kind]
) -> None:
    left = left_of(alone(machine), "n1")
    before = unusable_nano(left, known, SETTINGS)
    one = {Cause.CPU: {"cpu_milli": _PLENTY}, Cause.MEMORY: {"mem_mib": _PLENTY}, Cause.POD_SLOTS: {"pods": _PLENTY}}
    several: dict[str, int] = {}
    for cause, more in one.items():
        after = unusable_nano(msgspec.structs.replace(left, **more), known, SETTINGS)
        assert sum(after.values()) <= sum(before.values()) - before.get(cause, 0)
        if not before.keys() & {*one, Cause.CLOSED}:
            assert sum(before.values()) == sum(after.values()), "none of the three is enough alone"
        several |= more
    with_all = unusable_nano(msgspec.structs.replace(left, **several), known, SETTINGS)
    lasting = (Cause.NOT_READY, Cause.CORDONED, Cause.CLOSED, Cause.PIECES)
    assert with_all.keys() <= set(lasting)
    assert [with_all.get(cause, 0) for cause in (Cause.NOT_READY, Cause.CORDONED, Cause.PIECES)] == [
        before.get(cause, 0) for cause in (Cause.NOT_READY, Cause.CORDONED, Cause.PIECES)
    ]


@pytest.mark.parametrize(
    ("machine", "known", "expected"),
    [
        (Machine(gpus=2, shared=(Shared(_USED),)), [_WHOLE], {Cause.PIECES: NANO - _USED}),
        (Machine(gpus=2, shared=(Shared(_USED),)), [_WHOLE, _HALF], {Cause.PIECES: NANO - _USED}),
        (Machine(gpus=2, shared=(Shared(NANO // 2),)), [_HALF], {}),
        (Machine(gpus=2, shared=(Shared(NANO // 2),)), [_MEMORY], {Cause.PIECES: NANO // 2}),
        (Machine(gpus=2, has_cards=False), [_MEMORY], {Cause.PIECES: 2 * NANO}),
        (Machine(gpus=3), [msgspec.structs.replace(_WHOLE, devices=4)], {Cause.PIECES: 3 * NANO}),
        (Machine(gpus=2, cpu_milli=999), [_WHOLE], {Cause.CPU: 2 * NANO}),
        # The reservation pod that opens a device needs CPU, memory and a slot too; what is shared already has one.
        (Machine(gpus=2, cpu_milli=1_499), [_HALF], {Cause.CPU: 2 * NANO}),
        (Machine(gpus=2, mem_mib=1_500, shared=(Shared(NANO // 2),)), [_HALF], {Cause.MEMORY: 2 * NANO}),
        (Machine(gpus=2, pods=1, shared=(Shared(NANO // 2),)), [_HALF], {Cause.POD_SLOTS: 2 * NANO}),
        (Machine(gpus=2, pods=1, cpu_milli=1_000), [_HALF], {Cause.SEVERAL: 2 * NANO}),
        (Machine(gpus=2, shared=(Shared(NANO // 4, is_ill=True),)), [_HALF], {Cause.CLOSED: 3 * NANO // 4}),
        (Machine(gpus=1, shared=(Shared(),)), [msgspec.structs.replace(_WHOLE, devices=2)], {}),
        (Machine(gpus=1, shared=(Shared(deleting=True),)), [msgspec.structs.replace(_WHOLE, devices=2)], {}),
        (Machine(gpus=1, shared=(Shared(deleting=True),)), [_HALF], {Cause.CLOSED: NANO}),
        (Machine(gpus=2, mode="multiplied"), [_HALF], {Cause.PIECES: 2 * NANO}),
        (Machine(gpus=2, ready=False, cordoned=True), [_WHOLE], {Cause.NOT_READY: 2 * NANO}),
        (Machine(gpus=1, cordoned=True, shared=(Shared(_USED),)), [_WHOLE], {Cause.CORDONED: 2 * NANO - _USED}),
        # Of what nobody asks for nothing can be said.
        (Machine(gpus=2, cpu_milli=0, shared=(Shared(_USED),)), [], {}),
        (Machine(gpus=2, shared=(Shared(_USED, is_ill=True),)), [], {Cause.CLOSED: NANO - _USED}),
    ],
)  # fmt: skip
def test_the_cause_is_what_is_short(machine: Machine, known: list[Kind], expected: dict[Cause, int]) -> None:
    assert _unusable(machine, known) == expected


def test_where_more_is_used_than_the_node_offers_no_device_is_free_and_no_share_is_placed() -> None:
    held = reservation("g", book={"x": NANO // 2}, uuid="GPU-1", mem_mib=CARD_MIB)
    made = cluster(node(gpus=2), held, pod("w", gpus=2, bound_to="n1"), settings=SETTINGS)
    assert unusable_nano(left_of(made, "n1"), [_HALF], SETTINGS) == {Cause.PIECES: NANO // 2}
    made.upsert_pod(pod_of(_HALF))
    assert not any(isinstance(entry, Alone) for entry in made.decide(0).entries)


# What is unusable of pools is what is unusable of their nodes, one by one.

_POOLS: tuple[dict[str, str], ...] = (
    {},
    {names.NODE_GPU_PRODUCT: "H100"},
    {names.NODE_GPU_PRODUCT: "H100", names.NODE_POOL_LABEL: "team"},
)


def _pool(labels: dict[str, str]) -> Pool:
    return Pool(labels.get(names.NODE_POOL_LABEL, ""), labels.get(names.NODE_GPU_PRODUCT, ""))


@given(
    placed=st.lists(st.tuples(machines(3, 3), st.sampled_from(_POOLS)), max_size=5), known=st.lists(kinds(), max_size=5)
)
def test_pools_are_the_sums_of_their_nodes(placed: list[tuple[Machine, dict[str, str]]], known: list[Kind]) -> None:
    objects: list[Any] = []
    for number, (machine, labels) in enumerate(placed):
        objects += machine.objects(f"n{number}", labels)
    made = cluster(*objects, settings=SETTINGS)
    expected: dict[Pool, Counter[Cause]] = {}
    for number, (machine, labels) in enumerate(placed):
        if machine.gpus or machine.shared:
            sums = expected.setdefault(_pool(labels), Counter())
            sums.update(unusable_nano(left_of(made, f"n{number}"), known, SETTINGS))
    found = fragmented_pools(made.refresh(), known, SETTINGS)
    assert found == {pool: {cause: expected[pool][cause] for cause in Cause} for pool in expected}
    uses = use_of_pools(made.ledger)
    of_nodes = [use_of_node(*counted_of(made, f"n{number}")) for number in range(len(placed))]
    assert _sums(of_nodes) == _sums(uses.values())
    for pool, use in uses.items():
        assert sum(found[pool].values()) <= use.free + use.pieces + use.stranded


def _sums(uses: Iterable[Use]) -> list[int]:
    return [sum(amounts) for amounts in zip(*map(msgspec.structs.astuple, uses), strict=True) if any(amounts)]


def test_only_nodes_of_the_own_node_pool_are_looked_at() -> None:
    team = {names.NODE_POOL_LABEL: "team"}
    made = cluster(node("n1", gpus=1, ready=False), node("n2", gpus=2, ready=False, labels=team), node("n3", gpus=0))
    found = fragmented_pools(made.refresh(), [], SETTINGS, NodePool(key=names.NODE_POOL_LABEL, value="team"))
    assert {pool: causes[Cause.NOT_READY] for pool, causes in found.items()} == {Pool("team", ""): 2 * NANO}


def test_no_node_no_pool() -> None:
    assert fragmented_pools(cluster().refresh(), [], SETTINGS) == {}


def test_amounts_beyond_all_bounds_fit_nowhere() -> None:
    huge = Kind(1 << 62, 0, 1 << 62, 1 << 62, 1 << 62)
    made = cluster(node(gpus=2), reservation("g", book={"x": NANO // 2}), pod("w", bound_to="n1"), settings=SETTINGS)
    assert fragmented_pools(made.refresh(), [huge], SETTINGS)[Pool("", "")][Cause.PIECES] == 3 * NANO // 2


# Which kinds of pods say whether free GPUs are of use.

_COUNTED_KINDS_HALF, _COUNTED_KINDS_WHOLE, _SMALL = (
    Kind(1, 500, 1_000, 0),
    Kind(1, 1_000, 1_000, 0),
    Kind(1, 300, 500, 0),
)


def test_of_few_pods_nothing_is_usual_so_those_that_wait_count_alone() -> None:
    assert counted_kinds({_COUNTED_KINDS_HALF: LEAST_PODS - 1}, {_COUNTED_KINDS_WHOLE: 1}) == (_COUNTED_KINDS_WHOLE,)
    assert counted_kinds({_COUNTED_KINDS_HALF: LEAST_PODS}, {_COUNTED_KINDS_WHOLE: 1}) == (
        _COUNTED_KINDS_HALF,
        _COUNTED_KINDS_WHOLE,
    )
    assert counted_kinds({_COUNTED_KINDS_HALF: 4 * LEAST_PODS}, {_COUNTED_KINDS_WHOLE: 1}, arrival=5) == (
        _COUNTED_KINDS_WHOLE,
    )


def test_rare_kinds_do_not_count_unless_they_wait() -> None:
    assert counted_kinds({_COUNTED_KINDS_HALF: 99, _SMALL: 1}, {}) == (_COUNTED_KINDS_HALF,)
    assert counted_kinds({_COUNTED_KINDS_HALF: 99, _SMALL: 1}, {_SMALL: 1}) == (_SMALL,)


def test_of_a_kind_that_asks_for_more_in_everything_nothing_depends() -> None:
    larger = [Kind(2, 500, 1_000, 0), Kind(1, 501, 1_000, 0), Kind(1, 500, 1_001, 0), Kind(1, 500, 1_000, 1)]
    assert counted_kinds({}, dict.fromkeys([*larger, _COUNTED_KINDS_HALF], 1)) == (_COUNTED_KINDS_HALF,)
    memory, more = Kind(1, 0, 0, 0, 4_000), Kind(1, 0, 0, 0, 8_000)
    assert set(counted_kinds({}, {more: 1, memory: 1, _COUNTED_KINDS_HALF: 1, _COUNTED_KINDS_WHOLE: 1})) == {
        memory,
        _COUNTED_KINDS_HALF,
        _COUNTED_KINDS_WHOLE,
    }


@given(machine=machines(3, 3), known=st.lists(kinds(), min_size=1, max_size=12))
def test_what_is_left_out_changes_nothing(machine: Machine, known: list[Kind]) -> None:
    left = left_of(alone(machine), "n1")
    kept = counted_kinds({}, dict.fromkeys(known, 1))
    assert unusable_nano(left, kept, SETTINGS) == unusable_nano(left, known, SETTINGS)


def test_however_many_kinds_there_are_few_are_kept_and_usual_ones_first() -> None:
    usual = {Kind(1, 400 + number, 4_000 - number, 0): LEAST_PODS for number in range(4)}
    odd = {Kind(1, 1 + number, 5_000_000 - number, 0): 2 for number in range(2 * MOST_LOOKED_AT)}
    found = counted_kinds(usual, odd)
    assert len(found) == MOST_KEPT
    assert found[:4] == tuple(usual)


HALF, QUARTER = NANO // 2, NANO // 4
ASKS = pod("a", fraction="0.5")
SHARED = (
    reservation("g", uuid="GPU-1", book={"uid-a": HALF, "uid-b": QUARTER}),
    bound(pod("a", fraction="0.5"), "n1", ("g", HALF), uuid="GPU-1"),
    bound(pod("b", fraction="0.25"), "n1", ("g", QUARTER), uuid="GPU-1"),
)


def use(*objects: Any) -> Use:
    (found,) = use_of_pools(cluster(*objects).refresh()).values()
    return found


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([node(gpus=4)], Use(free=4 * NANO)),
        ([node(gpus=4), pod("w", gpus=3, bound_to="n1")], Use(used=3 * NANO, free=NANO)),
        ([node(gpus=4), *SHARED], Use(used=HALF + QUARTER, free=3 * NANO, pieces=QUARTER)),
        # On its way counts as used.
        ([node(gpus=4), ASKS, bind_request(ASKS, "n1", ("g", HALF))],
         Use(used=HALF, free=3 * NANO, pieces=HALF)),
        ([node(gpus=4, cordoned=True), *SHARED], Use(used=HALF + QUARTER, stranded=3 * NANO + QUARTER)),
        ([node(gpus=4, ready=False)], Use(stranded=4 * NANO)),
        ([node(gpus=4, cpu="8"), pod("c", cpu="8", bound_to="n1")], Use(stranded=4 * NANO)),
        ([node(gpus=4, memory="8Gi"), pod("c", memory="8Gi", bound_to="n1")], Use(stranded=4 * NANO)),
        ([node(gpus=4, pods=1), pod("c", bound_to="n1")], Use(stranded=4 * NANO)),
        # A shared device that is closed: its plugin calls it unhealthy.
        ([node(gpus=4), reservation("g", book={"uid-a": HALF}, is_ill=True)],
         Use(used=HALF, free=3 * NANO, stranded=HALF)),
        # Fewer devices than are used: some have fallen ill.
        ([node(gpus=1), pod("w", gpus=3, bound_to="n1")], Use(used=3 * NANO)),
    ],
)  # fmt: skip
def test_all_that_a_node_has_is_used_free_in_pieces_or_stranded(objects: list[Any], expected: Use) -> None:
    made = cluster(*objects)
    (found,) = use_of_pools(made.refresh()).values()
    assert found == expected == use_of_node(*counted_of(made, "n1"))
    offered = int(made.ledger.table.total[GPUS, made.ledger.row_of["n1"]]) * NANO
    assert found.used + found.free + found.pieces + found.stranded == max(offered, found.used)


def test_pools_are_told_apart_by_what_their_nodes_labels_say_and_nodes_without_gpus_are_in_none() -> None:
    a100 = {names.NODE_GPU_PRODUCT: "NVIDIA-A100"}
    team = {**a100, names.NODE_POOL_LABEL: "team"}
    nodes = [
        node("n1", gpus=4, labels=a100),
        node("n2", gpus=2, labels=a100),
        node("n3", gpus=8, labels=team),
        node("n4", gpus=1),
        node("n5", gpus=0, labels=team),
    ]
    assert use_of_pools(cluster(*nodes).refresh()) == {
        Pool("", ""): Use(free=NANO),
        Pool("", "NVIDIA-A100"): Use(free=6 * NANO),
        Pool("team", "NVIDIA-A100"): Use(free=8 * NANO),
    }


def test_no_node_no_pool_in_pool_use() -> None:
    assert use_of_pools(cluster().refresh()) == {}
