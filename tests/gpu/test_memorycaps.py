from __future__ import annotations

import msgspec
import pytest

from gpu.limits import Cap, MemoryCaps, caps
from gpu.request import ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk, SharedAsk
from gpu.translation import Translation, Wishes

NONE, WISHED, ALL = MemoryCaps


def asking(*asks: SharedAsk, wishes: bool = True) -> Translation:
    container = ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0, "main"), asks)
    return Translation(dialect="hami", request=GpuRequest((container,)), wishes=Wishes(memory_cap=wishes))


@pytest.mark.parametrize(
    ("ask", "cap"),
    [
        (FractionAsk(500_000_000), Cap(nano=500_000_000)),
        (FractionAsk(500_000_000, limit_nano=750_000_000), Cap(nano=750_000_000)),
        (FractionAsk(500_000_000, profile="1g.10gb"), Cap(nano=500_000_000)),
        (MemoryAsk(4096), Cap(mib=4096)),
        (MemoryAsk(4096, limit_mib=6144), Cap(mib=6144)),
    ],
)
def test_the_limit_is_the_cap_and_else_what_is_asked(ask: SharedAsk, cap: Cap) -> None:
    assert caps(asking(ask), WISHED) == (cap,)


def test_each_device_has_its_own_and_asks_of_one_seat_are_one() -> None:
    asks = MemoryAsk(1024, seat="a"), MemoryAsk(2048), MemoryAsk(512, seat="a", limit_mib=1024)
    assert caps(asking(*asks), WISHED) == (Cap(mib=2048), Cap(mib=2048))


@pytest.mark.parametrize(
    ("wishes", "which", "is_capped"),
    [
        (True, NONE, False),
        (True, WISHED, True),
        (True, ALL, True),
        (False, NONE, False),
        (False, WISHED, False),
        (False, ALL, True),
    ],
)
def test_the_setting_says_whose_caps_are_written(*, wishes: bool, which: MemoryCaps, is_capped: bool) -> None:
    assert bool(caps(asking(MemoryAsk(1), wishes=wishes), which)) is is_capped


def test_who_can_not_be_read_has_none() -> None:
    assert caps(None, ALL) == ()
    assert caps(msgspec.structs.replace(asking(), request=GpuRequest()), ALL) == ()
