from __future__ import annotations

from collections.abc import Sequence

import pytest

from nodeagent.core.devices import Card, Lost, Machine

A, B, C = (Card(uuid=f"GPU-{name}", index=index) for index, name in enumerate("abc"))


@pytest.mark.parametrize(
    ("answering", "lost_at", "expected"),
    [
        ([A, B, C], [], []),
        ([A, C], [1], [B]),
        ([], [0, 1, 2], [A, B, C]),
        # The driver counts one less, and has numbered the others again: nobody can say which one is lost.
        ([A, Card(uuid="GPU-c", index=1)], [2], []),
        # Another one is in its place.
        ([A, Card(uuid="GPU-d", index=1), C], [], []),
        ([A, B, C], [3], []),
    ],
)
def test_a_lost_gpu_is_the_one_that_had_its_index_and_does_not_answer(
    answering: Sequence[Card], lost_at: Sequence[int], expected: Sequence[Card]
) -> None:
    machine = Machine(tuple(answering), {}, tuple(Lost(index, f"lost at {index}") for index in lost_at))
    assert machine.lost_of([A, B, C]) == {card.uuid: (card, f"lost at {card.index}") for card in expected}
