from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.plugin.health import Cure, Health, State
from nodeagent.core.plugin.offer import Remembered, decoded, encoded, with_seats, with_unlisted
from tests.nodeagent.core.machine import card, part, uuid


def test_what_is_written_is_read_again() -> None:
    ill = Health(state=State.ILL, reason="Xid79", since_ns=7, cure=Cure.RESET, driver="1", ill_at_ns=(3, 7))
    remembered = Remembered(
        (card(0), card(1, has_mig=True)), (part(1, 0, "1g.10gb"),), {uuid(0): ill}, {uuid(0): 0, uuid(1): 1}
    )
    assert decoded(encoded(remembered)) == remembered


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"cards": 3}', b"\xff", b"[" * 100_000])
def test_what_can_not_be_read_is_as_nothing(content: bytes) -> None:
    assert decoded(content) == Remembered()


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_as_nothing(content: bytes) -> None:
    assert isinstance(decoded(content), Remembered)


def test_a_card_that_is_not_listed_any_more_stays() -> None:
    assert [one.uuid for one in with_unlisted([card(0), card(1)], [card(1)])] == [uuid(0), uuid(1)]
    assert [one.uuid for one in with_unlisted([], [card(1), card(0)])] == [uuid(0), uuid(1)]
    assert with_unlisted([card(0, mem_mib=1)], [card(0)]) == (card(0),)


def test_a_card_keeps_the_index_that_it_had_first() -> None:
    seats = with_seats({}, [card(0), card(1), card(2)])
    assert seats == {uuid(0): 0, uuid(1): 1, uuid(2): 2}
    # The first has gone, and the driver numbers the others again.
    renumbered = [card(0), replace(card(1), index=0), replace(card(2), index=1)]
    assert with_seats(seats, renumbered) == seats
    # It is taken out, and another one is put into its place.
    exchanged = [replace(card(7), index=0), replace(card(1), index=1), replace(card(2), index=2)]
    assert with_seats(seats, exchanged) == {uuid(1): 1, uuid(2): 2, uuid(7): 0}
    assert with_seats(seats, [*renumbered, replace(card(7), index=2)])[uuid(7)] == 3
