"""The queues in ``top``: a tree with bars to scale, in eighty columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpu.share import NANO_PER_DEVICE
from ui.page.values import Changes, QueueLine
from ui.top.panels import queue_lines
from ui.top.screen import Letters, View, screen


def queue(name: str, parent: str = "", **gpus: float) -> QueueLine:
    amounts: dict[str, Any] = {f"{key}_nano": round(amount * NANO_PER_DEVICE) for key, amount in gpus.items()}
    limit = amounts.pop("limit_nano", -1)
    return QueueLine(name=name, parent=parent, is_counted=True, limit_nano=limit, **amounts)


QUEUES = (
    queue("research", quota=16, limit=24, fair=20, used=16, waiting=14),
    queue("vision", "research", quota=4, fair=4, used=6, waiting=0.25),
    queue("speech", "research", quota=2, fair=16, used=10),
    queue("idle"),
)


def lines(*queues: QueueLine, width: int = 80) -> list[str]:
    return [each.plain.rstrip() for each in queue_lines(queues, width)]


def test_queues_stand_below_their_parents_with_a_bar_each() -> None:
    assert lines(*QUEUES) == [
        "QUEUES, IN GPUS                                 USED   FAIR  QUOTA  LIMIT  WAITS",
        "idle                    ....................       0      0      0      -      0",
        "research                ################----      16     20     16     24     14",
        "  speech                ##########------....      10     16      2      -      0",
        "  vision                ####!!..............       6      4      4      -   0.25",
    ]


def test_the_documents_show_what_is_drawn() -> None:
    shown = [
        queue("lab", quota=-1 / NANO_PER_DEVICE, fair=28, used=23, waiting=9),
        queue("interactive", "lab", quota=2, limit=4, fair=1, used=2),
        queue("research", "lab", quota=16, fair=27, used=21, waiting=9),
        queue("production", quota=8, fair=1.45, used=1.45),
    ]
    page = (Path(__file__).parents[3] / "docs" / "top.md").read_text(encoding="utf-8")
    assert "\n".join(lines(*shown)) in page


def test_the_smallest_use_is_seen() -> None:
    assert lines(queue("big", fair=1000, used=1000), queue("small", used=0.1))[-1].split()[1] == "!" + "." * 19


def test_the_queues_of_each_node_pool_stand_apart() -> None:
    pools = [msgspec.structs.replace(each, node_pool=pool) for each, pool in zip(QUEUES, "aab", strict=False)]
    told = [text.partition("   ")[0] for text in lines(*pools, QUEUES[-1])]
    assert told == [
        "QUEUES, IN GPUS",
        "node pool default",
        "idle",
        "node pool a",
        "research",
        "  vision",
        "node pool b",
        "speech",
    ]


def test_the_name_of_a_node_pool_is_whole_in_a_narrow_terminal() -> None:
    pool = "a-pool-with-the-longest-name-that-a-label-may-have-" * 2
    shown = lines(msgspec.structs.replace(QUEUES[-1], node_pool=pool), width=40)
    assert f"node pool {pool}" in "".join(shown)
    assert max(map(len, shown[1:4])) <= 40


@pytest.mark.parametrize("width", [40, 79, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_no_name_is_cut(width: int) -> None:
    name = "a-department-with-a-long-name-" * 5
    shown = Changes(queues=(queue(name, fair=2, used=1), queue("child", name, fair=2, used=1)))
    made = screen(shown, Letters(), View(width, 24, queues=True))
    assert all(each.cell_len <= width for each in made.lines)
    assert name in "".join(each.plain.rstrip() for each in made.lines)


def test_what_is_not_counted_is_not_known_and_what_takes_nobody_says_why() -> None:
    part = QueueLine(name="part", gpu_quota="2", gpu_limit="-1")
    lost = QueueLine(name="lost", is_counted=True, limit_nano=-1, unusable="Queue lost can't be used: no parent")
    told = lines(part, lost)
    assert told[2] == "  takes nobody: Queue lost can't be used: no parent"
    assert told[3].split() == ["part", "~" * 20, "?", "?", "2", "-", "?"]
    assert lines() == ["There are no Queues here: there is none, or they can't be read."]


def test_queues_take_the_place_of_the_map_and_are_scrolled_like_it() -> None:
    queues = tuple(queue(f"q{at:02}", fair=1) for at in range(40))
    made = screen(Changes(queues=queues), Letters(), View(80, 20, queues=True, top=10))
    told = [each.plain for each in made.lines]
    assert told[3].startswith("q09")
    assert (made.top, told[-1].startswith("lines 11-24 of 41")) == (10, True)


def test_a_queue_moves_no_cursor() -> None:
    assert "\x1b" not in "".join(lines(queue("a\x1b[2J", used=1)))
