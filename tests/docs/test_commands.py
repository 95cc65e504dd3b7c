"""Every block of commands in the pages is run: here, or by the test that it names; or it says why not.

What the comments above them mean stands in docs/design/documentation.md.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import main
from tests.docs.blocks import Block, Command, blocks, found, is_as_told
from tests.docs.pages import PAGES, ROOT, code_words, name

BLOCKS = [block for page in PAGES for block in blocks(page)]
#: Files that the pages speak of, but which nobody has.
GIVEN = Path(__file__).parent / "given"
_MARKS = r"run: offline(, exit [1-9]\d*)?|run by tests/.+|not run: \S.{9,}"
_PROGRAMS = {
    "moorage": "from cli.main import main; raise SystemExit(main())",
    "kubectl-moorage": "from cli.main import kubectl; raise SystemExit(kubectl())",
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the commands as an installation brings them."""
    folder = tmp_path_factory.mktemp("bin")
    for program, code in _PROGRAMS.items():
        path = folder / program
        path.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -c "{code}" "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder like a fresh checkout after ``make demo``, but for the code, and with the files that pages speak of."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copytree(GIVEN, tmp_path, dirs_exist_ok=True)
    (tmp_path / ".venv-run" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv-run" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("block", [each for each in BLOCKS if each.is_run_here], ids=str)
def test_commands_do_what_their_page_says(block: Block, programs: Path, place: Path) -> None:
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(place),
        "COLUMNS": "140",
        "LANG": "C.UTF-8",
        # No cluster of who runs this is to be met.
        "KUBECONFIG": str(place / "no-kubeconfig"),
    }
    for command in block.commands:
        ran = subprocess.run(
            ["/usr/bin/env", "bash", "-euo", "pipefail", "-c", command.line],
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == block.exit_code, ran.stdout
        if command.printed is not None:
            assert is_as_told(command.printed, ran.stdout), ran.stdout


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_says_who_runs_it(block: Block) -> None:
    assert re.fullmatch(_MARKS, block.mark), (
        f"{block} needs a comment above it, or above all: docs/design/documentation.md"
    )
    assert block.language in {"bash", "console"}, f"{block}: commands are `bash` or `console`"
    assert block.commands, f"{block} is a console without a line that begins with `$ `"
    assert not block.mark.startswith("run by") or block.tests


@pytest.mark.parametrize("named", sorted({test for block in BLOCKS for test in block.tests}))
def test_a_test_that_a_block_names_is_there(named: str) -> None:
    file, _, test = named.partition("::")
    assert re.search(rf"^(?:async )?def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


def _shown(page: Path) -> set[str]:
    """All commands of a page, in its text and in its blocks."""
    written = page.read_text(encoding="utf-8")
    lines = [line for block in blocks(page) for command in block.commands for line in command.line.splitlines()]
    return {*code_words(written), *lines}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_is_made_is_a_target(page: Path) -> None:
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {target for command in _shown(page) for target in re.findall(r"^make ([a-z-]+)", command)}
    assert named - known == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_command_of_ours_is_there_with_its_options(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in sorted(_shown(page)):
        found = re.match(r"(?:kubectl )?moorage ([a-z][a-z-]*)((?: .*)?)$", command.partition("|")[0].partition("#")[0])
        if found:
            with pytest.raises(SystemExit) as ended:
                main([found[1], "--help"])
            assert ended.value.code == 0, command
            told = capsys.readouterr().out
            options = re.findall(r"(?<= )--[a-z][a-z-]*", found[2])
            assert [option for option in options if not re.search(rf"{option}\b", told)] == [], command


def test_blocks_are_found_with_their_comments() -> None:
    text = """# A page

<!-- commands: run by tests/a.py::test_a -->

```console
$ moorage a \\
    b
printed
more
$ moorage c
```

- In a list:

  <!-- run: offline, exit 2 -->

  ```bash
  moorage d
  ```

```json
{}
```

```
helm e
```
"""
    console, listed, bare = found(text, "page.md")
    assert console == Block("page.md", 5, "console", "run by tests/a.py::test_a", console.text)
    assert console.commands == [Command("moorage a \\\n    b", "printed\nmore\n"), Command("moorage c", None)]
    assert (console.tests, console.is_run_here) == (["tests/a.py::test_a"], False)
    assert (str(listed), listed.text, listed.is_run_here, listed.exit_code) == ("page.md:17", "moorage d\n", True, 2)
    assert (bare.language, bare.mark) == ("", "run by tests/a.py::test_a")


@pytest.mark.parametrize(
    ("told", "printed", "is_so"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("Error: ... no", "Error: because no", True),
        ("a", "a\nb", False),
        ("a.c", "abc", False),
    ],
)
def test_three_dots_are_anything(told: str, printed: str, is_so: bool) -> None:
    assert is_as_told(told, printed) == is_so
