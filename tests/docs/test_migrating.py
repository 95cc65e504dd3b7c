"""docs/migrating: each command that a page shows is run, and prints what stands there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "migrating").glob("*.md"))
EXAMPLES = ROOT / "examples" / "migrating"
#: The steps that all systems share stand here; what needs a cluster is run by tests/e2e/test_migrating.py.
STEPS = "README.md"
#: Those of KAI, which are others, by tests/e2e/test_from_kai.py.
STEPS_OF_KAI = "kai-step-by-step.md"
_ROW = r"[CAMKINXTHVOF]\d+"


class Shown(msgspec.Struct, frozen=True):
    """A command of a page, and what the page says that it prints."""

    page: str
    command: str
    printed: str


def shown(page: Path) -> Iterator[Shown]:
    for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield Shown(page.name, command, printed)


ALL = [each for page in PAGES for each in shown(page)]


def _translate_words(command: str) -> list[str]:
    """What follows ``moorage``, or nothing if the command needs a cluster."""
    words = shlex.split(command)
    words = words[1:] if words[:1] == ["kubectl"] else words
    return words[1:] if words[:1] == ["moorage"] and words[1] in {"translate", "lint"} else []


OFFLINE = [each for each in ALL if _translate_words(each.command)]


@pytest.mark.parametrize("each", OFFLINE, ids=lambda each: f"{each.page}: {each.command}")
def test_a_command_prints_what_its_page_says(
    each: Shown, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    is_refused = re.search(r"^  refused |: error: ", each.printed, re.MULTILINE) is not None
    assert main(_translate_words(each.command)) == int(is_refused)
    assert capsys.readouterr().out == each.printed


def test_what_needs_a_cluster_stands_among_the_steps_that_are_run_on_one() -> None:
    assert {each.page for each in ALL if not _translate_words(each.command)} == {STEPS, STEPS_OF_KAI}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_hides_a_command_from_these_tests(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"^ *```(\w*)$", text, re.MULTILINE)) <= {"", "console"}
    assert len(re.findall(r"^ *\$ ", text, re.MULTILINE)) == len(list(shown(page)))


@pytest.mark.parametrize("folder", sorted(EXAMPLES.iterdir()), ids=lambda folder: folder.name)
def test_the_manifests_of_a_system_are_taken_as_they_are(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["lint", str(folder.relative_to(ROOT))]) == 0
    capsys.readouterr()
    read = " ".join(each.command for each in OFFLINE if each.page == f"{folder.name}.md")
    for manifest in folder.iterdir():
        assert str(manifest.relative_to(ROOT)) in read or f"{folder.relative_to(ROOT)} " in f"{read} ", manifest


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_rows_and_files_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    rows = set(re.findall(rf"^\| ({_ROW}) \|", (ROOT / "docs/reference/dialects.md").read_text(), re.MULTILINE))
    assert set(re.findall(rf"\b{_ROW}\b", text)) <= rows
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), link
    assert len(text.splitlines()) <= 160
