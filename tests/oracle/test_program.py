"""Where the oracle comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.kubeoracle import program
from tools.kubeoracle.program import Oracle, OracleFailed


def test_its_cache_folder_changes_with_its_text(tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text("package main\n")
    before = program.key(tmp_path)
    (tmp_path / "main.go").write_text("package main\n\nfunc main() {}\n")
    assert program.key(tmp_path) != before
    assert before.startswith("v1.")


@pytest.mark.oracle
@pytest.mark.parametrize("question", [{"nodes": 1}, {"nodes": [], "pod": {"metadata": "x"}}])
def test_what_it_can_not_read_is_an_error_and_no_answer(oracle: Oracle, question: dict[str, object]) -> None:
    with pytest.raises(OracleFailed, match="json: cannot unmarshal"):
        list(oracle.ask([question]))


def test_a_program_that_ends_is_an_error() -> None:
    with Oracle(Path("/bin/true")) as ended, pytest.raises((OracleFailed, BrokenPipeError)):
        list(ended.ask([{}]))
