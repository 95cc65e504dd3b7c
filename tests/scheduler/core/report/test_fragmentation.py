"""What is unusable can take no pod of any kind, and what is usable can take one: tried by real decisions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.plan import Alone, Explain, Retire
from scheduler.core.model.pod_kind import Kind
from scheduler.core.model.verdict import Code
from scheduler.core.report.fragmentation import Cause, unusable_nano
from tests.scheduler.core.objects import NANO, cluster, node, pod, reservation
from tests.scheduler.core.report.fragmented import (
    CARD_MIB,
    SETTINGS,
    Machine,
    Shared,
    alone,
    kinds,
    left_of,
    machines,
    pod_of,
)

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
