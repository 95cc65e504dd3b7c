"""What a node says of its cards, in our annotation or NVIDIA's label."""

from __future__ import annotations

import pytest

from gpu.node_resources import cards_mib, integer
from wire import names

MOST = 16 * 1024 * 1024
BYTES = 1024 * 1024


@pytest.mark.parametrize(
    ("listed", "labelled", "expected"),
    [
        ("24576", "", (24576, 24576)),
        ("81920, 24576,40960", "", (24576, 81920)),
        # Ours is of each card, NVIDIA's label of one of them.
        ("24576,81920", "15109", (24576, 81920)),
        (f"1,{MOST}", "", (1, MOST)),
        # What can't be read in one place is not half believed.
        ("24576,", "15109", (15109, 15109)),
        ("24576,0", "15109", (15109, 15109)),
        ("24576,-1", "15109", (15109, 15109)),
        (f"24576,{MOST + 1}", "15109", (15109, 15109)),
        ("much", "15109", (15109, 15109)),
        ("", "1", (1, 1)),
        ("", str(MOST), (MOST, MOST)),
        # Above that it was written in bytes.
        ("", str(MOST + 1), (MOST // BYTES, MOST // BYTES)),
        ("", str(15109 * BYTES + 5), (15109, 15109)),
        ("", str(MOST * BYTES), (MOST, MOST)),
        ("", str((MOST + 1) * BYTES), (0, 0)),
        ("", "0", (0, 0)),
        ("", "-5", (0, 0)),
        ("", "much", (0, 0)),
        ("", "", (0, 0)),
    ],
)
def test_the_smallest_and_the_largest_card_are_told(listed: str, labelled: str, expected: tuple[int, int]) -> None:
    annotations = {names.NODE_CARDS: listed} if listed else {}
    labels = {names.NODE_GPU_MEMORY: labelled} if labelled else {}
    assert cards_mib(labels, annotations) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("7", 7),
        ("-7", -7),
        ("007", 7),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, 0),
        ("", 0),
        ("-", 0),
        ("--7", 0),
        ("+7", 0),
        ("7.0", 0),
        (" 7", 0),
        ("\u0667", 0),
        ("\u00b2", 0),
    ],
)
def test_an_integer_is_read_as_people_write_it(text: str, expected: int) -> None:
    assert integer(text) == expected
