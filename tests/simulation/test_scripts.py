"""Scenarios that once broke an invariant: they are kept, and hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.quick import few
from verification.hostile.run import run
from verification.hostile.scenario import decode

_KEPT = sorted((Path(__file__).parent / "scripts").glob("*.json"))


@pytest.mark.parametrize("path", few(_KEPT, 5), ids=[path.stem for path in _KEPT])
def test_what_was_found_once_holds_now(path: Path) -> None:
    script = decode(path.read_bytes())
    outcome = run(script.scenario)
    assert outcome.violations == (), "\n".join([script.story, *outcome.events])
