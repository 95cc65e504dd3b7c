from __future__ import annotations

from collections.abc import Sequence

import pytest

from tools.images.layers import requirements
from tools.images.recipe import ROOT

PINS = "a==1 \\\n    --hash=sha256:0a\nb==2 ; python_version < '4' \\\n    --hash=sha256:0b \\\n    --hash=sha256:1b\n"


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, PINS),
        (["a"], "a==1 \\\n    --hash=sha256:0a\n"),
        (["b"], "b==2 ; python_version < '4' \\\n    --hash=sha256:0b \\\n    --hash=sha256:1b\n"),
        ([], ""),
    ],
)
def test_pins_are_taken_with_their_hashes(wanted: Sequence[str] | None, found: str) -> None:
    assert requirements(PINS, wanted) == found


def test_what_is_not_pinned_is_not_taken() -> None:
    with pytest.raises(KeyError, match="c"):
        requirements(PINS, ["c"])


def test_all_pins_are_taken_as_they_stand() -> None:
    text = (ROOT / "requirements" / "run.txt").read_text()
    assert requirements(text, None) == text
