from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.images.archive import write_layer
from tools.images.containerfile import ROOT
from tools.images.layers import requirements, unpack

pytestmark = pytest.mark.thorough

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


def test_a_layer_becomes_the_folder_that_it_was(tmp_path: Path) -> None:
    root, again = tmp_path / "root", tmp_path / "again"
    (root / "tmp").mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "program").write_text("x")
    (root / "program").chmod(0o755)
    (root / "link").symlink_to("program")
    again.mkdir()
    write_layer(root, tmp_path / "layer")
    unpack(tmp_path / "layer", again)
    assert {path.name: oct(path.lstat().st_mode) for path in again.iterdir()} == {
        path.name: oct(path.lstat().st_mode) for path in root.iterdir()
    }
    assert (again / "link").read_text() == "x"
