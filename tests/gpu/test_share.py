from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.request import FractionAsk, MemoryAsk, charge_nano
from gpu.share import NANO_PER_DEVICE, mib_from_nano, nano_from_memory, portion_text

CARDS = st.integers(1, 200_000)


@pytest.mark.parametrize(
    ("mem_mib", "card_mib", "nano"),
    [
        (40960, 81920, 500_000_000),
        (1, 3, 333_333_334),
        (2000, 46068, 43_414_084),
        (81920, 81920, NANO_PER_DEVICE),
        (1, 1_000_000_000, 1),
        (1, 2**40, 1),
        (81921, 81920, None),
        (1, 0, None),
        (2**64 - 1, 81920, None),
    ],
)
def test_memory_costs_its_part_of_the_card_rounded_up(mem_mib: int, card_mib: int, nano: int | None) -> None:
    assert nano_from_memory(mem_mib, card_mib) == nano


def test_as_many_shares_of_memory_fit_as_the_card_holds_and_not_one_more() -> None:
    each = nano_from_memory(2000, 46068)
    assert each is not None
    assert NANO_PER_DEVICE // each == 23 == 46068 // 2000


@given(CARDS, st.data())
def test_shares_that_fit_the_device_never_exceed_its_memory(card_mib: int, data: st.DataObject) -> None:
    total_nano = total_mib = 0
    for mem_mib in data.draw(st.lists(st.integers(1, card_mib), max_size=50)):
        nano = nano_from_memory(mem_mib, card_mib)
        assert nano is not None
        if total_nano + nano <= NANO_PER_DEVICE:
            total_nano += nano
            total_mib += mem_mib
    assert total_mib <= card_mib


@given(CARDS, st.data())
def test_memory_that_fills_the_card_exactly_is_refused_only_by_rounding(card_mib: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, card_mib))
    charges = [nano_from_memory(part, card_mib) for part in (first, card_mib - first) if part]
    total = sum(charge for charge in charges if charge is not None)
    assert NANO_PER_DEVICE <= total <= NANO_PER_DEVICE + 1


@given(CARDS, st.integers(0, NANO_PER_DEVICE))
def test_a_share_stands_for_no_more_memory_than_it_pays(card_mib: int, nano: int) -> None:
    mem_mib = mib_from_nano(nano, card_mib)
    charge = nano_from_memory(mem_mib, card_mib)
    assert charge is not None
    assert charge <= nano


@given(CARDS, st.data())
def test_a_charge_of_memory_gives_that_memory_back(card_mib: int, data: st.DataObject) -> None:
    mem_mib = data.draw(st.integers(1, card_mib))
    nano = nano_from_memory(mem_mib, card_mib)
    assert nano is not None
    assert mib_from_nano(nano, card_mib) == mem_mib


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "0.00"),
        (1, "0.00"),
        (4_999_999, "0.00"),
        (5_000_000, "0.01"),
        (10_000_000, "0.01"),
        (500_000_000, "0.50"),
        (333_000_000, "0.33"),
        (999_999_999, "1.00"),
        (NANO_PER_DEVICE, "1.00"),
    ],
)
def test_a_portion_is_written_with_two_decimals(nano: int, text: str) -> None:
    assert portion_text(nano) == text


@given(st.integers(0, 100))
def test_a_portion_of_two_decimals_is_written_as_go_prints_it(cents: int) -> None:
    assert portion_text(cents * 10_000_000) == f"{cents / 100:.2f}"


@given(st.integers(0, NANO_PER_DEVICE))
def test_a_portion_is_off_by_at_most_half_a_cent(nano: int) -> None:
    whole, cents = portion_text(nano).split(".")
    assert abs((int(whole) * 100 + int(cents)) * 10_000_000 - nano) <= 5_000_000


@pytest.mark.parametrize(
    ("mem_mib", "card_mib", "text"),
    [(2000, 15109, "0.14"), (2000, 81920, "0.03"), (1, 81920, "0.01"), (8192, 81920, "0.10"), (81920, 81920, "1.00")],
)
def test_a_portion_that_memory_comes_to_is_rounded_up_as_kai_counts_it(mem_mib: int, card_mib: int, text: str) -> None:
    nano = nano_from_memory(mem_mib, card_mib)
    assert nano is not None
    assert portion_text(nano, of_memory=True) == text


@pytest.mark.parametrize(
    ("ask", "card_mib", "nano"),
    [
        (FractionAsk(250_000_000), 0, 250_000_000),
        (FractionAsk(NANO_PER_DEVICE), 81920, NANO_PER_DEVICE),
        (FractionAsk(NANO_PER_DEVICE + 1), 81920, None),
        (MemoryAsk(1024), 4096, 250_000_000),
        (MemoryAsk(1024), 0, None),
        (MemoryAsk(4097), 4096, None),
    ],
)
def test_an_ask_is_charged_for_the_card_that_it_gets(
    ask: FractionAsk | MemoryAsk, card_mib: int, nano: int | None
) -> None:
    assert charge_nano(ask, card_mib) == nano
