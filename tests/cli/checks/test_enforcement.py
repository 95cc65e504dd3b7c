from __future__ import annotations

import pytest

from cli.checks.nodes import check_enforcement
from cli.checks.reader import Level, Reader
from tests.cli.checks.told import Told
from wire import names


def _nodes(*said: str | None) -> Told:
    items = [
        {"metadata": {"name": f"n{number}", "annotations": {names.NODE_ENFORCES: text} if text is not None else None}}
        for number, text in enumerate(said)
    ]
    return Told({"/api/v1/nodes": {"items": items}})


@pytest.mark.parametrize(
    ("said", "level", "parts"),
    [
        ((None, None), Level.OK, ("0 of 2 nodes",)),
        (("memory-cap, mps", None), Level.OK, ("1 of 2 nodes",)),
        (("", None), Level.OK, ("1 of 2 nodes",)),
        (("memory-caps", "mps"), Level.WARNING, ("memory-caps", " on n0:")),
        (("MPS", "warp;drive"), Level.WARNING, ("MPS, warp;drive", " on n0, n1:")),
    ],
)
async def test_words_of_nodes_that_nobody_knows_are_told(
    said: tuple[str | None, ...], level: Level, parts: tuple[str, ...]
) -> None:
    (finding,) = await check_enforcement(Reader(_nodes(*said)))
    assert finding.level is level
    assert all(part in finding.said for part in parts)
    assert bool(finding.do) is (level is Level.WARNING)
