"""Histories as they are written down: what a real node told, kept beside the scenarios.

A simulated node can be compared with what is written where no real one can be.
``MOORAGE_WRITE_HISTORIES=1 make node-test ARGS='-k histories'`` writes them anew, from the real node.
"""

from __future__ import annotations

import os
from pathlib import Path

_FOLDER = Path(__file__).with_name("told")
_VARIABLE = "MOORAGE_WRITE_HISTORIES"


def written(scenario: str) -> str:
    """Return the history of a scenario."""
    return _path(scenario).read_text()


def write(scenario: str, text: str) -> None:
    """Write it down, if that is wanted."""
    if os.environ.get(_VARIABLE):
        _path(scenario).write_text(text)


def _path(scenario: str) -> Path:
    return _FOLDER / f"{scenario}.txt"
