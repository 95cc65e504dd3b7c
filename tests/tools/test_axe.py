"""Where axe-core comes from: npm, and only the very file that is meant."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tools.browser import axe
from tools.goprogram import Unavailable

NPM = """#!/bin/sh
{does}
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"MOORAGE_CACHE": str(tmp_path / "cache")}


def given_npm(folder: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    """An ``npm`` that does this, before any other."""
    folder.mkdir()
    program = folder / "npm"
    program.write_text(NPM.format(does=does))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def packed(folder: Path, script: bytes) -> Path:
    """A package as npm packs it."""
    made = folder / "made.tar"
    with tarfile.open(made, "w:gz") as archive:
        member = tarfile.TarInfo("package/axe.min.js")
        member.size = len(script)
        archive.addfile(member, io.BytesIO(script))
    return made


def test_another_file_in_its_place_is_not_taken(environ: dict[str, str]) -> None:
    there = Path(environ["MOORAGE_CACHE"]) / "axe-core" / axe.VERSION / "axe.min.js"
    there.parent.mkdir(parents=True)
    there.write_text("axe = { run: () => Promise.resolve({ violations: [], incomplete: [] }) }")
    assert axe.path(environ) is None


def test_what_npm_gives_instead_of_it_is_not_taken(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_npm(tmp_path / "bin", monkeypatch, f"cp {packed(tmp_path, b'something else')} axe-core.tgz")
    with pytest.raises(Unavailable, match=r"npm gave another package/axe\.min\.js than it should be"):
        axe.ensure(environ)
    assert axe.path(environ) is None


def test_a_failing_npm_is_quoted(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_npm(tmp_path / "bin", monkeypatch, "echo 'no network' >&2; exit 1")
    with pytest.raises(Unavailable, match="no network"):
        axe.ensure(environ)


def test_without_npm_it_says_what_is_missing(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unavailable, match="there is no `npm` on PATH"):
        axe.ensure(environ)
