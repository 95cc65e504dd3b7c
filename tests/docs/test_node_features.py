"""What source systems do on a node: the reference answers every row."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT

PAGE = "docs/reference/node-features.md"
#: By row: its short name.
FEATURES = {
    35: "device plug-in",
    36: "preferred allocation",
    37: "devices by variable",
    38: "devices by volume mounts",
    39: "devices by CDI",
    40: "devices by UUID or index",
    41: "device files",
    42: "end where the driver fails",
    43: "root of the driver",
    44: "runtime class",
    45: "DaemonSet of an old API",
    46: "register after kubelet's restart",
    47: "settings while it runs",
    48: "health by XIDs",
    49: "XIDs to be ignored",
    50: "a GPU recovers",
    51: "pods by kubelet's API",
    52: "replace NVIDIA's plug-in, and back",
    53: "hard memory cap",
    54: "end what passes its cap",
    55: "values for programs",
    56: "compute limit",
    57: "MPS",
    58: "host's PIDs in the pod",
    59: "no GPU without a request",
    60: "isolation by node or pod",
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
    assert [(int(cells[0]), cells[1]) for cells in _rows(_text(PAGE))] == list(FEATURES.items())
    assert list(FEATURES) == list(range(35, 61))


@pytest.mark.parametrize("cells", list(_rows(_text(PAGE))), ids=lambda cells: cells[0])
def test_an_answer_says_what_is_there_or_why_not_and_what_shows_it(cells: list[str]) -> None:
    _, _, who, here, shown = cells
    assert who
    assert _ANSWER.match(here)
    assert _EVIDENCE.search(shown)
