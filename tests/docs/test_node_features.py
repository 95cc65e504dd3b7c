"""What source systems do on a node: the reference answers every row, and a page of each system those that it has."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT

PAGE = "docs/reference/node-features.md"
CLEARML, ALIYUN, METAGPU, REPLICAS = "clearml", "aliyun", "metagpu", "replicas"
_FOUR = (CLEARML, ALIYUN, METAGPU, REPLICAS)
#: By row: its short name, and the systems that have it and whose page has to say what becomes of it.
FEATURES = {
    35: ("device plug-in", _FOUR),
    36: ("preferred allocation", (CLEARML, METAGPU, REPLICAS)),
    37: ("devices by variable", (ALIYUN, METAGPU, REPLICAS)),
    38: ("devices by volume mounts", (CLEARML, REPLICAS)),
    39: ("devices by CDI", ()),
    40: ("devices by UUID or index", _FOUR),
    41: ("device files", (CLEARML, REPLICAS)),
    42: ("end where the driver fails", (CLEARML, METAGPU, REPLICAS)),
    43: ("root of the driver", (CLEARML, REPLICAS)),
    44: ("runtime class", _FOUR),
    45: ("DaemonSet of an old API", (REPLICAS,)),
    46: ("register after kubelet's restart", (CLEARML, ALIYUN, REPLICAS)),
    47: ("settings while it runs", (CLEARML, ALIYUN, REPLICAS)),
    48: ("health by XIDs", (CLEARML, ALIYUN, REPLICAS)),
    49: ("XIDs to be ignored", (CLEARML, REPLICAS)),
    50: ("a GPU recovers", ()),
    51: ("pods by kubelet's API", (ALIYUN,)),
    52: ("replace NVIDIA's plug-in, and back", (CLEARML, ALIYUN, REPLICAS)),
    53: ("hard memory cap", (CLEARML,)),
    54: ("end what passes its cap", (METAGPU,)),
    55: ("values for programs", (CLEARML, ALIYUN, METAGPU)),
    56: ("compute limit", (CLEARML,)),
    57: ("MPS", ()),
    58: ("host's PIDs in the pod", (CLEARML,)),
    59: ("no GPU without a request", (CLEARML,)),
    60: ("isolation by node or pod", (CLEARML, ALIYUN, METAGPU)),
}
_ANSWER = re.compile(r"(yes|in part|left out)\b[:,] \S.{10,}")
_EVIDENCE = re.compile(r"`tests/[\w/]+\.py(?:::test_\w+)?`|\]\([\w./-]+\.md")


def _rows(text: str) -> Iterator[list[str]]:
    """The cells of table lines that begin with one or more numbers."""
    for line in re.findall(r"^\| [0-9][0-9, ]* \|.*\|$", text, re.MULTILINE):
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


def _text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_every_row_is_answered_in_order() -> None:
    assert [(int(cells[0]), cells[1]) for cells in _rows(_text(PAGE))] == [
        (row, name) for row, (name, _) in FEATURES.items()
    ]
    assert list(FEATURES) == list(range(35, 61))


@pytest.mark.parametrize("cells", list(_rows(_text(PAGE))), ids=lambda cells: cells[0])
def test_an_answer_says_what_is_there_or_why_not_and_what_shows_it(cells: list[str]) -> None:
    _, _, who, here, shown = cells
    assert who
    assert _ANSWER.match(here)
    assert _EVIDENCE.search(shown)


@pytest.mark.parametrize("system", _FOUR)
def test_a_page_of_a_system_says_what_becomes_of_each_row_that_the_system_has(system: str) -> None:
    text = _text(f"docs/migrating/{system}.md")
    section = text.partition("\n## On the node\n")[2].partition("\n## ")[0]
    assert "(../reference/node-features.md)" in section
    told = [int(row) for cells in _rows(section) for row in cells[0].split(", ")]
    assert sorted(told) == [row for row, (_, systems) in FEATURES.items() if system in systems]
    assert all(len(cells) == 3 and all(cells) for cells in _rows(section))
